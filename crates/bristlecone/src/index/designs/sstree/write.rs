//! Insert, update and remove within one leaf. Step numbers are those of the protocol in `mod.rs`.

use bristlecone_pm::{Durable, Flushed, Medium, Persist, Result, Step, Word};

use super::SsTree;
use super::layout::{beside_header, slot_offset, stage};
use super::leaf::{Locked, View};
use super::read::Found;
use super::split::Move;
use crate::index::options::experimental;
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::slot::{Slot, bits};
use crate::index::{Removed, Swapped, Tell, Write, WriteMode};

/// A new item to be inserted into a leaf: its words, and its records if it has any.
pub(super) struct Item {
    pub key: u64,
    pub value: u64,
    pub tag: u8,
}

impl<K: KeyCodec, V: Storage, M: Medium> Write<K, V> for SsTree<K, M> {
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>> {
        self.with_room(|| self.put::<V>(key, value, mode))
    }

    fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.delete::<V>(key, None).map(Removed::<V>::ok)
    }

    fn write_many(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], tell: &mut Tell<'_, V>) -> Result<()> {
        self.put_many::<V>(items, tell)
    }

    fn remove_many(&self, keys: &[K::Ref<'_>], tell: &mut Tell<'_, V>) -> Result<()> {
        self.delete_many::<V>(keys, tell)
    }

    fn remove_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>) -> Result<Swapped<V>> {
        self.delete::<V>(key, Some(expected)).map(|done| done.map(drop))
    }

    fn append(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], last: bool) -> Result<usize> {
        self.append_leaves::<V>(items, last)
    }

    fn compare_and_swap(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>> {
        self.with_room(|| self.swap::<V>(key, expected, new))
    }
}

impl<K: KeyCodec, M: Medium> SsTree<K, M> {
    /// Runs a write; if it finds no space, runs it again after readers have released records.
    #[inline(always)]
    fn with_room<R>(&self, write: impl FnMut() -> Result<R>) -> Result<R> {
        let records = [&self.keys.records, &self.values.records];
        // Also records that a killed process left behind.
        let released =
            || records.iter().any(|records| records.has_released()) || self.has_freed_lost_records();
        let held = || records.iter().map(|records| records.held()).sum();
        self.epochs.with_room(released, held, write)
    }

    /// Writes an item subject to `mode`; returns the previous value.
    #[inline(always)]
    fn put<V: Storage>(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        mode: WriteMode,
    ) -> Result<Option<V::Owned>> {
        let guards = (K::pin(), V::pin());
        loop {
            let inserts = |found: Option<Found>| found.is_none();
            let (_, leaf, found) = self.lock_leaf(key, &guards.0, inserts);
            if let Some(found) = found {
                let old = self.value_of::<V>(found, &guards.1);
                if mode != WriteMode::New {
                    self.replace::<V>(&leaf, found, value, &guards.1)?;
                }
                drop(leaf);
                return self.pool.health().map(|()| Some(old));
            }
            if mode == WriteMode::Update {
                return Ok(None);
            }
            if self.add::<V>(&leaf, key, value)? {
                drop(leaf);
                return self.pool.health().map(|()| None);
            }
            // Looked up again: the key may belong to the new leaf.
            self.split(&leaf, key, &guards.0)?;
        }
    }

    /// Replaces the value of a key by `new` if it is `expected`; otherwise returns the value found instead.
    fn swap<V: Storage>(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>> {
        let guards = (K::pin(), V::pin());
        let (_, leaf, found) = self.lock_leaf(key, &guards.0, |_| false);
        let Some(found) = found else { return Ok(Err(None)) };
        let old = self.value_of::<V>(found, &guards.1);
        if V::borrow(&old) != V::shorten(expected) {
            return Ok(Err(Some(old)));
        }
        self.replace::<V>(&leaf, found, new, &guards.1)?;
        drop(leaf);
        self.pool.health().map(Ok)
    }

    /// Returns the locked leaf whose range holds `key`, and the key's item if there is one. The item is searched before
    /// the leaf is locked, so that its line is fetched while the lock waits for earlier stores to leave the processor.
    #[inline(always)]
    pub(super) fn lock_leaf(
        &self,
        key: K::Ref<'_>,
        guard: &K::Guard,
        writes_head: impl Fn(Option<Found>) -> bool,
    ) -> (u32, Locked<'_>, Option<Found>) {
        let tag = K::fingerprint(key);
        loop {
            let (id, version) = self.inner.find(key, guard, |leaf| self.version_of(leaf));
            let leaf = self.leaves.get(id);
            let Ok(found) = self.locate(leaf, key, tag, guard, || leaf.lock.validate(version)) else {
                continue;
            };
            if writes_head(found) {
                self.pool.prefetch(leaf.subnode(0));
                if found.is_none() {
                    let view = leaf.view();
                    let (at, slot) = view.first_free(self.shape).unwrap_or_default();
                    self.pool.prefetch(slot_offset(view.subnodes[at], slot));
                }
            }
            if let Some(leaf) = leaf.lock_at(version) {
                return (id, leaf, found);
            }
        }
    }

    pub(super) fn value_of<V: Storage>(&self, found: Found, guard: &V::Guard) -> V::Owned {
        V::owned(self.values.of::<V>().read(found.value, guard))
    }

    /// Adds an item that the leaf does not hold; returns `false` if it has no space.
    fn add<V: Storage>(&self, leaf: &Locked<'_>, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool> {
        let view = leaf.view();
        let place = view.first_free(self.shape);
        if place.is_none() && view.count == self.shape.subnodes_max {
            return Ok(false);
        }
        let fresh = if place.is_none() { Some(self.subnodes.alloc()?) } else { None };
        let (item, flushed) = match self.write_records::<V>(leaf.subnode(0), key, value) {
            Ok(written) => written,
            Err(error) => {
                fresh.into_iter().for_each(|subnode| self.subnodes.free(subnode));
                return Err(error);
            }
        };
        match (place, fresh) {
            (Some(place), _) => self.fill::<V>(leaf, view, place, &item, flushed),
            (None, Some(fresh)) => self.expand::<V>(leaf, &view, fresh, &item, flushed),
            (None, None) => unreachable!("a leaf without room was given a fresh subnode"),
        }
        self.len.add(1);
        Ok(true)
    }

    /// Insert 1: writes out-of-line data first.
    pub(super) fn write_records<V: Storage>(
        &self,
        leaf: u64,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<(Item, Flushed)> {
        let (key_word, key_flushed) = self.keys.write_near(key, leaf, "sstree insert.1 key")?;
        match self.values.of::<V>().write_near(value, leaf, "sstree insert.1 value") {
            Ok((value, flushed)) => {
                let item = Item { key: key_word, value, tag: K::fingerprint(key) };
                Ok((item, key_flushed.and(flushed)))
            }
            Err(error) => {
                self.keys.free(key_word);
                Err(error)
            }
        }
    }

    /// Makes records durable before a line that refers to them can leave the cache. Inline items have none, and skip
    /// the fence.
    pub(super) fn fence_records<V: Storage>(&self, flushed: Flushed) {
        if !(K::INLINE && V::INLINE) {
            let Durable { .. } = self.medium().fence(flushed, "sstree insert.1 fence");
        }
    }

    fn fill<V: Storage>(
        &self,
        leaf: &Locked<'_>,
        view: View,
        place: (usize, usize),
        item: &Item,
        flushed: Flushed,
    ) {
        let medium = self.medium();
        let bitmap = self.with_bit(&view, place);
        self.note_fingerprint(leaf, &view, place, item.tag);
        if self.is_alone(&view, place, item) {
            let (head, cell) = (self.header(view.subnodes[0]), self.slot(view.subnodes[place.0], place.1));
            cell.key.store(medium, item.key);
            cell.value.store(medium, item.value);
            let flushed = flushed.and(medium.flush(cell, "sstree insert.2"));
            let durable = medium.fence(flushed, "sstree insert.2");
            head.bitmap.publish(medium, bitmap, &durable, "sstree insert.3 apart");
            medium.persist(&head.bitmap, "sstree insert.3 apart");
        } else {
            self.fence_records::<V>(flushed);
            let mut flushed = Flushed::none();
            let last = self.place(&view, place, item, &mut |word, step| {
                let earlier = std::mem::replace(&mut flushed, Flushed::none());
                flushed = earlier.and(medium.flush(word, step));
            });
            let Durable { .. } = medium.fence(flushed, last);
        }
        leaf.set_bitmap(bitmap);
    }

    /// Returns the bitmap of a leaf with the slot at a position taken.
    #[inline(always)]
    pub(super) fn with_bit(&self, view: &View, (at, slot): (usize, usize)) -> u64 {
        view.bitmap | 1 << (at * self.shape.slots + slot)
    }

    /// Returns whether an item's slot needs its own fence: an item staged for a slot that held the same key could not
    /// be distinguished from one that was not written yet.
    #[inline(always)]
    pub(super) fn is_alone(&self, view: &View, (at, slot): (usize, usize), item: &Item) -> bool {
        let cell = self.slot(view.subnodes[at], slot);
        let shares_line = at == 0 && beside_header(slot);
        let is_staged = self.staging && cell.key.load(self.medium()) != item.key;
        !shares_line && !is_staged
    }

    /// Insert 2 and 3 for an item that is not alone: calls `flush` with the lines for the common fence, and returns the
    /// step of this fence.
    #[inline(always)]
    pub(super) fn place<'t>(
        &'t self,
        view: &View,
        (at, slot): (usize, usize),
        item: &Item,
        flush: &mut impl FnMut(&'t Word, Step),
    ) -> Step {
        let medium = self.medium();
        let head = self.header(view.subnodes[0]);
        let cell = self.slot(view.subnodes[at], slot);
        let bit = at * self.shape.slots + slot;
        let bitmap = self.with_bit(view, (at, slot));
        if at == 0 && beside_header(slot) {
            cell.key.store(medium, item.key);
            cell.value.store(medium, item.value);
            // Insert 3: relies on line order, so that one flush serves both.
            let ordered = medium.ordered_within_line();
            head.bitmap.publish(medium, bitmap, &ordered, "sstree insert.3");
            flush(&head.bitmap, "sstree insert.3");
            "sstree insert.3"
        } else {
            self.store_whole(cell, (item.key, item.value), "sstree insert.2 staged");
            flush(&cell.key, "sstree insert.2 staged");
            // The previously staged item was durable in its slot before this operation. All stores are in one line:
            // insert 3 relies on its order, so that one fence serves both lines.
            head.bitmap.store(medium, view.bitmap);
            let ordered = medium.ordered_within_line();
            head.annex.publish(medium, [item.key, item.value], &ordered, "sstree insert.3 stage");
            let ordered = medium.ordered_within_line();
            head.bitmap.publish(medium, bitmap | stage(bit), &ordered, "sstree insert.3 staged");
            flush(&head.bitmap, "sstree insert.3 staged");
            "sstree insert.3 staged"
        }
    }

    /// Writes a slot so that it holds the whole item once it holds its key.
    pub(super) fn write_whole(&self, cell: &Slot, item: (u64, u64), step: Step) -> Flushed {
        self.store_whole(cell, item, step);
        self.medium().flush(cell, step)
    }

    #[inline(always)]
    fn store_whole(&self, cell: &Slot, (key, value): (u64, u64), step: Step) {
        let medium = self.medium();
        cell.value.store(medium, value);
        cell.key.publish(medium, key, &medium.ordered_within_line(), step);
    }

    /// Expand 1 and 2: makes the fresh subnode the head, whose first line has the complete state.
    fn expand<V: Storage>(&self, leaf: &Locked<'_>, view: &View, fresh: u64, item: &Item, flushed: Flushed) {
        let medium = self.medium();
        self.fence_records::<V>(flushed);
        let (header, cell) = (self.header(fresh), self.slot(fresh, 0));
        let bitmap = view.bitmap << self.shape.slots | 1;
        cell.key.store(medium, item.key);
        cell.value.store(medium, item.value);
        if !self.shape.resident {
            header.annex.store_derived(medium, leaf.tags().of_subnode(self.shape, 0));
        }
        header.bitmap.store(medium, bitmap);
        leaf.announce_head(view.count, fresh);
        // Expand 2: replaces the free tag; relies on line order.
        let ordered = medium.ordered_within_line();
        header.next.publish(medium, view.subnodes[0], &ordered, "sstree expand.2");
        medium.persist(header, "sstree expand.2");

        let mut grown = View { count: view.count + 1, bitmap, ..*view };
        grown.subnodes.copy_within(..view.count, 1);
        grown.subnodes[0] = fresh;
        leaf.set_tags(&leaf.tags().expanded(self.shape, item.tag));
        leaf.set_view(&grown);
    }

    /// Sets the fingerprint of a slot in the descriptor or in the predecessor, where readers expect it. No flush:
    /// recovery derives fingerprints from the keys.
    pub(super) fn note_fingerprint(
        &self,
        leaf: &Locked<'_>,
        view: &View,
        (at, slot): (usize, usize),
        tag: u8,
    ) {
        if self.shape.resident || at == 0 {
            leaf.set_tag(at * self.shape.slots + slot, tag);
        } else {
            let predecessor = self.header(view.subnodes[at - 1]);
            predecessor.annex.store_byte(self.medium(), slot, tag);
        }
    }

    /// Sets the item's value in place, or by moving the item.
    #[inline(always)]
    fn replace<V: Storage>(
        &self,
        leaf: &Locked<'_>,
        found: Found,
        value: V::Ref<'_>,
        guard: &V::Guard,
    ) -> Result<()> {
        let medium = self.medium();
        let (word, flushed) = self.values.of::<V>().write_near(value, leaf.subnode(0), "sstree update.1")?;
        let room = self.room_to_move(leaf.bitmap(), found.at);
        if room != 0 {
            self.move_forward(leaf, found, room, word, flushed);
        } else {
            let cell = &self.slot(leaf.subnode(found.at), found.slot).value;
            if V::INLINE {
                cell.store(medium, word);
            } else {
                let durable = medium.fence(flushed, "sstree update.1 fence");
                cell.publish(medium, word, &durable, "sstree update.2");
            }
            medium.persist(cell, "sstree update.2");
        }
        self.values.of::<V>().retire(found.value, guard);
        Ok(())
    }

    /// Returns the free slots for an updated item of the subnode at `at`. With all fingerprints in DRAM all subnodes
    /// are equal, but the tail's items move if all of them find space, so that the tail is freed.
    #[inline(always)]
    pub(super) fn room_to_move(&self, bitmap: u64, at: usize) -> u64 {
        if at == 0 || experimental(self.moving.into(), 1) == 0 {
            return 0;
        }
        let slots = self.shape.slots;
        let targets = match self.shape.resident {
            true => {
                let before = (1 << (at * slots)) - 1;
                let (tail, room) = (bitmap >> (at * slots), before & !bitmap);
                let is_tail = tail >> slots == 0;
                let goes = is_tail && tail.count_ones() <= room.count_ones();
                if goes { before } else { 0 }
            }
            false => self.shape.head_bits(),
        };
        targets & !bitmap
    }

    /// Moves the updated item towards the head: with the others of the tail, or with its line mates while there is
    /// space.
    #[inline(never)]
    fn move_forward(&self, leaf: &Locked<'_>, found: Found, room: u64, value: u64, flushed: Flushed) {
        let view = leaf.view();
        let line = if self.shape.resident { u64::MAX } else { self.shape.line_mates(found.slot) };
        let mates = line & view.taken(self.shape, found.at) & !(1 << found.slot);
        let sources = std::iter::once(found.slot).chain(bits(mates));
        let mut moves = [Move::default(); super::layout::SUBNODE_SLOTS_MAX];
        let mut len = 0;
        for (from, to) in sources.zip(bits(room)) {
            moves[len] = Move { from: (found.at, from), to: self.shape.place(to) };
            len += 1;
        }
        self.relocate(leaf, &view, &moves[..len], Some(value), flushed);
    }
}
