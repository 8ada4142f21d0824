//! The volatile half of a leaf: two lines of DRAM that answer most questions about it.

use bristlecone_pm::sync::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use super::layout::Shape;
use super::pending::{DirtyToken, Pending};
use crate::index::parts::arena::Zeroed;
use crate::index::parts::optimistic_lock::{OptimisticLock, pause};
use crate::index::parts::passage::full_barrier;

/// Words of a leaf's fingerprints.
pub const TAG_WORDS: usize = 8;

/// Bits of a fingerprint beyond its byte.
pub const EXTRA_BITS: usize = 2;

/// Bit of the bitmap: the leaf is being replaced, and no slot joins it any more.
pub const FROZEN: u64 = 1 << 63;

/// Descriptor of a leaf. The first line tells where keys may be, the second one everything else.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Leaf {
    /// A byte for each slot: zero until the slot is claimed, then of the fingerprint of its key.
    pub tags: [AtomicU64; TAG_WORDS],
    /// Renewed when the descriptor is used for another leaf, for threads that read unpinned. No thread
    /// ever locks it.
    pub incarnation: OptimisticLock,
    /// A bit for each slot that belongs to its key for good, and [`FROZEN`].
    pub bitmap: AtomicU64,
    /// Two more bits of each fingerprint, by their order and slot.
    pub extras: [AtomicU64; EXTRA_BITS],
    /// Offset of the block, and [`LOCKED`].
    block: AtomicU64,
    /// What took the leaf's place.
    succession: AtomicU64,
    /// Flushes under way, and slots without an item.
    pub pending: Pending,
    /// Where the leaf begins, as a separator, if it was born as the right one of two.
    low: AtomicU64,
}

/// Bit of the block's word: a thread is made to lock the leaf (the ablations).
const LOCKED: u64 = 1 << 63;
/// Bit of the block's word: values are no longer changed in place, so that the leaf gets replaced.
const STILL: u64 = 1 << 62;

// SAFETY: atomics only, for which zero is a value.
unsafe impl Zeroed for Leaf {}

const _: () = assert!(size_of::<Leaf>() == 128 && std::mem::offset_of!(Leaf, incarnation) == 64);

/// What took a leaf's place, in one word: the left successor and one more (bits 0-30), the right one
/// (bits 31-61), whether there is none (bit 62), and whether the change is durable (bit 63).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Succession(u64);

const SUCCESSOR_BITS: u32 = 31;
const SUCCESSOR_MASK: u64 = (1 << SUCCESSOR_BITS) - 1;
/// Numbers of leaves lie below this.
pub const LEAVES_MAX: u64 = SUCCESSOR_MASK;
const REMOVED: u64 = 1 << 62;
const OPEN: u64 = 1 << 63;

impl Succession {
    /// Returns the succession of a leaf whose place one or two leaves take.
    pub fn successors(left: u32, right: Option<u32>) -> Self {
        let number = |id: u32| {
            debug_assert!(u64::from(id) < LEAVES_MAX);
            u64::from(id) + 1
        };
        Self(number(left) | right.map_or(0, number) << SUCCESSOR_BITS)
    }

    /// Returns the succession of a leaf that is empty and leaves the index.
    pub fn removed() -> Self {
        Self(REMOVED)
    }

    /// Returns whether anything took the leaf's place yet, be it durable or not.
    pub fn is_decided(self) -> bool {
        self.0 != 0
    }

    /// Returns whether the leaf no longer counts.
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

    /// Asks writers to replace the leaf instead of changing values in it. One that announces a flush looks behind that
    /// whether it [may not](Self::is_still): so if the caller finds no flush announced afterwards, no value changes.
    pub fn still(&self) {
        self.block.fetch_or(STILL, Relaxed);
        // Before the look at announcements. Pairs with the barrier behind each one.
        full_barrier();
    }

    /// Returns whether writers are asked to replace the leaf.
    #[inline(always)]
    pub fn is_still(&self) -> bool {
        self.block.load(Relaxed) & STILL != 0
    }

    #[inline(always)]
    pub fn succession(&self) -> Succession {
        // Pairs with `decide` and `open`: the successors are complete.
        Succession(self.succession.load(Acquire))
    }

    /// Decides what takes the leaf's place, once and for all.
    pub fn decide(&self, succession: Succession) -> bool {
        self.succession.compare_exchange(0, succession.0, AcqRel, Acquire).is_ok()
    }

    /// Notes that the decision is durable: from here on the successors count.
    pub fn open(&self) {
        self.succession.fetch_or(OPEN, AcqRel);
    }

    /// Makes the descriptor one of a new leaf, which no other thread knows yet.
    pub fn begin(&self, block: u64, low: Option<u64>) {
        self.block.store(block, Relaxed);
        self.succession.store(0, Relaxed);
        self.pending.begin();
        self.low.store(low.unwrap_or(0), Relaxed);
        self.incarnation.renew();
    }

    /// Returns the separator word at which the leaf begins, if it is a right one.
    pub fn low(&self) -> u64 {
        self.low.load(Relaxed)
    }

    /// Takes the separator word at which the leaf begins, to free it: no thread reads the leaf any more.
    pub fn take_low(&self) -> u64 {
        self.low.swap(0, Relaxed)
    }

    /// Notes that a flush in the line of `slot` is to come: a thread that reads there meanwhile flushes, too.
    #[inline(always)]
    pub fn enter(&self, shape: Shape, slot: usize) -> DirtyToken {
        self.pending.enter(shape.line(slot))
    }

    /// Returns whether a flush in the line of `slot` may be under way. What was read there comes first.
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
