//! The metadata of a leaf: which slots belong to keys, and the fingerprints of those keys. It
//! stands in the descriptor, or, with a single layer, in the block. Nothing of it is ever flushed:
//! recovery derives it from the slots.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use bristlecone_pm::{Medium, Persist, Word};

use super::NbTree;
use super::leaf::{FROZEN, Leaf, TAG_WORDS};
use crate::shared::fingerprint::{GROUP, probe, probe_cells};
use crate::shared::form::{KeyForm, ValueForm};

/// The fingerprint of a key. Zero is left to slots that nobody claimed.
#[inline(always)]
pub fn tag_of<K: KeyForm>(key: K::Ref<'_>) -> u8 {
    K::fingerprint(key).max(1)
}

impl<K: KeyForm, V: ValueForm, M: Medium> NbTree<K, V, M> {
    fn bitmap_cell(&self, leaf: &Leaf) -> &Word {
        self.pool.at(self.shape.meta(leaf.block()).0)
    }

    fn tag_cells(&self, leaf: &Leaf) -> &[Word] {
        self.pool.words(self.shape.meta(leaf.block()).1, TAG_WORDS)
    }

    #[inline(always)]
    pub(super) fn bitmap(&self, leaf: &Leaf) -> u64 {
        if self.single_layer {
            return self.bitmap_cell(leaf).load(self.medium());
        }
        // Pairs with `swap_bitmap`: the keys of the slots are there.
        leaf.bitmap.load(Acquire)
    }

    /// Replaces the bitmap, or gives the one found.
    pub(super) fn swap_bitmap(&self, leaf: &Leaf, seen: u64, new: u64) -> Result<u64, u64> {
        if self.single_layer {
            let ordered = self.medium().ordered_within_line();
            return self.bitmap_cell(leaf).publish_if(self.medium(), seen, new, &ordered);
        }
        leaf.bitmap.compare_exchange(seen, new, AcqRel, Acquire)
    }

    /// No slot joins the leaf any more; gives those that did.
    pub(super) fn freeze(&self, leaf: &Leaf) -> u64 {
        let mut seen = self.bitmap(leaf);
        while seen & FROZEN == 0 {
            match self.swap_bitmap(leaf, seen, seen | FROZEN) {
                Ok(_) => return seen,
                Err(found) => seen = found,
            }
        }
        seen & !FROZEN
    }

    /// Slots whose fingerprint is `tag`, whether they belong to a key by now or not.
    #[inline(always)]
    pub(super) fn probe(&self, leaf: &Leaf, tag: u8) -> u64 {
        if self.single_layer {
            let words = self.tag_cells(leaf).chunks_exact(GROUP).enumerate();
            return words.fold(0, |mask, (at, pair)| {
                let pair = [pair[0].load(self.medium()), pair[1].load(self.medium())];
                mask | probe(pair, tag) << (8 * GROUP * at)
            });
        }
        probe_cells(self.level, &leaf.tags, tag)
    }

    /// Claims a slot that nobody has, by setting its fingerprint.
    pub(super) fn claim(&self, leaf: &Leaf, tag: u8) -> Option<usize> {
        loop {
            let free = self.probe(leaf, 0) & self.shape.all();
            if free == 0 {
                return None;
            }
            let slot = free.trailing_zeros() as usize;
            let (at, shift) = (slot / 8, slot % 8 * 8);
            let mine = |word: u64| (word >> shift & 0xff == 0).then_some(word | u64::from(tag) << shift);
            let claimed = if self.single_layer {
                let cell = &self.tag_cells(leaf)[at];
                let seen = cell.load(self.medium());
                let ordered = self.medium().ordered_within_line();
                mine(seen).is_some_and(|new| cell.publish_if(self.medium(), seen, new, &ordered).is_ok())
            } else {
                let seen = leaf.tags[at].load(Relaxed);
                mine(seen)
                    .is_some_and(|new| leaf.tags[at].compare_exchange(seen, new, AcqRel, Relaxed).is_ok())
            };
            if claimed {
                return Some(slot);
            }
        }
    }

    /// Writes the metadata of a leaf that nobody else knows yet.
    pub(super) fn set_meta(&self, leaf: &Leaf, block: u64, bitmap: u64, tags: [u64; TAG_WORDS]) {
        if self.single_layer {
            let (at, tags_at) = self.shape.meta(block);
            for (cell, word) in self.pool.words(tags_at, TAG_WORDS).iter().zip(tags) {
                cell.store(self.medium(), word);
            }
            self.pool.at::<Word>(at).store(self.medium(), bitmap);
            return;
        }
        for (cell, word) in leaf.tags.iter().zip(tags) {
            cell.store(word, Relaxed);
        }
        leaf.bitmap.store(bitmap, Release);
    }
}
