//! Recovery: finds the leaves by [inspecting](super::inspect) every block, undoes replacements that a crash interrupted,
//! and rebuilds the volatile part. Every step leaves a state that recovery handles, so a crash during recovery is
//! safe.

use std::sync::Arc;

use bristlecone_pm::sync::Ordering::Relaxed;
use bristlecone_pm::sync::epoch;
use bristlecone_pm::{
    ChunkRange, Durable, Error, Flushed, LINE_BYTES, Manifest, ManifestReader, Medium, Memory, Persist,
    PoolFile, Result, Word,
};

use super::inspect::Found;
use super::layout::{EMPTY, Header, STAMP_END, State, Stored};
use super::meta::Tags;
use super::uncounted::Uncounted;
use super::{NbTree, NbTreeOptions};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::counter::Counter;
use crate::index::parts::items::{Items, Values};
use crate::index::parts::recovery::{Survivor, index_over, overlap, sort};
use crate::index::parts::slot::Slot;
use crate::index::parts::volatile_index::VolatileIndex;
use crate::index::{Described, Open, Salvage, SalvageSink};

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
