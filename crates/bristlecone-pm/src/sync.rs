//! What free slots are made of, in one place: a model checker puts its own in the place of these.

pub use std::sync::atomic::{AtomicU64, AtomicUsize};
