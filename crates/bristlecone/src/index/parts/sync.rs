//! What locks are made of, in one place: a model checker puts its own in the place of these.

pub use std::hint::spin_loop;

pub use bristlecone_pm::sync::wait::{cross, pause};
pub use bristlecone_pm::sync::{AtomicU32, AtomicU64, fence};
