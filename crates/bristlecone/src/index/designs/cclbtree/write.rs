//! Insert, update and remove: locating the leaf. `apply` changes it.

use std::sync::RwLockReadGuard;

use bristlecone_pm::sync::wait;
use bristlecone_pm::{Medium, Result, Step};

use super::buffer::Locked;
use super::layout::Leaf;
use super::{CclBTree, Core};
use crate::index::parts::buffered::{Backoff, Found, Guards, Hint, InLeaf, Outcome, TreeLog, Writer};
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::{Removed, Swapped, Write, WriteMode};

impl<K: KeyCodec, V: Codec, M: Medium> Write<K, V> for CclBTree<K, V, M> {
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>> {
        self.before_write().put(key, value, mode)
    }

    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.before_write().blind_put(key, value)
    }

    fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.before_write().delete(key, None).map(Removed::<V>::ok)
    }

    fn remove_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>) -> Result<Swapped<V>> {
        self.before_write().delete(key, Some(expected)).map(|done| done.map(drop))
    }

    fn compare_and_swap(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>> {
        self.before_write().swap(key, expected, new)
    }
}

impl<K: KeyCodec, V: Codec, M: Medium> Writer<Leaf, K, V, M> for Core<K, V, M> {
    // As long as that frees something, which others may take.
    const RECLAIMS: usize = usize::MAX;
    const RECORD_STEPS: [Step; 2] = ["cclbtree write.1 key", "cclbtree write.1 value"];
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
    fn enter(&self, key: K::Ref<'_>, hint: Hint, guards: &Guards<K, V>) -> (Locked<'_>, Found) {
        let leaf = self.lock_leaf(key, hint, &guards.0);
        let found = self.standing(&leaf, key, guards);
        (leaf, found)
    }

    #[inline(always)]
    fn change(
        &self,
        leaf: Locked<'_>,
        found: Found,
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
        guards: &Guards<K, V>,
    ) -> Result<Outcome> {
        // A new value takes no more space than the old one.
        if let Some(value) = value
            && found.value.is_some()
            && (found.item.is_some() || leaf.state().pending < self.buffers.batch())
            && let Some(done) = self.buffer_value(&leaf, &found, key, value, guards)
        {
            return done.map(|()| Outcome::Done);
        }
        self.apply(leaf, &found, key, value, guards).map(|()| Outcome::Done)
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

impl<K: KeyCodec, V: Codec, M: Medium> Core<K, V, M> {
    /// Sets the value of `key` without searching its leaf, unless the buffer must be flushed or there may be no
    /// space for that. One inlined function: if a fence is followed by more than about sixty stores, including
    /// registers saved by calls, before the next fence, processors stall until it completes.
    #[inline(always)]
    pub(super) fn blind_put(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        let done = {
            let _passed = self.pass();
            let guards = (K::pin(), V::pin());
            let leaf = self.lock_leaf(key, Hint::Blind, &guards.0);
            match self.buffer_unseen(&leaf, key, value, &guards) {
                Some(done) => done,
                None => self.put_seen(leaf, key, value, &guards),
            }
        };
        match done {
            Ok(()) => self.pool.health(),
            Err(error) if error.is_no_room() => self.put_slow(key, value),
            Err(error) => Err(error),
        }
    }

    #[cold]
    fn put_slow(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.put(key, value, WriteMode::Upsert).map(drop)
    }

    /// Buffers a value, if that needs no information from the leaf.
    #[inline(always)]
    fn buffer_unseen(
        &self,
        leaf: &Locked<'_>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        guards: &Guards<K, V>,
    ) -> Option<Result<()>> {
        let found = self.glance(leaf, key, guards)?;
        self.buffer_value(leaf, &found, key, value, guards)
    }

    /// Buffers a value if the log has space; the buffer must have space.
    #[inline(always)]
    fn buffer_value(
        &self,
        leaf: &Locked<'_>,
        found: &Found,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        guards: &Guards<K, V>,
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
        guards: &Guards<K, V>,
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

    /// Writes a value and the uncounted pending items to the leaf, and counts all of them.
    fn flush_unseen(
        &self,
        mut leaf: Locked<'_>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        guards: &Guards<K, V>,
    ) -> Result<()> {
        let found = Found::default();
        let mut change = self.write_records(&found, key, Some(value))?;
        self.write_through(&mut leaf, &found, &mut change, guards)
            .inspect_err(|_| change.discard::<K, V, M>((&self.keys, &self.values)))
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
    fn standing(&self, leaf: &Locked<'_>, key: K::Ref<'_>, guards: &Guards<K, V>) -> Found {
        self.count_pending(leaf);
        let Ok(found) = self.locate(**leaf, key, &guards.0, || true) else {
            unreachable!("a leaf does not change while it is locked");
        };
        found
    }

    /// Returns the state of `key` without reading its leaf, if that suffices to buffer a value. Out-of-line keys
    /// need the leaf, which may have a record for them.
    #[inline(always)]
    fn glance(&self, leaf: &Locked<'_>, key: K::Ref<'_>, guards: &Guards<K, V>) -> Option<Found> {
        if !K::INLINE {
            return None;
        }
        let state = leaf.state();
        let has_room = state.pending < self.buffers.batch();
        if let Ok(Some(found)) = self.locate_buffered(**leaf, state, key, &guards.0, &|| true)
            && (found.item.is_some() || has_room)
            && (found.value.is_some() || found.item.is_some() && state.uncounted)
        {
            return Some(found);
        }
        let uncounted = state.uncounted || state.pending == 0 && self.room_is_plenty();
        (has_room && uncounted).then(|| Found { in_leaf: InLeaf::Unseen, ..Found::default() })
    }
}
