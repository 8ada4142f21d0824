//! The primitives of locks, in one place: a model checker replaces them by its own.

pub use std::hint::spin_loop;
pub use std::sync::atomic::compiler_fence;
pub use std::sync::{Mutex, RwLock, RwLockReadGuard};

pub use bristlecone_pm::own_thread_index;
pub use bristlecone_pm::sync::wait::{self, cross, pause};
pub use bristlecone_pm::sync::{AsymmetricFence, AtomicU32, AtomicU64, Ordering, fence};

/// Number of threads that have their own slot in a [`ActiveThreads`](super::active_threads::ActiveThreads). Others share a
/// lock.
pub const THREAD_SLOTS: usize = 256;
