//! Trees and pools as subjects of the simulator, and the common scenarios of trees.

mod batch_pool;
mod batch_scenarios;
mod batch_threads;
mod items;
mod media;
mod pool;
mod pool_scenarios;
mod scenarios;
mod shapes;
mod tree_access;
mod tree_op;
mod tree_pool;
pub mod turn;

pub use batch_pool::{BatchOp, BatchPool, REFUSED};
pub use batch_scenarios::{batch_scenarios, full_scenarios};
pub use items::{Items, Labels, Notes, Texts, Volumes, Words};
pub use media::{any_medium, device_pool, medium_pool};
pub use pool::{BagOp, Bags};
pub use pool_scenarios::pool_scenarios;
pub use scenarios::{load_scenarios, tree_scenarios};
pub use shapes::{
    POOL, all_subjects, all_subjects_of, mode_of, paged_pool_subject, pool_subject, subject_of, subjects_of,
};
pub use tree_op::TreeOp;
pub use tree_pool::TreePool;
