//! The lock of a stripe of keys, which counts its acquisitions.

use bristlecone_pm::Zeroed;

use crate::index::parts::active_threads::full_barrier;
use crate::index::parts::sync::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};
use crate::index::parts::sync::{cross, pause};

/// The lock: a counter that is odd while held, and increases by one at each acquisition and release.
///
/// It has a line of its own: threads that write to different keys would otherwise take each other's line.
///
/// If the count is unchanged since a read, no writer has changed the data in between, and none is changing it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Stripe(AtomicU64);

// SAFETY: an atomic integer and padding: zeros are a free lock.
unsafe impl Zeroed for Stripe {}

/// A count read while no thread held the stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count(u64);

impl Stripe {
    /// Acquires the lock, waiting if necessary.
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
        // Needed for the exchange above. A thread that waits for the lock has stored its data before this thread reads
        // them with the lock. A reader that sees a store made from now on also sees that the lock is held.
        full_barrier();
    }

    /// Acquires the lock of a key while no thread holds that of its tree.
    #[inline]
    pub fn take_beneath(&self, tree: &Self) {
        loop {
            self.take();
            if !tree.is_held() {
                return;
            }
            self.give_back();
            tree.wait_for_holder();
        }
    }

    /// Acquires the lock of a tree, and waits until no thread holds the lock of one of its keys.
    pub fn take_above(&self, keys: &[Self]) {
        self.take();
        keys.iter().for_each(Self::wait_for_holder);
    }

    /// Releases the lock. The calling thread must hold it.
    pub fn give_back(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Release);
    }

    /// Returns whether a thread holds the lock. Otherwise the changes of its last holder are visible.
    #[inline]
    pub fn is_held(&self) -> bool {
        !self.0.load(Acquire).is_multiple_of(2)
    }

    /// Waits until the thread that holds the lock now, if one does, has released it. Later holders are not waited for.
    #[inline]
    pub fn wait_for_holder(&self) {
        let held = self.0.load(Acquire);
        if !held.is_multiple_of(2) {
            self.wait_while(held);
        }
    }

    #[cold]
    fn wait_while(&self, held: u64) {
        let mut round = 0;
        // Pairs with the release in `give_back`.
        while self.0.load(Acquire) == held {
            pause(round);
            round += 1;
        }
    }

    /// Waits until no thread holds the lock, and returns its count, for a later call of
    /// [`is_unchanged`](Self::is_unchanged).
    #[inline]
    pub fn count(&self) -> Count {
        cross();
        let mut round = 0;
        loop {
            // Pairs with the release in `give_back`, so that the changes of that thread are visible.
            let count = self.0.load(Acquire);
            if count.is_multiple_of(2) {
                return Count(count);
            }
            pause(round);
            round += 1;
        }
    }
}

impl Count {
    /// Returns the count of two locks together: no thread holds either of them.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        // Counts only grow, so the sum is unchanged exactly if both are.
        Self(self.0 + other.0)
    }

    /// Returns whether no thread has held the locks of this count since, except the calling one if `is_held`.
    #[inline]
    pub fn is_unchanged(self, locks: &[&Stripe], is_held: bool) -> bool {
        // Pairs with the barrier in `take`.
        fence(Acquire);
        let now: u64 = locks.iter().map(|lock| lock.0.load(Relaxed)).sum();
        now == self.0 + u64::from(is_held)
    }
}
