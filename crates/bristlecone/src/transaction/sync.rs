//! What the gate is made of. The test `loom` has loom's in their place.

pub(super) use std::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};
pub(super) use std::sync::{Mutex, RwLock, RwLockReadGuard};

pub(super) use bristlecone_pm::own_thread_index;
pub(super) use bristlecone_pm::sync::{AsymmetricFence, wait};

/// Threads that have a line of their own. Others share a lock.
pub(super) const LINES: usize = 256;
