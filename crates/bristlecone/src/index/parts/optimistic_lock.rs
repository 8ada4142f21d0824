//! A version lock. Readers do not acquire it: they record the version, read, and validate.

use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

pub use super::sync::pause;
use super::sync::{AtomicU64, cross, fence, spin_loop};

const LOCKED: u64 = 1;
const OBSOLETE: u64 = 2;
const ONE: u64 = 4;

/// The version that a reader recorded; see [`OptimisticLock::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

impl Version {
    /// Returns the number of the version: each lock has it once.
    #[inline(always)]
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the version that is valid while the lock upgraded from this version is held.
    #[inline(always)]
    pub fn locked(self) -> Self {
        Self(self.0 | LOCKED)
    }
}

/// A version is no longer valid: the data read since may have changed.
#[derive(Clone, Copy, Debug)]
pub struct Stale;

/// The result of [`OptimisticLock::try_read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// No writer.
    Free(Version),
    /// A writer holds the lock.
    Locked,
    /// The protected object has left its structure.
    Obsolete,
}

/// Bit 0: locked. Bit 1: the protected object has left its structure. The other bits count changes,
/// and never decrease, so the memory behind it may be reused.
#[derive(Debug, Default)]
pub struct OptimisticLock(AtomicU64);

impl OptimisticLock {
    /// Waits until no writer holds the lock, and returns the version. Returns `None` if it is
    /// obsolete; restart from the root then.
    #[inline(always)]
    pub fn read(&self) -> Option<Version> {
        let word = self.0.load(Acquire);
        if word & (LOCKED | OBSOLETE) == 0 { Some(Version(word)) } else { self.read_slow() }
    }

    /// Returns the version if no thread holds the lock; does not wait.
    #[inline(always)]
    pub fn try_read(&self) -> LockState {
        let word = self.0.load(Acquire);
        match word & (LOCKED | OBSOLETE) {
            0 => LockState::Free(Version(word)),
            LOCKED => LockState::Locked,
            _ => LockState::Obsolete,
        }
    }

    #[cold]
    fn read_slow(&self) -> Option<Version> {
        for round in 0_u32.. {
            // Pairs with the release in `unlock`: the writer's changes are visible.
            let word = self.0.load(Acquire);
            if word & OBSOLETE != 0 {
                return None;
            }
            if word & LOCKED == 0 {
                return Some(Version(word));
            }
            pause(round);
        }
        None
    }

    /// Returns whether nothing has changed since `version`: data read in between are consistent.
    #[inline(always)]
    pub fn validate(&self, version: Version) -> bool {
        // Keeps the reads before it from moving behind the load.
        fence(Acquire);
        self.0.load(Relaxed) == version.0
    }

    /// Locks if nothing has changed since `version`.
    #[inline(always)]
    pub fn upgrade(&self, version: Version) -> bool {
        cross();
        let locked = self.0.compare_exchange(version.0, version.0 | LOCKED, Acquire, Relaxed).is_ok();
        // Keeps the writer's stores behind the store of the lock bit, for readers that validate.
        fence(Release);
        locked
    }

    /// Locks; [`Locked`](super::locked::Locked) unlocks automatically. Returns `false` if it is
    /// obsolete.
    pub fn lock(&self) -> bool {
        loop {
            match self.read() {
                None => return false,
                Some(version) if self.upgrade(version) => return true,
                Some(_) => spin_loop(),
            }
        }
    }

    /// Returns whether a thread holds the lock.
    pub fn is_locked(&self) -> bool {
        self.0.load(Relaxed) & LOCKED != 0
    }

    /// Unlocks, and invalidates the versions of readers.
    #[inline(always)]
    pub fn unlock(&self) {
        let word = self.0.load(Relaxed);
        debug_assert_eq!(word & LOCKED, LOCKED, "unlocking what is not locked");
        // Pairs with the acquire in `read`.
        self.0.store((word & !LOCKED) + ONE, Release);
        cross();
    }

    /// Returns the number of unlocks; its holder may use this as a sequence.
    #[inline(always)]
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed) / ONE
    }

    /// Unlocks with a count above `count`.
    pub fn unlock_above(&self, count: u64) {
        let word = self.0.load(Relaxed);
        debug_assert_eq!(word & LOCKED, LOCKED, "unlocking what is not locked");
        self.0.store((word / ONE).max(count) * ONE + ONE, Release);
    }

    /// Unlocks for the last time, and makes the lock obsolete for readers and writers.
    pub fn unlock_obsolete(&self) {
        let word = self.0.load(Relaxed);
        debug_assert_eq!(word & LOCKED, LOCKED, "unlocking what is not locked");
        self.0.store(((word & !LOCKED) + ONE) | OBSOLETE, Release);
    }

    /// Makes the lock obsolete without locking it, for objects that no thread locks.
    pub fn expire(&self) {
        self.0.fetch_or(OBSOLETE, Release);
        // Keeps later changes of the memory behind it, for readers that validate.
        fence(Release);
    }

    /// Reinitializes an obsolete lock for a new object. The caller must own its memory.
    pub fn renew(&self) {
        self.renew_above(0);
    }

    /// Reinitializes an obsolete lock for a new object, and holds it.
    pub fn renew_locked(&self) {
        self.0.store((self.count() * ONE + ONE) | LOCKED, Release);
        // Keeps later changes of the memory behind it, for readers that validate.
        fence(Release);
    }

    /// Reinitializes an obsolete lock for a new object, with a count above `count`.
    pub fn renew_above(&self, count: u64) {
        self.0.store(self.count().max(count) * ONE + ONE, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_ends_a_version() {
        let lock = OptimisticLock::default();
        let seen = lock.read().unwrap();
        assert!(lock.validate(seen));
        assert!(lock.upgrade(seen) && !lock.validate(seen) && !lock.upgrade(seen));
        assert!(lock.validate(seen.locked()));
        lock.unlock();
        assert!(!lock.validate(seen));
        assert!(lock.lock());
        lock.unlock_obsolete();
        assert!(lock.read().is_none() && !lock.lock());
        lock.renew();
        assert_ne!(lock.read().unwrap(), seen);
        assert!(lock.lock());
        lock.unlock_above(100);
        assert!(lock.count() == 101 && lock.read().is_some());
        lock.renew_above(7);
        assert!(lock.count() == 102 && lock.read().is_some());
    }

    #[test]
    fn readers_never_see_half_a_change() {
        let lock = OptimisticLock::default();
        let pair = [AtomicU64::new(0), AtomicU64::new(0)];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=100_000 {
                    assert!(lock.lock());
                    pair.iter().for_each(|half| half.store(round, Relaxed));
                    lock.unlock();
                }
            });
            let mut last = 0;
            while last < 100_000 {
                let version = lock.read().unwrap();
                let halves = pair.each_ref().map(|half| half.load(Relaxed));
                if lock.validate(version) {
                    assert_eq!(halves[0], halves[1]);
                    last = halves[0];
                }
            }
        });
    }
}
