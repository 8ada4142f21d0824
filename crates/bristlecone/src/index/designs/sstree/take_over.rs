//! Taking over a tree from a process that was killed. Its descriptors are as the kill left them. A leaf that no thread
//! had locked is as its descriptor says, and nothing of it is read on the medium.
//!
//! # Takeover
//! 1. The index gives the leaves: see `volatile_index/take_over.rs`.
//! 2. All descriptors are inspected. Their bitmaps count the items, their offsets mark the subnodes that are taken. A
//!    subnode of two leaves, or of none of the tree's chunks, refuses the tree.
//! 3. A locked leaf is read again: recover 1, 2, 3 and 5, beginning with the head that an expansion announced in the
//!    descriptor before it linked it. *Each step leaves what recovery handles.*
//! 4. A descriptor outside of the index that has not left its tree is that of a leaf that a split has announced, or of
//!    an empty one that was being freed. If the old leaf has dropped the items of the new one (split 3), the new one
//!    enters the index. Otherwise its subnodes get the free tag; flush, fence.
//! 5. Everything that was found is durable: flush, fence.
//!
//! A kill during these steps: the tree is rebuilt from its subnodes (recover).
//!
//! The records of keys and values are not read. A census finds the free ones: immediately in a small tree, else when the
//! pool is full, or when the tree is closed.

use std::sync::Arc;

use bristlecone_pm::{ManifestReader, Medium, Persist, PoolFile, omits};

use super::census::Census;
use super::layout::FREE;
use super::leaf::{Leaves, Tags, View};
use super::recover::Parts;
use super::{SsTree, SsTreeOptions};
use crate::index::Described;
use crate::index::parts::arena::Bits;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::counter::Counter;
use crate::index::parts::items::{Items, Values};
use crate::index::parts::lost_records;
use crate::index::parts::optimistic_lock::LockState;
use crate::index::parts::recovery::each;
use crate::index::parts::volatile_index::{Step, VolatileIndex};

/// Number of descriptors that a thread inspects at a time.
const STRIDE: u32 = 1 << 14;

/// The leaves of some descriptors.
#[derive(Default)]
struct Inspected {
    items: u64,
    /// Leaves of the index that were locked.
    locked: Vec<u32>,
    /// Leaves outside of the index.
    outside: Vec<u32>,
}

impl<K: KeyCodec, M: Medium> SsTree<K, M> {
    /// Takes over the tree that a manifest for followers describes. Returns `None` in doubt.
    pub(super) fn taken_over(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: SsTreeOptions,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let len = Counter::recover(manifest)?;
        let subnodes = Self::heap(pool, &entry, options);
        let keys = Items::take_over_keys(pool, entry.id, manifest)?;
        let values = Values::take_over(pool, entry.id, entry.values, manifest)?;
        let find = VolatileIndex::take_over(options.inner_bytes as usize, manifest)?;
        let leaves = Leaves::recover(options.shape(), manifest)?;
        let mut used = Bits::below(leaves.begun());
        let inner = find(&mut used)?.complete(std::iter::empty())?;
        let parts = Parts { subnodes, keys, values, inner, leaves, len };
        let mut tree = Self::assemble(pool, &entry, options, parts);
        let found = tree.inspect(&used)?;
        let mut items = found.items;
        for &id in &found.locked {
            items += tree.read_again(id)?;
        }
        for &id in found.outside.iter().filter(|_| !omits("sstree takeover.4")) {
            items += tree.adopt(id, &mut used)?;
        }
        tree.subnodes.finish_recovery();
        tree.leaves.free_others(&used);
        tree.len.reset(items);
        tree.pool.health().ok()?;
        if items <= lost_records::FEW_ITEMS {
            // If a pinned thread prevents it, a later call repeats it.
            tree.free_lost_records();
        }
        tree.saver.opened();
        Some(tree)
    }

    /// Takeover 2.
    fn inspect(&self, used: &Bits) -> Option<Inspected> {
        let census = Census::new(self.subnodes.chunks(), self.pool.chunk_bytes(), self.shape);
        let begun = self.leaves.begun();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let parts = each(begun.div_ceil(STRIDE) as usize, threads, |part| {
            let first = part as u32 * STRIDE;
            let mut own = Inspected::default();
            let mut ids = first..(first + STRIDE).min(begun);
            Ok(ids.try_for_each(|id| self.inspect_leaf(id, used.has(id), &census, &mut own)).map(|()| own))
        });
        for (at, range) in census.ranges.iter().enumerate() {
            for (word, bits) in census.named_in(at).enumerate() {
                self.subnodes.mark_live_word(*range, word, bits);
            }
        }
        let mut all = Inspected::default();
        for part in parts.ok()? {
            let mut part = part?;
            all.items += part.items;
            all.locked.append(&mut part.locked);
            all.outside.append(&mut part.outside);
        }
        Some(all)
    }

    #[inline(always)]
    fn inspect_leaf(&self, id: u32, is_used: bool, census: &Census, found: &mut Inspected) -> Option<()> {
        let leaf = self.leaves.get(id);
        let state = leaf.lock.try_read();
        if !is_used {
            // A descriptor that was never used has no subnodes.
            if state != LockState::Obsolete && leaf.count() > 0 {
                found.outside.push(id);
            }
            return Some(());
        }
        match state {
            LockState::Obsolete => return None,
            LockState::Locked => found.locked.push(id),
            LockState::Free(_) => {
                let view = leaf.view();
                self.is_possible(&view).then_some(())?;
                for &subnode in &view.subnodes[..view.count] {
                    census.name(subnode, subnode).ok()?;
                }
                found.items += u64::from(view.bitmap.count_ones());
            }
        }
        Some(())
    }

    fn is_possible(&self, view: &View) -> bool {
        (1..=self.shape.subnodes_max).contains(&view.count)
            && view.bitmap >> (view.count * self.shape.slots) == 0
    }

    /// Takeover 3: reads a leaf that a thread had locked; returns its number of items.
    fn read_again(&self, id: u32) -> Option<u64> {
        let leaf = self.leaves.get(id);
        let head = leaf.subnode(0);
        let is_new_head = |subnode: &u64| {
            self.subnodes.is_slot(*subnode) && self.header(*subnode).next.load(self.medium()) == head
        };
        let head = leaf.announced_head(self.shape).filter(is_new_head).unwrap_or(head);
        self.subnodes.is_slot(head).then_some(())?;
        let mut view = self.recover_chain(head, &mut 0).ok()?;
        if omits("sstree takeover.3") {
            view = leaf.view();
        }
        while view.count > 1 && view.taken(self.shape, view.count - 1) == 0 {
            self.untail(&mut view);
        }
        // An empty leaf stays, as one of a split does.
        self.is_possible(&view).then_some(())?;
        for &subnode in &view.subnodes[..view.count] {
            self.subnodes.mark_live(subnode).ok()?;
        }
        self.describe(id, &view);
        self.leaves.get(id).lock.unlock();
        Some(u64::from(view.bitmap.count_ones()))
    }

    /// Writes the descriptor of a leaf of these subnodes, which become durable.
    fn describe(&self, id: u32, view: &View) {
        let (medium, guard) = (self.medium(), K::pin());
        let mut tags = Tags::default();
        for (at, slot) in view.items(self.shape) {
            let word = self.slot(view.subnodes[at], slot).key.load(medium);
            tags.set(at * self.shape.slots + slot, K::fingerprint(self.keys.read(word, &guard)));
        }
        self.leaves.get(id).begin(view, &tags);
        for at in 0..view.count {
            if !self.shape.resident && at > 0 {
                let tags = tags.of_subnode(self.shape, at);
                self.header(view.subnodes[at - 1]).annex.store_derived(medium, tags);
            }
            let words = self.pool.words(view.subnodes[at], self.shape.subnode_bytes / 8);
            medium.persist(words, "sstree takeover.5");
        }
    }

    /// Takeover 4: decides about a leaf outside of the index; returns the number of items that it brings.
    fn adopt(&self, id: u32, used: &mut Bits) -> Option<u64> {
        let leaf = self.leaves.get(id);
        let announced = leaf.view();
        (1..=self.shape.subnodes_max).contains(&announced.count).then_some(())?;
        let subnodes = &announced.subnodes[..announced.count];
        subnodes.iter().all(|&subnode| self.subnodes.is_free(subnode)).then_some(())?;
        let head = subnodes[0];
        if self.header(head).next.load(self.medium()) != FREE {
            let view = self.recover_chain(head, &mut 0).ok()?;
            if view.bitmap != 0 && self.enter_index(id, &view)? {
                used.add(id);
                view.subnodes[..view.count]
                    .iter()
                    .try_for_each(|&subnode| self.subnodes.mark_live(subnode).map(drop))
                    .ok()?;
                leaf.lock.renew();
                return Some(u64::from(view.bitmap.count_ones()));
            }
        }
        // From the head on: what it refers to is part of no other leaf.
        for &subnode in subnodes {
            let tag = &self.header(subnode).next;
            tag.store(self.medium(), FREE);
            self.medium().persist(tag, "sstree takeover.4");
        }
        leaf.lock.expire();
        Some(0)
    }

    /// Adds the new leaf of a split to the index, unless the old leaf still has its items.
    fn enter_index(&self, id: u32, view: &View) -> Option<bool> {
        let guard = K::pin();
        let key_of = |&(at, slot): &(usize, usize), view: &View| {
            self.keys.read(self.slot(view.subnodes[at], slot).key.load(self.medium()), &guard)
        };
        let first = view.items(self.shape).map(|place| key_of(&place, view)).min()?;
        let (old, _) = self.inner.find(first, &guard, |leaf| self.version_of(leaf));
        let old = self.leaves.get(old).view();
        let last = old.items(self.shape).map(|place| key_of(&place, &old)).max();
        if last.is_some_and(|last| last >= first) {
            return Some(false);
        }
        let separator = last.map_or(first, |last| K::separator(last, first));
        let _room = self.inner.reserve(1).ok()?;
        self.describe(id, view);
        self.inner.insert(separator, id, &guard);
        Some(true)
    }

    /// Frees the records that a killed process left behind, if any; returns whether there were some.
    pub(super) fn has_freed_lost_records(&self) -> bool {
        lost_records::may_exist([&self.keys.records, &self.values.records]) && self.free_lost_records()
    }

    /// Frees the records that a killed process left behind. Returns `false` if a pinned thread prevents this; a later
    /// call repeats it.
    pub(super) fn free_lost_records(&self) -> bool {
        lost_records::free([&self.keys.records, &self.values.records], |keys, values| {
            self.each_item(|words| {
                if !K::INLINE {
                    keys.note(words.0);
                }
                if !self.values.are_words() {
                    values.note(words.1);
                }
            });
        })
    }

    /// Calls `visit` with the words of every item, of some repeatedly if threads write. An item that stays in the tree
    /// meanwhile is among them.
    fn each_item(&self, mut visit: impl FnMut((u64, u64))) {
        let version_of = |leaf| self.version_of(leaf);
        let mut from: Option<K::Owned> = None;
        loop {
            let guard = K::pin();
            let start = from.as_ref().map(K::borrow);
            let (mut id, mut version, mut cursor) = self.inner.seek(start, &guard, version_of, |_| {});
            let mut last = None;
            loop {
                let words: Vec<(u64, u64)> = self.words(id).map(|(_, words)| words).collect();
                if !self.leaves.get(id).lock.validate(version) {
                    break;
                }
                words.iter().copied().for_each(&mut visit);
                last = words.iter().map(|words| self.keys.read(words.0, &guard)).max().or(last);
                match self.inner.next(cursor, version_of) {
                    Step::Leaf(next, seen, at) => (id, version, cursor) = (next, seen, at),
                    Step::End => return,
                    // From the last key on again.
                    Step::Lost => break,
                }
            }
            from = last.map(K::owned).or(from);
        }
    }
}
