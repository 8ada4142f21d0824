//! The word in which a thread of a follower announces that it reads: see [`live`](super::live). Model-checked in
//! `tests/loom.rs`.

use std::sync::atomic::{
    Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, compiler_fence,
};

use crate::sync::{AtomicU64, fence};

/// The thread reads nothing.
pub const IDLE: u64 = 0;
/// The writer no longer waits for the thread.
pub const EVICTED: u64 = u64::MAX;

/// The epoch in which a thread began to read, [`IDLE`] or [`EVICTED`].
#[derive(Debug)]
#[repr(transparent)]
pub struct Announced(AtomicU64);

impl Announced {
    #[allow(dead_code, reason = "the words of a row are in a file: models make one")]
    pub fn new() -> Self {
        Self(AtomicU64::new(IDLE))
    }

    /// Announces that the calling thread reads from here on. `fences`: the writer's heavy barrier does not fence for
    /// this thread.
    #[inline]
    pub fn begin(&self, epoch: u64, fences: bool) {
        self.0.store(epoch, Relaxed);
        // Pairs with the writer's heavy side: it sees the epoch, or this thread sees its earlier stores.
        if fences { fence(SeqCst) } else { compiler_fence(SeqCst) }
    }

    /// Announces that the thread has stopped reading.
    #[inline]
    pub fn end(&self) {
        // Pairs with `get`: the reads come before any reuse.
        self.0.store(IDLE, Release);
    }

    /// Returns whether the writer has stopped waiting, so that earlier reads are invalid.
    #[inline]
    pub fn is_expelled(&self) -> bool {
        // Orders the earlier reads. Pairs with the fence between `evict` and the reuse.
        fence(Acquire);
        self.0.load(Relaxed) == EVICTED
    }

    pub fn get(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Evicts the thread, if it began before an epoch. A full fence must follow before anything that it may read is
    /// reused.
    pub fn evict(&self, epoch: u64) {
        let word = self.get();
        if word != IDLE && word < epoch {
            // A thread that finished meanwhile has a later epoch, or none.
            let _ = self.0.compare_exchange(word, EVICTED, SeqCst, Relaxed);
        }
    }
}
