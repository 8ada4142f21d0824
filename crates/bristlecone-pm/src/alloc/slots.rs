//! Which slots of a chunk are taken, and which of them were not swept yet: bits that threads take and
//! return without a lock.

use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::sync::{AtomicU64, AtomicUsize};

/// A chunk's slots: a set bit is taken, by the tree or by a thread's cache.
#[derive(Debug)]
pub struct Slots {
    pub id: u32,
    pub offset: u64,
    pub bitmap: Box<[AtomicU64]>,
    pub taken: AtomicUsize,
    /// Once no more are taken than this, it is time to see whether any of them is not just cached.
    /// Never fewer than are cached.
    pub look_at: AtomicUsize,
    /// Slots that count as taken because they were not swept yet; empty if all are known.
    pub unknown: Box<[AtomicU64]>,
}

impl Slots {
    pub fn new(id: u32, offset: u64, slots: usize) -> Self {
        let bitmap: Box<[AtomicU64]> = (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        if !slots.is_multiple_of(64) {
            // Bits beyond the last slot are taken for ever, and not counted.
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

    /// Notes at recovery that a slot is taken, and returns whether it is the first time. It counts once all are
    /// [`count`](Self::count)ed.
    pub fn mark(&self, slot: usize) -> bool {
        let bit = 1 << (slot % 64);
        self.bitmap[slot / 64].fetch_or(bit, AcqRel) & bit == 0
    }

    /// Counts those of the chunk's `slots` that are taken. No other thread takes any meanwhile.
    pub fn count(&self, slots: usize) {
        let bits: usize = self.bitmap.iter().map(|bits| bits.load(Acquire).count_ones() as usize).sum();
        self.taken.store(bits - (64 * self.bitmap.len() - slots), Release);
    }

    /// Ends that a slot is unknown, and returns whether it was.
    pub fn know(&self, slot: usize) -> bool {
        debug_assert!(slot / 64 < self.bitmap.len(), "a slot beyond its chunk");
        let bit = 1 << (slot % 64);
        self.unknown.get(slot / 64).is_some_and(|bits| bits.fetch_and(!bit, AcqRel) & bit != 0)
    }

    /// Takes every free slot of one word for a cache: (word, its free bits). The caller holds the lock on
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

    /// Takes slots back, and returns whether it is time to look.
    pub fn give(&self, word: usize, bits: u64) -> bool {
        let before = self.bitmap[word].fetch_and(!bits, AcqRel);
        assert_eq!(before & bits, bits, "a slot was freed twice");
        let count = bits.count_ones() as usize;
        // Fewer than none: recovery has not counted them yet.
        self.taken.fetch_sub(count, AcqRel).wrapping_sub(count) <= self.look_at.load(Acquire)
    }
}
