//! A lock that is released by a plain store. Releasing a mutex takes a locked instruction. It would
//! wait for the flushes before it, and later instructions would wait for it.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crate::sync::wait::{cross, pause};
use crate::sync::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Data that one thread at a time may use, for a short while.
#[derive(Debug, Default)]
pub(crate) struct SpinLock<T> {
    held: AtomicBool,
    guarded: UnsafeCell<T>,
}

// SAFETY: one thread at a time accesses the guarded data, and the next holder sees its changes.
unsafe impl<T: Send + Sync> Sync for SpinLock<T> {}

/// Guard that holds a lock until it is dropped.
pub(crate) struct SpinGuard<'a, T>(&'a SpinLock<T>);

impl<T> SpinLock<T> {
    /// Waits for the holder, and locks.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        cross();
        let mut round = 0;
        // Pairs with the release in `drop`.
        while self.held.load(Relaxed) || self.held.swap(true, Acquire) {
            pause(round);
            round += 1;
        }
        SpinGuard(self)
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: no other thread has a reference while the lock is held.
        unsafe { &*self.0.guarded.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: no other thread has a reference while the lock is held, and this one borrows its guard.
        unsafe { &mut *self.0.guarded.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        debug_assert!(self.0.held.load(Relaxed), "a lock that is released twice");
        self.0.held.store(false, Release);
        cross();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let lock = SpinLock::<u64>::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 40_000);
    }
}
