//! Groups of keys: their memory accesses overlap, and writes share a fence. Step numbers are those of the protocol in
//! `mod.rs`.

use bristlecone_pm::{Durable, Flushed, Medium, Persist, Result, Step, Word};
use smallvec::SmallVec;

use super::SsTree;
use super::layout::slot_offset;
use super::leaf::Locked;
use super::read::Found;
use super::write::Item;
use crate::index::parts::codec::{GROUP, KeyCodec, Storage};
use crate::index::parts::optimistic_lock::{LockState, Version};
use crate::index::parts::slot::bits;
use crate::index::parts::volatile_index::Step as Next;
use crate::index::{Read, Tell, Write, WriteMode};

/// The leaf of each key, if one probe finds it.
type Places = [Option<(u32, Version)>; GROUP];

/// Completed writes with pending flushes: their results, and the leaves that they hold locked.
struct Unsettled<'t, V: Storage> {
    lines: SmallVec<[(&'t Word, Step); 2 * GROUP]>,
    leaves: SmallVec<[(u32, Locked<'t>); GROUP]>,
    old: SmallVec<[Option<V::Owned>; GROUP]>,
}

impl<V: Storage> Unsettled<'_, V> {
    fn holds(&self, id: u32) -> bool {
        self.leaves.iter().any(|(held, _)| *held == id)
    }
}

impl<K: KeyCodec, M: Medium> SsTree<K, M> {
    /// Looks up keys together, as far as their leaves are stable.
    pub(super) fn look_many<V: Storage>(
        &self,
        keys: &[K::Ref<'_>],
        show: &mut dyn FnMut(usize, V::Ref<'_>),
    ) -> Result<()> {
        let guards = (K::pin(), V::pin());
        let places = self.approach(keys, &guards.0, false);
        let mut found = [None; GROUP];
        for (at, (key, place)) in keys.iter().zip(places).enumerate() {
            let Some((id, version)) = place else { continue };
            let leaf = self.leaves.get(id);
            let still = || leaf.lock.validate(version);
            let located = self.locate(leaf, *key, K::fingerprint(*key), &guards.0, still);
            found[at] = located.ok().filter(|_| still());
            if !V::INLINE
                && let Some(Some(found)) = found[at]
            {
                self.pool.prefetch(found.value);
            }
        }
        for (at, (key, found)) in keys.iter().zip(found).enumerate() {
            match found {
                Some(None) if K::INLINE => {}
                // The words were read while the leaf was valid; while pinned, their records remain.
                Some(Some(found)) => {
                    self.keys.verify_held(found.key, &guards.0)?;
                    show(at, self.values.of::<V>().read_verified(found.value, &guards.1)?);
                }
                _ => _ = Read::<K, V>::get(self, *key, &mut |value| show(at, value))?,
            }
        }
        Ok(())
    }

    /// Many 1: finds the leaves of keys, and prefetches the lines to be read, and those of new items if it `writes`.
    fn approach(&self, keys: &[K::Ref<'_>], guard: &K::Guard, writes: bool) -> Places {
        let cursors = self.inner.seek_many(keys, guard, |_, leaf| self.leaves.prefetch_whole(leaf));
        let version_of = |leaf: u32| match self.leaves.get(leaf).lock.try_read() {
            LockState::Free(version) => Some(version),
            LockState::Locked | LockState::Obsolete => None,
        };
        let mut places = [None; GROUP];
        let mut slots = [None; GROUP];
        for (at, (key, cursor)) in keys.iter().zip(cursors).enumerate() {
            let Some(cursor) = cursor else { continue };
            let Next::Leaf(id, version, _) = self.inner.look(cursor, version_of) else { continue };
            places[at] = Some((id, version));
            let leaf = self.leaves.get(id);
            let hits = leaf.probe(self.leaves.level, K::fingerprint(*key)) & leaf.bitmap();
            if let Some(bit) = bits(hits).next() {
                let (subnode, slot) = self.shape.place(bit);
                let offset = slot_offset(leaf.subnode(subnode), slot);
                self.pool.prefetch(offset);
                slots[at] = Some(offset);
            } else if writes {
                let view = leaf.view();
                let (subnode, slot) = view.first_free(self.shape).unwrap_or_default();
                self.pool.prefetch(slot_offset(leaf.subnode(subnode), slot));
                self.pool.prefetch(leaf.subnode(0));
            }
        }
        if !K::INLINE {
            // A leaf that changed concurrently may yield any place: it is only prefetched.
            for (place, offset) in places.iter().zip(slots) {
                if let (Some((id, version)), Some(offset)) = (place, offset)
                    && self.leaves.get(*id).lock.validate(*version)
                {
                    self.pool.prefetch(self.pool.at::<Word>(offset).load(self.medium()));
                }
            }
        }
        places
    }

    /// Writes items in their order.
    pub(super) fn put_many<'k, V: Storage>(
        &self,
        items: &[(K::Ref<'k>, V::Ref<'_>)],
        tell: &mut Tell<'_, V>,
    ) -> Result<()> {
        let keys: SmallVec<[K::Ref<'k>; GROUP]> = items.iter().map(|(key, _)| *key).collect();
        self.change_many::<V>(
            &keys,
            tell,
            |at, leaf, unsettled| self.put_fast::<V>(leaf, keys[at], items[at].1, unsettled),
            |at| Write::<K, V>::write(self, keys[at], items[at].1, WriteMode::Upsert),
        )
    }

    /// Removes keys in their order.
    pub(super) fn delete_many<V: Storage>(&self, keys: &[K::Ref<'_>], tell: &mut Tell<'_, V>) -> Result<()> {
        self.change_many::<V>(
            keys,
            tell,
            |at, leaf, unsettled| self.delete_fast::<V>(leaf, keys[at], unsettled),
            |at| Write::<K, V>::remove(self, keys[at]),
        )
    }

    /// Changes keys, each by `at_once` in its locked leaf if the fast path applies. Otherwise uses `alone`, after all
    /// earlier changes are durable.
    fn change_many<'t, V: Storage>(
        &'t self,
        keys: &[K::Ref<'_>],
        tell: &mut Tell<'_, V>,
        at_once: impl Fn(usize, &Locked<'t>, &mut Unsettled<'t, V>) -> Option<Option<V::Owned>>,
        alone: impl Fn(usize) -> Result<Option<V::Owned>>,
    ) -> Result<()> {
        let places = self.approach(keys, &K::pin(), true);
        let mut unsettled =
            Unsettled { lines: SmallVec::new(), leaves: SmallVec::new(), old: SmallVec::new() };
        for (at, place) in places.into_iter().enumerate().take(keys.len()) {
            let place = place.filter(|(id, _)| K::INLINE && V::INLINE && !unsettled.holds(*id));
            let leaf = place.and_then(|(id, version)| Some((id, self.leaves.get(id).lock_at(version)?)));
            let done = leaf.and_then(|(id, leaf)| Some((at_once(at, &leaf, &mut unsettled)?, id, leaf)));
            if let Some((old, id, leaf)) = done {
                unsettled.old.push(old);
                unsettled.leaves.push((id, leaf));
            } else {
                self.settle(&mut unsettled, tell)?;
                tell(alone(at)?);
            }
        }
        self.settle(&mut unsettled, tell)
    }

    /// Finds the item of a word key in its locked leaf.
    fn find_in(&self, leaf: &Locked<'_>, key: K::Ref<'_>) -> Option<Found> {
        self.locate(**leaf, key, K::fingerprint(key), &K::pin(), || true).unwrap_or_default()
    }

    /// Writes an item of words in place, or in a free slot of its leaf; returns the previous value. Returns `None` if
    /// the leaf has no such slot; nothing has been modified.
    #[inline(always)]
    fn put_fast<'t, V: Storage>(
        &'t self,
        leaf: &Locked<'t>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        unsettled: &mut Unsettled<'t, V>,
    ) -> Option<Option<V::Owned>> {
        let medium = self.medium();
        let (value, _) = self.values.of::<V>().write(value, "sstree update.1").ok()?;
        if let Some(found) = self.find_in(leaf, key) {
            if self.room_to_move(leaf.bitmap(), found.at) != 0 {
                return None;
            }
            let cell = &self.slot(leaf.subnode(found.at), found.slot).value;
            cell.store(medium, value);
            unsettled.lines.push((cell, "sstree update.2"));
            return Some(Some(self.value_of::<V>(found, &V::pin())));
        }
        let view = leaf.view();
        let place = view.first_free(self.shape)?;
        let (key_word, _) = self.keys.write(key, "sstree insert.1 key").ok()?;
        let item = Item { key: key_word, value, tag: K::fingerprint(key) };
        if self.is_alone(&view, place, &item) {
            return None;
        }
        self.note_fingerprint(leaf, &view, place, item.tag);
        self.place(&view, place, &item, &mut |word, step| unsettled.lines.push((word, step)));
        leaf.set_bitmap(self.with_bit(&view, place));
        self.len.add(1);
        Some(None)
    }

    /// Removes an item of words from a leaf whose tail keeps other items; returns the previous value. Returns `None`
    /// if this does not apply; nothing has been modified.
    #[inline(always)]
    fn delete_fast<'t, V: Storage>(
        &'t self,
        leaf: &Locked<'t>,
        key: K::Ref<'_>,
        unsettled: &mut Unsettled<'t, V>,
    ) -> Option<Option<V::Owned>> {
        let Some(found) = self.find_in(leaf, key) else { return Some(None) };
        unsettled.lines.push((self.clear_one(leaf, found)?, "sstree delete.1"));
        self.len.add(-1);
        Some(Some(self.value_of::<V>(found, &V::pin())))
    }

    /// Many 2: makes pending writes durable, unlocks their leaves, and acknowledges them.
    fn settle<V: Storage>(&self, unsettled: &mut Unsettled<'_, V>, tell: &mut Tell<'_, V>) -> Result<()> {
        let medium = self.medium();
        if !unsettled.lines.is_empty() {
            let lines = unsettled.lines.drain(..);
            let flushed =
                lines.fold(Flushed::none(), |flushed, (word, step)| flushed.and(medium.flush(word, step)));
            let Durable { .. } = medium.fence(flushed, "sstree many.2");
        }
        unsettled.leaves.clear();
        if !unsettled.old.is_empty() {
            self.pool.health()?;
        }
        unsettled.old.drain(..).for_each(&mut *tell);
        Ok(())
    }
}
