//! Opening a tree: only the log is replayed. The time does not depend on the size of the tree.

use std::sync::Arc;

use bristlecone_pm::{Alone, Error, Flushed, Manifest, ManifestReader, Medium, Persist, PoolFile, Result};

use super::above::Reserve;
use super::free::Removal;
use super::inner::Aim;
use super::layout::{Shape, State};
use super::leaf::View;
use super::log::Record;
use super::read::{NoTrail, Path};
use super::split::LIVE;
use super::{WoTree, WoTreeOptions};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::counter::Counter;
use crate::index::{Described, Open, Salvage, SalvageSink};

impl<K: KeyCodec, M: Medium> Open<K, M> for WoTree<K, M> {
    type Options = WoTreeOptions;

    fn open(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: WoTreeOptions,
        _threads: usize,
    ) -> Result<Self> {
        let fresh = pool.anchor(entry.id).load(pool.medium()) == 0;
        if fresh {
            Self::expect_no_nodes(pool, &entry, Shape::new(options.node_lines, options.log_leaves != 0))?;
        }
        let mut tree = Self::unrecovered(pool, entry, options, fresh)?;
        if fresh {
            tree.create()?;
            // No thread counts before this.
            tree.base.set((0, 1));
        } else {
            tree.replay()?;
        }
        tree.saver.opened();
        Ok(tree)
    }

    /// Resumes with the saved counts: everything else is read on demand, also in a recovered tree.
    fn resume(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: WoTreeOptions,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        if manifest.is_live() {
            let mut tree = Self::unrecovered(pool, entry, options, false).ok()?;
            tree.root = manifest.read_cell()?;
            tree.base.0 = manifest.read_cell()?;
            for counter in [&mut tree.added, &mut tree.removed, &mut tree.grown, &mut tree.freed] {
                *counter = Counter::resume(manifest)?;
            }
            tree.nodes.follow(manifest)?;
            return Some(tree);
        }
        let counted = (manifest.read()?, manifest.read()?);
        let tree = Self::open(pool, entry, options, 1).ok()?;
        tree.base.set(counted);
        Some(tree)
    }

    fn share(&self, manifest: &mut Manifest) -> Option<()> {
        manifest.push_cell(&self.root)?;
        manifest.push_cell(&self.base.0)?;
        [&self.added, &self.removed, &self.grown, &self.freed]
            .into_iter()
            .try_for_each(|counter| counter.save(manifest))?;
        self.nodes.share(manifest)
    }
}

impl<K: KeyCodec, M: Medium> Salvage<K, M> for WoTree<K, M> {
    fn salvage(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: WoTreeOptions,
        sink: &mut SalvageSink<'_, K>,
    ) -> Result<()> {
        Self::save(pool, entry, options, sink)
    }
}

impl<K: KeyCodec, M: Medium> Drop for WoTree<K, M> {
    fn drop(&mut self) {
        self.saver.leave(|manifest| {
            // Do not count now if it was never counted.
            self.base.get()?;
            let (items, leaves) = self.counted();
            manifest.push(items);
            manifest.push(leaves);
            Some(())
        });
    }
}

/// Returns the sort key of the remaining records: splits come last, from the top.
fn from_the_top<L>((_, record): &(L, Record)) -> u8 {
    match record {
        Record::Split { level, .. } => u8::MAX - level,
        _ => 0,
    }
}

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    /// Creates the first leaf. After a crash before `create.3` the tree has no root, and is created again.
    pub(super) fn create(&self) -> Result<()> {
        let medium = self.medium();
        // An interrupted creation wrote to the same slot, the first of all, and to no other.
        let leaf = self.nodes.alloc()?;
        let flushed = self.write_leaf(leaf, &[], 0, 0);
        let durable = medium.fence(flushed, "wotree create.2");
        self.anchor().publish(medium, leaf, &durable, "wotree create.3");
        // The fence is for threads that write to the tree later, whose own fences do not cover this.
        medium.persist(self.anchor(), "wotree create.3");
        self.set_root(leaf);
        self.pool.health()
    }

    /// Completes or undoes the pending changes in the log.
    pub(super) fn replay(&self) -> Result<()> {
        self.nodes.lock(self.root())?;
        let mut records = Vec::new();
        for lane in self.log.all() {
            let record =
                lane.read().map_err(|kind| Error::corrupted(format!("unknown record kind {kind}"), "log"))?;
            records.extend(record.map(|record| (lane, record)));
        }
        // Undone nodes are freed before anything else requests space, and no record refers to them any more: they
        // may be in use again at the next crash.
        let mut left = Vec::new();
        for (lane, record) in records {
            if self.undo(&record)? {
                lane.wipe();
            } else {
                left.push((lane, record));
            }
        }
        // Splits are completed last, because they take lanes, and from the top, because the lower levels are reached
        // through the upper ones.
        left.sort_by_key(from_the_top);
        for (lane, record) in left {
            self.redo(record)?;
            lane.wipe();
        }
        Ok(())
    }

    /// Durably frees new nodes that were never reached; returns whether the record is complete.
    fn undo(&self, record: &Record) -> Result<bool> {
        match *record {
            Record::Root { node } if self.root() != node => self.undo_node(node).map(|()| true),
            Record::Split { left, right, separator, level }
                if !self.is_linked(left, right, level)? && !self.is_reached(right, separator, level)? =>
            {
                if !K::INLINE && level == 0 && self.is_separator(separator) {
                    // The fence of recover 3 waits for it.
                    let _: Flushed =
                        self.separators.records.set_owner(separator, 0, "wotree recover.1 separator");
                }
                self.undo_node(right).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    fn is_linked(&self, left: u64, right: u64, level: u8) -> Result<bool> {
        self.nodes.lock(left).and(self.nodes.lock(right))?;
        Ok(self.nodes.link(left, level).next.load(self.medium()) == right)
    }

    /// Returns whether a node is in the tree, where a range begins. Earlier versions left records of splits behind
    /// whose left node was split again since.
    fn is_reached(&self, node: u64, separator: u64, level: u8) -> Result<bool> {
        let guard = K::pin();
        let aim = Aim::At(self.separator(separator, &guard));
        let reached = match level {
            0 => Some(self.descend(aim, &guard, &mut NoTrail)?.leaf),
            level => self.descend_inner(aim, level, &guard)?,
        };
        Ok(reached == Some(node))
    }

    fn redo(&self, record: Record) -> Result<()> {
        match record {
            Record::Rebuild { leaf } => self.redo_rebuild(leaf),
            Record::Split { left, right, separator, level } if self.is_linked(left, right, level)? => {
                self.redo_split(left, right, separator, level)
            }
            Record::Split { .. } | Record::Root { .. } => Ok(()),
            Record::Free { parent, separator, to_right, nodes } => {
                let mut all = nodes.iter().flat_map(|freed| [freed.node, freed.left]).chain([parent]);
                all.try_for_each(|node| self.nodes.lock(node).map(drop))?;
                let removal = Removal { parent, separator, to_right, nodes };
                let flushed = self.unlink(&removal);
                self.erase(&removal, flushed);
                Ok(())
            }
        }
    }

    /// Rebuilds a slot array from the bitmap. A slot that is not a leaf any more needs none.
    fn redo_rebuild(&self, leaf: u64) -> Result<()> {
        if self.nodes.lock(leaf).is_err() {
            return Ok(());
        }
        if self.bitmap(leaf).is_some() {
            let view = self.made_anew(leaf, &K::pin())?;
            self.commit_alone(leaf, &view, &self.medium().ordered_within_line());
        }
        Ok(())
    }

    /// Returns the view of a leaf after a crash during a commit: the slot array is derived from the bitmap.
    fn made_anew(&self, leaf: u64, guard: &K::Guard) -> Result<View> {
        if let Some((bitmap, _)) = self.bitmap(leaf) {
            let state = State::Leaf { bitmap: bitmap as u64, valid: false };
            self.nodes.state_word(leaf).store_derived(self.medium(), state.encode());
        }
        self.own_view(leaf, guard)
    }

    /// Completes a split from step 3 on.
    fn redo_split(&self, left: u64, right: u64, separator: u64, level: u8) -> Result<()> {
        let (medium, guard) = (self.medium(), K::pin());
        let link = self.nodes.link(left, level);
        link.high.store(medium, separator);
        // The fences below wait for it.
        let _: Flushed = medium.flush(link, "wotree recover.2");
        let aim = self.separator(separator, &guard);
        if level > 0 {
            let kept = (1..self.count(left))
                .take_while(|&at| {
                    let key = self.nodes.entry(left, at).key.load(medium);
                    self.separator(key, &guard) < aim
                })
                .count();
            let _: Flushed = self.cut(left, kept + 1);
        } else {
            let mut view = self.made_anew(left, &guard)?;
            let kept = view.order.slots().partition_point(|&slot| {
                let word = self.nodes.item(left, slot.into()).key.load(medium);
                self.keys.read(word, &guard) < aim
            });
            view.order.truncate(kept);
            // Nothing must be durable before bits are cleared.
            self.commit_alone(left, &View::of(view.order), &Alone);
        }
        self.enter_again(left, right, separator, level, &guard)
    }

    /// Adds the right half of a split to the level above, if it is not there. The nodes reserved by the split are
    /// free again; if others took them, a later writer adds the entry.
    fn enter_again(&self, left: u64, right: u64, separator: u64, level: u8, guard: &K::Guard) -> Result<()> {
        let aim = Aim::At(self.separator(separator, guard));
        let mut path = Path::default();
        self.descend(aim, guard, &mut path)?;
        let Some(above) = self.lock_above(level + 1, left, aim, &path, guard)? else { return Ok(()) };
        if above.inner.first().is_some_and(|parent| self.place_of(parent.node, right).is_some()) {
            return Ok(());
        }
        let mut reserve = Reserve::empty(self);
        match reserve.fill(above.nodes()) {
            Ok(()) => {
                self.tell_parent(level + 1, left, separator, right, &above.inner, &mut reserve, guard);
                Ok(())
            }
            Err(Error::PoolFull { .. } | Error::MediumFull { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Frees a node that no thread reached.
    pub(super) fn undo_node(&self, node: u64) -> Result<()> {
        self.nodes.lock(node)?;
        let state = self.nodes.state_word(node);
        state.store(self.medium(), State::Free.encode());
        self.medium().persist(state, "wotree recover.3");
        Ok(())
    }

    /// Returns whether an item refers to a key record.
    pub(super) fn refers_to_key(&self, offset: u64) -> bool {
        let guard = K::pin();
        self.keys.records.is_plausible(offset)
            && self.has_words(self.keys.read(offset, &guard), |words| words.0 == offset)
    }

    /// Returns whether the item of a record's owner, a key word, refers to it as its value.
    pub(super) fn refers_to_value(&self, offset: u64) -> bool {
        let guard = K::pin();
        let Some(owner) = self.values.records.owner_at(offset) else { return false };
        (K::INLINE || self.keys.records.is_plausible(owner))
            && self.has_words(self.keys.read(owner, &guard), |words| words.1 == offset)
    }

    /// Returns whether the item of a key exists and has such words. If damage hides it the record stays.
    fn has_words(&self, key: K::Ref<'_>, such: impl FnOnce((u64, u64)) -> bool) -> bool {
        self.words_of(key).map_or(true, |words| words.is_some_and(such))
    }

    /// Returns whether a record is that of a separator, which is never empty.
    pub(super) fn is_separator(&self, offset: u64) -> bool {
        !self.separators.records.is_empty_at(offset) && self.separators.records.owner_at(offset) == Some(LIVE)
    }
}
