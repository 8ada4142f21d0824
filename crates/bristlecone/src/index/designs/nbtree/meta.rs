//! The metadata of a leaf: the slots that belong to keys, and the fingerprints of these keys. It is stored in the
//! descriptor or, with a single layer, in the block. It is never flushed: recovery derives it from the slots.

use bristlecone_pm::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use bristlecone_pm::{Medium, Persist, Word};

use super::NbTree;
use super::leaf::{EXTRA_BITS, FROZEN, Leaf, TAG_WORDS};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::fingerprint::{GROUP, probe, probe_cells};

/// The fingerprint of a key: ten bits, so that one lookup in fifty compares a non-matching slot, instead of one in
/// twelve.
#[derive(Clone, Copy, Debug)]
pub struct Tag {
    /// Zero is reserved for unclaimed slots.
    pub byte: u8,
    /// A word of all ones or zeros for each bit beyond the byte.
    extras: [u64; EXTRA_BITS],
    /// The hash of the key.
    pub hash: u64,
}

impl Tag {
    /// The fingerprint of no key.
    pub const NONE: Self = Self { byte: 0, extras: [0; EXTRA_BITS], hash: 0 };

    #[inline(always)]
    pub fn of<K: KeyCodec>(key: K::Ref<'_>) -> Self {
        let hash = K::hash(key);
        let extras = std::array::from_fn(|bit| ((hash << (8 + bit)) as i64 >> 63) as u64);
        Self { byte: ((hash >> 56) as u8).max(1), extras, hash }
    }
}

/// The fingerprints of a leaf under construction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tags {
    bytes: [u64; TAG_WORDS],
    extras: [u64; EXTRA_BITS],
}

impl Tags {
    /// Sets the fingerprint of a slot that has none.
    pub fn set(&mut self, slot: usize, tag: Tag) {
        self.bytes[slot / 8] |= u64::from(tag.byte) << (slot % 8 * 8);
        for (bits, extra) in self.extras.iter_mut().zip(tag.extras) {
            *bits |= extra & 1 << slot;
        }
    }

    /// Returns the fingerprints of some of the slots.
    #[inline(always)]
    pub fn of_slots(&self, slots: u64) -> Self {
        Self {
            bytes: std::array::from_fn(|word| self.bytes[word] & bytes_of(slots >> (8 * word) & 0xff)),
            extras: self.extras.map(|bits| bits & slots),
        }
    }
}

/// Expands each of eight bits to a byte of ones.
#[inline(always)]
fn bytes_of(bits: u64) -> u64 {
    // Copy all bits to every byte and mask the byte's own bit; then the top bit shows whether it was set.
    let own = (bits * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    ((own + 0x7f7f_7f7f_7f7f_7f7f) >> 7 & 0x0101_0101_0101_0101) * 0xff
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    fn bitmap_cell(&self, leaf: &Leaf) -> &Word {
        self.pool.at(self.shape.meta(leaf.block()).0)
    }

    fn tag_cells(&self, leaf: &Leaf) -> &[Word] {
        self.pool.words(self.shape.meta(leaf.block()).1, TAG_WORDS)
    }

    #[inline(always)]
    pub(super) fn bitmap(&self, leaf: &Leaf) -> u64 {
        if self.is_single_layer() {
            return self.bitmap_cell(leaf).load(self.medium());
        }
        // Pairs with `swap_bitmap`: the keys of the slots are stored.
        leaf.bitmap.load(Acquire)
    }

    /// Returns the approximate number of items of the leaf under concurrent changes. A key counts as soon as it joins.
    #[inline(always)]
    pub(super) fn items(&self, leaf: &Leaf) -> i32 {
        (self.bitmap(leaf) & !FROZEN).count_ones() as i32 - leaf.pending.removed()
    }

    /// Replaces the bitmap, or returns the one found.
    #[inline(always)]
    pub(super) fn swap_bitmap(&self, leaf: &Leaf, seen: u64, new: u64) -> Result<u64, u64> {
        if self.is_single_layer() {
            let ordered = self.medium().ordered_within_line();
            return self.bitmap_cell(leaf).publish_if(self.medium(), seen, new, &ordered);
        }
        leaf.bitmap.compare_exchange(seen, new, AcqRel, Acquire)
    }

    /// Prevents further slots from joining the leaf; returns those that joined.
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

    /// Returns the slots with the fingerprint `tag`, among those that belong to keys.
    #[inline(always)]
    pub(super) fn candidates(&self, leaf: &Leaf, tag: Tag) -> u64 {
        let hits = self.probe_bytes(leaf, tag.byte);
        if self.is_single_layer() {
            return hits;
        }
        leaf.extras
            .iter()
            .zip(tag.extras)
            .fold(hits, |hits, (bits, extra)| hits & !(bits.load(Relaxed) ^ extra))
    }

    /// Returns the slots with this byte, of keys or of keys that are about to join.
    #[inline(always)]
    fn probe_bytes(&self, leaf: &Leaf, tag: u8) -> u64 {
        if self.is_single_layer() {
            let words = self.tag_cells(leaf).chunks_exact(GROUP).enumerate();
            return words.fold(0, |mask, (at, pair)| {
                let pair = [pair[0].load(self.medium()), pair[1].load(self.medium())];
                mask | probe(pair, tag) << (8 * GROUP * at)
            });
        }
        probe_cells(self.level, &leaf.tags, tag)
    }

    /// Claims a free slot, in the key's home line if possible, by setting its fingerprint. The slots `seen` in the
    /// bitmap belong to keys.
    #[inline(always)]
    pub(super) fn claim(&self, leaf: &Leaf, seen: u64, tag: Tag) -> Option<usize> {
        let mut free = !seen & self.shape.all();
        loop {
            if free == 0 {
                return None;
            }
            let slot = self.shape.pick(free, tag.hash);
            let (at, shift) = (slot / 8, slot % 8 * 8);
            let mine = |word: u64| (word >> shift & 0xff == 0).then_some(word | u64::from(tag.byte) << shift);
            let claimed = if self.is_single_layer() {
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
                for (bits, extra) in leaf.extras.iter().zip(tag.extras) {
                    if extra != 0 {
                        // Readers check the bitmap first, which includes the slot only later.
                        bits.fetch_or(1 << slot, Relaxed);
                    }
                }
                return Some(slot);
            }
            free = self.probe_bytes(leaf, 0) & self.shape.all();
        }
    }

    /// Returns the fingerprints of a leaf; those of slots that belong to keys do not change.
    pub(super) fn tags(&self, leaf: &Leaf) -> Tags {
        if self.is_single_layer() {
            let cells = self.tag_cells(leaf);
            let bytes = std::array::from_fn(|word| cells[word].load(self.medium()));
            return Tags { bytes, ..Tags::default() };
        }
        Tags {
            bytes: std::array::from_fn(|word| leaf.tags[word].load(Relaxed)),
            extras: std::array::from_fn(|bit| leaf.extras[bit].load(Relaxed)),
        }
    }

    /// Writes the metadata of a leaf that no other thread knows yet.
    pub(super) fn set_meta(&self, leaf: &Leaf, block: u64, bitmap: u64, tags: &Tags) {
        if self.is_single_layer() {
            let (at, tags_at) = self.shape.meta(block);
            for (cell, word) in self.pool.words(tags_at, TAG_WORDS).iter().zip(tags.bytes) {
                cell.store(self.medium(), word);
            }
            self.pool.at::<Word>(at).store(self.medium(), bitmap);
            return;
        }
        leaf.tags.iter().zip(tags.bytes).for_each(|(cell, word)| cell.store(word, Relaxed));
        leaf.extras.iter().zip(tags.extras).for_each(|(cell, word)| cell.store(word, Relaxed));
        leaf.bitmap.store(bitmap, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_fingerprints_of_all() {
        let all = Tags { bytes: [u64::MAX; TAG_WORDS], extras: [u64::MAX; EXTRA_BITS] };
        for slots in [0, 1, 0x8000_0000_0000_0081, 0x0123_4567_89ab_cdef, u64::MAX] {
            let some = all.of_slots(slots);
            let bytes = some.bytes.map(u64::to_le_bytes).concat();
            for (slot, byte) in bytes.into_iter().enumerate() {
                assert_eq!(byte, if slots >> slot & 1 == 1 { 0xff } else { 0 });
            }
            assert_eq!(some.extras, [slots; EXTRA_BITS]);
        }
    }
}
