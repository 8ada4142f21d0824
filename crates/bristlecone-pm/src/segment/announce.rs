//! The word in which a thread of a follower announces that it looks: see [`live`](super::live). Model-checked in `tests/loom.rs`.

use std::sync::atomic::{
    Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, compiler_fence,
};

use crate::sync::{AtomicU64, fence};

/// The thread looks at nothing.
pub const IDLE: u64 = 0;
/// The writer has stopped to wait for the thread.
pub const EXPELLED: u64 = u64::MAX;

/// The epoch in which a thread began to look, [`IDLE`] or [`EXPELLED`].
#[derive(Debug)]
#[repr(transparent)]
pub struct Announced(AtomicU64);

impl Announced {
    #[allow(dead_code, reason = "the words of a row are in a file: models make one")]
    pub fn new() -> Self {
        Self(AtomicU64::new(IDLE))
    }

    /// Announces that the calling thread looks from here on. `fences`: the writer's heavy side does not fence for it.
    #[inline]
    pub fn begin(&self, epoch: u64, fences: bool) {
        self.0.store(epoch, Relaxed);
        // Pairs with the writer's heavy side: it sees the epoch, or this thread sees what it did before.
        if fences { fence(SeqCst) } else { compiler_fence(SeqCst) }
    }

    /// Announces that it looks at nothing any more.
    #[inline]
    pub fn end(&self) {
        // Pairs with `get`: what was read comes before what is used again.
        self.0.store(IDLE, Release);
    }

    /// Returns whether the writer has stopped to wait, so that what was read before does not count.
    #[inline]
    pub fn is_expelled(&self) -> bool {
        // Keeps what was read before it. Pairs with the fence between `expel` and what is used again.
        fence(Acquire);
        self.0.load(Relaxed) == EXPELLED
    }

    pub fn get(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Stops to wait for the thread, if it began before an epoch. A full fence comes before anything that it may have looked
    /// at is used again.
    pub fn expel(&self, epoch: u64) {
        let word = self.get();
        if word != IDLE && word < epoch {
            // A thread that is through in the meantime has a later epoch, or none.
            let _ = self.0.compare_exchange(word, EXPELLED, SeqCst, Relaxed);
        }
    }
}
