//! Insert, update and remove: into the log and the buffer, or through to the leaf. Step numbers
//! are those of the story in `mod.rs`.

use bristlecone_pm::{Flushed, Medium, Persist, Result};

use super::LodgeTree;
use super::buffer::{Buffered, InLeaf};
use super::flush::UnderWay;
use super::gather::Gathered;
use super::layout::LeafWord;
use super::log::Spot;
use super::node::{Entry, Locked};
use super::read::{Found, Hope};
use super::room::Relief;
use crate::shared::change::{Change, Item};
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::version_lock::Stale;
use crate::trees::{Removed, WriteMode};

/// The guards of keys and values.
pub(super) type Guards<K, V> = (<K as Codec>::Guard, <V as Codec>::Guard);

/// What became of a change.
enum Outcome {
    Done,
    /// The node had to change first: look the key up again.
    Again,
}

/// What somebody found who holds the lock.
fn unchanged<T>(found: std::result::Result<T, Stale>) -> T {
    found.unwrap_or_else(|Stale| unreachable!("a locked node does not change"))
}

impl<K: KeyCodec, V: Codec, M: Medium> LodgeTree<K, V, M> {
    pub(super) fn put(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        mode: WriteMode,
    ) -> Result<Option<V::Owned>> {
        let hope = if mode == WriteMode::Update { Hope::Present } else { Hope::Absent };
        self.with_node(key, hope, |node, found, guards| {
            let old = found.value.map(|word| V::owned(V::read(&self.values, word, &guards.1)));
            if old.is_some() && mode == WriteMode::New || old.is_none() && mode == WriteMode::Update {
                return Ok(Some(old));
            }
            let done = self.apply(node, found, key, Some(value), guards)?;
            Ok(matches!(done, Outcome::Done).then_some(old))
        })
    }

    /// Writes without asking what was there: only the flush looks into the leaf.
    #[inline(always)]
    pub(super) fn put_blindly(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        if self.nodes.are_usual() {
            self.put_blindly_as::<true>(key, value)
        } else {
            self.put_blindly_as::<false>(key, value)
        }
    }

    /// What goes to the buffer does so in one piece, without a loop: where more than some sixty stores, of
    /// registers that calls save included, follow a fence before the next one, processors stand still until it
    /// is over.
    #[inline(always)]
    fn put_blindly_as<const USUAL: bool>(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        let done = {
            let guards = (K::pin(), V::pin());
            match self.try_lock_node::<USUAL>(key, Hope::Blind, &guards.0) {
                None => Ok(Outcome::Again),
                Some((node, found)) => match self.buffer_at_once(&node, &found, key, value, &guards) {
                    Some(done) => done.map(|()| Outcome::Done),
                    None => self.apply(node, found, key, Some(value), &guards),
                },
            }
        };
        match done {
            Ok(Outcome::Done) => self.look_after(()),
            Ok(Outcome::Again) => self.put_once_more(key, value),
            Err(error) if error.is_no_room() => self.put_once_more(key, value),
            Err(error) => Err(error),
        }
    }

    #[cold]
    fn put_once_more(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.with_node(key, Hope::Blind, |node, found, guards| {
            let done = self.apply(node, found, key, Some(value), guards)?;
            Ok(matches!(done, Outcome::Done).then_some(()))
        })
    }

    /// Puts a value into the log and the buffer, unless more is to be done.
    #[inline(always)]
    fn buffer_at_once(
        &self,
        node: &Locked<'_>,
        found: &Found,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        guards: &Guards<K, V>,
    ) -> Option<Result<()>> {
        if node.counts().index > self.index_max
            || found.item.is_none() && self.is_without_room(node, found.at)
        {
            return None;
        }
        let spot = self.reserve_entry(found.item.is_some())?;
        let mut change = match self.write_records(found, key, Some(value)) {
            Ok(change) => change,
            Err(error) => return Some(Err(error)),
        };
        let place = (spot, Flushed::none());
        self.log_and_buffer(node, (found, K::fingerprint(key)), &mut change, place, guards);
        self.count(found, true);
        Some(Ok(()))
    }

    /// Replaces the value of `key` by `new` if it is `expected`; gives what was there.
    pub(super) fn swap(
        &self,
        key: K::Ref<'_>,
        expected: V::Ref<'_>,
        new: V::Ref<'_>,
    ) -> Result<std::result::Result<(), Option<V::Owned>>> {
        self.with_node(key, Hope::Present, |node, found, guards| {
            let Some(word) = found.value else { return Ok(Some(Err(None))) };
            let old = V::read(&self.values, word, &guards.1);
            if old != V::shorten(expected) {
                return Ok(Some(Err(Some(V::owned(old)))));
            }
            let done = self.apply(node, found, key, Some(new), guards)?;
            Ok(matches!(done, Outcome::Done).then_some(Ok(())))
        })
    }

    /// Removes the item of `key`, if its value is `expected` where one is.
    #[inline(always)]
    pub(super) fn delete(&self, key: K::Ref<'_>, expected: Option<V::Ref<'_>>) -> Result<Removed<V>> {
        self.with_node(key, Hope::Present, |node, found, guards| {
            let Some(word) = found.value else { return Ok(Some(Err(None))) };
            let old = V::owned(V::read(&self.values, word, &guards.1));
            if expected.is_some_and(|expected| V::borrow(&old) != V::shorten(expected)) {
                return Ok(Some(Err(Some(old))));
            }
            let done = self.apply(node, found, key, None, guards)?;
            Ok(matches!(done, Outcome::Done).then_some(Ok(old)))
        })
    }

    /// Runs `change` on the locked node of `key`, with what that says about the key, until it
    /// gives a result; again if there is no room but some to gain.
    #[inline(always)]
    fn with_node<R>(
        &self,
        key: K::Ref<'_>,
        hope: Hope,
        mut change: impl FnMut(Locked<'_>, Found, &Guards<K, V>) -> Result<Option<R>>,
    ) -> Result<R> {
        let mut relief = Relief::default();
        let done = loop {
            let gifts = self.versions.gifts.given();
            let done = {
                let guards = (K::pin(), V::pin());
                let (node, found) = self.lock_node(key, hope, &guards.0);
                change(node, found, &guards)
            };
            match done {
                Ok(None) => {}
                Ok(Some(done)) => break done,
                Err(error) if error.is_no_room() && self.gain_room(&mut relief, gifts) => {}
                Err(error) => return Err(error),
            }
        };
        self.look_after(done)
    }

    /// What comes after a write, and its result.
    #[inline(always)]
    fn look_after<R>(&self, done: R) -> Result<R> {
        if self.versions.is_due() {
            self.see_to_the_log();
        }
        self.pool.health().map(|()| done)
    }

    /// The locked node whose range holds `key`, and what it says about the key.
    #[inline(always)]
    fn lock_node(&self, key: K::Ref<'_>, hope: Hope, guard: &K::Guard) -> (Locked<'_>, Found) {
        loop {
            if let Some(locked) = self.try_lock_node::<false>(key, hope, guard) {
                return locked;
            }
        }
    }

    /// The same, if nobody comes in between. What the node says is found out before it is locked.
    #[inline(always)]
    fn try_lock_node<const USUAL: bool>(
        &self,
        key: K::Ref<'_>,
        hope: Hope,
        guard: &K::Guard,
    ) -> Option<(Locked<'_>, Found)> {
        let (id, version) = self.inner.find(key, guard, |node| self.version_as::<USUAL>(node));
        let node = self.nodes.get_as::<USUAL>(id);
        let still = || node.lock.validate(version);
        let found = self.locate(node, key, K::fingerprint(key), hope, guard, still).ok()?;
        Some((node.lock_at(version)?, found))
    }

    /// Gives the key a value, or removes it: it is known to change something.
    #[inline(never)]
    fn apply(
        &self,
        mut node: Locked<'_>,
        mut found: Found,
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
        guards: &Guards<K, V>,
    ) -> Result<Outcome> {
        if node.counts().index > self.index_max {
            self.split_node(&node, &guards.0)?;
            return Ok(Outcome::Again);
        }
        let tag = K::fingerprint(key);
        let (mut full, mut gathered, mut flush) = (false, Gathered::default(), None);
        if found.item.is_none() && self.is_without_room(&node, found.at) {
            full = true;
            if !self.company(&node, found.at, tag, &mut gathered, guards) {
                gathered.clear();
                match self.make_room(&mut node, &found, key, guards) {
                    Ok((moved, under_way)) if self.is_without_room(&node, moved.at) => {
                        self.end_flush(under_way, guards);
                        return Ok(Outcome::Again);
                    }
                    Ok((moved, under_way)) => (found, full, flush) = (moved, false, under_way),
                    // Nothing that is buffered has room; the change may have.
                    Err(error) if error.is_no_room() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let steady = found.item.is_some();
        let spot = if full { None } else { self.reserve_entry(steady) };
        let spot =
            spot.or_else(|| self.is_stuck(&node, &found).then(|| self.reserve_among_copies()).flatten());
        if spot.is_none() && node.counts().index > self.index_max {
            // A flush split a leaf. What is not logged may split another one, and the node has no place for that.
            self.end_flush(flush, guards);
            return Ok(Outcome::Again);
        }
        if spot.is_none() && found.in_leaf == InLeaf::Unseen {
            found = self.look(&node, found.at, key, &guards.0);
        }
        match (spot, self.write_records(&found, key, value)) {
            (Some(spot), Ok(mut change)) => {
                let UnderWay { lines, leftovers } = flush.unwrap_or_else(UnderWay::nothing);
                self.log_and_buffer(&node, (&found, tag), &mut change, (spot, lines), guards);
                self.let_go(leftovers, guards);
            }
            (_, change) => {
                self.end_flush(flush, guards);
                let mut change = change?;
                let done = self.write_through(&node, (&found, tag), &mut change, &mut gathered, guards);
                if let Err(error) = done {
                    change.discard::<K, V, M>((&self.keys, &self.values));
                    return Err(error);
                }
            }
        }
        self.count(&found, value.is_some());
        if found.value.is_some() && value.is_none() {
            self.shrink(node, found.at, guards);
        }
        Ok(Outcome::Done)
    }

    /// Flushes what is buffered; what is known about a key then, which is not buffered itself.
    fn make_room(
        &self,
        node: &mut Locked<'_>,
        found: &Found,
        key: K::Ref<'_>,
        guards: &Guards<K, V>,
    ) -> Result<(Found, Option<UnderWay>)> {
        // A crash may leave the log with what is flushed and with the next item: that must not be more for one
        // leaf than a node holds, or two leaves.
        let ends_at_once = node.counts().index == 1 || self.is_full_for(node, found.at);
        let mut flush = Some(self.flush_some(node, found.at, guards)?);
        if ends_at_once {
            self.end_flush(flush.take(), guards);
        }
        // What is logged from here on is newer than what has reached the leaves.
        node.raise(node.sequence());
        let at = unchanged(self.place(**node, key, &guards.0, &|| true));
        let found = match found.in_leaf {
            InLeaf::Yes => self.look(node, at, key, &guards.0),
            InLeaf::No | InLeaf::Unseen => Found { at, ..*found },
        };
        Ok((found, flush))
    }

    /// What the leaf at `at` says about a key about which nothing is buffered.
    fn look(&self, node: &Locked<'_>, at: usize, key: K::Ref<'_>, guard: &K::Guard) -> Found {
        let (entry, tag) = (node.entry(at), K::fingerprint(key));
        Found::of_leaf(at, unchanged(self.locate_in_leaf(entry, key, tag, Hope::Present, guard, &|| true)))
    }

    /// Write 2 and 3: the buffer, which has room, and the log.
    #[inline(always)]
    fn log_and_buffer(
        &self,
        node: &Locked<'_>,
        (found, tag): (&Found, u8),
        change: &mut Change,
        (spot, others): (Spot<'_, M>, Flushed),
        guards: &Guards<K, V>,
    ) {
        let Item { key, value, removed } = change.item;
        let (log, owner, in_leaf) = (spot.log(), found.at, found.in_leaf);
        let mut item = Buffered { key, value, log, owner, in_leaf, removed, tag };
        let entry = self.entry_of(node.sequence(), &item);
        // In this order, because what stands behind a fence stands between the next write's loads and their
        // being asked for early.
        let Some(at) = found.item else {
            node.push_buffered(item);
            return spot.append(&entry, change.take_records(), others);
        };
        if removed && node.buffered(at).in_leaf == InLeaf::Unseen {
            // It counts from now on, until it goes.
            self.slot_of_buffered(node, at, &guards.0);
        }
        let old = node.buffered(at);
        item.in_leaf = old.in_leaf;
        node.set_buffered(at, item);
        spot.append(&entry, change.take_records(), others);
        self.versions.release(&[old.log]);
        if let Some(value) = self.value_of_buffer(node, &old, &guards.0) {
            V::retire(&self.values, value, &guards.1);
        }
    }

    /// Counts a change that was made: whether the key is there now, and, if that is known, was before.
    #[inline(always)]
    fn count(&self, found: &Found, present: bool) {
        match (found.value.is_some(), present) {
            _ if found.in_leaf == InLeaf::Unseen => self.unseen.add(1),
            (false, true) => self.len.add(1),
            (true, false) => self.len.add(-1),
            _ => {}
        }
    }

    /// Whether the buffer has no room for another item, or none for one of this leaf.
    #[inline(always)]
    fn is_without_room(&self, node: &Locked<'_>, at: usize) -> bool {
        node.room() == 0 || self.is_full_for(node, at)
    }

    /// Whether the buffer holds as much for a leaf as fits into two.
    #[inline(always)]
    pub(super) fn is_full_for(&self, node: &Locked<'_>, at: usize) -> bool {
        node.counts().buffered + 1 >= self.slots && node.items_of(at).count() + 1 >= self.slots
    }

    /// Whether a key is buffered, and its leaf would have to split to take what is buffered for it.
    fn is_stuck(&self, node: &Locked<'_>, found: &Found) -> bool {
        found.item.is_some() && node.live_with(found.at, node.items_of(found.at)) > self.slots
    }

    /// Write 1: what stands out of line is written first.
    #[inline(always)]
    fn write_records(&self, found: &Found, key: K::Ref<'_>, value: Option<V::Ref<'_>>) -> Result<Change> {
        let steps = ["lodgetree write.1 key", "lodgetree write.1 value"];
        Change::write::<K, V, M>((&self.keys, &self.values), found.key, key, value, steps)
    }

    /// The value of a buffered item, if nobody but the buffer holds it: after a crash the leaf may hold
    /// it, too, and lets go of it when it gets another one.
    #[inline(always)]
    pub(super) fn value_of_buffer(
        &self,
        node: &Locked<'_>,
        item: &Buffered,
        guard: &K::Guard,
    ) -> Option<u64> {
        if V::INLINE || item.removed { None } else { self.record_of_buffer(node, item, guard) }
    }

    fn record_of_buffer(&self, node: &Locked<'_>, item: &Buffered, guard: &K::Guard) -> Option<u64> {
        let entry = node.entry(item.owner);
        // What was written without looking is new to the leaf.
        let in_leaf = item.in_leaf == InLeaf::Yes;
        let slot = in_leaf.then(|| self.slot_of(entry, item.key, item.tag, guard)).flatten();
        let held = slot.map(|slot| self.slot(entry.leaf, slot).value.load(self.medium()));
        (held != Some(item.value)).then_some(item.value)
    }

    /// Writes the change, and everything buffered for its leaf, to the leaf, without logging it; and some
    /// other leaves' groups, which have room.
    fn write_through(
        &self,
        node: &Locked<'_>,
        (found, tag): (&Found, u8),
        change: &mut Change,
        gathered: &mut Gathered,
        guards: &Guards<K, V>,
    ) -> Result<()> {
        match self.flush_with(node, (found, tag), change, gathered, guards) {
            Err(error) if error.is_no_room() && found.slot.is_some() => {
                // What is buffered has no room, but the item is in the leaf, and nothing about it
                // is buffered.
                self.change_in_place(node, found, change, guards);
                Ok(())
            }
            done => done,
        }
    }

    /// Changes an item that the leaf holds and about which nothing is buffered.
    fn change_in_place(&self, node: &Locked<'_>, found: &Found, change: &mut Change, guards: &Guards<K, V>) {
        let medium = self.medium();
        let entry = node.entry(found.at);
        let (Some(slot), Some(key), Some(value)) = (found.slot, found.key, found.value) else {
            unreachable!("an item about which nothing is buffered is in the leaf");
        };
        if change.item.removed {
            let word = &self.header(entry.leaf).word;
            let old = LeafWord::unpack(word.load(medium));
            let slots = entry.slots.without(1 << slot);
            let new = LeafWord { bitmap: slots.bitmap, ..old };
            word.publish(medium, new.pack(), &medium.ordered_within_line(), "lodgetree place.1");
            medium.persist(word, "lodgetree place.1");
            node.set_entry(found.at, Entry { slots, ..entry });
            self.retire_key(key);
        } else {
            let cell = &self.slot(entry.leaf, slot).value;
            if let Some(records) = change.take_records() {
                let durable = medium.fence(records, "lodgetree place.2 fence");
                cell.publish(medium, change.item.value, &durable, "lodgetree place.2");
            } else {
                cell.store(medium, change.item.value);
            }
            medium.persist(cell, "lodgetree place.2");
        }
        V::retire(&self.values, value, &guards.1);
    }
}
