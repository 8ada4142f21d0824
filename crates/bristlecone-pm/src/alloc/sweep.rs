//! The sweep: which slots of an unswept heap are free is found out when free space is needed.

use std::sync::Arc;

use super::heap::{Heap, Liveness};
use super::slots::Slots;
use crate::Medium;
use crate::sync::Ordering::Acquire;
use crate::sync::wait;

impl<M: Medium> Heap<M> {
    /// Sweeps up to `words` words of slots, and returns whether any slot turned out to be free.
    pub(in crate::alloc) fn sweep(&self, words: usize, is_live: Liveness<'_>) -> bool {
        let mut found = false;
        for _ in 0..words {
            let Some((slots, word)) = self.next_unswept() else { return found };
            let mut bits = slots.unknown[word].load(Acquire);
            let mut look = false;
            while bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let live = is_live(self.slot_offset(&slots, slot));
                // A thread that frees a slot made it known before the slot left the tree: then what the
                // callback returned, which may have looked later, does not count.
                if slots.know(slot) && !live {
                    look = slots.give(word, 1 << (slot % 64));
                    found = true;
                }
            }
            if look {
                self.release(&slots);
            }
            self.note_partial(slots, word);
        }
        found
    }

    fn next_unswept(&self) -> Option<(Arc<Slots>, usize)> {
        let mut unswept = wait::lock(&self.unswept);
        let (slots, left) = unswept.last_mut()?;
        *left -= 1;
        let next = (Arc::clone(slots), *left);
        if *left == 0 {
            unswept.pop();
        }
        Some(next)
    }

    /// Sweeps every slot, so that [`stats`](Self::stats) are exact.
    pub fn sweep_all(&self, is_live: Liveness<'_>) {
        self.sweep(usize::MAX, is_live);
    }

    /// Keeps a live slot that is about to leave the tree: it is taken until [`free`](Self::free),
    /// whatever a sweep finds that looks too late.
    pub fn keep(&self, offset: u64) {
        if let Some((slots, slot)) = self.chunk_of(offset) {
            slots.know(slot);
        }
    }
}
