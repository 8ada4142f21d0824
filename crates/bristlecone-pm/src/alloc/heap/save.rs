//! The state that a heap saves for the next open of its tree: which slots are taken.

use std::collections::BTreeMap;

use super::Heap;
use crate::sync::Ordering::{Acquire, Release};
use crate::sync::wait;
use crate::{Manifest, ManifestReader, Medium};

impl<M: Medium> Heap<M> {
    /// Returns whether the heap has a chunk.
    pub(in crate::alloc) fn has_chunks(&self) -> bool {
        !wait::read(&self.chunks).all.is_empty()
    }

    /// Saves which slots are taken, once no thread allocates or frees any more; cached slots and those in nests count as
    /// free. Returns `None` if the state of some slot is unknown.
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        if manifest.is_live() {
            // A follower allocates no slots.
            return Some(());
        }
        if !wait::lock(&self.unswept).is_empty() {
            return None;
        }
        self.empty_nests();
        let mut cached = BTreeMap::<(u64, usize), u64>::new();
        for cache in self.each_cache() {
            if let Some(slots) = &cache.slots {
                *cached.entry((slots.offset, cache.word)).or_default() |= cache.free;
            }
        }
        let chunks = wait::read(&self.chunks);
        manifest.push(chunks.all.len() as u64);
        for (&offset, slots) in &chunks.all {
            manifest.push(offset);
            let free = |word| cached.get(&(offset, word)).copied().unwrap_or(0);
            manifest.push_all(
                slots.bitmap.iter().enumerate().map(|(word, bits)| bits.load(Acquire) & !free(word)),
            );
        }
        Some(())
    }

    /// Restores the state that [`save`](Self::save) saved, in place of a recovery that marks live slots. Returns
    /// `None` if it was saved for other chunks than the heap has.
    pub fn resume(&self, manifest: &mut ManifestReader<'_>) -> Option<()> {
        if manifest.is_live() {
            return Some(());
        }
        let chunks = wait::read(&self.chunks);
        let is_as_many = manifest.read()? == chunks.all.len() as u64;
        if !is_as_many {
            return None;
        }
        for (&offset, slots) in &chunks.all {
            let is_same = manifest.read()? == offset;
            let words = manifest.read_all().filter(|words| is_same && words.len() == slots.bitmap.len())?;
            for (bits, word) in slots.bitmap.iter().zip(words) {
                // Bits beyond the last slot are taken permanently.
                bits.store(bits.load(Acquire) | word, Release);
            }
            slots.count(self.slots_per_chunk());
        }
        Some(())
    }
}
