//! A change of a key in its locked node: into the log and the buffer, or through to the leaf. Step numbers are those
//! of the protocol in `mod.rs`.

use bristlecone_pm::{Flushed, Medium, Persist, Result};

use super::LodgeTree;
use super::buffer::Buffered;
use super::flush::UnderWay;
use super::gather::Gathered;
use super::layout::LeafWord;
use super::node::{Entry, Locked};
use super::versions::Spot;
use crate::index::parts::buffered::{Change, Found, Guards, Hint, InLeaf, Item, Outcome, Writer};
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::parts::optimistic_lock::Stale;

/// Where a change goes, what is known about its key by then, and the flush that is under way before it.
struct Plan<'a, M: Medium> {
    found: Found,
    way: Way<'a, M>,
    flush: Option<UnderWay>,
}

/// Where a change goes.
enum Way<'a, M: Medium> {
    /// Into the log and the buffer, which have room for it.
    Log(Spot<'a, M>),
    /// To its leaf, without an entry, with a group of leaves or alone.
    Leaf,
    /// Nowhere yet: the node has no room.
    Again,
}

/// Returns what a writer found that holds the lock.
fn unchanged<T>(found: std::result::Result<T, Stale>) -> T {
    found.unwrap_or_else(|Stale| unreachable!("a locked node does not change"))
}

impl<K: KeyCodec, V: Codec, M: Medium> LodgeTree<K, V, M> {
    /// Gives the key a value, or removes it: it is known to change something.
    #[inline(never)]
    pub(super) fn apply(
        &self,
        mut node: Locked<'_>,
        found: Found,
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
        guards: &Guards<K, V>,
    ) -> Result<Outcome> {
        if node.counts().index > self.index_max {
            self.split_node(&node, &guards.0)?;
            return Ok(Outcome::Again);
        }
        let mut group = Gathered::default();
        let Plan { mut found, way, flush } = self.plan(&mut node, found, key, &mut group, guards)?;
        match way {
            Way::Again => {
                self.end_flush(flush, guards);
                return Ok(Outcome::Again);
            }
            Way::Log(spot) => self.log_change(&node, &found, (key, value), (spot, flush), guards)?,
            Way::Leaf => {
                found = self.write_through(&node, found, (key, value), (&mut group, flush), guards)?;
            }
        }
        self.count(&found, value.is_some());
        if found.value.is_some() && value.is_none() {
            self.shrink(node, found.at, guards);
        }
        Ok(Outcome::Done)
    }

    /// Decides where a change goes. A full node is flushed: with the change, by the `group` that is gathered for
    /// that, or to make room for it.
    fn plan<'a>(
        &'a self,
        node: &mut Locked<'_>,
        found: Found,
        key: K::Ref<'_>,
        group: &mut Gathered,
        guards: &Guards<K, V>,
    ) -> Result<Plan<'a, M>> {
        if found.item.is_some() || !self.is_without_room(node, found.at) {
            return Ok(self.plan_to_log(node, found, None));
        }
        if self.co_flush_group(node, found.at, K::fingerprint(key), group, guards) {
            return Ok(Plan { found, way: Way::Leaf, flush: None });
        }
        group.clear();
        match self.make_room(node, &found, key, guards) {
            Ok((found, flush)) if self.is_without_room(node, found.at) => {
                Ok(Plan { found, way: Way::Again, flush })
            }
            Ok((found, flush)) => Ok(self.plan_to_log(node, found, flush)),
            // Nothing that is buffered has room; the change may have.
            Err(error) if error.is_no_room() => Ok(Plan { found, way: Way::Leaf, flush: None }),
            Err(error) => Err(error),
        }
    }

    /// Decides where a change goes that the buffer has room for: into the log, if that has room, too.
    fn plan_to_log<'a>(&'a self, node: &Locked<'_>, found: Found, flush: Option<UnderWay>) -> Plan<'a, M> {
        let among_copies = || self.is_stuck(node, &found).then(|| self.reserve_among_copies()).flatten();
        let way = match self.reserve_entry(found.item.is_some()).or_else(among_copies) {
            Some(spot) => Way::Log(spot),
            // A flush split a leaf. What is not logged may split another one, and the node has no place for that.
            None if node.counts().index > self.index_max => Way::Again,
            None => Way::Leaf,
        };
        Plan { found, way, flush }
    }

    /// Writes a change to the log and the buffer; a flush that is under way ends with it.
    fn log_change(
        &self,
        node: &Locked<'_>,
        found: &Found,
        (key, value): (K::Ref<'_>, Option<V::Ref<'_>>),
        (spot, flush): (Spot<'_, M>, Option<UnderWay>),
        guards: &Guards<K, V>,
    ) -> Result<()> {
        match self.write_records(found, key, value) {
            Ok(mut change) => {
                let UnderWay { lines, logs, leftovers } = flush.unwrap_or_else(UnderWay::nothing);
                let found = (found, K::fingerprint(key));
                self.log_and_buffer(node, found, &mut change, (spot, lines), guards);
                self.finish_flush(&logs, leftovers, guards);
                Ok(())
            }
            Err(error) => {
                self.end_flush(flush, guards);
                Err(error)
            }
        }
    }

    /// Writes a change, and everything buffered for its leaf, to the leaf, without logging it, after a flush that is
    /// under way; and some other leaves' groups, which have room. Returns what was known about the key before.
    fn write_through(
        &self,
        node: &Locked<'_>,
        mut found: Found,
        (key, value): (K::Ref<'_>, Option<V::Ref<'_>>),
        (group, flush): (&mut Gathered, Option<UnderWay>),
        guards: &Guards<K, V>,
    ) -> Result<Found> {
        if found.in_leaf == InLeaf::Unseen {
            found = self.look(node, found.at, key, &guards.0);
        }
        let change = self.write_records(&found, key, value);
        self.end_flush(flush, guards);
        let mut change = change?;
        match self.flush_with(node, (&found, K::fingerprint(key)), &mut change, group, guards) {
            Ok(()) => {}
            Err(error) if error.is_no_room() && found.slot.is_some() => {
                // What is buffered has no room, but the item is in the leaf, and nothing about it
                // is buffered.
                self.change_in_place(node, &found, &mut change, guards);
            }
            Err(error) => {
                change.discard::<K, V, M>((&self.keys, &self.values));
                return Err(error);
            }
        }
        Ok(found)
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

    /// Returns what the leaf at `at` says about a key about which nothing is buffered.
    fn look(&self, node: &Locked<'_>, at: usize, key: K::Ref<'_>, guard: &K::Guard) -> Found {
        let (entry, tag) = (node.entry(at), K::fingerprint(key));
        Found::of_leaf(at, unchanged(self.locate_in_leaf(entry, key, tag, Hint::Present, guard, &|| true)))
    }

    /// Write 2 and 3: the buffer, which has room, and the log.
    #[inline(always)]
    pub(super) fn log_and_buffer(
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
        let entry = change.item.entry(node.sequence());
        // In this order, because what stands behind a fence stands between the next write's loads and their
        // prefetch.
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
    pub(super) fn count(&self, found: &Found, present: bool) {
        match (found.value.is_some(), present) {
            _ if found.in_leaf == InLeaf::Unseen => self.unseen.add(1),
            (false, true) => self.len.add(1),
            (true, false) => self.len.add(-1),
            _ => {}
        }
    }

    /// Returns whether the buffer has no room for another item, or none for one of this leaf.
    #[inline(always)]
    pub(super) fn is_without_room(&self, node: &Locked<'_>, at: usize) -> bool {
        node.room() == 0 || self.is_full_for(node, at)
    }

    /// Returns whether the buffer holds as much for a leaf as fits into two.
    #[inline(always)]
    pub(super) fn is_full_for(&self, node: &Locked<'_>, at: usize) -> bool {
        node.counts().buffered + 1 >= self.slots && node.items_of(at).count() + 1 >= self.slots
    }

    /// Returns whether a key is buffered, and its leaf would have to split to take what is buffered for it.
    fn is_stuck(&self, node: &Locked<'_>, found: &Found) -> bool {
        found.item.is_some() && node.live_with(found.at, node.items_of(found.at)) > self.slots
    }

    /// Returns the value of a buffered item, if nothing but the buffer holds it: after a crash the leaf may hold
    /// it, too, and releases it when it gets another one.
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

    /// Changes an item that the leaf holds and about which nothing is buffered.
    fn change_in_place(&self, node: &Locked<'_>, found: &Found, change: &mut Change, guards: &Guards<K, V>) {
        let medium = self.medium();
        let entry = node.entry(found.at);
        let (Some(slot), Some(key), Some(value)) = (found.slot, found.key, found.value) else {
            unreachable!("an item about which nothing is buffered is in the leaf");
        };
        if change.item.removed {
            let word = &self.leaf(entry.leaf).word;
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
