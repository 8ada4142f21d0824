//! Slots that nobody was asked about when the heap was opened.

use std::sync::Arc;

use super::heap::{Heap, Judge};
use super::slots::Slots;
use crate::Medium;
use crate::sync::Ordering::Acquire;
use crate::sync::wait;

impl<M: Medium> Heap<M> {
    /// Has up to `words` words of unsettled slots judged; whether any slot turned out to be free.
    pub(in crate::alloc) fn settle(&self, words: usize, judge: Judge<'_>) -> bool {
        let mut found = false;
        for _ in 0..words {
            let Some((slots, word)) = self.next_unsettled() else { return found };
            let mut bits = slots.unknown[word].load(Acquire);
            let mut look = false;
            while bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let live = judge(self.slot_offset(&slots, slot));
                // Whoever frees a slot made it known before it left the tree: then the judgement,
                // which may have come later, does not count.
                if slots.know(slot) && !live {
                    look = slots.give(word, 1 << (slot % 64));
                    found = true;
                }
            }
            if look {
                self.release(&slots);
            }
            self.say_roomy(slots, word);
        }
        found
    }

    fn next_unsettled(&self) -> Option<(Arc<Slots>, usize)> {
        let mut unsettled = wait::lock(&self.unsettled);
        let (slots, left) = unsettled.last_mut()?;
        *left -= 1;
        let next = (Arc::clone(slots), *left);
        if *left == 0 {
            unsettled.pop();
        }
        Some(next)
    }

    /// Has every unsettled slot judged, so that [`stats`](Self::stats) are exact.
    pub fn settle_all(&self, judge: Judge<'_>) {
        self.settle(usize::MAX, judge);
    }

    /// The slot is live and about to leave the tree: it is taken until [`free`](Self::free),
    /// whatever a judge says who comes too late to find it.
    pub fn keep(&self, offset: u64) {
        if let Some((slots, slot)) = self.chunk_of(offset) {
            slots.know(slot);
        }
    }
}
