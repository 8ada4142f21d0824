//! The published designs, one folder each. The numbered steps of each `mod.rs` describe the paper's
//! algorithm.

pub mod cclbtree;
pub mod lodgetree;
pub mod nbtree;
pub mod sstree;
pub mod wotree;
