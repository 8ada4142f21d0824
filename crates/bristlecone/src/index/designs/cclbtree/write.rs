//! Insert, update and remove: locating the leaf. `apply` changes it.

use std::sync::RwLockReadGuard;

use bristlecone_pm::sync::wait;
use bristlecone_pm::{Medium, Result};

use super::buffer::Locked;
use super::layout::Leaf;
use super::{CclBTree, Core};
use crate::index::parts::buffered::{Backoff, Found, Hint, InLeaf, Outcome, TreeLog, Writer};
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::{Removed, Swapped, Tell, Write, WriteMode};

impl<K: KeyCodec, V: Storage, M: Medium> Write<K, V> for CclBTree<K, M> {
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>> {
        self.before_write().put::<V>(key, value, mode)
    }

    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.before_write().blind_put::<V>(key, value)
    }

    fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.before_write().delete::<V>(key, None).map(Removed::<V>::ok)
    }

    fn write_many(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], tell: &mut Tell<'_, V>) -> Result<()> {
        self.before_write().put_many::<V>(items, tell)
    }

    fn remove_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>) -> Result<Swapped<V>> {
        self.before_write().delete::<V>(key, Some(expected)).map(|done| done.map(drop))
    }

    fn compare_and_swap(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>> {
        self.before_write().swap::<V>(key, expected, new)
    }
}

impl<K: KeyCodec, M: Medium> Writer<Leaf, K, M> for Core<K, M> {
    // As long as that frees something, which others may take.
    const RECLAIMS: usize = usize::MAX;
    type Place<'a>
        = Locked<'a>
    where
        Self: 'a;

    #[inline(always)]
    fn log(&self) -> &TreeLog<M> {
        &self.log
    }

    #[inline(always)]
    fn pass(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.is_naive().then(|| wait::read(&self.collection.stop))
    }

    #[inline(always)]
    fn enter(&self, key: K::Ref<'_>, hint: Hint, guard: &K::Guard) -> (Locked<'_>, Found) {
        let leaf = self.lock_leaf(key, hint, guard);
        let found = self.standing(&leaf, key, guard);
        (leaf, found)
    }

    #[inline(always)]
    fn change<V: Storage>(
        &self,
        leaf: Locked<'_>,
        found: Found,
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
        guard: &K::Guard,
    ) -> Result<Outcome> {
        // A new value takes no more space than the old one.
        if let Some(value) = value
            && found.value.is_some()
            && (found.item.is_some() || leaf.state().pending < self.buffers.batch())
            && let Some(done) = self.buffer_value::<V>(&leaf, &found, key, value, guard)
        {
            return done.map(|()| Outcome::Done);
        }
        self.apply::<V>(leaf, &found, key, value, guard).map(|()| Outcome::Done)
    }

    #[cold]
    fn make_room(&self, backoff: &mut Backoff, reclaims: u64) -> bool {
        let recount = || self.count_all();
        backoff.make_room(&self.store, (&self.log, reclaims), recount, || self.reclaim_log(reclaims))
    }

    #[inline(always)]
    fn after_write(&self) -> Result<()> {
        self.pool.health()
    }
}

impl<K: KeyCodec, M: Medium> Core<K, M> {
    /// Sets the value of `key` without searching its leaf, unless the buffer must be flushed or there may be no
    /// space for that. One inlined function: if a fence is followed by more than about sixty stores, including
    /// registers saved by calls, before the next fence, processors stall until it completes.
    #[inline(always)]
    pub(super) fn blind_put<V: Storage>(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        let done = {
            let _passed = self.pass();
            let guard = K::pin();
            let leaf = self.lock_leaf(key, Hint::Blind, &guard);
            match self.buffer_unseen::<V>(&leaf, key, value, &guard) {
                Some(done) => done,
                None => self.put_seen::<V>(leaf, key, value, &guard),
            }
        };
        match done {
            Ok(()) => self.pool.health(),
            Err(error) if error.is_no_room() => self.put_slow::<V>(key, value),
            Err(error) => Err(error),
        }
    }

    #[cold]
    fn put_slow<V: Storage>(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.put::<V>(key, value, WriteMode::Upsert).map(drop)
    }

    /// Buffers a value, if that needs no information from the leaf.
    #[inline(always)]
    fn buffer_unseen<V: Storage>(
        &self,
        leaf: &Locked<'_>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        guard: &K::Guard,
    ) -> Option<Result<()>> {
        let found = self.glance(leaf, key, guard)?;
        self.buffer_value::<V>(leaf, &found, key, value, guard)
    }

    /// Buffers a value if the log has space; the buffer must have space.
    #[inline(always)]
    fn buffer_value<V: Storage>(
        &self,
        leaf: &Locked<'_>,
        found: &Found,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        guard: &K::Guard,
    ) -> Option<Result<()>> {
        let spot = self.reserve_entry()?;
        let change = self.write_records::<V>((leaf.state().leaf, found.key), key, Some(value));
        Some(change.map(|change| self.log_and_buffer(leaf, found, change, spot, guard)))
    }

    #[inline(never)]
    fn put_seen<V: Storage>(
        &self,
        leaf: Locked<'_>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        guard: &K::Guard,
    ) -> Result<()> {
        let state = leaf.state();
        if K::INLINE
            && state.uncounted
            && state.pending == self.buffers.batch()
            && let Ok(None) = self.locate_buffered(*leaf, state, key, guard, &|| true)
        {
            return self.flush_unseen::<V>(leaf, key, value, guard);
        }
        let found = self.standing(&leaf, key, guard);
        self.apply::<V>(leaf, &found, key, Some(value), guard)
    }

    /// Writes a value and the uncounted pending items to the leaf, and counts all of them.
    fn flush_unseen<V: Storage>(
        &self,
        mut leaf: Locked<'_>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        guard: &K::Guard,
    ) -> Result<()> {
        let found = Found::default();
        let mut change = self.write_records::<V>((leaf.state().leaf, None), key, Some(value))?;
        self.write_through(&mut leaf, &found, &mut change, guard).inspect_err(|_| self.discard(&change))
    }

    /// Locks the leaf of a key. With the hint `Blind`, the leaf itself is not expected to be read.
    #[inline(always)]
    pub(super) fn lock_leaf(&self, key: K::Ref<'_>, hint: Hint, guard: &K::Guard) -> Locked<'_> {
        loop {
            let (id, version) = self.inner.find(key, guard, |leaf| {
                if hint != Hint::Blind {
                    self.prefetch_leaf(self.buffers.leaf_of(leaf));
                }
                self.version_of(leaf)
            });
            let buffer = self.buffers.get(id);
            if hint == Hint::Blind && buffer.state().pending == self.buffers.batch() {
                self.prefetch_leaf(self.buffers.leaf_of(id));
            }
            if let Some(leaf) = buffer.lock_at(version) {
                return leaf;
            }
        }
    }

    /// Returns the state of `key` in a leaf and its buffer.
    #[inline(always)]
    pub(super) fn standing(&self, leaf: &Locked<'_>, key: K::Ref<'_>, guard: &K::Guard) -> Found {
        self.count_pending(leaf);
        let Ok(found) = self.locate(**leaf, key, guard, || true) else {
            unreachable!("a leaf does not change while it is locked");
        };
        found
    }

    /// Returns the state of `key` without reading its leaf, if that suffices to buffer a value. Out-of-line keys
    /// need the leaf, which may have a record for them.
    #[inline(always)]
    fn glance(&self, leaf: &Locked<'_>, key: K::Ref<'_>, guard: &K::Guard) -> Option<Found> {
        if !K::INLINE {
            return None;
        }
        let state = leaf.state();
        let has_room = state.pending < self.buffers.batch();
        if let Ok(Some(found)) = self.locate_buffered(**leaf, state, key, guard, &|| true)
            && (found.item.is_some() || has_room)
            && (found.value.is_some() || found.item.is_some() && state.uncounted)
        {
            return Some(found);
        }
        let uncounted = state.uncounted || state.pending == 0 && self.room_is_plenty();
        (has_room && uncounted).then(|| Found { in_leaf: InLeaf::Unseen, ..Found::default() })
    }
}
