//! Words of a leaf that record which of its lines have a pending flush, and how many of its slots lost their item.

use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::index::parts::active_threads::full_barrier;
use crate::index::parts::sync::AtomicU32;

/// A mark for one flush, and counts.
///
/// The mark belongs to the thread that finds it free. The thread clears it by a plain store: a locked instruction would
/// wait for the flush, and would delay all following instructions. Only a thread that finds the mark taken uses the
/// counts.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Pending {
    /// The line with a pending flush, counted from one.
    marked: AtomicU32,
    /// From bit 16 on, the number of slots without an item. Below, the number of counted pending flushes.
    counts: AtomicU32,
}

const SLOTS_AT: u32 = 16;
const FLUSHES: u32 = (1 << SLOTS_AT) - 1;

/// How a pending flush was announced; [`Pending::leave`] reverts it.
#[derive(Debug)]
#[must_use = "readers flush until the token is taken back"]
pub enum DirtyToken {
    Marked,
    Counted,
}

impl Pending {
    /// Initializes the words for a leaf that no other thread knows yet.
    pub fn begin(&self) {
        self.marked.store(0, Relaxed);
        self.counts.store(0, Relaxed);
    }

    /// Forgets the flushes of threads that died.
    pub fn forget_flushes(&self) {
        self.marked.store(0, Relaxed);
        self.counts.store(self.counts.load(Relaxed) & !FLUSHES, Relaxed);
    }

    /// Announces a flush of `line`: a concurrent reader of the line flushes it as well, and a thread that replaces the
    /// leaf does not assume that its values are stable.
    #[inline(always)]
    pub fn enter(&self, line: usize) -> DirtyToken {
        // Precedes the store to be flushed, which is a release: a thread that sees that store also sees the mark.
        let free = self.marked.load(Relaxed) == 0;
        let token = if free && self.marked.compare_exchange(0, line as u32 + 1, AcqRel, Relaxed).is_ok() {
            DirtyToken::Marked
        } else {
            self.counts.fetch_add(1, AcqRel);
            DirtyToken::Counted
        };
        // Orders the mark before the check whether writers must stop: see `Leaf::still`.
        full_barrier();
        token
    }

    /// Reverts the announcement of a completed flush.
    #[inline(always)]
    pub fn leave(&self, token: DirtyToken) {
        match token {
            DirtyToken::Marked => self.marked.store(0, Release),
            DirtyToken::Counted => _ = self.counts.fetch_sub(1, Release),
        }
    }

    /// Adds `slots` to the number of slots without an item; returns the sum.
    #[inline(always)]
    pub fn note_removed(&self, slots: i32) -> i32 {
        let by = (slots as u32) << SLOTS_AT;
        removed_of(self.counts.fetch_add(by, Relaxed).wrapping_add(by))
    }

    /// Returns the approximate number of slots without an item under concurrent changes.
    pub fn removed(&self) -> i32 {
        removed_of(self.counts.load(Relaxed))
    }

    /// Returns whether a flush of `line` may be pending. Prior reads of the line are ordered before this check.
    #[inline(always)]
    pub fn is_flushing(&self, line: usize) -> bool {
        self.marked.load(Acquire) == line as u32 + 1 || self.counts.load(Acquire) & FLUSHES != 0
    }

    /// Returns whether a flush of any line may be pending.
    pub fn is_flushing_anywhere(&self) -> bool {
        self.marked.load(Acquire) != 0 || self.counts.load(Acquire) & FLUSHES != 0
    }
}

/// Signed: the return of an item may be seen before its removal.
fn removed_of(counts: u32) -> i32 {
    counts as i32 >> SLOTS_AT
}
