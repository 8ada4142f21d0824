//! Insert, update and remove: into the buffer, or through it into the leaf. Step numbers are
//! those of the story in `mod.rs`.

use bristlecone_pm::{Flushed, LogEntry, LogSpot, Medium, Persist, Result};

use super::Core;
use super::buffer::{Locked, State};
use super::layout::LeafWord;
use super::read::Found;
use super::room::Promise;
use crate::shared::change::{Change, Item};
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::version_lock::Version;
use crate::trees::{Removed, WriteMode};

/// How often a write that found no room tries again with what others, or once itself, got back from the
/// log: still others may take it first.
const ATTEMPTS: usize = 16;

/// What a write that found no room has done about it.
#[derive(Default)]
struct Relief {
    attempts: usize,
    /// Leaves that nobody had looked at keep no more room than they need.
    counted: bool,
    squeezed: bool,
    /// Records that readers had let go of are free.
    freed: bool,
}

impl<K: KeyCodec, V: Codec, M: Medium> Core<K, V, M> {
    pub(super) fn put(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        mode: WriteMode,
    ) -> Result<Option<V::Owned>> {
        self.with_leaf(key, |leaf, guards| {
            let found = self.standing(&leaf, key, guards);
            let old = found.value.map(|word| V::owned(V::read(&self.values, word, &guards.1)));
            if old.is_some() && mode == WriteMode::New || old.is_none() && mode == WriteMode::Update {
                return Ok(old);
            }
            // A new value takes no more room than the old one.
            if old.is_some()
                && (found.pending.is_some() || leaf.state().pending < self.buffers.batch())
                && let Some(done) = self.buffer_value(&leaf, &found, key, value, guards)
            {
                return done.map(|()| old);
            }
            self.apply(leaf, &found, key, Some(value), guards)?;
            Ok(old)
        })
    }

    /// Gives `key` a value without looking at its leaf, unless the buffer has to be flushed or there may
    /// be no room for that. All in one piece: where more than some sixty stores, of registers that calls
    /// save included, follow a fence before the next one, processors stand still until it is over.
    #[inline(always)]
    pub(super) fn put_unseen(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        let done = {
            let _passed = self.pass_collection();
            let guards = (K::pin(), V::pin());
            let leaf = self.lock_leaf(key, true, &guards.0);
            match self.buffer_unseen(&leaf, key, value, &guards) {
                Some(done) => done,
                None => self.put_seen(leaf, key, value, &guards),
            }
        };
        match done {
            Ok(()) => self.pool.health(),
            Err(error) if error.is_no_room() => self.put_where_room_is_made(key, value),
            Err(error) => Err(error),
        }
    }

    #[cold]
    fn put_where_room_is_made(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.with_leaf(key, |leaf, guards| self.put_seen(leaf, key, value, guards))
    }

    /// Puts a value into the buffer, if nothing has to be known about the leaf for that.
    #[inline(always)]
    fn buffer_unseen(
        &self,
        leaf: &Locked<'_>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        guards: &(K::Guard, V::Guard),
    ) -> Option<Result<()>> {
        let found = self.glance(leaf, key, guards)?;
        self.buffer_value(leaf, &found, key, value, guards)
    }

    /// Puts a value into the buffer, which has room for it, if the log has.
    #[inline(always)]
    fn buffer_value(
        &self,
        leaf: &Locked<'_>,
        found: &Found,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        guards: &(K::Guard, V::Guard),
    ) -> Option<Result<()>> {
        let spot = self.reserve_entry()?;
        let change = self.write_records(found, key, Some(value));
        Some(change.map(|change| self.log_and_buffer(leaf, found, change, spot, guards)))
    }

    #[inline(never)]
    fn put_seen(
        &self,
        leaf: Locked<'_>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        guards: &(K::Guard, V::Guard),
    ) -> Result<()> {
        let state = leaf.state();
        if K::INLINE
            && state.uncounted
            && state.pending == self.buffers.batch()
            && let Ok(None) = self.locate_buffered(*leaf, state, key, &guards.0, &|| true)
        {
            return self.flush_unseen(leaf, key, value, guards);
        }
        let found = self.standing(&leaf, key, guards);
        self.apply(leaf, &found, key, Some(value), guards)
    }

    /// Writes a value, and what pends uncounted, to the leaf, where all of it is counted.
    fn flush_unseen(
        &self,
        mut leaf: Locked<'_>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        guards: &(K::Guard, V::Guard),
    ) -> Result<()> {
        let found = Found::default();
        let mut change = self.write_records(&found, key, Some(value))?;
        self.write_through(&mut leaf, &found, &mut change, guards)
            .inspect_err(|_| change.discard::<K, V, M>((&self.keys, &self.values)))
    }

    /// Replaces the value of `key` by `new` if it is `expected`; gives what was there.
    pub(super) fn swap(
        &self,
        key: K::Ref<'_>,
        expected: V::Ref<'_>,
        new: V::Ref<'_>,
    ) -> Result<std::result::Result<(), Option<V::Owned>>> {
        self.with_leaf(key, |leaf, guards| {
            let found = self.standing(&leaf, key, guards);
            let Some(word) = found.value else { return Ok(Err(None)) };
            let old = V::read(&self.values, word, &guards.1);
            if old != V::shorten(expected) {
                return Ok(Err(Some(V::owned(old))));
            }
            self.apply(leaf, &found, key, Some(new), guards)?;
            Ok(Ok(()))
        })
    }

    /// Removes the item of `key`, if its value is `expected` where one is.
    #[inline(always)]
    pub(super) fn delete(&self, key: K::Ref<'_>, expected: Option<V::Ref<'_>>) -> Result<Removed<V>> {
        self.with_leaf(key, |leaf, guards| {
            let found = self.standing(&leaf, key, guards);
            let Some(word) = found.value else { return Ok(Err(None)) };
            let old = V::owned(V::read(&self.values, word, &guards.1));
            if expected.is_some_and(|expected| V::borrow(&old) != V::shorten(expected)) {
                return Ok(Err(Some(old)));
            }
            self.apply(leaf, &found, key, None, guards)?;
            Ok(Ok(old))
        })
    }

    /// Runs `change` on the locked leaf of `key`; again if there is no room but some to gain.
    #[inline(always)]
    fn with_leaf<R>(
        &self,
        key: K::Ref<'_>,
        mut change: impl FnMut(Locked<'_>, &(K::Guard, V::Guard)) -> Result<R>,
    ) -> Result<R> {
        let mut relief = Relief::default();
        loop {
            let gifts = self.collection.gifts();
            let done = {
                let _passed = self.pass_collection();
                let guards = (K::pin(), V::pin());
                change(self.lock_leaf(key, false, &guards.0), &guards)
            };
            // Taken apart, because what moves as a whole is read in other pieces than it was written in,
            // and then the processor waits for the fence.
            match done {
                Ok(done) => {
                    self.pool.health()?;
                    return Ok(done);
                }
                Err(error) if error.is_no_room() && self.gain_room(&mut relief, gifts) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// There was no room when the log had given `gifts`: whether there may be some by now.
    #[cold]
    fn gain_room(&self, relief: &mut Relief, gifts: u64) -> bool {
        relief.attempts += 1;
        if relief.attempts > ATTEMPTS {
            return false;
        }
        if !std::mem::replace(&mut relief.counted, true) && self.count_all() {
            return true;
        }
        if self.pool.retry_growth() || self.collection.gifts() != gifts {
            return true;
        }
        // Others may take what a squeeze gives; one that gives nothing is the last.
        if !relief.squeezed && self.squeeze_log(gifts) {
            return true;
        }
        relief.squeezed = true;
        !std::mem::replace(&mut relief.freed, true) && self.epochs.free_retired([&self.keys, &self.values])
    }

    /// Locks the leaf of a key. With `unseen` the leaf itself is not expected to be looked at.
    #[inline(always)]
    pub(super) fn lock_leaf(&self, key: K::Ref<'_>, unseen: bool, guard: &K::Guard) -> Locked<'_> {
        loop {
            let (id, version): (u32, Version) = self.inner.find(key, guard, |leaf| {
                if !unseen {
                    self.prefetch_leaf(self.buffers.leaf_of(leaf));
                }
                self.version_of(leaf)
            });
            let buffer = self.buffers.get(id);
            if unseen && buffer.state().pending == self.buffers.batch() {
                self.prefetch_leaf(self.buffers.leaf_of(id));
            }
            if let Some(leaf) = buffer.lock_at(version) {
                return leaf;
            }
        }
    }

    /// What a leaf and its buffer say about `key`.
    #[inline(always)]
    fn standing(&self, leaf: &Locked<'_>, key: K::Ref<'_>, guards: &(K::Guard, V::Guard)) -> Found {
        self.count_pending(leaf);
        let Ok(found) = self.locate(**leaf, key, &guards.0, || true) else {
            unreachable!("a leaf does not change while it is locked");
        };
        found
    }

    /// What is known about `key` without a look at its leaf, if that is enough to buffer a value for it.
    /// Keys out of line need the look: the leaf may have a record for them.
    #[inline(always)]
    fn glance(&self, leaf: &Locked<'_>, key: K::Ref<'_>, guards: &(K::Guard, V::Guard)) -> Option<Found> {
        if !K::INLINE {
            return None;
        }
        let state = leaf.state();
        let has_room = state.pending < self.buffers.batch();
        if let Ok(Some(found)) = self.locate_buffered(**leaf, state, key, &guards.0, &|| true)
            && (found.pending.is_some() || has_room)
            && (found.value.is_some() || found.pending.is_some() && state.uncounted)
        {
            return Some(found);
        }
        let uncounted = state.uncounted || state.pending == 0 && self.room_is_plenty();
        (has_room && uncounted).then(|| Found { unseen: true, ..Found::default() })
    }

    /// Gives the key a value, or removes it: it is known to change something.
    #[inline(never)]
    fn apply(
        &self,
        mut leaf: Locked<'_>,
        found: &Found,
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
        guards: &(K::Guard, V::Guard),
    ) -> Result<()> {
        let mut promise = None;
        let spot = if self.belongs_in_buffer(&leaf, found, value.is_some(), &mut promise) {
            let spot = self.reserve_entry();
            let without_room = || found.pending.is_some() && self.overflows(&leaf);
            spot.or_else(|| without_room().then(|| self.reserve_among_copies()).flatten())
        } else {
            None
        };
        let mut change = self.write_records(found, key, value)?;
        // A new value takes no more room than the old one.
        let steady = found.value.is_some() && value.is_some() && spot.is_some();
        let overflowed = !steady && self.overflows(&leaf);
        if let Some(spot) = spot {
            self.log_and_buffer(&leaf, found, change, spot, guards);
        } else if let Err(error) = self.write_through(&mut leaf, found, &mut change, guards) {
            change.discard::<K, V, M>((&self.keys, &self.values));
            return Err(error);
        }
        self.count_overflow(overflowed, !steady && self.overflows(&leaf));
        drop(promise);
        match (found.value.is_some(), value.is_some()) {
            (false, true) => self.len.add(1),
            (true, false) => {
                self.len.add(-1);
                self.merge_left(leaf, &guards.0);
            }
            _ => {}
        }
        Ok(())
    }

    /// Write 2 and 3.
    #[inline(always)]
    fn log_and_buffer(
        &self,
        leaf: &Locked<'_>,
        found: &Found,
        mut change: Change,
        spot: LogSpot<'_, M>,
        guards: &(K::Guard, V::Guard),
    ) {
        let entry = self.entry_of(leaf, change.item);
        // Nobody reads the buffer as long as it is locked. What stands behind a fence stands between
        // the next write's loads and their being asked for early.
        self.put_in_buffer(leaf, found, change.item, spot.epoch(), guards);
        spot.append(&entry, change.take_records());
    }

    #[inline(always)]
    fn entry_of(&self, leaf: &Locked<'_>, item: Item) -> LogEntry {
        LogEntry { sequence: leaf.sequence(), removed: item.removed, key: item.key, value: item.value }
    }

    /// Whether a change waits in the buffer. It does not if there is no room, if it takes the
    /// leaf's last item, which lets the leaf go, and if the leaf would hold more than it has room
    /// for while there may be no room for another one.
    fn belongs_in_buffer<'a>(
        &'a self,
        leaf: &Locked<'_>,
        found: &Found,
        present: bool,
        promise: &mut Option<Promise<'a>>,
    ) -> bool {
        let state = leaf.state();
        if found.pending.is_none() && state.pending == self.buffers.batch() {
            return false;
        }
        let word = LeafWord::unpack(self.leaf(state.leaf).header.word.load(self.medium()));
        let taken = word.bitmap.count_ones() as usize;
        if !present {
            // Every pending slot may be a removal of what the leaf holds.
            return taken > state.pending + 1 || self.live_items(leaf) > 1 || state.leaf == self.first;
        }
        // One slot may be the fence's alone.
        if found.value.is_some() || taken + state.pending + 2 <= self.slots || self.overflows(leaf) {
            return true;
        }
        if self.room_is_plenty() {
            return true;
        }
        *promise = self.promise(1);
        promise.is_some()
    }

    /// Write 1: what stands out of line is written first.
    #[inline(always)]
    fn write_records(&self, found: &Found, key: K::Ref<'_>, value: Option<V::Ref<'_>>) -> Result<Change> {
        let steps = ["cclbtree write.1 key", "cclbtree write.1 value"];
        Change::write::<K, V, M>((&self.keys, &self.values), found.key, key, value, steps)
    }

    /// Write 3: readers find the item in the buffer, once it is unlocked.
    #[inline(always)]
    fn put_in_buffer(
        &self,
        leaf: &Locked<'_>,
        found: &Found,
        item: Item,
        epoch: u64,
        guards: &(K::Guard, V::Guard),
    ) {
        let mut state = leaf.state();
        let at = found.pending.unwrap_or(state.pending);
        if found.unseen && !state.uncounted {
            state.uncounted = true;
            self.promised.uncounted.add(1);
        }
        if let (Some(_), Some(superseded)) = (found.pending, found.value)
            && self.value_in_leaf(leaf, item.key, &guards.0) != Some(superseded)
        {
            V::retire(&self.values, superseded, &guards.1);
        }
        leaf.set_slot(at, item.key, item.value);
        state.pending = state.pending.max(at + 1);
        state.used = state.used.max(state.pending);
        state.set_removed(at, item.removed);
        state.set_epoch(at, epoch);
        leaf.set_state(state);
    }

    /// What the leaf itself holds for a key, if its value stands out of line: after a crash this may
    /// be what pends.
    fn value_in_leaf(&self, leaf: &Locked<'_>, key: u64, guard: &K::Guard) -> Option<u64> {
        if V::INLINE {
            return None;
        }
        let key = K::read(&self.keys, key, guard);
        let slot = self.locate_in_leaf(self.leaf(leaf.state().leaf), key, guard, &|| true);
        slot.ok().flatten().map(|(.., value)| value)
    }

    /// Writes the change and everything pending to the leaf, without logging it.
    fn write_through(
        &self,
        leaf: &mut Locked<'_>,
        found: &Found,
        change: &mut Change,
        guards: &(K::Guard, V::Guard),
    ) -> Result<()> {
        match self.flush(leaf, Some(change), found.pending, guards) {
            Err(error) if error.is_no_room() && found.pending.is_none() && found.value.is_some() => {
                // What pends has no room, but the item is in the leaf, and nothing about it pends.
                self.change_in_place(leaf, change, guards);
                Ok(())
            }
            done => done,
        }
    }

    /// Logs a change that has reached its leaf, if that is asked for. Not before it has: the entry of a change
    /// that then finds no room would bring it back, and name records that are others' by then; and one that a
    /// crash interrupts would need the room that it has not got yet. The leaf's stamp voids this entry already.
    /// A key that it names is put aside only behind it.
    pub(super) fn log_what_is_there(&self, leaf: &Locked<'_>, item: Item) {
        if self.options.log_all != 0
            && self.buffers.batch() > 0
            && let Some(spot) = self.reserve_entry()
        {
            spot.append(&self.entry_of(leaf, item), None);
        }
    }

    /// Changes an item that the leaf holds and that is not pending.
    fn change_in_place(&self, leaf: &Locked<'_>, change: &mut Change, guards: &(K::Guard, V::Guard)) {
        let medium = self.medium();
        let state = leaf.state();
        let cells = self.leaf(state.leaf);
        let key = K::read(&self.keys, change.item.key, &guards.0);
        let Ok(Some((slot, key, value))) = self.locate_in_leaf(cells, key, &guards.0, &|| true) else {
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
        V::retire(&self.values, value, &guards.1);
        // What the buffer kept of it for readers no longer holds.
        leaf.set_state(State { used: state.pending, ..state });
    }
}
