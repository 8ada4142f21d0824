//! Applying a change of a key in its locked node: to the log and the buffer, or directly to the leaf. Step numbers
//! are those of the protocol in `mod.rs`.

use bristlecone_pm::{Flushed, Medium, Persist, Result};

use super::LodgeTree;
use super::buffer::Buffered;
use super::flush::UnderWay;
use super::gather::Gathered;
use super::layout::LeafWord;
use super::node::{Entry, Locked};
use super::versions::Spot;
use crate::index::parts::buffered::{Change, Found, Hint, InLeaf, Item, Outcome};
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::optimistic_lock::Stale;

/// The destination of a change, the state of its key at that time, and the pending flush before it.
struct Plan<'a, M: Medium> {
    found: Found,
    way: Way<'a, M>,
    flush: Option<UnderWay>,
}

/// The destination of a change.
enum Way<'a, M: Medium> {
    /// The log and the buffer, which have space for it.
    Log(Spot<'a, M>),
    /// The leaf, without a log entry, with a group of leaves or alone.
    Leaf,
    /// None yet: the node has no space.
    Again,
}

/// Returns the result of a lookup by the holder of the lock, which cannot be stale.
fn unchanged<T>(found: std::result::Result<T, Stale>) -> T {
    found.unwrap_or_else(|Stale| unreachable!("a locked node does not change"))
}

impl<K: KeyCodec, M: Medium> LodgeTree<K, M> {
    /// Sets or removes the value of a key. The caller knows that this changes something.
    #[inline(never)]
    pub(super) fn apply<V: Storage>(
        &self,
        mut node: Locked<'_>,
        found: Found,
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
        guard: &K::Guard,
    ) -> Result<Outcome> {
        if node.counts().index > self.index_max {
            self.split_node(&node, guard)?;
            return Ok(Outcome::Again);
        }
        let mut group = Gathered::default();
        let Plan { mut found, way, flush } = self.plan(&mut node, found, key, &mut group, guard)?;
        match way {
            Way::Again => {
                self.end_flush(flush);
                return Ok(Outcome::Again);
            }
            Way::Log(spot) => self.log_change::<V>(&node, &found, (key, value), (spot, flush), guard)?,
            Way::Leaf => {
                found = self.write_through::<V>(&node, found, (key, value), (&mut group, flush), guard)?;
            }
        }
        self.count(&found, value.is_some());
        if found.value.is_some() && value.is_none() {
            self.shrink(node, found.at, guard);
        }
        Ok(Outcome::Done)
    }

    /// Decides the destination of a change.
    #[inline(always)]
    fn plan<'a>(
        &'a self,
        node: &mut Locked<'_>,
        found: Found,
        key: K::Ref<'_>,
        group: &mut Gathered,
        guard: &K::Guard,
    ) -> Result<Plan<'a, M>> {
        if found.item.is_some() || !self.is_without_room(node, found.at) {
            return Ok(self.plan_to_log(node, found, None));
        }
        self.plan_in_full_node(node, found, key, group, guard)
    }

    /// Decides the destination of a change of a full node. The node is flushed: together with the change, by the
    /// `group` gathered for that, or before it, to make space.
    #[inline(never)]
    fn plan_in_full_node<'a>(
        &'a self,
        node: &mut Locked<'_>,
        found: Found,
        key: K::Ref<'_>,
        group: &mut Gathered,
        guard: &K::Guard,
    ) -> Result<Plan<'a, M>> {
        if self.co_flush_group(node, found.at, K::fingerprint(key), group, guard) {
            return Ok(Plan { found, way: Way::Leaf, flush: None });
        }
        group.clear();
        match self.make_room(node, &found, key, guard) {
            Ok((found, flush)) if self.is_without_room(node, found.at) => {
                Ok(Plan { found, way: Way::Again, flush })
            }
            Ok((found, flush)) => Ok(self.plan_to_log(node, found, flush)),
            // There is no space to flush the buffer, but there may be for the change.
            Err(error) if error.is_no_room() => Ok(Plan { found, way: Way::Leaf, flush: None }),
            Err(error) => Err(error),
        }
    }

    /// Decides the destination of a change that the buffer has space for: the log, if that has space, too.
    fn plan_to_log<'a>(&'a self, node: &Locked<'_>, found: Found, flush: Option<UnderWay>) -> Plan<'a, M> {
        let among_copies = || self.is_stuck(node, &found).then(|| self.reserve_among_copies()).flatten();
        let way = match self.reserve_entry(found.item.is_some()).or_else(among_copies) {
            Some(spot) => Way::Log(spot),
            // A flush split a leaf. An unlogged change may split another one, for which the node has no slot.
            None if node.counts().index > self.index_max => Way::Again,
            None => Way::Leaf,
        };
        Plan { found, way, flush }
    }

    /// Writes a change to the log and the buffer; a pending flush is completed by the same fence.
    fn log_change<V: Storage>(
        &self,
        node: &Locked<'_>,
        found: &Found,
        (key, value): (K::Ref<'_>, Option<V::Ref<'_>>),
        (spot, flush): (Spot<'_, M>, Option<UnderWay>),
        guard: &K::Guard,
    ) -> Result<()> {
        match self.write_records::<V>((node.entry(found.at).leaf, found.key), key, value) {
            Ok(mut change) => {
                let UnderWay { lines, logs, leftovers } = flush.unwrap_or_else(UnderWay::nothing);
                let found = (found, K::fingerprint(key));
                self.log_and_buffer(node, found, &mut change, (spot, lines), guard);
                self.finish_flush(&logs, leftovers);
                Ok(())
            }
            Err(error) => {
                self.end_flush(flush);
                Err(error)
            }
        }
    }

    /// Writes a change and all items buffered for its leaf to the leaf, without logging the change, after a pending
    /// flush; and also the groups of some other leaves, which have space. Returns the previous state of the key.
    fn write_through<V: Storage>(
        &self,
        node: &Locked<'_>,
        mut found: Found,
        (key, value): (K::Ref<'_>, Option<V::Ref<'_>>),
        (group, flush): (&mut Gathered, Option<UnderWay>),
        guard: &K::Guard,
    ) -> Result<Found> {
        if found.in_leaf == InLeaf::Unseen {
            found = self.look(node, found.at, key, guard);
        }
        let change = self.write_records::<V>((node.entry(found.at).leaf, found.key), key, value);
        self.end_flush(flush);
        let mut change = change?;
        match self.flush_with(node, (&found, K::fingerprint(key)), &mut change, group, guard) {
            Ok(()) => {}
            Err(error) if error.is_no_room() && found.slot.is_some() => {
                // The buffered items have no space, but the leaf contains the item, and nothing is buffered for it.
                self.change_in_place(node, &found, &mut change);
            }
            Err(error) => {
                self.discard(&change);
                return Err(error);
            }
        }
        Ok(found)
    }

    /// Flushes buffered items; returns the state of the key afterwards, which is not buffered itself.
    fn make_room(
        &self,
        node: &mut Locked<'_>,
        found: &Found,
        key: K::Ref<'_>,
        guard: &K::Guard,
    ) -> Result<(Found, Option<UnderWay>)> {
        // After a crash the log may have the flushed items and the next one: for one leaf, these must not exceed the
        // space of a node, or of two leaves.
        let ends_at_once = node.counts().index == 1 || self.is_full_for(node, found.at);
        let mut flush = Some(self.flush_some(node, found.at, guard)?);
        if ends_at_once {
            self.end_flush(flush.take());
        }
        // Later log entries must be newer than the items merged into the leaves.
        node.raise(node.sequence());
        let at = unchanged(self.place(**node, key, guard, &|| true));
        let found = match found.in_leaf {
            InLeaf::Yes => self.look(node, at, key, guard),
            InLeaf::No | InLeaf::Unseen => Found { at, ..*found },
        };
        Ok((found, flush))
    }

    /// Returns the state of a key in the leaf at `at`; nothing must be buffered for it.
    fn look(&self, node: &Locked<'_>, at: usize, key: K::Ref<'_>, guard: &K::Guard) -> Found {
        let (entry, tag) = (node.entry(at), K::fingerprint(key));
        Found::of_leaf(at, unchanged(self.locate_in_leaf(entry, key, tag, Hint::Present, guard, &|| true)))
    }

    /// Write 2 and 3: the buffer, which must have space, and the log.
    #[inline(always)]
    pub(super) fn log_and_buffer(
        &self,
        node: &Locked<'_>,
        (found, tag): (&Found, u8),
        change: &mut Change,
        (spot, others): (Spot<'_, M>, Flushed),
        guard: &K::Guard,
    ) {
        let Item { key, value, removed } = change.item;
        let (log, owner, in_leaf) = (spot.log(), found.at, found.in_leaf);
        let mut item = Buffered { key, value, log, owner, in_leaf, removed, tag };
        let entry = change.item.entry(node.sequence());
        // In this order, because stores behind a fence would delay the next write's loads and their prefetch.
        let Some(at) = found.item else {
            node.push_buffered(item);
            return spot.append(&entry, change.take_records(), others);
        };
        if removed && node.buffered(at).in_leaf == InLeaf::Unseen {
            // The item counts from now on, until it is removed.
            self.slot_of_buffered(node, at, guard);
        }
        let old = node.buffered(at);
        item.in_leaf = old.in_leaf;
        node.set_buffered(at, item);
        spot.append(&entry, change.take_records(), others);
        self.versions.release(&[old.log]);
        if let Some(value) = self.value_of_buffer(node, &old, guard) {
            self.values.retire(value);
        }
    }

    /// Updates the item count after a change, from whether the key is present now, and was before if that is known.
    #[inline(always)]
    pub(super) fn count(&self, found: &Found, present: bool) {
        match (found.value.is_some(), present) {
            _ if found.in_leaf == InLeaf::Unseen => self.unseen.add(1),
            (false, true) => self.len.add(1),
            (true, false) => self.len.add(-1),
            _ => {}
        }
    }

    /// Returns whether the buffer has no space for another item, or none for one of this leaf.
    #[inline(always)]
    pub(super) fn is_without_room(&self, node: &Locked<'_>, at: usize) -> bool {
        node.room() == 0 || self.is_full_for(node, at)
    }

    /// Returns whether the buffered items of a leaf reach the maximum that fits into two leaves together with
    /// the leaf's own items.
    #[inline(always)]
    pub(super) fn is_full_for(&self, node: &Locked<'_>, at: usize) -> bool {
        node.counts().buffered + 1 >= self.slots && node.items_of(at).count() + 1 >= self.slots
    }

    /// Returns whether a key is buffered, and its leaf would have to split to merge its buffered items.
    fn is_stuck(&self, node: &Locked<'_>, found: &Found) -> bool {
        found.item.is_some() && node.live_with(found.at, node.items_of(found.at)) > self.slots
    }

    /// Returns the value of a buffered item if only the buffer holds it. After a crash the leaf may hold it, too,
    /// and releases it when the value is replaced.
    #[inline(always)]
    pub(super) fn value_of_buffer(
        &self,
        node: &Locked<'_>,
        item: &Buffered,
        guard: &K::Guard,
    ) -> Option<u64> {
        if self.values.are_words() || item.removed { None } else { self.record_of_buffer(node, item, guard) }
    }

    fn record_of_buffer(&self, node: &Locked<'_>, item: &Buffered, guard: &K::Guard) -> Option<u64> {
        let entry = node.entry(item.owner);
        // An item written without searching the leaf is new to the leaf.
        let in_leaf = item.in_leaf == InLeaf::Yes;
        let slot = in_leaf.then(|| self.slot_of(entry, item.key, item.tag, guard)).flatten();
        let held = slot.map(|slot| self.slot(entry.leaf, slot).value.load(self.medium()));
        (held != Some(item.value)).then_some(item.value)
    }

    /// Changes an item that the leaf holds and for which nothing is buffered.
    fn change_in_place(&self, node: &Locked<'_>, found: &Found, change: &mut Change) {
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
        self.values.retire(value);
    }
}
