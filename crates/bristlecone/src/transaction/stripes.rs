//! Lock table for keys: each key maps to one lock, shared with other keys.

use bristlecone_pm::sync::wait::cross;
use smallvec::SmallVec;

use super::any_tree::place;
use super::stripe::{Count, Stripe};
use crate::index::parts::codec::GROUP;
use crate::index::parts::zeroed::zeroed;

/// Number of locks in the table.
const STRIPES: usize = 4096;

/// The lock table.
#[derive(Debug)]
pub(crate) struct Stripes(Box<[Stripe]>);

/// A lock that is held until this is dropped.
pub(crate) struct LockedOne<'a>(&'a Stripe);

impl Drop for LockedOne<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.give_back();
        cross();
    }
}

/// A set of locks that are held until this is dropped.
pub(crate) struct Locked<'a> {
    stripes: &'a Stripes,
    /// The last lock in order.
    one: usize,
    /// The other locks, in order.
    more: SmallVec<[usize; GROUP]>,
}

impl Stripes {
    pub fn new() -> Self {
        Self(zeroed(STRIPES))
    }

    /// Returns the lock of a key of a tree, by a hash of the key whose top bits have the best distribution.
    #[inline]
    pub fn of(tree: u64, hash: u64) -> usize {
        place(tree, hash, STRIPES.trailing_zeros())
    }

    /// Acquires a lock.
    #[inline]
    pub fn lock(&self, stripe: usize) -> LockedOne<'_> {
        let stripe = &self.0[stripe];
        stripe.take();
        LockedOne(stripe)
    }

    /// Acquires locks one after the other, in the global lock order. Returns `None` if the list is empty.
    pub fn lock_all(&self, mut stripes: SmallVec<[usize; GROUP]>) -> Option<Locked<'_>> {
        stripes.sort_unstable();
        stripes.dedup();
        stripes.iter().for_each(|stripe| self.0[*stripe].take());
        let one = stripes.pop()?;
        Some(Locked { stripes: self, one, more: stripes })
    }

    /// See [`Stripe::count`].
    #[inline]
    pub fn count(&self, stripe: usize) -> Count {
        self.0[stripe].count()
    }

    /// See [`Stripe::is_unchanged`].
    #[inline]
    pub fn is_unchanged(&self, stripe: usize, since: Count, is_held: bool) -> bool {
        self.0[stripe].is_unchanged(since, is_held)
    }
}

impl Locked<'_> {
    /// Returns whether a lock is in this set.
    pub fn has(&self, stripe: usize) -> bool {
        self.one == stripe || self.more.binary_search(&stripe).is_ok()
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        for stripe in self.more.iter().chain([&self.one]) {
            self.stripes.0[*stripe].give_back();
        }
        cross();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn locks_in_any_order_exclude_and_never_wait_for_each_other_in_a_circle() {
        let stripes = Stripes::new();
        let total = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (stripes, total) = (&stripes, &total);
                scope.spawn(move || {
                    for round in 0..2000 {
                        let wanted = (0..4).map(|at| (thread * 7 + round * 3 + at * 5) % 8).chain([9]);
                        let wanted = if round % 2 == 0 { wanted.collect() } else { wanted.rev().collect() };
                        let _locked = stripes.lock_all(wanted);
                        // Non-atomic increment, protected by lock 9, which all of the threads hold.
                        total.store(total.load(Relaxed) + 1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 8000);
        assert!(stripes.0.iter().all(|stripe| !stripe.is_held()), "a lock was left held");
        assert!(stripes.lock_all(SmallVec::new()).is_none());
    }

    #[test]
    fn a_count_tells_what_others_have_held_since() {
        let stripes = Stripes::new();
        let (one, other) = (stripes.count(1), stripes.count(2));
        let own = stripes.lock_all([1, 7].into_iter().collect()).unwrap();
        assert!(own.has(1) && own.has(7) && !own.has(2));
        assert!(stripes.is_unchanged(1, one, true) && stripes.is_unchanged(2, other, false));
        assert!(!stripes.is_unchanged(1, one, false), "held by another thread");
        drop(own);
        assert!(!stripes.is_unchanged(1, one, false), "was held");
        let _again = stripes.lock(1);
        assert!(!stripes.is_unchanged(1, one, true), "was held, and is once more");
    }

    #[test]
    fn keys_spread_over_the_table() {
        let mut used = std::collections::HashSet::new();
        (0..4096_u64)
            .for_each(|key| _ = used.insert(Stripes::of(3, key.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
        assert!(used.len() > 2000, "{} of {STRIPES}", used.len());
    }
}
