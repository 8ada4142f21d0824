//! Merge: underfull leaves merge within their node, and small nodes merge with a neighbour, so that
//! deletes free space. The paper does not describe this. Step numbers are those of the protocol in
//! `mod.rs`.

use bristlecone_pm::{Medium, Persist};
use smallvec::SmallVec;

use super::LodgeTree;
use super::buffer::Buffered;
use super::gather::{Gathered, Group};
use super::layout::{LeafWord, SLOTS_MAX};
use super::node::{Counts, Entry, Locked};
use crate::index::parts::buffered::{Item, LeafLayout, Pending, tag_of};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::slot::bits;
use crate::index::parts::volatile_index::Step;

impl<K: KeyCodec, M: Medium> LodgeTree<K, M> {
    /// Merges leaves and nodes that have become too small after a removal from the leaf at `at`.
    #[inline(always)]
    pub(super) fn shrink<'a>(&'a self, node: Locked<'a>, at: usize, guard: &K::Guard) {
        if self.is_small(&node, at) {
            self.merge_small(node, at, guard);
        }
    }

    /// Returns whether a leaf is to be merged with a neighbour.
    fn is_small(&self, node: &Locked<'_>, at: usize) -> bool {
        node.live_items(at) * 3 <= self.slots
    }

    #[inline(never)]
    fn merge_small<'a>(&'a self, mut node: Locked<'a>, mut at: usize, guard: &K::Guard) {
        while self.is_small(&node, at) {
            while let Some(left) = self.partner(&node, at) {
                self.merge_leaves(&mut node, left, guard);
                at = left;
            }
            let Counts { index, .. } = node.counts();
            if index * 4 > self.node_slots {
                return;
            }
            let Ok((merged, shift)) = self.merge_node(node, guard) else { return };
            (node, at) = (merged, at + shift);
        }
    }

    /// Returns the left one of two neighbours to be merged: the leaf at `at`, and the one before or
    /// behind it. An empty leaf is always merged; others if that leaves some space.
    fn partner(&self, node: &Locked<'_>, at: usize) -> Option<usize> {
        let index = node.counts().index;
        let live = node.live_items(at);
        if live * 3 > self.slots {
            return None;
        }
        let most = if live == 0 { self.slots } else { self.slots * 3 / 4 };
        let fits = |left: usize| {
            let both = node.live_items(left) + node.live_items(left + 1);
            both <= most && node.live_items(left).max(node.live_items(left + 1)) <= self.slots
        };
        let before = at.checked_sub(1).filter(|left| fits(*left));
        before.or_else(|| (at + 1 < index && fits(at)).then_some(at))
    }

    /// Moves the items of the leaf behind `left` into the leaf at `left`, and frees the former.
    fn merge_leaves(&self, node: &mut Locked<'_>, left: usize, guard: &K::Guard) {
        let medium = self.medium();
        let right = left + 1;
        // Merge 1: the items buffered for both.
        let mut gathered = Gathered::default();
        for at in [left, right] {
            self.gather(node, at, None, &mut gathered, guard);
            if !gathered.last().logged {
                gathered.pop();
            }
        }
        if gathered.leaves() > 0 {
            let flush = self.write_groups(node, &gathered.groups());
            self.end_flush(Some(flush));
        }
        let (to, from) = (node.entry(left), node.entry(right));
        let (target, source) = (self.leaf(to.leaf), self.leaf(from.leaf));
        // Merge 2: the items of the right leaf, in free slots of the left one.
        let tags = source.fingerprints.load(medium);
        let moved = bits(from.slots.bitmap).map(|slot| {
            let cell = self.slot(from.leaf, slot);
            let (key, value) = (cell.key.load(medium), cell.value.load(medium));
            Pending::of(Item { key, value, removed: false }, tag_of(&tags, slot), None)
        });
        let moved: SmallVec<[Pending; SLOTS_MAX]> = moved.collect();
        let moved = Group { at: left, items: &moved, logged: false };
        let (slots, flushed) = self.fill(to, &moved, "lodgetree merge.2");
        let durable = medium.fence(flushed, "lodgetree merge.2");
        // Merge 3: entries of the right leaf must be invalid before its range belongs to the left one. Salvage
        // recognizes a freed leaf by its stamp, which is therefore below that of the leaf that has its range.
        node.raise(node.sequence());
        target.stamp.store(medium, node.sequence());
        let next = source.link(medium).next;
        let word = LeafWord { bitmap: slots.bitmap, ..LeafWord::unpack(target.word.load(medium)) }.switched();
        target.siblings[word.selector].store(medium, next);
        let _ordered = medium.ordered_within_line();
        target.word.publish(medium, word.pack(), &durable, "lodgetree merge.3");
        medium.persist(&target.word, "lodgetree merge.3");
        node.set_entry(left, Entry { slots, ..to });
        node.remove_entry(right);
        self.leaves.free(from.leaf);
        self.keys.retire(from.fence, guard);
    }

    /// Merges a node with a neighbour: moves its contents to the left one, or takes those of the right
    /// one. Nothing on the medium changes. Returns the merged node, and the shift of the positions of
    /// this node's leaves; `Err` if no neighbour has space and is unlocked.
    fn merge_node<'a>(&'a self, node: Locked<'a>, guard: &K::Guard) -> Result<(Locked<'a>, usize), ()> {
        let fence = node.fence(0);
        let first = node.entry(0).leaf == self.first;
        if !first {
            let fence = self.keys.read_verified(fence, guard).map_err(drop)?;
            let (held, version_of) = ((node.id, node.seen), |id| self.version_of(id));
            let left = self.inner.lock_before(fence, held, guard, version_of, |id| self.nodes.get(id));
            let left = left.ok_or(())?;
            if self.may_join(&left, &node) && self.leave(fence, &left, &node, guard) {
                let shift = left.counts().index;
                return Ok((self.join(left, node), shift));
            }
        }
        let low = if first { K::least() } else { self.keys.read(fence, guard) };
        let right = self.lock_behind(low, &node, guard).ok_or(())?;
        let fence = self.keys.read(right.fence(0), guard);
        if !self.may_join(&node, &right) || !self.leave(fence, &node, &right, guard) {
            return Err(());
        }
        Ok((self.join(node, right), 0))
    }

    /// Returns whether two nodes fit into one, with space for more.
    fn may_join(&self, left: &Locked<'_>, right: &Locked<'_>) -> bool {
        let (left, right) = (left.counts(), right.counts());
        let index = left.index + right.index;
        index * 4 <= self.index_max * 3 && index + left.buffered + right.buffered < self.node_slots
    }

    /// Removes the right node from the index; its range passes to the left one.
    fn leave(&self, fence: K::Ref<'_>, left: &Locked<'_>, right: &Locked<'_>, guard: &K::Guard) -> bool {
        self.inner.remove(fence, right.id, guard, |successor| successor == Some(left.id))
    }

    fn join<'a>(&self, mut left: Locked<'a>, right: Locked<'_>) -> Locked<'a> {
        left.raise(right.sequence());
        let before = left.counts().index;
        (0..right.counts().index).for_each(|at| left.insert_entry(before + at, right.entry(at)));
        right.all_buffered().for_each(|item| {
            left.push_buffered(Buffered { owner: item.owner + before, ..item });
        });
        let id = right.id;
        right.retire();
        self.nodes.free(id);
        left
    }

    /// Returns the locked node behind the one that begins with `low`, if there is one and it is
    /// unlocked.
    fn lock_behind(&self, low: K::Ref<'_>, node: &Locked<'_>, guard: &K::Guard) -> Option<Locked<'_>> {
        // The node's own lock is held, so waiting for its version would never end.
        let version_of = |id| if id == node.id { Some(node.seen) } else { self.version_if_free(id) };
        let (_, _, cursor) = self.inner.seek(Some(low), guard, version_of, |_| {});
        let Step::Leaf(id, version, _) = self.inner.next(cursor, version_of) else { return None };
        self.nodes.get(id).lock_at(version)
    }
}
