//! What the laboratory explores and measures: the library's trees, and those that they are compared with, as
//! subjects of the simulator; and what shows that each flush, fence and order of them is needed.
//!
//! # Features
//!
//! - `turns`: `crash --schedules` changes threads between accesses to DRAM, too. Everything that shares memory is a
//!   little slower: not for benchmarks.

pub mod proofs;
pub mod targets;

pub use proofs::explained::EXPLAINED;
pub use targets::turn::Turn;
