//! The sweep finds the free slots of an unswept heap when free space is needed.

use std::sync::Arc;

use super::heap::{ChunkRange, Heap, Liveness};
use super::slots::Slots;
use crate::Medium;
use crate::sync::Ordering::Acquire;
use crate::sync::wait;

impl<M: Medium> Heap<M> {
    /// Sweeps up to `words` words of slots, and returns whether any slot was free.
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
                // A thread that frees a slot marks it known before the slot leaves the tree. The answer
                // of the callback then does not count, as it may have looked later.
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

    /// Returns whether some slots are unswept.
    pub(in crate::alloc) fn has_unswept(&self) -> bool {
        !wait::lock(&self.unswept).is_empty()
    }

    /// Returns the chunks of which some slots are unswept.
    pub(in crate::alloc) fn unswept_chunks(&self) -> Vec<ChunkRange> {
        let slots = self.slots_per_chunk();
        let unswept = wait::lock(&self.unswept);
        unswept.iter().map(|(chunk, _)| ChunkRange { offset: chunk.offset, slots }).collect()
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

    /// Protects a live slot that is about to leave the tree. It stays taken until [`free`](Self::free),
    /// even if a sweep looks too late and finds it unreferenced.
    pub fn keep(&self, offset: u64) {
        self.with_slot(offset, |slots, slot| slots.know(slot));
    }
}
