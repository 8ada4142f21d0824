//! A lock that is given back by a plain store. Giving back a mutex takes a locked instruction, which
//! would wait for the flushes before it, and what the thread does next would wait for that.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crate::sync::wait::{cross, pause};
use crate::sync::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// What one thread at a time may use, for a short while.
#[derive(Debug, Default)]
pub(crate) struct Latch<T> {
    held: AtomicBool,
    guarded: UnsafeCell<T>,
}

// SAFETY: one thread at a time reaches what is guarded, and whoever comes next sees what it did.
unsafe impl<T: Send + Sync> Sync for Latch<T> {}

/// Holds a latch until it is dropped.
pub(crate) struct Held<'a, T>(&'a Latch<T>);

impl<T> Latch<T> {
    /// Waits for whoever holds it.
    #[inline]
    pub fn hold(&self) -> Held<'_, T> {
        cross();
        let mut round = 0;
        // Pairs with the release in `drop`.
        while self.held.load(Relaxed) || self.held.swap(true, Acquire) {
            pause(round);
            round += 1;
        }
        Held(self)
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: nobody else has a reference while the latch is held.
        unsafe { &*self.0.guarded.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nobody else has a reference while the latch is held, and this one borrows its guard.
        unsafe { &mut *self.0.guarded.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.held.store(false, Release);
        cross();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let latch = Latch::<u64>::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *latch.hold() += 1));
            }
        });
        assert_eq!(*latch.hold(), 40_000);
    }
}
