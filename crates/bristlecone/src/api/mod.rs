//! The public interface: pools, trees, iterators, the kinds of keys and values.

pub mod backup;
mod change;
pub mod close;
pub mod conditional;
#[cfg(feature = "derive")]
pub mod derived;
pub mod ends;
pub mod entry;
pub mod expiring_tree;
pub mod fetch_update;
pub mod handle;
pub mod iter;
pub mod key;
pub mod kinds;
pub mod load;
pub mod many;
pub mod metrics;
mod nameless;
pub mod near;
mod opening;
pub mod options;
pub mod pool;
pub mod pool_trees;
pub mod prefix;
pub mod removal;
pub mod salvage;
pub mod scrub;
pub mod size;
pub mod tree;
pub mod tree_options;
pub mod tree_range;
pub mod tree_write;
pub mod trim;
pub mod usage;
pub mod value;
pub mod visit;
pub mod walk;
