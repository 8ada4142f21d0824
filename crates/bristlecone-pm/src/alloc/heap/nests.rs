//! Slots kept for neighbours, so that what is read together stands together.
//!
//! A *nest* is a run of free slots that one leaf uses up. A nest that is left behind is used by the next leaf at the same
//! place. Like the slots in caches, those in nests are free, but not for everyone.

use super::{Cache, Heap};
use crate::alloc::sparse::Sparse;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::{Medium, Result};

/// Slots of a run.
const RUN: u32 = 4;
const RUN_BITS: u64 = (1 << RUN) - 1;
const _: () = assert!(64 % RUN == 0);
/// The first slots of all runs of a word.
const FIRST_OF_RUNS: u64 = u64::MAX / RUN_BITS;

/// Bytes of the largest slots that are kept: neighbours of more than two lines have nothing in common.
const SLOT_BYTES_MAX: u32 = 128;
/// Bytes of the smallest leaves.
const LEAF_BYTES: u64 = 256;

/// A nest in one word: its first slot's offset above the bits of the slots that are left.
#[derive(Clone, Copy)]
struct Nest(u64);

impl Nest {
    fn new(offset: u64, left: u64) -> Self {
        Self(offset << RUN | left)
    }

    fn left(self) -> u64 {
        self.0 & RUN_BITS
    }

    /// Returns the offset of the first slot that is left, and the nest without it.
    fn take(self, slot_bytes: u32) -> Option<(u64, Self)> {
        let slot = self.0.trailing_zeros();
        let offset = (self.0 >> RUN) + u64::from(slot) * u64::from(slot_bytes);
        (self.left() != 0).then(|| (offset, Self(self.0 & (self.0 - 1))))
    }
}

/// The nests of a heap. Leaves that are further apart than the table is long may share one.
pub type Nests = Sparse<AtomicU64>;

impl Cache {
    /// Takes a run of slots, or a single one: the offset of the first slot, and a bit for each slot.
    fn take_run(&mut self, slot_bytes: u32) -> Option<(u64, u64)> {
        let both = self.free & self.free >> 1;
        let runs = both & both >> 2 & FIRST_OF_RUNS;
        if runs == 0 {
            return self.take(slot_bytes).map(|slot| (slot, 1));
        }
        let slots = self.slots.as_ref()?;
        let at = runs.trailing_zeros();
        self.free &= !(RUN_BITS << at);
        Some((slots.offset + (self.word as u64 * 64 + u64::from(at)) * u64::from(slot_bytes), RUN_BITS))
    }
}

impl<M: Medium> Heap<M> {
    /// Allocates a slot near the last ones of the leaf at an offset, and returns its offset.
    ///
    /// # Errors
    ///
    /// As [`alloc`](Self::alloc).
    pub fn alloc_near(&self, leaf: u64) -> Result<u64> {
        if self.spec.slot_bytes > SLOT_BYTES_MAX {
            return self.alloc();
        }
        let cell = self.nests.of((leaf / LEAF_BYTES) as usize);
        let mut seen = Nest(cell.load(Acquire));
        while let Some((slot, left)) = seen.take(self.spec.slot_bytes) {
            match cell.compare_exchange(seen.0, left.0, AcqRel, Acquire) {
                Ok(_) => return Ok(slot),
                Err(now) => seen = Nest(now),
            }
        }
        let (first, run) = self.alloc_by(Cache::take_run)?;
        let rest = Nest::new(first, run & !1);
        if rest.left() != 0 && cell.compare_exchange(seen.0, rest.0, AcqRel, Acquire).is_err() {
            // Another thread has filled it.
            self.give_back(rest);
        }
        Ok(first)
    }

    /// Prefetches for writing the slot that [`alloc_near`](Self::alloc_near) would allocate, if it is one of the leaf's.
    #[inline]
    pub fn prefetch_near(&self, leaf: u64) {
        let cell = self.nests.get((leaf / LEAF_BYTES) as usize);
        let nest = cell.map_or(Nest(0), |cell| Nest(cell.load(Relaxed)));
        if let Some((slot, _)) = nest.take(self.spec.slot_bytes) {
            self.pool.prefetch_to_write(slot);
        }
    }

    /// Frees the slots in all nests.
    pub(super) fn empty_nests(&self) {
        let nests = self.nests.all().filter(|cell| Nest(cell.load(Acquire)).left() != 0);
        // All of them first: a slot that becomes free may be a reason to look for more.
        let nests: Vec<_> = nests.map(|cell| Nest(cell.swap(0, AcqRel))).collect();
        nests.into_iter().for_each(|nest| self.give_back(nest));
    }

    /// Returns the number of slots in nests.
    pub(super) fn nested(&self) -> u64 {
        self.nests.all().map(|cell| u64::from(Nest(cell.load(Acquire)).left().count_ones())).sum()
    }

    fn give_back(&self, nest: Nest) {
        let mut nest = nest;
        while let Some((slot, left)) = nest.take(self.spec.slot_bytes) {
            self.free(slot);
            nest = left;
        }
    }
}
