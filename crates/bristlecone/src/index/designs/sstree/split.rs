//! Structure changes except expansion: moves of items, splits of leaves, removal of empty leaves.

use bristlecone_pm::{Durable, Error, Flushed, Medium, Persist, Result};

use super::SsTree;
use super::layout::{END, FINGERPRINT_WORDS, FREE, LEAF_SLOTS_MAX, SUBNODES_MAX, beside_header};
use super::leaf::{Locked, Tags, View};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::slot::bits;
use crate::index::parts::split::Cut;
use crate::index::parts::words::sort_by_key;

/// The move of one item from (position of the subnode, slot) to another.
#[derive(Clone, Copy, Default)]
pub(super) struct Move {
    pub from: (usize, usize),
    pub to: (usize, usize),
}

/// An item to be written to a new leaf.
#[derive(Clone, Copy)]
pub(super) struct Part<R> {
    pub key: R,
    pub words: (u64, u64),
    /// The bit of its slot, if it has one yet.
    pub bit: u64,
}

impl<R: Copy> Part<R> {
    /// Returns the sort key of parts; with a closure, each kind of tree would compile its own sort.
    fn key(&self) -> R {
        self.key
    }
}

impl<K: KeyCodec, M: Medium> SsTree<K, M> {
    /// Moves items within a leaf to ascending slots; the first one gets the value `value` if there is one.
    pub(super) fn relocate(
        &self,
        leaf: &Locked<'_>,
        view: &View,
        moves: &[Move],
        mut value: Option<u64>,
        mut flushed: Flushed,
    ) {
        let medium = self.medium();
        let guard = K::pin();
        let (mut set, mut clear) = (0, 0);
        for (at, Move { from, to }) in moves.iter().enumerate() {
            let source = self.slot(view.subnodes[from.0], from.1);
            let target = self.slot(view.subnodes[to.0], to.1);
            let key = source.key.load(medium);
            let moved = value.take().unwrap_or_else(|| source.value.load(medium));
            target.key.store(medium, key);
            target.value.store(medium, moved);
            // Moves proceed through a leaf line by line.
            let is_last_of_line = moves
                .get(at + 1)
                .is_none_or(|next| next.to.0 != to.0 || !self.shape.share_line(to.1, next.to.1));
            if is_last_of_line {
                flushed = flushed.and(medium.flush(target, "sstree move.1"));
            }
            let tag = K::fingerprint(self.keys.read(key, &guard));
            self.note_fingerprint(leaf, view, *to, tag);
            set |= 1 << (to.0 * self.shape.slots + to.1);
            clear |= 1 << (from.0 * self.shape.slots + from.1);
        }
        self.commit(leaf, view, set, clear, flushed);
    }

    /// Splits a full leaf: the items that [`Cut`] says for the new `key` move to a new leaf, which may begin empty.
    #[inline(never)]
    pub(super) fn split(&self, left: &Locked<'_>, key: K::Ref<'_>, guard: &K::Guard) -> Result<()> {
        let key = K::shorten(key);
        let view = left.view();
        let mut parts = [Part { key, words: (0, 0), bit: 0 }; LEAF_SLOTS_MAX];
        let mut len = 0;
        for (at, slot) in view.items(self.shape) {
            let item = self.slot(view.subnodes[at], slot);
            let words = (item.key.load(self.medium()), item.value.load(self.medium()));
            let key = self.keys.read(words.0, guard);
            parts[len] = Part { key, words, bit: 1 << (at * self.shape.slots + slot) };
            len += 1;
        }
        let parts = &mut parts[..len];
        sort_by_key::<K, _>(self.leaves.level, parts, Part::key);
        let below = parts.partition_point(|part| part.key < key);
        let key_of = |at: usize| parts[at].key;
        let cut = Cut::new::<K>(len, below, key, || (key_of(below - 1), key_of(below)), key_of);
        let (lower, upper) = parts.split_at(cut.kept);
        let first = upper.first().map_or(key, |part| part.key);
        if lower.last().is_some_and(|last| last.key >= first) {
            // The record of one was damaged. Of two leaves, one would hold it out of reach.
            return Err(Error::corrupted(
                "a key that is twice in a leaf",
                format!("subnode {:#x}", view.subnodes[0]),
            ));
        }
        let _room = self.inner.reserve(1)?;
        let (right, durable) = self.new_leaf(upper)?;

        if !upper.is_empty() {
            let moved = upper.iter().fold(0, |bits, part| bits | part.bit);
            let bitmap = view.bitmap & !moved;
            let head = self.header(view.subnodes[0]);
            head.bitmap.publish(self.medium(), bitmap, &durable, "sstree split.3");
            self.medium().persist(&head.bitmap, "sstree split.3");
            left.set_bitmap(bitmap);
        }
        let separator = lower.last().map_or(first, |last| cut.separator::<K>(last.key, key, first));
        debug_assert!(lower.last().is_none_or(|last| last.key < separator) && separator <= first);
        self.inner.insert(separator, right, guard);
        self.pool.events().note_split();
        self.compact(left);
        Ok(())
    }

    /// Writes a new leaf, durable when this returns (split 1 and 2).
    pub(super) fn new_leaf(&self, parts: &[Part<K::Ref<'_>>]) -> Result<(u32, Durable)> {
        let id = self.leaves.alloc()?;
        let count = parts.len().div_ceil(self.shape.slots).max(1);
        let mut subnodes = [0; SUBNODES_MAX];
        for at in 0..count {
            match self.subnodes.alloc() {
                Ok(subnode) => subnodes[at] = subnode,
                Err(error) => {
                    subnodes[..at].iter().for_each(|&subnode| self.subnodes.free(subnode));
                    self.leaves.free(id);
                    return Err(error);
                }
            }
        }
        self.leaves.get(id).announce(&subnodes, count);
        // The head gets the items that do not fill whole subnodes.
        let in_head = parts.len() - (count - 1) * self.shape.slots;
        let tail_bits = (1..count).fold(0, |sum, at| sum | self.shape.bits(at));
        let bitmap = tail_bits | ((1 << in_head) - 1);
        let mut tags = Tags::default();
        let mut flushed = Flushed::none();
        let mut rest = parts;
        for at in (0..count).rev() {
            let take = if at == 0 { in_head } else { self.shape.slots };
            let (own, others) = rest.split_at(take);
            rest = others;
            let next = if at + 1 < count { subnodes[at + 1] } else { END };
            let word = if at == 0 { bitmap } else { 0 };
            for (slot, part) in own.iter().enumerate() {
                tags.set(at * self.shape.slots + slot, K::fingerprint(part.key));
            }
            let has_delegates = !self.shape.resident && at + 1 < count;
            let delegated = has_delegates.then(|| tags.of_subnode(self.shape, at + 1));
            let under_way = self.write_subnode(subnodes[at], own, delegated, word, (at > 0).then_some(next));
            flushed = flushed.and(under_way);
        }
        let medium = self.medium();
        let head = self.header(subnodes[0]);
        let Durable { .. } = medium.fence(flushed, "sstree split.1");
        let next = if count > 1 { subnodes[1] } else { END };
        // Split 2: the head's own line was not flushed yet; relies on its order.
        let ordered = medium.ordered_within_line();
        head.next.publish(medium, next, &ordered, "sstree split.2");
        let durable = medium.persist_proof(head, "sstree split.2");

        let leaf = self.leaves.get(id);
        leaf.begin(&View { subnodes, count, bitmap }, &tags);
        leaf.lock.unlock();
        Ok((id, durable))
    }

    /// Fills a fresh subnode. With `next` it is an overflow subnode and completely flushed. A head's first
    /// line waits for its `next`, which is published last.
    fn write_subnode(
        &self,
        subnode: u64,
        parts: &[Part<K::Ref<'_>>],
        delegated: Option<[u64; FINGERPRINT_WORDS]>,
        bitmap: u64,
        next: Option<u64>,
    ) -> Flushed {
        let medium = self.medium();
        let header = self.header(subnode);
        let mut flushed = Flushed::none();
        for (slot, part) in parts.iter().enumerate() {
            let cell = self.slot(subnode, slot);
            cell.key.store(medium, part.words.0);
            cell.value.store(medium, part.words.1);
            let ends_line = slot + 1 == parts.len() || self.shape.ends_line(slot);
            if ends_line && !beside_header(slot) {
                flushed = flushed.and(medium.flush(cell, "sstree split.1"));
            }
        }
        if let Some(successor) = delegated {
            header.annex.store_derived(medium, successor);
        }
        header.bitmap.store(medium, bitmap);
        if let Some(next) = next {
            // A crash may leave this subnode with its link but separate: it then counts as an empty leaf,
            // because its bitmap precedes its `next` within the line.
            let ordered = medium.ordered_within_line();
            header.next.publish(medium, next, &ordered, "sstree split.1 overflow");
            flushed = flushed.and(medium.flush(header, "sstree split.1 overflow"));
        }
        flushed
    }

    /// Moves the items of the tail into the subnodes before it while they have space, so that a leaf occupies
    /// no more subnodes than its items need.
    fn compact(&self, leaf: &Locked<'_>) {
        loop {
            let view = leaf.view();
            let live = view.bitmap.count_ones() as usize;
            if view.count == 1 || live > (view.count - 1) * self.shape.slots {
                return;
            }
            let tail = view.count - 1;
            let room = (0..tail).flat_map(|at| bits(view.free(self.shape, at)).map(move |to| (at, to)));
            let mut moves = [Move::default(); super::layout::SUBNODE_SLOTS_MAX];
            let mut len = 0;
            for (from, to) in bits(view.taken(self.shape, tail)).zip(room) {
                moves[len] = Move { from: (tail, from), to };
                len += 1;
            }
            self.relocate(leaf, &view, &moves[..len], None, Flushed::none());
        }
    }

    /// Removes an empty leaf from the index and frees its subnode; the only leaf stays.
    pub(super) fn free_if_empty(&self, id: u32, leaf: Locked<'_>, key: K::Ref<'_>, guard: &K::Guard) {
        let view = leaf.view();
        if view.bitmap != 0 || !self.inner.remove(key, id, guard, |_| true) {
            return;
        }
        // Readers search its keys in the left neighbour from here on, and find none.
        let tag = &self.header(view.subnodes[0]).next;
        tag.store(self.medium(), FREE);
        self.medium().persist(tag, "sstree free.1");
        leaf.retire();
        self.leaves.free(id);
        self.subnodes.free(view.subnodes[0]);
    }
}
