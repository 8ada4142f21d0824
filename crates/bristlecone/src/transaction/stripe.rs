//! The lock of a stripe of keys, which counts how often it was held.

use crate::index::parts::passage::full_barrier;
use crate::index::parts::sync::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};
use crate::index::parts::sync::{cross, pause};

/// The lock: odd while it is held, and one more each time that it is taken or given back.
///
/// What was read while it had a count that it still has, no writer has changed meanwhile, and none is changing.
#[derive(Debug)]
pub(crate) struct Stripe(AtomicU64);

/// A count of a stripe that no thread held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count(u64);

impl Stripe {
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Waits for the lock, and takes it.
    pub fn take(&self) {
        cross();
        let mut round = 0;
        loop {
            let count = self.0.load(Relaxed);
            // Pairs with the release in `give_back`.
            if count.is_multiple_of(2) && self.0.compare_exchange(count, count + 1, Acquire, Relaxed).is_ok()
            {
                break;
            }
            pause(round);
            round += 1;
        }
        // The exchange above. What the thread looks at with the lock, a thread that waits for it has stored before; and
        // a reader that sees what the thread stores from now on sees that the lock was taken.
        full_barrier();
    }

    /// Gives the lock back; the calling thread holds it.
    pub fn give_back(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Release);
    }

    #[cfg(test)]
    pub fn is_held(&self) -> bool {
        self.0.load(Relaxed) % 2 == 1
    }

    /// Waits until no thread holds the lock, and returns its count, for a reader that will ask
    /// [`is_unchanged`](Self::is_unchanged).
    #[inline]
    pub fn count(&self) -> Count {
        cross();
        let mut round = 0;
        loop {
            // Pairs with the release in `give_back`: what that thread has changed is read.
            let count = self.0.load(Acquire);
            if count.is_multiple_of(2) {
                return Count(count);
            }
            pause(round);
            round += 1;
        }
    }

    /// Returns whether no thread has held the lock since it had a count, but for the calling one if it `is_held` by that.
    #[inline]
    pub fn is_unchanged(&self, since: Count, is_held: bool) -> bool {
        // Pairs with the barrier in `take`.
        fence(Acquire);
        self.0.load(Relaxed) == since.0 + u64::from(is_held)
    }
}
