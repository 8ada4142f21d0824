//! Applying a change of a key in its locked leaf: to the log and the buffer, or directly to the leaf. Step numbers are
//! those of the protocol in `mod.rs`.

use bristlecone_pm::{Flushed, LogSpot, Medium, Persist, Result};

use super::Core;
use super::buffer::{Locked, State};
use super::layout::LeafWord;
use super::room::Promise;
use crate::index::parts::buffered::{Change, Found, InLeaf, Item};
use crate::index::parts::codec::{KeyCodec, Storage};

impl<K: KeyCodec, M: Medium> Core<K, M> {
    /// Sets or removes the value of a key. The caller knows that this changes something.
    #[inline(never)]
    pub(super) fn apply<V: Storage>(
        &self,
        mut leaf: Locked<'_>,
        found: &Found,
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
        guard: &K::Guard,
    ) -> Result<()> {
        let mut promise = None;
        let spot = if self.belongs_in_buffer(&leaf, found, value.is_some(), &mut promise) {
            let spot = self.reserve_entry();
            let without_room = || found.item.is_some() && self.overflows(&leaf);
            spot.or_else(|| without_room().then(|| self.reserve_among_copies()).flatten())
        } else {
            None
        };
        let mut change = self.write_records::<V>((leaf.state().leaf, found.key), key, value)?;
        // A new value takes no more space than the old one.
        let steady = found.value.is_some() && value.is_some() && spot.is_some();
        let overflowed = !steady && self.overflows(&leaf);
        if let Some(spot) = spot {
            self.log_and_buffer(&leaf, found, change, spot, guard);
        } else if let Err(error) = self.write_through(&mut leaf, found, &mut change, guard) {
            self.discard(&change);
            return Err(error);
        }
        self.count_overflow(overflowed, !steady && self.overflows(&leaf));
        drop(promise);
        match (found.value.is_some(), value.is_some()) {
            (false, true) => self.len.add(1),
            (true, false) => {
                self.len.add(-1);
                self.merge_left(leaf, guard);
            }
            _ => {}
        }
        Ok(())
    }

    /// Write 2 and 3.
    #[inline(always)]
    pub(super) fn log_and_buffer(
        &self,
        leaf: &Locked<'_>,
        found: &Found,
        mut change: Change,
        spot: LogSpot<'_, M>,
        guard: &K::Guard,
    ) {
        let entry = change.item.entry(leaf.sequence());
        // No thread reads the buffer while it is locked. Stores behind a fence would delay the next write's loads and
        // their prefetch.
        self.put_in_buffer(leaf, found, change.item, spot.epoch(), guard);
        spot.append(&entry, change.take_records());
    }

    /// Returns whether a change is buffered. It is not in three cases: there is no space; it removes the leaf's last
    /// item, which frees the leaf; or the leaf would overflow while there may be no space for another one.
    #[inline(always)]
    fn belongs_in_buffer<'a>(
        &'a self,
        leaf: &Locked<'_>,
        found: &Found,
        present: bool,
        promise: &mut Option<Promise<'a>>,
    ) -> bool {
        let state = leaf.state();
        if found.item.is_none() && state.pending == self.buffers.batch() {
            return false;
        }
        let word = LeafWord::unpack(self.leaf(state.leaf).header.word.load(self.medium()));
        let taken = word.bitmap.count_ones() as usize;
        if !present {
            // Every pending slot may be a removal of an item in the leaf.
            return taken > state.pending + 1 || self.live_items(leaf) > 1 || state.leaf == self.first;
        }
        // One slot may be reserved for the fence.
        if found.value.is_some() || taken + state.pending + 2 <= self.slots || self.overflows(leaf) {
            return true;
        }
        if self.room_is_plenty() {
            return true;
        }
        *promise = self.promise(1);
        promise.is_some()
    }

    /// Write 3: readers find the item in the buffer after it is unlocked.
    #[inline(always)]
    pub(super) fn put_in_buffer(
        &self,
        leaf: &Locked<'_>,
        found: &Found,
        item: Item,
        epoch: u64,
        guard: &K::Guard,
    ) {
        let mut state = leaf.state();
        let at = found.item.unwrap_or(state.pending);
        if found.in_leaf == InLeaf::Unseen && !state.uncounted {
            state.uncounted = true;
            self.promised.uncounted.add(1);
        }
        if let (Some(_), Some(superseded)) = (found.item, found.value)
            && self.value_in_leaf(leaf, item.key, guard) != Some(superseded)
        {
            self.values.retire(superseded);
        }
        leaf.set_slot(at, item.key, item.value);
        state.pending = state.pending.max(at + 1);
        state.used = state.used.max(state.pending);
        state.set_removed(at, item.removed);
        state.set_epoch(at, epoch);
        leaf.set_state(state);
    }

    /// Returns the value of a key in the leaf itself, if it is out of line: after a crash this may be the pending
    /// value.
    fn value_in_leaf(&self, leaf: &Locked<'_>, key: u64, guard: &K::Guard) -> Option<u64> {
        if self.values.are_words() {
            return None;
        }
        let key = self.keys.read(key, guard);
        let slot =
            self.locate_in_leaf(self.leaf(leaf.state().leaf), key, K::fingerprint(key), guard, &|| true);
        slot.ok().flatten().map(|(.., value)| value)
    }

    /// Writes the change and all pending items to the leaf, without logging the change.
    pub(super) fn write_through(
        &self,
        leaf: &mut Locked<'_>,
        found: &Found,
        change: &mut Change,
        guard: &K::Guard,
    ) -> Result<()> {
        match self.flush(leaf, Some(change), found.item, guard) {
            Err(error) if error.is_no_room() && found.item.is_none() && found.value.is_some() => {
                // The pending items have no space, but the leaf contains the item, and nothing is pending for it.
                self.change_in_place(leaf, change, guard);
                Ok(())
            }
            done => done,
        }
    }

    /// Logs a change that is already in its leaf, if the option requires it. The entry must not come first: if the
    /// change then found no space, the entry would restore it and refer to reused records; and if a crash interrupted
    /// it, recovery would need space that is not reserved yet. The leaf's stamp invalidates this entry already. A key
    /// that it refers to is set aside only after it.
    pub(super) fn log_what_is_there(&self, leaf: &Locked<'_>, item: Item) {
        if self.logs_all()
            && self.buffers.batch() > 0
            && let Some(spot) = self.reserve_entry()
        {
            spot.append(&item.entry(leaf.sequence()), None);
        }
    }

    /// Changes an item that is in the leaf and not pending.
    fn change_in_place(&self, leaf: &Locked<'_>, change: &mut Change, guard: &K::Guard) {
        let medium = self.medium();
        let state = leaf.state();
        let cells = self.leaf(state.leaf);
        let key = self.keys.read(change.item.key, guard);
        let Ok(Some((slot, key, value))) =
            self.locate_in_leaf(cells, key, K::fingerprint(key), guard, &|| true)
        else {
            unreachable!("an item that does not pend is in the leaf");
        };
        if change.item.removed {
            let word = LeafWord::unpack(cells.header.word.load(medium));
            let word = LeafWord { bitmap: word.bitmap & !(1 << slot), ..word };
            cells.header.word.publish(medium, word.pack(), &medium.ordered_within_line(), "cclbtree place.1");
            medium.persist(&cells.header.word, "cclbtree place.1");
            self.retire_key(state.leaf, key);
        } else {
            let cell = &cells.slots[slot].value;
            let records = change.take_records().unwrap_or_else(Flushed::none);
            let durable = medium.fence(records, "cclbtree place.2 fence");
            cell.publish(medium, change.item.value, &durable, "cclbtree place.2");
            medium.persist(cell, "cclbtree place.2");
        }
        self.values.retire(value);
        // The copy in the buffer for readers is outdated.
        leaf.set_state(State { used: state.pending, ..state });
    }
}
