//! Split: a full node becomes two, and its parent gets an entry. Step numbers are those of the protocol.

use bristlecone_pm::{Durable, Flushed, LINE_BYTES, Medium, Persist, Result, Step};
use smallvec::SmallVec;

use super::WoTree;
use super::above::{Above, Attempt, Reserve};
use super::inner::Aim;
use super::layout::{Link, NO_KEY, State};
use super::leaf::{Order, View, WRONG_ORDER};
use super::log::Record;
use super::nodes::{Locked, NodeLock};
use super::read::Path;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::split::Cut;

/// A separator's owner: live. Zero, or no record: not live.
pub(super) const LIVE: u64 = 1;

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    /// Splits the leaf of `key` if it is full. The upper half of its items moves to a new leaf, or what [`Cut`] says
    /// for the new `key`; if that is above all items, the new leaf begins empty.
    pub(super) fn split(&self, key: K::Ref<'_>, guard: &K::Guard) -> Result<()> {
        let mut reserve = Reserve::empty(self);
        let mut wanted = self.likely_nodes(key, guard)?;
        let mut in_vain = 0;
        loop {
            reserve.fill(wanted)?;
            let _ = self.separators.prepare(key, &|offset| self.is_separator(offset));
            match self.try_split(key, &mut reserve, guard)? {
                Attempt::Done => return Ok(()),
                Attempt::Wants(nodes) => wanted = nodes,
                Attempt::Missing if self.complete(key, guard)? => {}
                Attempt::Missing => self.once_more(&mut in_vain)?,
            }
        }
    }

    /// Returns the number of nodes that the split of a leaf and of its full ancestors needs, unless they
    /// change.
    fn likely_nodes(&self, key: K::Ref<'_>, guard: &K::Guard) -> Result<usize> {
        // Pinned, so that the nodes of the path remain valid.
        let _pinned = bristlecone_pm::sync::epoch::pin();
        let mut path = Path::default();
        self.descend(Aim::At(key), guard, &mut path)?;
        let full = |node: &&u64| self.count(**node) == self.shape.entries;
        let ancestors = path.inner.iter().rev().take_while(full).count();
        Ok(1 + ancestors + usize::from(ancestors == path.inner.len()))
    }

    fn try_split(
        &self,
        key: K::Ref<'_>,
        reserve: &mut Reserve<'_, K, M>,
        guard: &K::Guard,
    ) -> Result<Attempt> {
        let _pinned = bristlecone_pm::sync::epoch::pin();
        // Excludes frees until the parent knows the new leaf.
        let _shape = bristlecone_pm::sync::wait::read(&self.shape_lock);
        let mut path = Path::default();
        let at = self.descend(Aim::At(key), guard, &mut path)?;
        let Some(left) = Locked::at(NodeLock { node: at.leaf, lock: at.lock }, at.version) else {
            return Ok(Attempt::Done);
        };
        let view = self.own_view(left.node, guard)?;
        if view.first_free(self.shape.slots).is_some() {
            return Ok(Attempt::Done);
        }
        if !view.is_sound() {
            return Err(self.damaged(WRONG_ORDER, left.node));
        }
        let Some(above) = self.lock_above(1, left.node, Aim::At(key), &path, guard)? else {
            return Ok(Attempt::Missing);
        };
        let wanted = 1 + above.nodes();
        if !reserve.has(wanted) {
            return Ok(Attempt::Wants(wanted));
        }
        self.split_leaf(&left, &view, key, &above, reserve, guard).map(|()| Attempt::Done)
    }

    fn split_leaf(
        &self,
        left: &Locked<'_>,
        view: &View,
        key: K::Ref<'_>,
        above: &Above<'_>,
        reserve: &mut Reserve<'_, K, M>,
        guard: &K::Guard,
    ) -> Result<()> {
        let medium = self.medium();
        let slots = view.order.slots();
        let key_of = |slot: u8| {
            let word = self.nodes.item(left.node, slot.into()).key.load(medium);
            self.keys.read(word, guard)
        };
        let key = K::shorten(key);
        let below = slots.partition_point(|&slot| key_of(slot) < key);
        let around = || (key_of(slots[below - 1]), key_of(slots[below]));
        let cut = Cut::new::<K>(slots.len(), below, key, around, |at| key_of(slots[at]));
        let kept = cut.kept;
        let ascending = kept == slots.len();
        let first = if ascending { key } else { key_of(slots[kept]) };
        let separator = cut.separator::<K>(key_of(slots[kept - 1]), key, first);
        let (separator, flushed) = self.write_separator(separator)?;
        // From here on nothing fails.
        self.pool.events().note_split();
        let (right, _) = reserve.take();
        let lane = self.log.next_lane(0);
        // Split 1.
        lane.write(&Record::Split { left: left.node, right, separator, level: 0 });
        // Split 2. The separator is live from here on, because the log refers to it.
        let flushed = if K::INLINE {
            flushed
        } else {
            flushed.and(self.separators.records.set_owner(separator, LIVE, "wotree split.2 separator"))
        };
        let moved: SmallVec<[(u64, u64); 64]> = slots[kept..]
            .iter()
            .map(|&slot| {
                let item = self.nodes.item(left.node, slot.into());
                (item.key.load(medium), item.word.load(medium))
            })
            .collect();
        let link = self.nodes.leaf_link(left.node);
        let flushed =
            flushed.and(self.write_leaf(right, &moved, link.next.load(medium), link.high.load(medium)));
        let durable = medium.fence(flushed, "wotree split.2");
        let durable =
            self.hand_over(link, right, separator, &durable, ["wotree split.3", "wotree split.3 high"]);
        // Split 4.
        if !ascending {
            let mut order = view.order;
            order.truncate(kept);
            self.commit(left, &View::of(order), &durable);
        }
        self.grown.add(1);
        // Split 4.
        self.tell_parent(1, left.node, separator, right, &above.inner, reserve, guard);
        lane.wipe();
        Ok(())
    }

    /// Writes a separator that is not live yet.
    fn write_separator(&self, separator: K::Ref<'_>) -> Result<(u64, Flushed)> {
        let write = || self.separators.write_owned(separator, 0, "wotree split.1 separator");
        write().or_else(|_| {
            // It is shorter than the key that space was reserved for. The liveness check takes no lock of
            // the tree.
            self.separators.prepare(separator, &|offset| self.is_separator(offset))?;
            write()
        })
    }

    /// Links the right node to the left one, and ends the left one where it begins (split 3). Relies on
    /// line order.
    fn hand_over(
        &self,
        link: &Link,
        right: u64,
        separator: u64,
        durable: &Durable,
        [next, high]: [Step; 2],
    ) -> Durable {
        let medium = self.medium();
        if link.next.load(medium) == 0 {
            // At the right end `high` is ignored, which a search that sees `next` does not know.
            link.high.store_derived(medium, separator);
        }
        link.next.publish(medium, right, durable, next);
        let ordered = medium.ordered_within_line();
        link.high.publish(medium, separator, &ordered, high);
        medium.persist_proof(link, next)
    }

    /// Fills a node that no other thread knows; the items must be in key order. Every line is written
    /// once.
    pub(super) fn write_leaf(&self, leaf: u64, items: &[(u64, u64)], next: u64, high: u64) -> Flushed {
        let medium = self.medium();
        for (slot, words) in items.iter().enumerate() {
            let item = self.nodes.item(leaf, slot);
            item.key.store(medium, words.0);
            item.word.store(medium, words.1);
        }
        let link = self.nodes.leaf_link(leaf);
        link.next.store(medium, next);
        link.high.store(medium, high);
        let view = View::of(Order::first(items.len()));
        self.write_view(leaf, &view);
        medium.flush(self.nodes.words(leaf, self.shape.leaf_bytes(items.len())), "wotree split.2")
    }

    /// Fills a new inner node.
    fn write_inner(&self, node: u64, level: u8, entries: &[(u64, u64)], next: u64, high: u64) -> Flushed {
        let medium = self.medium();
        self.nodes.state_word(node).store(medium, State::Inner { level }.encode());
        let link = self.nodes.link(node, level);
        link.next.store(medium, next);
        link.high.store(medium, high);
        for at in 0..self.shape.entries {
            let (key, word) = entries.get(at).copied().unwrap_or((NO_KEY, 0));
            let entry = self.nodes.entry(node, at);
            entry.key.store(medium, key);
            entry.word.store(medium, word);
        }
        medium.flush(self.nodes.words(node, self.shape.node_bytes), "wotree split.2 inner")
    }

    /// Adds an entry for `right`, which begins at `separator` and follows `left`, to the level above
    /// (split 5). `left` must be locked, or no other thread active; `above` has the nodes locked for it.
    #[expect(clippy::too_many_arguments, reason = "what a split knows")]
    pub(super) fn tell_parent(
        &self,
        level: u8,
        left: u64,
        separator: u64,
        right: u64,
        above: &[Locked<'_>],
        reserve: &mut Reserve<'_, K, M>,
        guard: &K::Guard,
    ) {
        let Some((parent, above)) = above.split_first() else {
            return self.grow(level, left, separator, right, reserve);
        };
        if self.count(parent.node) < self.shape.entries {
            return self.enter(parent.node, separator, right, guard);
        }
        let (second, low) = self.split_inner(parent, level, above, reserve, guard);
        let in_second = self.separator(low, guard) <= self.separator(separator, guard);
        let half = if in_second { second.node } else { parent.node };
        self.enter(half, separator, right, guard);
    }

    /// Splits a full inner node: its upper half moves, and its middle key moves up. Returns the new node,
    /// locked before any other thread knows it, and its low fence.
    fn split_inner<'t>(
        &self,
        left: &Locked<'_>,
        level: u8,
        above: &[Locked<'_>],
        reserve: &mut Reserve<'t, K, M>,
        guard: &K::Guard,
    ) -> (Locked<'t>, u64) {
        let medium = self.medium();
        let entries: SmallVec<[(u64, u64); 64]> = (0..self.shape.entries)
            .map(|at| {
                let entry = self.nodes.entry(left.node, at);
                (entry.key.load(medium), entry.word.load(medium))
            })
            .collect();
        let kept = entries.len().div_ceil(2);
        let separator = entries[kept].0;
        self.pool.events().note_split();
        let (right, lock) = reserve.take();
        let locked = Locked::wait(NodeLock { node: right, lock });
        let locked = locked.expect("the lock of a node at hand guards nothing that has left the tree");
        let lane = self.log.next_lane(level);
        lane.write(&Record::Split { left: left.node, right, separator, level });
        let link = self.nodes.link(left.node, level);
        let (next, high) = (link.next.load(medium), link.high.load(medium));
        let flushed = self.write_inner(right, level, &entries[kept..], next, high);
        let durable = medium.fence(flushed, "wotree split.2 inner");
        let steps = ["wotree split.3 inner", "wotree split.3 inner high"];
        let Durable { .. } = self.hand_over(link, right, separator, &durable, steps);
        // The fences of split 5 and of the wiping wait for it.
        let _: Flushed = self.cut(left.node, kept);
        self.tell_parent(level + 1, left.node, separator, right, above, reserve, guard);
        lane.wipe();
        (locked, separator)
    }

    /// Removes the entries from `kept` on from an inner node (split 4). They lie beyond its high key, so
    /// no thread follows them: they need to be durable only before the log drops the split.
    pub(super) fn cut(&self, node: u64, kept: usize) -> Flushed {
        let medium = self.medium();
        for at in (kept..self.shape.entries).rev() {
            let entry = self.nodes.entry(node, at);
            entry.word.store(medium, 0);
            // A present entry has its key, also when the cut is repeated.
            let _ordered = medium.ordered_within_line();
            entry.key.store(medium, NO_KEY);
        }
        let line = self.shape.entry(node, kept) / LINE_BYTES as u64 * LINE_BYTES as u64;
        let cells = &self.nodes.words(node, self.shape.node_bytes)[(line - node) as usize / 8..];
        medium.flush(cells, "wotree split.4 inner")
    }

    /// Puts a root above `left`, which is the root and remains so while it is locked, and `right`.
    fn grow(&self, level: u8, left: u64, separator: u64, right: u64, reserve: &mut Reserve<'_, K, M>) {
        let medium = self.medium();
        let (above, _) = reserve.take();
        let lane = self.log.root_lane();
        // Grow 1, 2, 3.
        lane.write(&Record::Root { node: above });
        let flushed = self.write_inner(above, level, &[(0, left), (separator, right)], 0, 0);
        let durable = medium.fence(flushed, "wotree grow.2");
        self.anchor().publish(medium, above, &durable, "wotree grow.3");
        medium.persist(self.anchor(), "wotree grow.3");
        self.set_root(above);
        lane.wipe();
    }
}
