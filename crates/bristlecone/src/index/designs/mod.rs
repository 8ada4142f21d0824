//! The published designs, a folder each. What a design's paper says is in the numbered steps of its `mod.rs`.

pub mod cclbtree;
pub mod lodgetree;
pub mod nbtree;
pub mod sstree;
pub mod wotree;
