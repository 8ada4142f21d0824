//! A count that many threads change without sharing a line.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use bristlecone_pm::thread_index;
use crossbeam_utils::CachePadded;

const STRIPES: usize = 64;

/// A striped counter. The sum is exact while nobody adds.
#[derive(Debug)]
pub struct Counter(Box<[CachePadded<AtomicI64>]>);

impl Default for Counter {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| CachePadded::default()).collect())
    }
}

impl Counter {
    /// Adds `by`, which may be negative.
    #[inline]
    pub fn add(&self, by: i64) {
        self.0[thread_index() % STRIPES].fetch_add(by, Relaxed);
    }

    /// The sum over all threads.
    pub fn sum(&self) -> u64 {
        let sum: i64 = self.0.iter().map(|stripe| stripe.load(Relaxed)).sum();
        // Stripes are read one after the other: a removal may be seen before its insert.
        sum.max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_what_threads_add() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..1000).for_each(|i| counter.add(if i % 4 == 0 { -1 } else { 1 })));
            }
        });
        assert_eq!(counter.sum(), 8 * 500);
    }
}
