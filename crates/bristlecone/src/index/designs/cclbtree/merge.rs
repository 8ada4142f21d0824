//! Merge: an underfull leaf moves its items to its left sibling and is freed. Step numbers are those
//! of the protocol in `mod.rs`.

use bristlecone_pm::{Alone, Durable, Medium, Persist};

use super::Core;
use super::buffer::Locked;
use super::layout::{Leaf, LeafWord, line_of};
use crate::index::parts::buffered::tag_of;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::slot::bits;

impl<K: KeyCodec, M: Medium> Core<K, M> {
    /// Merges a leaf into its left sibling if it is less than half full and the sibling has space;
    /// then that one into its own left sibling, and so on. Locks are taken from right to left.
    pub(super) fn merge_left<'a>(&'a self, mut right: Locked<'a>, guard: &K::Guard) {
        loop {
            let state = right.state();
            // Only after everything pending has just been flushed.
            if state.leaf == self.first || state.pending > 0 {
                return;
            }
            let live = self.live_items(&right);
            if live * 2 >= self.slots {
                return;
            }
            let fence = self.leaf(state.leaf).slots[0].key.load(self.medium());
            let Ok(fence) = self.keys.read_verified(fence, guard) else { return };
            let (held, version_of) = ((right.id, right.seen), |id| self.version_of(id));
            let left = self.inner.lock_before(fence, held, guard, version_of, |id| self.buffers.get(id));
            let Some(mut left) = left else { return };
            if !self.make_room(&mut left, &right, live) {
                return;
            }
            // False: they are not adjacent in the index, and nothing changed.
            if !self.inner.remove(fence, right.id, guard, |successor| successor == Some(left.id)) {
                return;
            }
            self.absorb(&mut left, &right);
            right.retire();
            self.buffers.free();
            self.leaves.free(state.leaf);
            right = left;
        }
    }

    /// Merge 1: returns whether the left leaf has space for the right one's items, with nothing
    /// pending.
    fn make_room(&self, left: &mut Locked<'_>, right: &Locked<'_>, live: usize) -> bool {
        let state = left.state();
        let word = LeafWord::unpack(self.leaf(state.leaf).header.word.load(self.medium()));
        if word.next != right.state().leaf || self.live_items(left) + live > self.slots {
            return false;
        }
        if state.pending > 0 && self.flush_pending(left).is_err() {
            return false;
        }
        let word = LeafWord::unpack(self.leaf(state.leaf).header.word.load(self.medium()));
        // A split may have inserted another leaf in between.
        word.next == right.state().leaf
            && self.free_slots(state.leaf, word.bitmap).count_ones() as usize >= live
    }

    /// Merge 2 and 3: moves the items of the right leaf, for which nothing is pending, to the left
    /// one. Readers of these items already wait at the left leaf.
    fn absorb(&self, left: &mut Locked<'_>, right: &Locked<'_>) {
        let medium = self.medium();
        let (from, to) = (right.state().leaf, left.state().leaf);
        let (source, target) = (self.leaf(from), self.leaf(to));
        left.raise(right.sequence());
        let word = LeafWord::unpack(target.header.word.load(medium));
        let next = LeafWord::unpack(source.header.word.load(medium)).next;
        let (mut bitmap, mut lines) = (word.bitmap, 0_usize);
        let mut free = bits(self.free_slots(to, bitmap));
        let tags = source.header.fingerprints.load(medium);
        for from in bits(self.taken(source)) {
            let item = &source.slots[from];
            let key = item.key.load(medium);
            let slot = free.next().expect("room was made");
            target.slots[slot].key.store(medium, key);
            target.slots[slot].value.store(medium, item.value.load(medium));
            target.header.fingerprints.store_byte(medium, slot, tag_of(&tags, from));
            bitmap |= 1 << slot;
            lines |= 1 << line_of(slot);
        }
        let flushed = self.flush_lines(to, lines as u64 & !1, "cclbtree merge.2");
        if lines & !1 != 0 {
            let Durable { .. } = medium.fence(flushed, "cclbtree merge.2");
        }
        // Merge 3: entries of the right leaf must be invalid before its range belongs to the left
        // one.
        target.header.stamp.publish(medium, left.sequence(), &Alone, "cclbtree merge.3 stamp");
        let ordered = medium.ordered_within_line();
        let merged = LeafWord { bitmap, next };
        target.header.word.publish(medium, merged.pack(), &ordered, "cclbtree merge.3");
        medium.persist(&target.header, "cclbtree merge.3");
        self.let_go_of_fence(source);
    }

    /// Returns the taken slots of a leaf.
    fn taken(&self, cells: &Leaf) -> u64 {
        LeafWord::unpack(cells.header.word.load(self.medium())).bitmap & self.slots_mask()
    }

    /// Releases the fence of a freed leaf, unless an item still uses its record: in slot 0, or in
    /// another one, if the fence's item was removed and inserted again.
    fn let_go_of_fence(&self, cells: &Leaf) {
        if K::INLINE {
            return;
        }
        let key = |slot: usize| cells.slots[slot].key.load(self.medium());
        if bits(self.taken(cells)).all(|slot| key(slot) != key(0)) {
            self.let_go_of_key(key(0));
        }
    }
}
