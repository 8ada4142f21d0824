//! Inspection of every block for recovery: leaves, their items, and the remains of interrupted replacements.

use bristlecone_pm::{AllMarks, ChunkRange, Error, Marks, Medium, Result};

use super::NbTree;
use super::layout::{EMPTY, Header, SLOTS_MAX, State, Stored};
use super::leaf::TAG_WORDS;
use super::meta::{Tag, Tags};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::recovery::{KeyEnds, PREFETCHES, Survivor, each};
use crate::index::parts::slot::{Slot, bits};

/// Number of blocks ahead of the one at hand whose lines are prefetched.
const LINES_AHEAD: usize = 4;
/// Number of blocks ahead whose origins are prefetched; their own lines have arrived.
const ORIGINS_AHEAD: usize = 2;

/// Errors of a record to which two slots refer, and of values.
const TWICE: &str = "a key record referenced by two slots";
const INVALID_VALUE: &str = "an invalid value word";

/// A set of parts of hashes, which distinguishes most keys of a leaf.
#[derive(Default)]
struct Met([u64; 16]);

impl Met {
    /// Inserts ten bits of a hash; returns whether the set had them.
    #[inline(always)]
    fn insert(&mut self, hash: u64) -> bool {
        let part = (hash >> 54) as usize;
        let (word, bit) = (&mut self.0[part / 64], 1 << (part % 64));
        let before = *word & bit != 0;
        *word |= bit;
        before
    }
}

/// The issues in some chunks.
#[derive(Default)]
pub(super) struct Found {
    pub leaves: Vec<Survivor>,
    /// Sealed cells with the values that they refer to, and cells of duplicates without a value.
    pub sealed: Vec<(u64, u64)>,
    /// Words of keys that are in two slots.
    pub duplicates: Vec<u64>,
    /// Blocks of incomplete replacements, and leaves without items.
    pub stale: Vec<u64>,
    pub stamp: u64,
}

/// The inspection of a chunk.
struct Inspection<'a, K: KeyCodec> {
    ranges: &'a [ChunkRange],
    guard: &'a K::Guard,
    /// Of records of keys, and of values.
    marks: [Marks; 2],
    ahead: Ahead<'a>,
    found: Found,
}

/// A block whose records are prefetched, a few at a time, while the items of the block before are verified.
#[derive(Default)]
struct Ahead<'a> {
    block: &'a [Slot],
    /// Its slots with items.
    occupied: u64,
    /// Those whose records are not prefetched yet.
    left: u64,
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Inspects every block.
    pub(super) fn census(&self, ranges: &[ChunkRange], threads: usize) -> Result<Found> {
        let marks = AllMarks::default();
        let parts = each(ranges.len(), threads, |chunk| self.inspect_chunk(ranges, chunk, &marks))?;
        let [key, value] = marks.finish([&self.keys.records, &self.values.records]);
        if let Some(key) = key {
            return Err(Error::corrupted(TWICE, format!("key record at {key:#x}")));
        }
        if let Some(value) = value {
            return Err(Error::corrupted(INVALID_VALUE, format!("value record at {value:#x}")));
        }
        let mut all = Found::default();
        all.leaves.reserve_exact(parts.iter().map(|part| part.leaves.len()).sum());
        for mut part in parts {
            all.leaves.append(&mut part.leaves);
            all.sealed.append(&mut part.sealed);
            all.duplicates.append(&mut part.duplicates);
            all.stale.append(&mut part.stale);
            all.stamp = all.stamp.max(part.stamp);
        }
        Ok(all)
    }

    /// Inspects the blocks of a chunk.
    fn inspect_chunk(&self, ranges: &[ChunkRange], chunk: usize, marks: &AllMarks<2>) -> Result<Found> {
        let guard = K::pin();
        let mut inspection = Inspection {
            ranges,
            guard: &guard,
            marks: marks.take(),
            ahead: Ahead::default(),
            found: Found::default(),
        };
        let range = ranges[chunk];
        let block_at = |slot: usize| range.offset + (slot * self.shape.block_bytes) as u64;
        inspection.ahead = self.ahead(block_at(0));
        for word in 0..range.slots.div_ceil(64) {
            let mut taken = 0;
            for slot in 64 * word..range.slots.min(64 * (word + 1)) {
                self.pool.prefetch_lines(block_at(slot + LINES_AHEAD), self.shape.block_bytes);
                if slot + ORIGINS_AHEAD < range.slots {
                    self.prefetch_origin_of(block_at(slot + ORIGINS_AHEAD));
                }
                while self.prefetch_next(&mut inspection.ahead) {}
                let next =
                    if slot + 1 < range.slots { self.ahead(block_at(slot + 1)) } else { Ahead::default() };
                let occupied = std::mem::replace(&mut inspection.ahead, next).occupied;
                let is_leaf = self.look(block_at(slot), occupied, &mut inspection)?;
                taken |= u64::from(is_leaf) << (slot % 64);
            }
            self.blocks.mark_live_word(range, word, taken);
        }
        marks.put(inspection.marks);
        Ok(inspection.found)
    }

    /// Prefetches the header of the block that a block replaced, or is about to.
    fn prefetch_origin_of(&self, block: u64) {
        let header: &Header = self.pool.at(block);
        if let Some(State::Live { origin }) = State::decode(header.state.load(self.medium())) {
            self.pool.prefetch(origin);
        }
    }

    /// Returns a block before its turn.
    #[inline(always)]
    fn ahead(&self, block: u64) -> Ahead<'_> {
        let header: &Header = self.pool.at(block);
        let is_live = matches!(State::decode(header.state.load(self.medium())), Some(State::Live { .. }));
        let block = self.pool.slice(self.shape.first(block), self.shape.slots);
        let occupied = if is_live { self.occupied(block) } else { 0 };
        let has_records = !(K::INLINE && self.values.are_words());
        Ahead { block, occupied, left: if has_records { occupied } else { 0 } }
    }

    /// Prefetches the records of one more item; returns whether there was one.
    #[inline(always)]
    fn prefetch_next(&self, ahead: &mut Ahead<'_>) -> bool {
        if ahead.left == 0 {
            return false;
        }
        let slot = &ahead.block[ahead.left.trailing_zeros() as usize];
        ahead.left &= ahead.left - 1;
        self.keys.prefetch(slot.key.load(self.medium()));
        self.prefetch_value_of(slot.value.load(self.medium()));
        true
    }

    /// Returns the slots of a block whose value word is not empty.
    #[inline(always)]
    fn occupied(&self, slots: &[Slot]) -> u64 {
        // No branches: which slots are empty is random.
        let bit = |(at, slot): (usize, &Slot)| u64::from(slot.value.load(self.medium()) != EMPTY) << at;
        slots.iter().enumerate().map(bit).fold(0, |bits, bit| bits | bit)
    }

    /// Classifies one block; returns whether it is a leaf with items.
    #[inline(always)]
    fn look(&self, block: u64, occupied: u64, inspection: &mut Inspection<'_, K>) -> Result<bool> {
        let (state, birth) = self.header_of(block)?;
        let found = &mut inspection.found;
        match state {
            State::Free => Ok(false),
            State::Replaced { by } => {
                found.stamp = found.stamp.max(birth).max(by);
                Ok(false)
            }
            State::Live { origin } => {
                found.stamp = found.stamp.max(birth);
                let came_to_pass = self.came_to_pass(origin, birth, inspection.ranges)?;
                if came_to_pass && let Some(survivor) = self.recover_leaf(block, occupied, inspection)? {
                    inspection.found.leaves.push(survivor);
                    return Ok(true);
                }
                inspection.found.stale.push(block);
                Ok(false)
            }
        }
    }

    /// Rebuilds a leaf: marks its records as live, and derives the fingerprints from the keys. Returns `None`
    /// if it has no items.
    fn recover_leaf(
        &self,
        block: u64,
        occupied: u64,
        inspection: &mut Inspection<'_, K>,
    ) -> Result<Option<Survivor>> {
        let medium = self.medium();
        let damaged = |what: &str| Error::corrupted(what, format!("block {block:#x}"));
        let Inspection { ranges, guard, marks: [keys, values], ahead, found } = inspection;
        let slots: &[Slot] = self.pool.slice(self.shape.first(block), self.shape.slots);
        let mut tags = Tags::default();
        let mut met = Met::default();
        let mut hashes = [0; SLOTS_MAX];
        let mut bitmap = 0_u64;
        let mut extent = KeyEnds::<K>::default();
        for (turn, at) in bits(occupied).enumerate() {
            if turn % PREFETCHES == 0 {
                (0..PREFETCHES).for_each(|_| _ = self.prefetch_next(ahead));
            }
            let slot = &slots[at];
            let mut value = slot.value.load(medium);
            let word = slot.key.load(medium);
            if let Stored::Sealed(cell) = Stored::decode(value) {
                value = self
                    .unseal(word, cell, ranges)
                    .ok_or_else(|| damaged(&format!("a seal with an unknown location: {cell:#x}")))?;
                found.sealed.push((self.shape.cell(block, at), value));
                if value == EMPTY {
                    continue;
                }
            }
            // A damaged key is remembered: the fingerprint is not that of the original one.
            let key = self.keys.mark_and_read(word, keys, guard)?;
            let tag = Tag::of::<K>(key);
            if met.insert(tag.hash) {
                let same = |&other: &usize| {
                    let other_key = || self.keys.read(slots[other].key.load(medium), guard);
                    hashes[other] == tag.hash && other_key() == K::shorten(key)
                };
                if let Some(first) = bits(bitmap).find(same) {
                    let first = slots[first].key.load(medium);
                    if !K::INLINE && first == word {
                        return Err(damaged(TWICE));
                    }
                    // Both were durable before their slots: an invalid one is a damaged other key.
                    self.keys.verify(first).and(self.keys.verify(word))?;
                    found.sealed.push((self.shape.cell(block, at), EMPTY));
                    found.duplicates.push(word);
                    continue;
                }
            }
            hashes[at] = tag.hash;
            if !self.mark_value(value, values)? {
                return Err(damaged(INVALID_VALUE));
            }
            tags.set(at, tag);
            bitmap |= 1 << at;
            extent.add(word, key);
        }
        let Some((low, high)) = extent.ends() else { return Ok(None) };
        let id = self.leaves.add(block)?;
        let leaf = self.leaves.get(id);
        self.set_meta(leaf, block, bitmap, &tags);
        leaf.begin(block, None);
        Ok(Some(Survivor { low, high, leaf: id, items: bitmap.count_ones() }))
    }

    /// Marks the record of a value word as live. Returns `false` if it is not a value of this tree.
    #[inline(always)]
    fn mark_value(&self, value: u64, marks: &mut Marks) -> Result<bool> {
        match Stored::decode(value) {
            Stored::Plain(_) => Ok(self.values.are_words()),
            Stored::Record(record) => {
                let bytes = self.values.records.mark(record, marks)?;
                Ok(!self.values.are_words() || bytes == 8)
            }
            Stored::Sealed(_) | Stored::Empty => Ok(false),
        }
    }
}

const _: () = assert!(SLOTS_MAX <= TAG_WORDS * 8);
