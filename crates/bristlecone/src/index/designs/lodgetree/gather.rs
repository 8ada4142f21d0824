//! Gathering the items for leaves from the buffer for a flush, with the leaves' slots for them.

use bristlecone_pm::Medium;
use smallvec::SmallVec;

use super::LodgeTree;
use super::buffer::Buffered;
use super::layout::Slots;
use super::node::{Entry, Locked};
use crate::index::parts::buffered::{Hint, InLeaf, Pending};
use crate::index::parts::codec::KeyCodec;

/// All items for one leaf, which are merged into it only together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'a> {
    /// Position of the leaf in the index part.
    pub at: usize,
    pub items: &'a [Pending],
    /// Whether some of its items are in the log.
    pub logged: bool,
}

impl Group<'_> {
    /// Returns the number of items of a leaf with these taken slots after the group is merged.
    #[inline(always)]
    pub fn live_in(&self, slots: Slots) -> usize {
        let (added, dropped) = Pending::changes(self.items);
        (slots.bitmap & !dropped).count_ones() as usize + added
    }
}

/// The groups of a flush.
#[derive(Default)]
pub(super) struct Gathered {
    /// Items grouped by leaf.
    items: SmallVec<[Pending; 16]>,
    leaves: SmallVec<[Leaf; 2]>,
}

/// A leaf that some of the items belong to.
struct Leaf {
    at: usize,
    /// End of its items.
    end: usize,
    logged: bool,
}

impl Gathered {
    pub fn leaves(&self) -> usize {
        self.leaves.len()
    }

    pub fn clear(&mut self) {
        self.items.clear();
        self.leaves.clear();
    }

    /// Removes the last group.
    pub fn pop(&mut self) {
        self.leaves.pop();
        self.items.truncate(self.leaves.last().map_or(0, |leaf| leaf.end));
    }

    /// Adds an item to the first group.
    pub fn join_first(&mut self, item: Pending, logged: bool) {
        self.items.insert(self.leaves[0].end, item);
        self.leaves[0].logged |= logged;
        self.leaves.iter_mut().for_each(|leaf| leaf.end += 1);
    }

    pub fn last(&self) -> Group<'_> {
        let last = self.leaves.len() - 1;
        let start = last.checked_sub(1).map_or(0, |before| self.leaves[before].end);
        let Leaf { at, end, logged } = self.leaves[last];
        Group { at, items: &self.items[start..end], logged }
    }

    pub fn groups(&self) -> SmallVec<[Group<'_>; 2]> {
        let (mut groups, mut start) = (SmallVec::new(), 0);
        for leaf in &self.leaves {
            groups.push(Group { at: leaf.at, items: &self.items[start..leaf.end], logged: leaf.logged });
            start = leaf.end;
        }
        groups
    }
}

impl<K: KeyCodec, M: Medium> LodgeTree<K, M> {
    /// Gathers the items buffered for a leaf, except the item `except`.
    pub(super) fn gather(
        &self,
        node: &Locked<'_>,
        at: usize,
        except: Option<usize>,
        gathered: &mut Gathered,
        guard: &K::Guard,
    ) {
        let (entry, items, before) = (node.entry(at), node.items_of(at), gathered.items.len());
        for number in except.map_or(items, |except| items.without_item(except)) {
            let item = node.buffered(number);
            let slot = self.look_for(node, entry, (number, &item), guard);
            gathered.items.push(Pending::of(item.item(), item.tag, slot));
        }
        let end = gathered.items.len();
        gathered.leaves.push(Leaf { at, end, logged: end > before });
    }

    /// Returns the leaf's slot for a buffered item. If no thread has searched it before, counts the item now.
    pub(super) fn slot_of_buffered(
        &self,
        node: &Locked<'_>,
        number: usize,
        guard: &K::Guard,
    ) -> Option<usize> {
        let item = node.buffered(number);
        self.look_for(node, node.entry(item.owner), (number, &item), guard)
    }

    #[inline(always)]
    fn look_for(
        &self,
        node: &Locked<'_>,
        entry: Entry,
        (number, item): (usize, &Buffered),
        guard: &K::Guard,
    ) -> Option<usize> {
        if item.in_leaf == InLeaf::No {
            return None;
        }
        let slot = self.slot_of(entry, item.key, item.tag, guard);
        if item.in_leaf == InLeaf::Unseen {
            node.set_in_leaf(number, slot.is_some());
            self.unseen.add(-1);
            self.len.add(slot.is_none().into());
        }
        slot
    }

    /// Counts the unseen buffered items.
    pub(super) fn count_all(&self) {
        if self.unseen.sum() == 0 {
            return;
        }
        for id in 0..self.nodes.end() {
            let unseen = |item: &Buffered| item.in_leaf == InLeaf::Unseen;
            if let Some(node) = self.lock_if_any(id, unseen) {
                let leaves = (0..node.counts().index).filter(|at| node.items_of(*at).count() > 0);
                leaves.for_each(|at| self.prefetch_buffered(&node, at));
                let (items, guard) = (node.all_buffered().enumerate(), K::pin());
                for (number, _) in items.filter(|(_, item)| unseen(item)) {
                    self.slot_of_buffered(&node, number, &guard);
                }
            }
        }
    }

    /// Locks a node if such an item is buffered in it. Waits for writers.
    pub(super) fn lock_if_any(&self, id: u32, wanted: impl Fn(&Buffered) -> bool) -> Option<Locked<'_>> {
        let node = self.nodes.get(id);
        loop {
            let version = node.lock.read()?;
            if !node.all_buffered().any(|item| wanted(&item)) && node.lock.validate(version) {
                return None;
            }
            if let Some(locked) = node.lock_at(version) {
                return Some(locked);
            }
        }
    }

    /// Returns the leaf's slot for a key. Its node must be locked.
    #[inline(always)]
    pub(super) fn slot_of(&self, entry: Entry, key: u64, tag: u8, guard: &K::Guard) -> Option<usize> {
        let key = self.keys.read(key, guard);
        let found = self.locate_in_leaf(entry, key, tag, Hint::Present, guard, &|| true);
        found.ok().flatten().map(|(slot, ..)| slot)
    }
}
