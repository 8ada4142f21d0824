//! Recovery: finds the leaves by inspecting every subnode, completes or undoes operations that a crash
//! interrupted, and rebuilds the volatile part. Every step leaves a state that recovery handles, so a crash
//! during recovery is safe.

use std::sync::Arc;

use bristlecone_pm::sync::Ordering::Relaxed;
use bristlecone_pm::{
    AllMarks, ChunkRange, Durable, Error, Heap, HeapSpec, Manifest, ManifestReader, Marks, Medium, Memory,
    Persist, PoolFile, Result, TreeEntry,
};

use super::census::Census;
use super::layout::{END, FREE, LEAF_SLOTS_MAX, SUBNODES, SUBNODES_MAX, slot_offset, unstage};
use super::leaf::{Leaves, Tags, View};
use super::salvage::DamagedTree;
use super::{SsTree, SsTreeOptions};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::counter::Counter;
use crate::index::parts::index_saver::IndexSaver;
use crate::index::parts::items::{Items, Values};
use crate::index::parts::no_room::Epochs;
use crate::index::parts::recovery::{KeyEnds, PREFETCHES, Survivor, each, index_over, overlap, sort};
use crate::index::parts::slot::{Slot, bits};
use crate::index::parts::volatile_index::VolatileIndex;
use crate::index::{Described, Open, Salvage, SalvageSink};

/// Number of subnodes ahead of the one at hand whose lines are prefetched.
const SUBNODES_AHEAD: usize = 12;
/// Number of descriptors that a thread allocates together.
const IDS_AT_ONCE: u32 = 64;

impl<K: KeyCodec, M: Medium> Open<K, M> for SsTree<K, M> {
    type Options = SsTreeOptions;

    fn open(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: SsTreeOptions,
        threads: usize,
    ) -> Result<Self> {
        let (inner_bytes, memory) = (options.inner_bytes as usize, pool.memory());
        let mut tree = Self::assemble(
            pool,
            &entry,
            options,
            Parts {
                subnodes: Self::heap(pool, &entry, options),
                keys: Items::keys(pool, entry.id)?,
                values: Values::open(pool, entry.id, entry.values)?,
                inner: VolatileIndex::new(inner_bytes, 0, &Memory::private())?,
                leaves: Leaves::new(options.shape(), &memory)?,
                len: Counter::new(&memory),
            },
        );
        let survivors = tree.survivors(threads)?;
        tree.subnodes.finish_recovery();
        tree.keys.finish_recovery();
        tree.values.finish_recovery();
        tree.inner = if survivors.is_empty() {
            VolatileIndex::new(inner_bytes, tree.new_leaf(&[])?.0, &memory)?
        } else {
            tree.len.add(survivors.iter().map(|leaf| i64::from(leaf.items)).sum());
            index_over(inner_bytes, &tree.keys, &survivors, &memory)?
        };
        let items = tree.len.sum();
        let shared = tree.keys.check_records(items).or_else(|| tree.values.check_records(items));
        if let Some(issue) = shared {
            // The record would be freed twice, or while an item still refers to it.
            return Err(Error::corrupted("two items referencing one record", issue.what));
        }
        tree.saver.opened();
        Ok(tree)
    }

    fn resume(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: SsTreeOptions,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let len = Counter::resume(manifest)?;
        let subnodes = Self::heap(pool, &entry, options);
        subnodes.resume(manifest)?;
        let mut tree = Self::assemble(
            pool,
            &entry,
            options,
            Parts {
                subnodes,
                keys: Items::resume_keys(pool, entry.id, manifest)?,
                values: Values::resume(pool, entry.id, entry.values, manifest)?,
                inner: VolatileIndex::resume(options.inner_bytes as usize, manifest)?,
                leaves: Leaves::resume(options.shape(), manifest)?,
                len,
            },
        );
        tree.saver.opened();
        Some(tree)
    }

    fn take_over(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: SsTreeOptions,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        Self::taken_over(pool, entry, options, manifest)
    }

    fn share(&self, manifest: &mut Manifest) -> Option<()> {
        self.save(manifest)
    }
}

impl<K: KeyCodec, M: Medium> Salvage<K, M> for SsTree<K, M> {
    fn salvage(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: SsTreeOptions,
        sink: &mut SalvageSink<'_, K>,
    ) -> Result<()> {
        DamagedTree::new(pool, entry, options.shape())?.save(sink)
    }
}

/// The parts of a tree that opening recovers or resumes.
pub(super) struct Parts<K: KeyCodec, M: Medium> {
    pub subnodes: Heap<M>,
    pub keys: Items<K, M>,
    pub values: Values<M>,
    pub inner: VolatileIndex<K>,
    pub leaves: Leaves,
    pub len: Counter,
}

impl<K: KeyCodec, M: Medium> Drop for SsTree<K, M> {
    fn drop(&mut self) {
        self.saver.leave(|manifest| self.save(manifest));
    }
}

impl<K: KeyCodec, M: Medium> SsTree<K, M> {
    /// Saves the state for the next open, or records it for followers.
    fn save(&self, manifest: &mut Manifest) -> Option<()> {
        (manifest.is_live() || self.free_lost_records()).then_some(())?;
        self.len.save(manifest)?;
        self.subnodes.save(manifest)?;
        self.keys.save(manifest)?;
        self.values.save(manifest)?;
        self.inner.save(manifest)?;
        self.leaves.save(manifest)
    }

    pub(super) fn heap(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, options: SsTreeOptions) -> Heap<M> {
        let spec = HeapSpec::new(entry.id, SUBNODES, options.subnode_bytes as u32);
        Heap::open(pool, HeapSpec { tagged: true, ..spec })
    }

    pub(super) fn assemble(
        pool: &Arc<PoolFile<M>>,
        entry: &TreeEntry,
        options: SsTreeOptions,
        Parts { subnodes, keys, values, inner, leaves, len }: Parts<K, M>,
    ) -> Self {
        let shape = options.shape();
        Self {
            pool: Arc::clone(pool),
            subnodes,
            keys,
            values,
            shape,
            epochs: Epochs::default(),
            saver: IndexSaver::new(pool, entry),
            moving: options.move_items != 0,
            staging: shape.resident && !pool.domain().visible_is_durable(),
            inner,
            leaves,
            len,
        }
    }

    /// Finds every leaf, in key order, repaired (recover 1-5).
    pub(super) fn survivors(&self, threads: usize) -> Result<Vec<Survivor>> {
        let census = Census::new(self.subnodes.chunks(), self.pool.chunk_bytes(), self.shape);
        let chunks = census.ranges.len();
        each(chunks, threads, |chunk| self.take_census(&census, chunk))?;
        let marks = AllMarks::default();
        let found = each(chunks, threads, |chunk| self.recover_chunk(&census, chunk, &marks))?;
        // Records are counted later.
        let _ = marks.finish([&self.keys.records, &self.values.records]);
        if census.occupied.into_inner() != census.reached.into_inner() {
            return Err(Error::corrupted("subnodes that are not reachable from a head", "chain of a leaf"));
        }
        let mut found = found.concat();
        sort(&self.keys, &mut found);
        self.finish_splits(&mut found)?;
        Ok(found)
    }

    /// Records which subnodes of a chunk are in use, and which subnodes they refer to.
    fn take_census(&self, census: &Census, chunk: usize) -> Result<()> {
        let mut occupied = 0;
        let mut offsets = census.offsets(chunk);
        for word in 0..census.ranges[chunk].slots.div_ceil(64) {
            let mut live = 0;
            for (bit, subnode) in offsets.by_ref().take(64).enumerate() {
                match self.header(subnode).next.load(self.medium()) {
                    FREE => continue,
                    END => {}
                    next => census.name(next, subnode)?,
                }
                live |= 1 << bit;
            }
            self.subnodes.mark_live_word(census.ranges[chunk], word, live);
            occupied += live.count_ones() as usize;
        }
        census.occupied.fetch_add(occupied, Relaxed);
        Ok(())
    }

    /// Returns the leaves whose heads are in a chunk.
    fn recover_chunk(&self, census: &Census, chunk: usize, marks: &AllMarks<2>) -> Result<Vec<Survivor>> {
        let mut found = Vec::new();
        let mut ids = 0..0;
        let mut reached = 0;
        let mut own_marks = marks.take();
        let mut take = |view: &View, next: Option<&View>| -> Result<()> {
            if ids.is_empty() {
                ids = self.leaves.alloc_fresh(IDS_AT_ONCE)?;
            }
            let id = ids.next().expect("ids were just handed out");
            found.push(self.recover_items(id, view, next, &mut own_marks)?);
            Ok(())
        };
        // The records of a leaf are prefetched while those of the previous one are verified.
        let mut last: Option<View> = None;
        for (slot, subnode) in census.offsets(chunk).enumerate() {
            self.prefetch_ahead(census, chunk, slot);
            if census.is_named_at(chunk, slot) || self.header(subnode).next.load(self.medium()) == FREE {
                continue;
            }
            if let Some(view) = self.recover_leaf(subnode, &mut reached)? {
                if K::INLINE && self.values.are_words() {
                    take(&view, None)?;
                    continue;
                }
                last.replace(view).as_ref().map_or(Ok(()), |last| take(last, Some(&view)))?;
            }
        }
        last.as_ref().map_or(Ok(()), |last| take(last, None))?;
        marks.put(own_marks);
        ids.for_each(|id| self.leaves.free(id));
        census.reached.fetch_add(reached, Relaxed);
        Ok(found)
    }

    /// Prefetches the lines of a subnode that is looked at soon, and of the successor of one nearer by.
    #[inline(always)]
    fn prefetch_ahead(&self, census: &Census, chunk: usize, slot: usize) {
        let (ChunkRange { offset, slots }, bytes) = (census.ranges[chunk], self.shape.subnode_bytes);
        let subnode_at = |slot: usize| offset + (slot * bytes) as u64;
        self.pool.prefetch_lines(subnode_at(slot + SUBNODES_AHEAD), bytes);
        let near = slot + SUBNODES_AHEAD / 2;
        if near < slots && !census.is_named_at(chunk, near) {
            // Any word may be prefetched.
            let next = self.header(subnode_at(near)).next.load(self.medium());
            self.pool.prefetch_lines(next, bytes);
        }
    }

    /// Repairs the leaf whose chain begins at `head`; frees an empty one.
    fn recover_leaf(&self, head: u64, reached: &mut usize) -> Result<Option<View>> {
        let mut view = self.recover_chain(head, reached)?;
        while view.count > 1 && view.taken(self.shape, view.count - 1) == 0 {
            let tail = view.tail();
            self.untail(&mut view);
            self.subnodes.free(tail);
        }
        if view.bitmap == 0 {
            let tag = &self.header(head).next;
            tag.store(self.medium(), FREE);
            self.medium().persist(tag, "sstree recover.3");
            self.subnodes.free(head);
            return Ok(None);
        }
        Ok(Some(view))
    }

    /// Walks a chain. An interrupted reclamation of its tail is undone while the tail still holds items (its
    /// only mark is the free tag), and completed if it holds none.
    pub(super) fn recover_chain(&self, head: u64, reached: &mut usize) -> Result<View> {
        let medium = self.medium();
        let (bitmap, staged) = unstage(self.header(head).bitmap.load(medium));
        let mut view = View { subnodes: [head; SUBNODES_MAX], count: 1, bitmap };
        *reached += 1;
        loop {
            let last = &self.header(view.tail()).next;
            let next = last.load(medium);
            if next == END {
                break;
            }
            if view.count == self.shape.subnodes_max {
                return Err(Error::corrupted("a leaf with too many subnodes", format!("subnode {head:#x}")));
            }
            let tag = &self.header(next).next;
            if tag.load(medium) == FREE {
                if view.taken(self.shape, view.count) == 0 {
                    last.store(medium, END);
                    medium.persist(last, "sstree recover.2");
                    break;
                }
                // Recover 1. No flush: the next recovery would do the same, and until then the tail is reached
                // only through its predecessor.
                tag.store_derived(medium, END);
                self.subnodes.mark_live(next)?;
            } else {
                *reached += 1;
            }
            view.subnodes[view.count] = next;
            view.count += 1;
        }
        if view.bitmap >> (view.count * self.shape.slots) != 0 {
            return Err(Error::corrupted("items beyond the chain of a leaf", format!("subnode {head:#x}")));
        }
        if let Some(bit) = staged {
            self.unstage(&view, bit)?;
        }
        Ok(view)
    }

    /// Copies an item from the annex if its bit is set and its slot still has another key.
    fn unstage(&self, view: &View, bit: usize) -> Result<()> {
        let medium = self.medium();
        let head = view.subnodes[0];
        let broken = |what| Err(Error::corrupted(what, format!("subnode {head:#x}")));
        // One store sets a bit together with its staged slot, and one store clears them.
        if !self.shape.resident || bit >= LEAF_SLOTS_MAX || view.bitmap >> bit & 1 == 0 {
            return broken("a staged item without a slot");
        }
        let (at, slot) = self.shape.place(bit);
        let cell = self.slot(view.subnodes[at], slot);
        let [key, value] = self.header(head).annex.load(medium);
        if cell.key.load(medium) != key {
            self.keys.verify(key).and(self.values.verify(value))?;
            if view.items(self.shape).any(|place| place != (at, slot) && self.holds(view, place, key)) {
                return broken("a staged item that stands in another slot");
            }
            let flushed = self.write_whole(cell, (key, value), "sstree recover.5");
            let Durable { .. } = medium.fence(flushed, "sstree recover.5");
        }
        Ok(())
    }

    /// Returns whether a slot holds the key of a word.
    fn holds(&self, view: &View, (at, slot): (usize, usize), word: u64) -> bool {
        self.slot(view.subnodes[at], slot).key.load(self.medium()) == word
    }

    /// Removes the empty tail of a chain that no other thread knows yet.
    pub(super) fn untail(&self, view: &mut View) {
        let medium = self.medium();
        let tag = &self.header(view.tail()).next;
        tag.store(medium, FREE);
        medium.persist(tag, "sstree recover.3");
        view.count -= 1;
        let last = &self.header(view.tail()).next;
        last.store(medium, END);
        medium.persist(last, "sstree recover.2");
    }

    /// Prefetches the records of a leaf's items.
    #[inline(always)]
    pub(super) fn prefetch_records_of(&self, view: &View) {
        if K::INLINE && self.values.are_words() {
            return;
        }
        view.items(self.shape).for_each(|(at, slot)| self.prefetch_records_at(view, at, slot));
    }

    /// Prefetches the records of one item of a leaf.
    #[inline(always)]
    fn prefetch_records_at(&self, view: &View, at: usize, slot: usize) {
        let item = self.slot(view.subnodes[at % SUBNODES_MAX], slot);
        self.keys.prefetch(item.key.load(self.medium()));
        self.values.prefetch(item.value.load(self.medium()));
    }

    /// Reads the items, marks their records as live, and derives the fingerprints from the keys. Meanwhile, prefetches the
    /// records of the next leaf.
    fn recover_items(
        &self,
        id: u32,
        view: &View,
        next: Option<&View>,
        marks: &mut [Marks; 2],
    ) -> Result<Survivor> {
        let medium = self.medium();
        let guard = K::pin();
        let mut tags = Tags::default();
        let mut extent = KeyEnds::<K>::default();
        let [keys, values] = marks;
        let prefetch = |(next, (at, slot)): (&View, (usize, usize))| self.prefetch_records_at(next, at, slot);
        let mut ahead =
            next.into_iter().flat_map(|next| next.items(self.shape).map(move |place| (next, place)));
        for at in 0..view.count {
            let slots: &[Slot] = self.pool.slice(slot_offset(view.subnodes[at], 0), self.shape.slots);
            for (turn, slot) in bits(view.taken(self.shape, at)).enumerate() {
                if turn % PREFETCHES == 0 {
                    ahead.by_ref().take(PREFETCHES).for_each(prefetch);
                }
                let word = slots[slot].key.load(medium);
                // A damaged key is remembered: the fingerprint is not that of the original one.
                let key = self.keys.mark_and_read(word, keys, &guard)?;
                self.values.mark(slots[slot].value.load(medium), values)?;
                tags.set(at * self.shape.slots + slot, K::fingerprint(key));
                extent.add(word, key);
            }
        }
        ahead.for_each(prefetch);
        let leaf = self.leaves.get(id);
        leaf.lock.renew();
        leaf.begin(view, &tags);
        if !self.shape.resident {
            for at in 1..view.count {
                let delegated = &self.header(view.subnodes[at - 1]).annex;
                let tags = tags.of_subnode(self.shape, at);
                if delegated.load(medium) != tags {
                    delegated.store_derived(medium, tags);
                }
            }
        }
        let Some((low, high)) = extent.ends() else {
            return Err(Error::corrupted("a leaf without items", format!("leaf {id}")));
        };
        Ok(Survivor { low, high, leaf: id, items: view.bitmap.count_ones() })
    }

    /// Completes splits: if two neighbours overlap, the crash happened between the new leaf and the old one's
    /// bitmap, and the old one drops the items of the new one (recover 4).
    fn finish_splits(&self, found: &mut [Survivor]) -> Result<()> {
        let mut begin = 0;
        while let Some(right) = overlap(&self.keys, &found[begin..]) {
            let (lefts, rights) = found.split_at_mut(begin + right);
            self.finish_split(&mut lefts[lefts.len() - 1], &rights[0])?;
            begin += right;
        }
        Ok(())
    }

    fn finish_split(&self, left: &mut Survivor, right: &Survivor) -> Result<()> {
        let medium = self.medium();
        let guard = K::pin();
        let held: Vec<(u64, u64)> = self.words(right.leaf).map(|(_, words)| words).collect();
        let mut view = self.leaves.get(left.leaf).view();
        let low = self.keys.read(right.low, &guard);
        let mut high: Option<(K::Ref<'_>, u64)> = None;
        for (bit, words) in self.words(left.leaf) {
            let key = self.keys.read(words.0, &guard);
            if key < low {
                high = high.max(Some((key, words.0)));
            } else if held.contains(&words) {
                view.bitmap &= !bit;
            } else {
                return Err(Error::corrupted(
                    "two leaves overlap",
                    format!("leaf at {:#x}", view.subnodes[0]),
                ));
            }
        }
        let Some((_, high)) = high else {
            return Err(Error::corrupted(
                "two leaves with equal low fences",
                format!("leaf at {:#x}", view.subnodes[0]),
            ));
        };
        let word = &self.header(view.subnodes[0]).bitmap;
        word.store(medium, view.bitmap);
        medium.persist(word, "sstree recover.4");
        while view.count > 1 && view.taken(self.shape, view.count - 1) == 0 {
            let tail = view.tail();
            self.untail(&mut view);
            self.subnodes.free(tail);
        }
        self.leaves.get(left.leaf).shrink(&view);
        left.high = high;
        left.items = view.bitmap.count_ones();
        Ok(())
    }

    /// Returns the items of a leaf as (bit, words). No other thread may access the leaf.
    pub(super) fn words(&self, leaf: u32) -> impl Iterator<Item = (u64, (u64, u64))> {
        let view = self.leaves.get(leaf).view();
        let mut words = [(0, (0, 0)); LEAF_SLOTS_MAX];
        let mut len = 0;
        for (at, slot) in view.items(self.shape) {
            let item = self.slot(view.subnodes[at], slot);
            let bit = 1 << (at * self.shape.slots + slot);
            words[len] = (bit, (item.key.load(self.medium()), item.value.load(self.medium())));
            len += 1;
        }
        words.into_iter().take(len)
    }
}
