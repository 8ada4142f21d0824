//! Recovery: finds the leaves by inspecting every block, undoes replacements that a crash interrupted, and
//! rebuilds the volatile part. Every step leaves a state that recovery handles, so a crash during recovery is
//! safe.

use std::sync::Arc;

use bristlecone_pm::sync::Ordering::Relaxed;
use bristlecone_pm::sync::epoch;
use bristlecone_pm::{
    AllMarks, ChunkRange, Durable, Error, Flushed, LINE_BYTES, Manifest, ManifestReader, Marks, Medium,
    Memory, Persist, PoolFile, Result, Word,
};

use super::layout::{EMPTY, Header, SLOTS_MAX, STAMP_END, State, Stored};
use super::leaf::TAG_WORDS;
use super::meta::{Tag, Tags};
use super::uncounted::Uncounted;
use super::{NbTree, NbTreeOptions};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::counter::Counter;
use crate::index::parts::items::{Items, Values};
use crate::index::parts::recovery::{KeyEnds, PREFETCHES, Survivor, each, index_over, overlap, sort};
use crate::index::parts::slot::{Slot, bits};
use crate::index::parts::volatile_index::VolatileIndex;
use crate::index::{Described, Open, Salvage, SalvageSink};

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
struct Found {
    leaves: Vec<Survivor>,
    /// Sealed cells with the values that they refer to, and cells of duplicates without a value.
    sealed: Vec<(u64, u64)>,
    /// Words of keys that are in two slots.
    duplicates: Vec<u64>,
    /// Blocks of incomplete replacements, and leaves without items.
    stale: Vec<u64>,
    stamp: u64,
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

impl<K: KeyCodec, M: Medium> Open<K, M> for NbTree<K, M> {
    type Options = NbTreeOptions;

    fn open(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: NbTreeOptions,
        threads: usize,
    ) -> Result<Self> {
        let inner_bytes = options.inner_bytes as usize;
        let mut tree = Self::unrecovered(pool, entry, options, &pool.memory())?;
        let survivors = tree.survivors(threads)?;
        tree.blocks.finish_recovery();
        tree.keys.finish_recovery();
        tree.values.finish_recovery();
        tree.inner = if survivors.is_empty() {
            VolatileIndex::new(inner_bytes, tree.first_leaf()?, &pool.memory())?
        } else {
            tree.len.add(survivors.iter().map(|leaf| i64::from(leaf.items)).sum());
            index_over(inner_bytes, &tree.keys, &survivors, &pool.memory())?
        };
        tree.saver.opened();
        Ok(tree)
    }

    fn resume(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: NbTreeOptions,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let mut tree = Self::unrecovered(pool, entry, options, &Memory::private()).ok()?;
        if !manifest.is_live() {
            tree.stamps = manifest.memory().cell();
            tree.uncounted = Uncounted::new(&manifest.memory());
        }
        tree.len = Counter::resume(manifest)?;
        if !manifest.is_live() {
            tree.stamps.store(manifest.read()?, Relaxed);
            tree.leaving.store(manifest.read_u32()?, Relaxed);
        } else {
            // A follower replaces no leaf.
            let _places = (manifest.read()?, manifest.read()?);
        }
        tree.blocks.resume(manifest)?;
        tree.keys = Items::resume_keys(pool, entry.id, manifest)?;
        tree.values = Values::resume(pool, entry.id, entry.values, manifest)?;
        tree.inner = VolatileIndex::resume(options.inner_bytes as usize, manifest)?;
        tree.leaves.resume(manifest)?;
        tree.saver.opened();
        Some(tree)
    }

    fn take_over(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: NbTreeOptions,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        Self::taken_over(pool, entry, options, manifest)
    }

    fn share(&self, manifest: &mut Manifest) -> Option<()> {
        self.save(manifest)
    }
}

impl<K: KeyCodec, M: Medium> Salvage<K, M> for NbTree<K, M> {
    fn salvage(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: NbTreeOptions,
        sink: &mut SalvageSink<'_, K>,
    ) -> Result<()> {
        Self::unrecovered(pool, entry, options, &pool.memory())?.save_items(sink)
    }
}

impl<K: KeyCodec, M: Medium> Drop for NbTree<K, M> {
    fn drop(&mut self) {
        self.saver.leave(|manifest| self.save(manifest));
    }
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Records the state for the next open, or for followers. Returns `None` while a reader may access a
    /// replaced leaf.
    fn save(&self, manifest: &mut Manifest) -> Option<()> {
        (manifest.is_live() || self.free_lost_records()).then_some(())?;
        let is_settled = manifest.is_live()
            || epoch::settle(|| {
                self.reclaim();
                self.outstanding.load(Relaxed) == 0
            });
        is_settled.then_some(())?;
        self.len.save(manifest)?;
        if manifest.is_live() {
            manifest.push_cell(&self.stamps)?;
            self.uncounted.save(manifest)?;
        } else {
            manifest.push(self.stamps.load(Relaxed));
            manifest.push(self.leaving.load(Relaxed).into());
        }
        self.blocks.save(manifest)?;
        self.keys.save(manifest)?;
        self.values.save(manifest)?;
        self.inner.save(manifest)?;
        self.leaves.save(manifest)
    }

    /// Finds every leaf, in key order, repaired.
    pub(super) fn survivors(&self, threads: usize) -> Result<Vec<Survivor>> {
        let ranges = self.blocks.chunks();
        let mut found = self.census(&ranges, threads)?;
        self.stamps.store(found.stamp + 1, Relaxed);
        self.repair(&found);
        sort(&self.keys, &mut found.leaves);
        if let Some(at) = overlap(&self.keys, &found.leaves) {
            let block = self.leaves.get(found.leaves[at].leaf).block();
            return Err(Error::corrupted("two leaves overlap", format!("block {block:#x}")));
        }
        Ok(found.leaves)
    }

    /// Inspects every block.
    fn census(&self, ranges: &[ChunkRange], threads: usize) -> Result<Found> {
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

    /// Returns the state and the stamp in a block's header.
    pub(super) fn header_of(&self, block: u64) -> Result<(State, u64)> {
        let header: &Header = self.pool.at(block);
        let word = header.state.load(self.medium());
        let state = State::decode(word).ok_or_else(|| {
            Error::corrupted(format!("unknown state {word:#x}"), format!("block {block:#x}"))
        })?;
        let birth = if state == State::Free { 0 } else { self.birth_of(block) };
        let by = if let State::Replaced { by } = state { by } else { 0 };
        if birth.max(by) >= STAMP_END {
            return Err(Error::corrupted("an invalid stamp", format!("block {block:#x}")));
        }
        Ok((state, birth))
    }

    /// Returns the stamp in a block's header, in any state.
    pub(super) fn birth_of(&self, block: u64) -> u64 {
        self.pool.at::<Header>(block).birth.load(self.medium())
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

    /// Returns whether the replacement that created a block was linked. The replaced block may have been reused
    /// by now, but then it is younger.
    pub(super) fn came_to_pass(&self, origin: u64, birth: u64, ranges: &[ChunkRange]) -> Result<bool> {
        if origin == 0 {
            return Ok(true);
        }
        if !origin.is_multiple_of(self.shape.block_bytes as u64) || origin >= self.pool.max_bytes() {
            return Err(Error::corrupted("an origin that is not a block", format!("offset {origin:#x}")));
        }
        if !self.is_block(origin, ranges) {
            // Its chunk has left the tree.
            return Ok(true);
        }
        let (state, origin_birth) = self.header_of(origin)?;
        Ok(match state {
            State::Free => true,
            State::Live { .. } => origin_birth > birth,
            State::Replaced { by } => origin_birth > birth || by == birth,
        })
    }

    /// Returns whether a block of this tree begins at an offset.
    pub(super) fn is_block(&self, offset: u64, ranges: &[ChunkRange]) -> bool {
        let before = ranges.partition_point(|range| range.offset <= offset);
        let range = before.checked_sub(1).map(|at| ranges[at]);
        range.is_some_and(|range| {
            let within = offset - range.offset;
            let block_bytes = self.shape.block_bytes as u64;
            within.is_multiple_of(block_bytes) && within / block_bytes < range.slots as u64
        })
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

    /// Returns the contents of the cell that a seal refers to, if it is a copy's cell for the same key's value.
    pub(super) fn unseal(&self, key: u64, cell: u64, ranges: &[ChunkRange]) -> Option<u64> {
        if cell == 0 {
            return Some(EMPTY);
        }
        let (block, at) = self.shape.cell_at(cell).filter(|(block, _)| self.is_block(*block, ranges))?;
        let slot: &Slot = self.pool.at(self.shape.slot(block, at));
        let value = slot.value.load(self.medium());
        let named = slot.key.load(self.medium()) == key;
        (named && value != EMPTY && !Stored::is_sealed(value)).then_some(value)
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

    /// Recover 1 and 2, in any order: the contents of a copy's cells remain until its block is reused, and
    /// whether a block is a copy does not change.
    fn repair(&self, found: &Found) {
        let medium = self.medium();
        let mut flushed = Flushed::none();
        for &(cell, value) in &found.sealed {
            let cell: &Word = self.pool.at(cell);
            cell.store(medium, value);
            flushed = flushed.and(medium.flush(cell, "nbtree recover.1"));
        }
        let by_none = State::Replaced { by: self.stamp() }.encode();
        for &block in &found.stale {
            let state = &self.pool.at::<Header>(block).state;
            state.store(medium, by_none);
            flushed = flushed.and(medium.flush(state, "nbtree recover.2"));
        }
        if !found.sealed.is_empty() || !found.stale.is_empty() {
            let Durable { .. } = medium.fence(flushed, "nbtree recover.3");
        }
        for &key in &found.duplicates {
            self.keys.free(key);
        }
    }

    /// Returns the leaf of a tree without items.
    pub(super) fn first_leaf(&self) -> Result<u32> {
        let block = self.fresh_block()?;
        let medium = self.medium();
        let header: &Header = self.pool.at(block);
        header.birth.store(medium, self.stamp());
        self.clear_slots(block, u64::MAX);
        let beyond = &self.words_of(block)[LINE_BYTES / 8..];
        medium.persist(beyond, "nbtree create.1");
        // Slots in the header's line are cleared by the same flush: relies on line order.
        let ordered = medium.ordered_within_line();
        header.state.publish(medium, State::Live { origin: 0 }.encode(), &ordered, "nbtree create.2");
        medium.persist(header, "nbtree create.2");
        let id = self.leaves.of(block);
        let leaf = self.leaves.get(id);
        self.set_meta(leaf, block, 0, &Tags::default());
        leaf.begin(block, None);
        Ok(id)
    }
}

const _: () = assert!(SLOTS_MAX <= TAG_WORDS * 8);
