//! Locks for keys: each key has one of a table, which it shares with others.

use bristlecone_pm::sync::wait::{cross, pause};
use bristlecone_pm::sync::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use smallvec::SmallVec;

use super::any_tree::place;
use crate::index::parts::codec::GROUP;
use crate::index::parts::passage::full_barrier;

/// Locks in the table.
const STRIPES: usize = 4096;

/// The table.
#[derive(Debug)]
pub(crate) struct Stripes(Box<[AtomicBool]>);

/// Locks that are held until this is dropped.
pub(crate) struct Locked<'a> {
    stripes: &'a Stripes,
    one: usize,
    more: SmallVec<[usize; GROUP]>,
}

impl Stripes {
    pub fn new() -> Self {
        Self((0..STRIPES).map(|_| AtomicBool::new(false)).collect())
    }

    /// Returns the lock of a key of a tree, by a hash of the key of which the top bits are the best ones.
    #[inline]
    pub fn of(tree: u64, hash: u64) -> usize {
        place(tree, hash, STRIPES.trailing_zeros())
    }

    fn take(&self, stripe: usize) {
        cross();
        let (lock, mut round) = (&self.0[stripe], 0);
        // Pairs with the release in `drop`.
        while lock.load(Relaxed) || lock.swap(true, Acquire) {
            pause(round);
            round += 1;
        }
        // The swap above. What the thread looks at with the lock, a thread that waits for it has stored before.
        full_barrier();
    }

    /// Waits for a lock, and holds it.
    #[inline]
    pub fn lock(&self, stripe: usize) -> Locked<'_> {
        self.take(stripe);
        Locked { stripes: self, one: stripe, more: SmallVec::new() }
    }

    /// Waits for locks, one after the other in the order that all threads keep. `None` where there are none.
    pub fn lock_all(&self, mut stripes: SmallVec<[usize; GROUP]>) -> Option<Locked<'_>> {
        stripes.sort_unstable();
        stripes.dedup();
        stripes.iter().for_each(|stripe| self.take(*stripe));
        let one = stripes.pop()?;
        Some(Locked { stripes: self, one, more: stripes })
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        for stripe in self.more.iter().chain([&self.one]) {
            self.stripes.0[*stripe].store(false, Release);
        }
        cross();
    }
}

#[cfg(test)]
mod tests {
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
                        // A plain change under lock 9, which all of them hold.
                        total.store(total.load(Relaxed) + 1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 8000);
        assert!(stripes.0.iter().all(|lock| !lock.load(Relaxed)), "a lock was left held");
        assert!(stripes.lock_all(SmallVec::new()).is_none());
    }

    #[test]
    fn keys_spread_over_the_table() {
        let mut used = std::collections::HashSet::new();
        (0..4096_u64)
            .for_each(|key| _ = used.insert(Stripes::of(3, key.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
        assert!(used.len() > 2000, "{} of {STRIPES}", used.len());
    }
}
