//! The word of a leaf that says which of its lines have a flush to come, and how many items it has.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::shared::sync::AtomicU64;

/// From bit 48 on the items. Below, in 16 bits each, the flushes to come in one line of three.
#[derive(Debug, Default)]
pub struct Pending(AtomicU64);

impl Pending {
    /// What a leaf has that nobody else knows yet.
    pub fn begin(&self, items: usize) {
        self.0.store((items as u64) << 48, Relaxed);
    }

    /// A flush in `line` is to come: whoever reads there meanwhile flushes, too.
    #[inline(always)]
    pub fn enter(&self, line: usize) {
        // Before the store that the flush is for: both are locked instructions.
        self.0.fetch_add(unit(line), SeqCst);
    }

    /// The flush is done, and the leaf has `items` more items; gives how many it has now.
    #[inline(always)]
    pub fn leave(&self, line: usize, items: i64) -> i64 {
        let by = ((items as u64) << 48).wrapping_sub(unit(line));
        items_of(self.0.fetch_add(by, Release).wrapping_add(by))
    }

    /// The same where nothing needs a flush.
    #[inline(always)]
    pub fn count(&self, items: i64) -> i64 {
        let by = (items as u64) << 48;
        items_of(self.0.fetch_add(by, Relaxed).wrapping_add(by))
    }

    /// Items, up to what is just being done.
    pub fn items(&self) -> i64 {
        items_of(self.0.load(Relaxed))
    }

    /// Whether a flush in `line` may be under way. What was read there comes first.
    #[inline(always)]
    pub fn is_flushing(&self, line: usize) -> bool {
        self.0.load(Acquire) & (unit(line) * 0xffff) != 0
    }

    /// Whether a flush in any line may be under way.
    pub fn is_flushing_anywhere(&self) -> bool {
        self.0.load(Acquire) << 16 != 0
    }
}

/// Signed: an item may be seen to go before it is seen to come.
fn items_of(word: u64) -> i64 {
    word as i64 >> 48
}

#[inline(always)]
fn unit(line: usize) -> u64 {
    1 << (16 * (line % 3))
}
