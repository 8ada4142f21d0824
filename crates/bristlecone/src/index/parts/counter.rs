//! A counter that many threads change without sharing a cache line.

use bristlecone_pm::sync::{AtomicI64, Ordering::Relaxed};
use bristlecone_pm::{Manifest, ManifestReader, Memory, SharedCell, own_thread_index};
use crossbeam_utils::CachePadded;

const STRIPES: usize = 64;

/// Each thread has its own stripe, so that adding needs no locked instruction, which would wait for
/// earlier stores and flushes, and delay all following instructions. The last stripe is shared by all
/// further threads.
type Stripes = [CachePadded<AtomicI64>; STRIPES + 1];

/// A striped counter. The sum is exact while no thread adds.
#[derive(Debug, Default)]
pub struct Counter(SharedCell<Stripes>);

impl Counter {
    /// Returns a counter of zero, visible to followers if `memory` is shared.
    pub fn new(memory: &Memory) -> Self {
        Self(memory.cell())
    }

    /// Returns a counter with this sum.
    pub fn of(sum: u64, memory: &Memory) -> Self {
        let stripe = |at: usize| AtomicI64::new(if at == STRIPES { sum as i64 } else { 0 });
        Self(memory.cell_of(std::array::from_fn(|at| CachePadded::new(stripe(at)))))
    }

    /// Saves the sum for the next open of the tree, or its location for followers.
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        if manifest.is_live() {
            return manifest.push_cell(&self.0);
        }
        manifest.push(self.sum());
        Some(())
    }

    /// Takes over the counter saved by [`save`](Self::save).
    pub fn resume(manifest: &mut ManifestReader<'_>) -> Option<Self> {
        if manifest.is_live() {
            return manifest.read_cell().map(Self);
        }
        Some(Self::of(manifest.read()?, &manifest.memory()))
    }

    /// Takes over the counter that a killed process saved for followers. Threads may have been killed before they
    /// counted: [`reset`](Self::reset) must follow.
    pub fn recover(manifest: &mut ManifestReader<'_>) -> Option<Self> {
        manifest.read_cell().map(Self)
    }

    /// Sets the sum, while no other thread has access.
    pub fn reset(&self, sum: u64) {
        for (at, stripe) in self.0.iter().enumerate() {
            stripe.store(if at == STRIPES { sum as i64 } else { 0 }, Relaxed);
        }
    }

    /// Adds `by`, which may be negative.
    #[inline(always)]
    pub fn add(&self, by: i64) {
        let stripes: &Stripes = &self.0;
        match own_thread_index().filter(|index| *index < STRIPES) {
            Some(own) => stripes[own].store(stripes[own].load(Relaxed) + by, Relaxed),
            None => _ = stripes[STRIPES].fetch_add(by, Relaxed),
        }
    }

    /// Returns the sum over all threads.
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
            for _ in 0..STRIPES + 8 {
                scope.spawn(|| (0..1000).for_each(|i| counter.add(if i % 4 == 0 { -1 } else { 1 })));
            }
        });
        assert_eq!(counter.sum(), (STRIPES as u64 + 8) * 500);
        assert_eq!(Counter::of(7, &Memory::private()).sum(), 7);
    }
}
