//! The volatile part of a leaf: two cache lines of DRAM that answer most questions about it.

use bristlecone_pm::sync::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use super::layout::Shape;
use super::pending::{DirtyToken, Pending};
use crate::index::parts::active_threads::full_barrier;
use crate::index::parts::arena::Zeroed;
use crate::index::parts::optimistic_lock::{OptimisticLock, pause};
use crate::index::parts::slot::bits;

/// Number of words of a leaf's fingerprints.
pub const TAG_WORDS: usize = 8;

/// Number of bits of a fingerprint beyond its byte.
pub const EXTRA_BITS: usize = 2;

/// Bit of the bitmap: the leaf is being replaced, and accepts no new keys.
pub const FROZEN: u64 = 1 << 63;

/// Descriptor of a leaf. The first line locates keys, the second one holds the rest.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Leaf {
    /// A byte for each slot: zero until the slot is claimed, then the fingerprint byte of its key.
    pub tags: [AtomicU64; TAG_WORDS],
    /// Incremented when the descriptor is reused for another leaf, for threads that read unpinned. No thread ever
    /// locks it.
    pub incarnation: OptimisticLock,
    /// A bit for each slot that permanently belongs to its key, and [`FROZEN`].
    pub bitmap: AtomicU64,
    /// Two more bits of each fingerprint, indexed by bit and slot.
    pub extras: [AtomicU64; EXTRA_BITS],
    /// Offset of the block, and [`LOCKED`].
    block: AtomicU64,
    /// The successors of the leaf.
    succession: AtomicU64,
    /// Pending flushes, and the number of slots without an item.
    pub pending: Pending,
    /// The low fence of the leaf as a separator, if it was created as the right one of two.
    low: AtomicU64,
}

/// Bit of the block's word: a thread holds the leaf's lock (the ablations).
const LOCKED: u64 = 1 << 63;
/// Bit of the block's word: values must not be changed in place any more, so that the leaf is replaced.
const STILL: u64 = 1 << 62;

// SAFETY: atomics only, for which zero is a value.
unsafe impl Zeroed for Leaf {}

const _: () = assert!(size_of::<Leaf>() == 128 && std::mem::offset_of!(Leaf, incarnation) == 64);

/// The successors of a leaf in one word: the left successor plus one (bits 0-30), the right one (bits 31-61), whether
/// there is none (bit 62), and whether the change is durable (bit 63).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Succession(u64);

const SUCCESSOR_BITS: u32 = 31;
const SUCCESSOR_MASK: u64 = (1 << SUCCESSOR_BITS) - 1;
/// Upper bound of leaf numbers.
pub const LEAVES_MAX: u64 = SUCCESSOR_MASK;
const REMOVED: u64 = 1 << 62;
const OPEN: u64 = 1 << 63;

impl Succession {
    /// Returns the succession of a leaf that one or two leaves replace.
    pub fn successors(left: u32, right: Option<u32>) -> Self {
        let number = |id: u32| {
            debug_assert!(u64::from(id) < LEAVES_MAX);
            u64::from(id) + 1
        };
        Self(number(left) | right.map_or(0, number) << SUCCESSOR_BITS)
    }

    /// Returns the succession of an empty leaf that is removed from the index.
    pub fn removed() -> Self {
        Self(REMOVED)
    }

    /// Returns whether the succession is decided, durably or not.
    pub fn is_decided(self) -> bool {
        self.0 != 0
    }

    /// Returns whether the successors are valid instead of the leaf.
    #[inline(always)]
    pub fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    pub fn is_removed(self) -> bool {
        self.0 & REMOVED != 0
    }

    /// Returns the successors of a leaf that was replaced.
    pub fn left(self) -> u32 {
        ((self.0 & SUCCESSOR_MASK) - 1) as u32
    }

    pub fn right(self) -> Option<u32> {
        (self.0 >> SUCCESSOR_BITS & SUCCESSOR_MASK).checked_sub(1).map(|id| id as u32)
    }
}

impl Leaf {
    /// Returns the offset of the leaf's block.
    #[inline(always)]
    pub fn block(&self) -> u64 {
        self.block.load(Relaxed) & !(LOCKED | STILL)
    }

    /// Returns whether a killed process may have left the leaf in the middle of a change.
    pub fn is_unsettled(&self, slots: u64) -> bool {
        let bitmap = self.bitmap.load(Relaxed);
        self.block.load(Relaxed) & (LOCKED | STILL) != 0
            || bitmap & FROZEN != 0
            || self.succession.load(Relaxed) != 0
            || self.pending.is_flushing_anywhere()
            || self.claimed() & slots & !bitmap != 0
    }

    /// Returns whether a thread has asked for the leaf to be replaced.
    pub fn is_to_be_replaced(&self) -> bool {
        self.is_still() || self.bitmap.load(Relaxed) & FROZEN != 0
    }

    /// Returns the slots that threads have claimed, a bit for each.
    fn claimed(&self) -> u64 {
        self.tags.iter().enumerate().fold(0, |claimed, (at, word)| {
            let bytes = word.load(Relaxed).to_le_bytes();
            bytes
                .into_iter()
                .enumerate()
                .fold(claimed, |all, (slot, byte)| all | u64::from(byte != 0) << (8 * at + slot))
        })
    }

    /// Releases the slots that were claimed by threads that died before the slots joined, and forgets their flushes.
    /// Returns these slots.
    pub fn forget_threads(&self, slots: u64) -> u64 {
        let lost = self.claimed() & slots & !self.bitmap.load(Relaxed);
        for slot in bits(lost) {
            let (word, mask) = (&self.tags[slot / 8], 0xff << (slot % 8 * 8));
            word.store(word.load(Relaxed) & !mask, Relaxed);
            self.extras.iter().for_each(|extra| extra.store(extra.load(Relaxed) & !(1 << slot), Relaxed));
        }
        self.pending.forget_flushes();
        lost
    }

    /// Locks the leaf, in the ablations.
    pub fn lock(&self) -> impl Drop {
        for round in 0_u32.. {
            let free = self.block.load(Relaxed) & LOCKED == 0;
            if free && self.block.fetch_or(LOCKED, Acquire) & LOCKED == 0 {
                break;
            }
            pause(round);
        }
        LeafLock(self)
    }

    /// Asks writers to replace the leaf instead of changing values in it. A writer that announces a flush then checks
    /// [`is_still`](Self::is_still). If the caller finds no announced flush afterwards, no value changes any more.
    pub fn still(&self) {
        self.block.fetch_or(STILL, Relaxed);
        // Orders the store before the check for announcements. Pairs with the barrier after each announcement.
        full_barrier();
    }

    /// Returns whether writers must replace the leaf.
    #[inline(always)]
    pub fn is_still(&self) -> bool {
        self.block.load(Relaxed) & STILL != 0
    }

    #[inline(always)]
    pub fn succession(&self) -> Succession {
        // Pairs with `decide` and `open`: the successors are complete.
        Succession(self.succession.load(Acquire))
    }

    /// Decides the succession of the leaf, at most once.
    pub fn decide(&self, succession: Succession) -> bool {
        self.succession.compare_exchange(0, succession.0, AcqRel, Acquire).is_ok()
    }

    /// Records that the decision is durable: from here on the successors are valid.
    pub fn open(&self) {
        self.succession.fetch_or(OPEN, AcqRel);
    }

    /// Initializes the descriptor of a new leaf, which no other thread knows yet.
    pub fn begin(&self, block: u64, low: Option<u64>) {
        self.block.store(block, Relaxed);
        self.succession.store(0, Relaxed);
        self.pending.begin();
        self.low.store(low.unwrap_or(0), Relaxed);
        self.incarnation.renew();
    }

    /// Returns the separator word of the low fence, if the leaf was created as a right one.
    pub fn low(&self) -> u64 {
        self.low.load(Relaxed)
    }

    /// Takes the separator word of the low fence, to free it: no thread reads the leaf any more.
    pub fn take_low(&self) -> u64 {
        self.low.swap(0, Relaxed)
    }

    /// Announces a flush of the line of `slot`: a concurrent reader of the line then flushes it as well.
    #[inline(always)]
    pub fn enter(&self, shape: Shape, slot: usize) -> DirtyToken {
        self.pending.enter(shape.line(slot))
    }

    /// Returns whether a flush of the line of `slot` may be pending. Prior reads of the line are ordered before this
    /// check.
    #[inline(always)]
    pub fn is_flushing(&self, shape: Shape, slot: usize) -> bool {
        self.pending.is_flushing(shape.line(slot))
    }
}

struct LeafLock<'a>(&'a Leaf);

impl Drop for LeafLock<'_> {
    fn drop(&mut self) {
        self.0.block.fetch_and(!LOCKED, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_do_not_disturb_each_other() {
        let (leaf, shape) = (Leaf::default(), Shape::new(1024, 2));
        leaf.begin(4096, None);
        let first = leaf.enter(shape, 0);
        assert!(leaf.is_flushing(shape, 1) && !leaf.is_flushing(shape, 3));
        let second = leaf.enter(shape, 3);
        assert!(matches!((&first, &second), (DirtyToken::Marked, DirtyToken::Counted)));
        assert_eq!(
            (leaf.pending.note_removed(2), leaf.pending.note_removed(-3), leaf.pending.removed()),
            (2, -1, -1)
        );
        leaf.pending.leave(first);
        assert!(leaf.is_flushing(shape, 3) && leaf.pending.is_flushing_anywhere());
        leaf.pending.leave(second);
        assert!(!leaf.is_flushing(shape, 3) && !leaf.pending.is_flushing_anywhere());
        assert_eq!(leaf.pending.note_removed(1), 0);
        assert!(!leaf.pending.is_flushing_anywhere());
    }

    #[test]
    fn a_succession_is_decided_once() {
        let leaf = Leaf::default();
        assert!(!leaf.succession().is_decided());
        assert!(leaf.decide(Succession::successors(0, Some(7))) && !leaf.decide(Succession::removed()));
        let found = leaf.succession();
        assert_eq!((found.left(), found.right(), found.is_open()), (0, Some(7), false));
        leaf.open();
        assert!(leaf.succession().is_open() && !leaf.succession().is_removed());
        let leaf = Leaf::default();
        assert!(leaf.decide(Succession::removed()) && !leaf.decide(Succession::successors(1, None)));
        assert!(leaf.succession().is_removed() && !leaf.succession().is_open());
        leaf.open();
        assert!(leaf.succession().is_removed() && leaf.succession().is_open());
        assert_eq!(Succession::successors(9, None).right(), None);
    }
}
