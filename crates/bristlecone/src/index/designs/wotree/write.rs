//! Insert, update and remove within one leaf. Step numbers are those of the protocol in `mod.rs`.

use bristlecone_pm::{Alone, Flushed, Medium, Persist, Result};

use super::leaf::{Found, View};
use super::nodes::{Locked, NodeLock};
use super::read::At;
use super::{Pins, WoTree};
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::{Removed, Swapped, Tell, Write, WriteMode};

/// Follow-up work after a change of a leaf.
pub(super) enum Change<R> {
    Done(R),
    /// The last item was removed.
    Emptied(R),
    /// No slot is free.
    Full,
}

impl<K: KeyCodec, V: Storage, M: Medium> Write<K, V> for WoTree<K, M> {
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>> {
        self.with_leaf::<V, _>(key, Some(value), |leaf, view, found, pins| match (found, mode) {
            (Ok(found), WriteMode::New) => Ok(Change::Done(Some(self.value_of::<V>(found, pins)?))),
            (Ok(found), _) => {
                let old = self.value_of::<V>(found, pins)?;
                self.replace::<V>(leaf, found, value, pins)?;
                Ok(Change::Done(Some(old)))
            }
            (Err(_), WriteMode::Update) => Ok(Change::Done(None)),
            (Err(place), _) => {
                let added = self.add::<V>(leaf, view, place, key, value)?;
                Ok(if added { Change::Done(None) } else { Change::Full })
            }
        })
    }

    fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.delete::<V>(key, None).map(Removed::<V>::ok)
    }

    fn write_many(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], tell: &mut Tell<'_, V>) -> Result<()> {
        self.put_many::<V>(items, tell)
    }

    fn remove_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>) -> Result<Swapped<V>> {
        self.delete::<V>(key, Some(expected)).map(|done| done.map(drop))
    }

    fn compare_and_swap(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>> {
        self.with_leaf::<V, _>(key, Some(new), |leaf, _, found, pins| {
            let Ok(found) = found else { return Ok(Change::Done(Err(None))) };
            let old = self.value_of::<V>(found, pins)?;
            if V::borrow(&old) != V::shorten(expected) {
                return Ok(Change::Done(Err(Some(old))));
            }
            self.replace::<V>(leaf, found, new, pins)?;
            Ok(Change::Done(Ok(())))
        })
    }
}

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    /// Removes the item of `key`, if its value is `expected` where one is given.
    #[inline(always)]
    fn delete<V: Storage>(&self, key: K::Ref<'_>, expected: Option<V::Ref<'_>>) -> Result<Removed<V>> {
        self.with_leaf::<V, _>(key, None, |leaf, view, found, pins| {
            let Ok(found) = found else { return Ok(Change::Done(Err(None))) };
            let old = self.value_of::<V>(found, pins)?;
            if expected.is_some_and(|expected| V::borrow(&old) != V::shorten(expected)) {
                return Ok(Change::Done(Err(Some(old))));
            }
            let mut next = *view;
            next.order.remove(found.place);
            next.bitmap &= !(1 << found.slot);
            self.keys.keep(found.key);
            self.values.of::<V>().keep(found.value);
            let _lane = self.note_rebuild(leaf.node);
            // Delete 1: nothing must be durable before a bit is cleared.
            self.commit(leaf, &next, &Alone);
            self.keys.retire(found.key, &pins.keys);
            self.values.of::<V>().retire(found.value, &pins.values);
            self.removed.add(1);
            Ok(if next.bitmap == 0 { Change::Emptied(Ok(old)) } else { Change::Done(Ok(old)) })
        })
    }

    /// Reserves space for records before a leaf is locked, because the liveness check takes time. If
    /// there is none, the write itself fails, or does not need it.
    fn prepare<V: Storage>(&self, key: K::Ref<'_>, value: V::Ref<'_>) {
        let _ = self.keys.prepare(key, &|offset| self.refers_to_key(offset));
        let _ = self.values.of::<V>().prepare(value, &|offset| self.refers_to_value(offset));
    }

    /// Runs `change` on the locked leaf of `key`, with the key's item or its position; retries
    /// without space if some can be freed. `value` is the new value, if any.
    #[inline(always)]
    fn with_leaf<V: Storage, R>(
        &self,
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
        mut change: impl FnMut(
            &Locked<'_>,
            &View,
            std::result::Result<Found, usize>,
            &Pins<K, V>,
        ) -> Result<Change<R>>,
    ) -> Result<R> {
        let records = [&self.keys.records, &self.values.records, &self.separators.records];
        let released = || self.nodes.has_released() || records.iter().any(|records| records.has_released());
        let held = || self.nodes.held() + records.iter().map(|records| records.held()).sum::<u64>();
        self.epochs.with_room(released, held, || {
            let pins = self.pin();
            if let Some(value) = value {
                self.prepare::<V>(key, value);
            }
            self.at_leaf(key, &pins.keys, |leaf, view, found| change(leaf, view, found, &pins))
        })
    }

    pub(super) fn at_leaf<R>(
        &self,
        key: K::Ref<'_>,
        guard: &K::Guard,
        mut change: impl FnMut(&Locked<'_>, &View, std::result::Result<Found, usize>) -> Result<Change<R>>,
    ) -> Result<R> {
        loop {
            let At { leaf, lock, version, detour } = self.find(key, guard)?;
            let Some(leaf) = Locked::at(NodeLock { node: leaf, lock }, version) else { continue };
            let view = self.own_view(leaf.node, guard)?;
            let found = self.own_place(leaf.node, &view, key, guard)?;
            let done = change(&leaf, &view, found)?;
            drop(leaf);
            if detour {
                self.complete_if_possible(key, guard);
            }
            match done {
                Change::Full => self.split(key, guard)?,
                Change::Done(done) => {
                    self.nodes.drain_retired();
                    self.pool.health()?;
                    return Ok(done);
                }
                Change::Emptied(done) => {
                    // The removal is valid even if the leaf cannot be freed; `check` reports the
                    // reason.
                    let _ = self.free_if_empty(key, guard);
                    self.pool.health()?;
                    return Ok(done);
                }
            }
        }
    }

    /// Adds an entry that a writer found missing on its path, if there is space: otherwise it costs
    /// a step, and the next writer retries.
    #[cold]
    fn complete_if_possible(&self, key: K::Ref<'_>, guard: &K::Guard) {
        let _ = self.complete(key, guard);
    }

    /// Returns the value of an item, or an error if its record is damaged.
    fn value_of<V: Storage>(&self, found: Found, pins: &Pins<K, V>) -> Result<V::Owned> {
        if !self.has_value::<V>(found.key, found.value) {
            self.verify_value::<V>(found.key, found.value, &V::pin())?;
        }
        Ok(V::owned(self.values.of::<V>().read(found.value, &pins.values)))
    }

    /// Adds an item that the leaf does not hold; returns `false` if it has no space.
    fn add<V: Storage>(
        &self,
        leaf: &Locked<'_>,
        view: &View,
        place: usize,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<bool> {
        let Some(slot) = view.first_free(self.shape.slots) else { return Ok(false) };
        let medium = self.medium();
        // Insert 1: out-of-line data. Nothing refers to them, so one fence serves them and the item:
        // after a crash the slot's bit is clear, or the records are durable.
        let (key, flushed) = self.keys.write_near(key, leaf.node, "wotree insert.1 key")?;
        let (value, flushed) = match self.values.of::<V>().write_owned(value, key, "wotree insert.1 value") {
            Ok((value, more)) => (value, flushed.and(more)),
            Err(error) => {
                self.keys.free(key);
                return Err(error);
            }
        };
        let item = self.nodes.item(leaf.node, slot);
        item.key.store(medium, key);
        item.word.store(medium, value);
        let _lane = self.note_rebuild(leaf.node);
        let flushed = flushed.and(medium.flush(item, "wotree insert.2"));
        let durable = medium.fence(flushed, "wotree insert.2");
        let mut next = *view;
        next.order.insert(place, slot);
        next.bitmap |= 1 << slot;
        self.commit(leaf, &next, &durable);
        self.added.add(1);
        Ok(true)
    }

    /// Sets the item's value.
    fn replace<V: Storage>(
        &self,
        leaf: &Locked<'_>,
        found: Found,
        value: V::Ref<'_>,
        pins: &Pins<K, V>,
    ) -> Result<()> {
        let medium = self.medium();
        let (word, flushed) = self.values.of::<V>().write_owned(value, found.key, "wotree update.1")?;
        let cell = &self.nodes.item(leaf.node, found.slot).word;
        self.values.of::<V>().keep(found.value);
        if V::INLINE {
            let _: Flushed = flushed;
            cell.store(medium, word);
        } else {
            let durable = medium.fence(flushed, "wotree update.1 fence");
            cell.publish(medium, word, &durable, "wotree update.2");
        }
        medium.persist(cell, "wotree update.2");
        self.values.of::<V>().retire(found.value, &pins.values);
        Ok(())
    }
}
