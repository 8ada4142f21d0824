//! Flush: merges all pending items from the buffer into the leaf together, in one media line.

use bristlecone_pm::{Alone, Durable, Flushed, Medium, Persist, Result};
use smallvec::SmallVec;

use super::Core;
use super::buffer::{BATCH_MAX, Locked, State};
use super::layout::{Leaf, LeafWord, line_of};
use crate::index::parts::buffered::{Change, Item, Leftovers, Pending};
use crate::index::parts::codec::KeyCodec;

/// Maximum number of items merged into a leaf together: a full buffer, and the item that overflows it.
pub(super) const ITEMS_MAX: usize = BATCH_MAX + 1;

/// Changes to be merged into a leaf.
pub(super) type Items = SmallVec<[Pending; ITEMS_MAX]>;

/// Returns the growth of a leaf, in items, by merging these.
pub(super) fn growth(items: &[Pending]) -> i64 {
    let (added, dropped) = Pending::changes(items);
    added as i64 - i64::from(dropped.count_ones())
}

impl<K: KeyCodec, M: Medium> Core<K, M> {
    /// Merges all pending items, and `change`, into the leaf. `replaced` is the pending slot that the change
    /// replaces. Uncounted pending items are counted now, together with the change. Returns `Err` if there
    /// is no space; nothing has changed.
    pub(super) fn flush(
        &self,
        leaf: &mut Locked<'_>,
        change: Option<&mut Change>,
        replaced: Option<usize>,
        guard: &K::Guard,
    ) -> Result<()> {
        let state = leaf.state();
        let cells = self.leaf(state.leaf);
        let mut items = self.pending_items(leaf, replaced, guard);
        let last = change.as_deref().map(|change| change.item);
        if let Some(item) = last {
            items.push(self.pending(cells, item, guard));
        }
        let room = self.room_for(state.leaf, &items);
        // Take nothing from the change before its space is reserved.
        let fresh = if room.is_none() { Some(self.prepare_split(leaf)?) } else { None };
        let records = change.and_then(Change::take_records);
        let logged = state.pending > 0 || self.logs_all();
        let held = last.and(items.last()).and_then(Pending::slot);
        let held = held.map(|slot| cells.slots[slot].value.load(self.medium()));
        let superseded = replaced.filter(|at| !state.is_removed(*at)).map(|at| leaf.slot(at).1);
        // After a crash the leaf may hold the pending value: then the leaf releases it.
        let superseded = superseded.filter(|value| held != Some(*value));
        let mut leftovers = Leftovers::default();
        self.note_leftovers(state.leaf, &items, &mut leftovers);
        if let Some(fresh) = fresh {
            self.split(leaf, fresh, &items, records, guard);
        } else {
            if room == Some(Room::OnceDropped) {
                self.drop_removed(cells, &items);
            }
            self.write_items(leaf, &items, records, logged);
            self.mark_flushed(leaf, replaced.zip(last));
        }
        if let Some(item) = last {
            self.log_what_is_there(leaf, item);
        }
        self.let_go(leftovers, |key| self.retire_key(state.leaf, key));
        superseded.into_iter().for_each(|value| self.values.retire(value));
        if state.uncounted {
            self.len.add(growth(&items));
            self.promised.uncounted.add(-1);
        }
        Ok(())
    }

    /// Merges all pending items into the leaf.
    pub(super) fn flush_pending(&self, leaf: &mut Locked<'_>) -> Result<()> {
        let overflowed = !leaf.state().uncounted && self.overflows(leaf);
        self.flush(leaf, None, None, &K::pin())?;
        self.count_overflow(overflowed, false);
        Ok(())
    }

    /// Records that the pending items are merged into the leaf. Readers may still find them in the buffer.
    pub(super) fn mark_flushed(&self, leaf: &Locked<'_>, replaced: Option<(usize, Item)>) {
        let mut state = leaf.state();
        if let Some((at, item)) = replaced {
            leaf.set_slot(at, item.key, item.value);
            state.set_removed(at, item.removed);
        }
        // Otherwise older items behind them could reappear when the first ones are overwritten.
        leaf.set_state(State { used: state.pending, pending: 0, uncounted: false, ..state });
    }

    /// Returns the slots available to new items. Slot 0 keeps the leaf's low fence and takes no other key.
    pub(super) fn free_slots(&self, offset: u64, bitmap: u64) -> u64 {
        let fence = u64::from(offset != self.first);
        !bitmap & self.slots_mask() & !fence
    }

    /// Returns how the new items fit into the leaf, possibly only after removals.
    pub(super) fn room_for(&self, offset: u64, items: &[Pending]) -> Option<Room> {
        let cells = self.leaf(offset);
        let bitmap = LeafWord::unpack(cells.header.word.load(self.medium())).bitmap;
        let dropped = u64::from(Pending::changes(items).1);
        let needed = |bitmap| {
            let new = items.iter().filter(|item| item.is_new());
            new.filter(|item| !self.fits_fence(offset, bitmap, item.key)).count()
        };
        if needed(bitmap) <= self.free_slots(offset, bitmap).count_ones() as usize {
            return Some(Room::Now);
        }
        let bitmap = bitmap & !dropped;
        (needed(bitmap) <= self.free_slots(offset, bitmap).count_ones() as usize).then_some(Room::OnceDropped)
    }

    /// Returns whether a new item can take slot 0 because its key is the fence.
    fn fits_fence(&self, offset: u64, bitmap: u64, key: u64) -> bool {
        let fence = || self.leaf(offset).slots[0].key.load(self.medium());
        K::INLINE && offset != self.first && bitmap & 1 == 0 && fence() == key
    }

    /// Returns the number of items of the leaf after all pending ones are merged.
    pub(super) fn live_items(&self, leaf: &Locked<'_>) -> usize {
        let items = self.pending_items(leaf, None, &K::pin());
        let word = LeafWord::unpack(self.leaf(leaf.state().leaf).header.word.load(self.medium()));
        let (added, dropped) = Pending::changes(&items);
        (word.bitmap & !u64::from(dropped)).count_ones() as usize + added
    }

    /// Flush 1: removals that free slots for new items are applied first. Each of them is in the log, or is
    /// the change itself.
    fn drop_removed(&self, cells: &Leaf, items: &[Pending]) {
        let medium = self.medium();
        let word = LeafWord::unpack(cells.header.word.load(medium));
        let word = LeafWord { bitmap: word.bitmap & !u64::from(Pending::changes(items).1), ..word };
        cells.header.word.publish(medium, word.pack(), &Alone, "cclbtree flush.1");
        medium.persist(&cells.header.word, "cclbtree flush.1");
    }

    /// Flush 2 to 4: the leaf has space for the items. With `logged`, earlier log entries become invalid.
    pub(super) fn write_items(
        &self,
        leaf: &Locked<'_>,
        items: &[Pending],
        records: Option<Flushed>,
        logged: bool,
    ) {
        let medium = self.medium();
        let offset = leaf.state().leaf;
        let cells = self.leaf(offset);
        if let Some(records) = records {
            let Durable { .. } = medium.fence(records, "cclbtree flush.2 records");
        }
        let (word, lines) = self.store_items(offset, items);
        if word.is_none() && !logged {
            // Base: only values in place.
            let flushed = self.flush_lines(offset, lines, "cclbtree flush.2");
            let Durable { .. } = medium.fence(flushed, "cclbtree flush.2");
            return;
        }
        let stamp = logged.then(|| leaf.sequence());
        // Stores in the header's line persist in their order.
        if lines & !1 != 0 {
            let flushed = self.flush_lines(offset, lines & !1, "cclbtree flush.2");
            let Durable { .. } = medium.fence(flushed, "cclbtree flush.2");
        }
        self.commit(cells, word, stamp);
    }

    /// Flush 2 without flushes: returns the leaf's next word, if it changes, and the lines of the items.
    pub(super) fn store_items(&self, offset: u64, items: &[Pending]) -> (Option<LeafWord>, u64) {
        let medium = self.medium();
        let cells = self.leaf(offset);
        let word = LeafWord::unpack(cells.header.word.load(medium));
        let (mut bitmap, mut lines) = (word.bitmap & !u64::from(Pending::changes(items).1), 0_u64);
        let mut free = self.free_slots(offset, word.bitmap);
        for item in items.iter().filter(|item| !item.removed) {
            let slot = match item.slot() {
                Some(slot) => slot,
                None if self.fits_fence(offset, word.bitmap, item.key) => 0,
                None => {
                    let slot = free.trailing_zeros() as usize;
                    free &= free - 1;
                    slot
                }
            };
            if bitmap >> slot & 1 == 0 {
                cells.slots[slot].key.store(medium, item.key);
                // No flush of its own: recovery derives fingerprints from the keys.
                cells.header.fingerprints.store_byte(medium, slot, item.tag);
            }
            cells.slots[slot].value.store(medium, item.value);
            bitmap |= 1 << slot;
            lines |= 1 << line_of(slot);
        }
        ((bitmap != word.bitmap).then_some(LeafWord { bitmap, ..word }), lines)
    }

    /// Flush 3 and 4: the word, and only then the stamp that invalidates the log entries.
    pub(super) fn commit(&self, cells: &Leaf, word: Option<LeafWord>, stamp: Option<u64>) {
        let flushed = self.commit_line(cells, word, stamp);
        let Durable { .. } = self.medium().fence(flushed, "cclbtree flush.4");
    }

    /// Flush 3 and 4, except for the fence.
    #[inline(always)]
    pub(super) fn commit_line(&self, cells: &Leaf, word: Option<LeafWord>, stamp: Option<u64>) -> Flushed {
        let medium = self.medium();
        if let Some(word) = word {
            let ordered = medium.ordered_within_line();
            cells.header.word.publish(medium, word.pack(), &ordered, "cclbtree flush.3");
        }
        if let Some(stamp) = stamp {
            let ordered = medium.ordered_within_line();
            cells.header.stamp.publish(medium, stamp, &ordered, "cclbtree flush.4");
        }
        medium.flush(&cells.header, "cclbtree flush.4")
    }

    /// Records that a leaf no longer holds the key. The key stays if it is the leaf's fence, and otherwise
    /// until no valid log entry refers to it.
    pub(super) fn retire_key(&self, offset: u64, key: u64) {
        let fence = offset != self.first && self.leaf(offset).slots[0].key.load(self.medium()) == key;
        if !K::INLINE && !fence {
            self.let_go_of_key(key);
        }
    }
}

/// How new items fit into a leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Now,
    OnceDropped,
}
