//! Subjects for exploration and measurement: the library's trees and the baselines they are compared with; and the
//! proofs that each of their flushes, fences and orders is necessary.
//!
//! # Features
//!
//! - `turns`: `crash --schedules` also switches threads between accesses to DRAM. All access to shared memory
//!   becomes slightly slower: not for benchmarks.

pub mod proofs;
pub mod targets;

pub use proofs::explained::EXPLAINED;
pub use targets::turn::Turn;
