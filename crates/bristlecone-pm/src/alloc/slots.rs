//! Bitmaps of a chunk's taken and unswept slots; threads take and free slots without a lock.

use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::sync::{AtomicU64, AtomicUsize};

/// A chunk's slots: a set bit is a slot taken by the tree or by a thread's cache.
#[derive(Debug)]
pub struct Slots {
    pub id: u32,
    pub offset: u64,
    pub bitmap: Box<[AtomicU64]>,
    pub taken: AtomicUsize,
    /// When at most this many are taken, a thread checks whether all of them are merely cached. Never lower
    /// than the number of cached slots.
    pub look_at: AtomicUsize,
    /// Slots that count as taken because they are unswept; empty if all are known.
    pub unknown: Box<[AtomicU64]>,
}

impl Slots {
    pub fn new(id: u32, offset: u64, slots: usize) -> Self {
        let bitmap: Box<[AtomicU64]> = (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        if !slots.is_multiple_of(64) {
            // Bits beyond the last slot are taken permanently, and not counted.
            bitmap[slots / 64].store(u64::MAX << (slots % 64), Relaxed);
        }
        let (taken, look_at) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { id, offset, bitmap, taken, look_at, unknown: Box::default() }
    }

    pub fn unswept(id: u32, offset: u64, slots: usize) -> Self {
        let fresh = Self::new(id, offset, slots);
        let unknown = fresh.bitmap.iter().map(|bits| AtomicU64::new(!bits.swap(u64::MAX, AcqRel))).collect();
        fresh.taken.store(slots, Release);
        Self { unknown, ..fresh }
    }

    /// Marks a slot as taken during recovery, and returns whether it was unmarked. Marked slots are counted by
    /// [`count`](Self::count).
    pub fn mark(&self, slot: usize) -> bool {
        let bit = 1 << (slot % 64);
        self.bitmap[slot / 64].fetch_or(bit, AcqRel) & bit == 0
    }

    /// Counts the taken slots of the chunk's `slots`. No other thread may take any meanwhile.
    pub fn count(&self, slots: usize) {
        let bits: usize = self.bitmap.iter().map(|bits| bits.load(Acquire).count_ones() as usize).sum();
        self.taken.store(bits - (64 * self.bitmap.len() - slots), Release);
    }

    /// Marks a slot as known, and returns whether it was unknown.
    pub fn know(&self, slot: usize) -> bool {
        debug_assert!(slot / 64 < self.bitmap.len(), "a slot beyond its chunk");
        let bit = 1 << (slot % 64);
        self.unknown.get(slot / 64).is_some_and(|bits| bits.fetch_and(!bit, AcqRel) & bit != 0)
    }

    /// Takes every free slot of one word for a cache: (word, its free bits). The caller must hold the lock on
    /// the chunks, unless no other thread knows these slots.
    pub fn take_word(&self) -> Option<(usize, u64)> {
        self.bitmap.iter().enumerate().find_map(|(word, bits)| {
            if bits.load(Acquire) == u64::MAX {
                return None;
            }
            let free = !bits.fetch_or(u64::MAX, AcqRel);
            self.look_at.fetch_add(free.count_ones() as usize, AcqRel);
            self.taken.fetch_add(free.count_ones() as usize, AcqRel);
            (free != 0).then_some((word, free))
        })
    }

    /// Returns slots to the bitmap, and returns whether it is time to look at the chunk.
    pub fn give(&self, word: usize, bits: u64) -> bool {
        let before = self.bitmap[word].fetch_and(!bits, AcqRel);
        assert_eq!(before & bits, bits, "a slot was freed twice");
        let count = bits.count_ones() as usize;
        // The difference wraps below zero if recovery has not counted them yet.
        self.taken.fetch_sub(count, AcqRel).wrapping_sub(count) <= self.look_at.load(Acquire)
    }
}
