//! The words of a leaf that say which of its lines have a flush to come, and how many of its slots
//! lost their item.

use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::index::parts::passage::full_barrier;
use crate::index::parts::sync::AtomicU32;

/// A mark for one flush, and counts.
///
/// The mark belongs to the thread that finds none. It ends by a plain store: a locked instruction would wait for
/// the flush, and everything that the thread does next would wait for that. Only a thread that finds another
/// one's mark is counted instead.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Pending {
    /// The line that has a flush to come, counted from one.
    marked: AtomicU32,
    /// From bit 16 on the slots without an item. Below, the flushes to come that are counted.
    counts: AtomicU32,
}

const SLOTS_AT: u32 = 16;
const FLUSHES: u32 = (1 << SLOTS_AT) - 1;

/// How a flush to come is noted: what [`Pending::leave`] takes back.
#[derive(Debug)]
#[must_use = "readers flush until the token is taken back"]
pub enum DirtyToken {
    Marked,
    Counted,
}

impl Pending {
    /// Makes it that of a leaf that no other thread knows yet.
    pub fn begin(&self) {
        self.marked.store(0, Relaxed);
        self.counts.store(0, Relaxed);
    }

    /// Notes that a flush in `line` is to come: a thread that reads there meanwhile flushes, too, and one that replaces
    /// the leaf does not take for granted that its values stay.
    #[inline(always)]
    pub fn enter(&self, line: usize) -> DirtyToken {
        // Before the store that the flush is for, which releases it: a thread that sees that sees this.
        let free = self.marked.load(Relaxed) == 0;
        let token = if free && self.marked.compare_exchange(0, line as u32 + 1, AcqRel, Relaxed).is_ok() {
            DirtyToken::Marked
        } else {
            self.counts.fetch_add(1, AcqRel);
            DirtyToken::Counted
        };
        // Before the look at whether writers are to stop: see `Leaf::still`.
        full_barrier();
        token
    }

    /// Takes the note of a flush back: it is done.
    #[inline(always)]
    pub fn leave(&self, token: DirtyToken) {
        match token {
            DirtyToken::Marked => self.marked.store(0, Release),
            DirtyToken::Counted => _ = self.counts.fetch_sub(1, Release),
        }
    }

    /// Notes that so many more slots are without an item; returns how many there are now.
    #[inline(always)]
    pub fn note_removed(&self, slots: i32) -> i32 {
        let by = (slots as u32) << SLOTS_AT;
        removed_of(self.counts.fetch_add(by, Relaxed).wrapping_add(by))
    }

    /// Returns the number of slots without an item, up to what is just being done.
    pub fn removed(&self) -> i32 {
        removed_of(self.counts.load(Relaxed))
    }

    /// Returns whether a flush in `line` may be under way. What was read there comes first.
    #[inline(always)]
    pub fn is_flushing(&self, line: usize) -> bool {
        self.marked.load(Acquire) == line as u32 + 1 || self.counts.load(Acquire) & FLUSHES != 0
    }

    /// Returns whether a flush in any line may be under way.
    pub fn is_flushing_anywhere(&self) -> bool {
        self.marked.load(Acquire) != 0 || self.counts.load(Acquire) & FLUSHES != 0
    }
}

/// Signed: an item may be seen to come back before it is seen to go.
fn removed_of(counts: u32) -> i32 {
    counts as i32 >> SLOTS_AT
}
