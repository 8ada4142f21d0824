//! What Bristlecone itself is explored as, and the scenarios that every tree goes through.

mod forest;
mod items;
mod pool;
mod scenarios;

pub use forest::{Forest, TreeOp};
pub use items::{Items, Texts, Words};
pub use pool::{BagOp, Bags};
pub use scenarios::{life, tree_scenarios};
