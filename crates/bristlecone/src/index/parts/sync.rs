//! What locks are made of, in one place: a model checker puts its own in the place of these.

pub use std::hint::spin_loop;
pub use std::sync::atomic::compiler_fence;
pub use std::sync::{Mutex, RwLock, RwLockReadGuard};

pub use bristlecone_pm::own_thread_index;
pub use bristlecone_pm::sync::wait::{self, cross, pause};
pub use bristlecone_pm::sync::{AsymmetricFence, AtomicU32, AtomicU64, Ordering, fence};

/// Threads that have a line of their own in a [`Passage`](super::passage::Passage). Others share a lock.
pub const LINES: usize = 256;
