//! A count that many threads change without sharing a line.

use bristlecone_pm::own_thread_index;
use bristlecone_pm::sync::{AtomicI64, Ordering::Relaxed};
use crossbeam_utils::CachePadded;

const STRIPES: usize = 64;

/// A striped counter. The sum is exact while no thread adds.
#[derive(Debug)]
pub struct Counter {
    /// The stripe of a thread is its own, so that adding is no locked instruction: one would wait
    /// for the stores and flushes before it, and what the thread does next would wait for it.
    own: Box<[CachePadded<AtomicI64>]>,
    /// That of all threads beyond.
    shared: CachePadded<AtomicI64>,
}

impl Default for Counter {
    fn default() -> Self {
        Self { own: (0..STRIPES).map(|_| CachePadded::default()).collect(), shared: CachePadded::default() }
    }
}

impl Counter {
    /// Adds `by`, which may be negative.
    #[inline(always)]
    pub fn add(&self, by: i64) {
        match own_thread_index().and_then(|index| self.own.get(index)) {
            Some(own) => own.store(own.load(Relaxed) + by, Relaxed),
            None => _ = self.shared.fetch_add(by, Relaxed),
        }
    }

    /// Returns a counter whose sum is that.
    pub fn of(sum: u64) -> Self {
        Self { shared: CachePadded::new(AtomicI64::new(sum as i64)), ..Self::default() }
    }

    /// Returns the sum over all threads.
    pub fn sum(&self) -> u64 {
        let own: i64 = self.own.iter().map(|stripe| stripe.load(Relaxed)).sum();
        let sum = own + self.shared.load(Relaxed);
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
            for _ in 0..STRIPES + 8 {
                scope.spawn(|| (0..1000).for_each(|i| counter.add(if i % 4 == 0 { -1 } else { 1 })));
            }
        });
        assert_eq!(counter.sum(), (STRIPES as u64 + 8) * 500);
    }
}
