//! What a program sees: pools, trees, iterators, the kinds of keys and values.

pub mod close;
pub mod conditional;
#[cfg(feature = "derive")]
pub mod derived;
pub mod handle;
pub mod iter;
pub mod key;
pub mod kinds;
pub mod load;
pub mod many;
pub mod options;
pub mod pool;
pub mod salvage;
pub mod tree;
pub mod tree_options;
pub mod tree_write;
pub mod usage;
pub mod value;
