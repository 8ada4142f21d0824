//! Event counters of an open pool. Threads do not share cache lines when they count.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::own_thread_index;
use crate::sync::raced::Raced;

/// Number of threads of a group.
const STRIPES: usize = 64;
/// Maximum number of groups: threads share counts only beyond 3,072.
const GROUPS: usize = 48;

type Stripe<const KINDS: usize> = CachePadded<[AtomicU64; KINDS]>;

/// Counts of several kinds. A sum is exact while no thread adds.
#[derive(Debug)]
pub struct Counts<const KINDS: usize> {
    /// Each thread has its own stripe, so that adding needs no locked instruction. A group of stripes is created when
    /// one of its threads adds.
    own: [Raced<[Stripe<KINDS>; STRIPES]>; GROUPS],
    /// Counts of all further threads.
    shared: Stripe<KINDS>,
}

fn zeros<const KINDS: usize>() -> Stripe<KINDS> {
    CachePadded::new([const { AtomicU64::new(0) }; KINDS])
}

impl<const KINDS: usize> Default for Counts<KINDS> {
    fn default() -> Self {
        Self { own: [const { Raced::new() }; GROUPS], shared: zeros() }
    }
}

impl<const KINDS: usize> Counts<KINDS> {
    /// Adds to the count of a kind.
    #[inline(always)]
    pub fn add(&self, kind: usize, by: u64) {
        match own_thread_index().and_then(|index| self.stripe(index)) {
            // Pairs with the acquire in `sum`: who sees this sees what was counted before it.
            Some(own) => own[kind].store(own[kind].load(Relaxed).wrapping_add(by), Release),
            None => _ = self.shared[kind].fetch_add(by, Release),
        }
    }

    #[inline(always)]
    fn stripe(&self, thread: usize) -> Option<&Stripe<KINDS>> {
        let group = self.own.get(thread / STRIPES)?;
        let stripes = group.get_or_make(|| Box::new(std::array::from_fn(|_| zeros())));
        Some(&stripes[thread % STRIPES])
    }

    /// Returns the sum of a kind over all threads.
    pub fn sum(&self, kind: usize) -> u64 {
        let stripes = self.own.iter().filter_map(Raced::get).flatten().chain([&self.shared]);
        stripes.fold(0, |sum, stripe| sum.wrapping_add(stripe[kind].load(Acquire)))
    }
}

/// Events of an open pool that are rare enough to be always counted.
#[derive(Debug, Default)]
pub struct Events(Counts<3>);

const SPLITS: usize = 0;
const CHUNKS: usize = 1;
const GROWTH_NANOS: usize = 2;

impl Events {
    /// Counts a node split.
    #[inline]
    pub fn note_split(&self) {
        self.0.add(SPLITS, 1);
    }

    /// Counts a chunk that a tree got, and the time that took.
    pub(crate) fn note_chunk(&self, took: Duration) {
        #[cfg(feature = "tracing")]
        tracing::debug!(?took, "a tree gets a chunk");
        self.0.add(CHUNKS, 1);
        self.0.add(GROWTH_NANOS, took.as_nanos() as u64);
    }

    /// Returns the number of node splits.
    pub fn splits(&self) -> u64 {
        self.0.sum(SPLITS)
    }

    /// Returns the number of chunks that trees got, and the total time.
    pub fn growth(&self) -> (u64, Duration) {
        (self.0.sum(CHUNKS), Duration::from_nanos(self.0.sum(GROWTH_NANOS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_all_threads() {
        let counts = Counts::<2>::default();
        std::thread::scope(|scope| {
            for _ in 0..STRIPES + 8 {
                scope.spawn(|| (0..1000).for_each(|at| counts.add(at % 2, 1 + at as u64 % 2)));
            }
        });
        assert_eq!((counts.sum(0), counts.sum(1)), (72 * 500, 72 * 1000));
    }
}
