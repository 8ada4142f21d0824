//! Insert, update and remove: locating the node. `apply` changes it.

use bristlecone_pm::{Flushed, Medium, Result};

use super::LodgeTree;
use super::layout::Header;
use super::node::Locked;
use crate::index::parts::buffered::{Backoff, Found, Hint, Outcome, TreeLog, Writer};
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::{Removed, Swapped, Write, WriteMode};

impl<K: KeyCodec, V: Storage, M: Medium> Write<K, V> for LodgeTree<K, M> {
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>> {
        self.put::<V>(key, value, mode)
    }

    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.blind_put::<V>(key, value)
    }

    fn has_fast_upserts(&self) -> bool {
        K::INLINE && V::INLINE
    }

    fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.delete::<V>(key, None).map(Removed::<V>::ok)
    }

    fn remove_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>) -> Result<Swapped<V>> {
        self.delete::<V>(key, Some(expected)).map(|done| done.map(drop))
    }

    fn compare_and_swap(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>> {
        self.swap::<V>(key, expected, new)
    }
}

impl<K: KeyCodec, M: Medium> Writer<Header, K, M> for LodgeTree<K, M> {
    // The passes of others, and of other writes, have freed everything.
    const RECLAIMS: usize = 1;
    type Place<'a>
        = Locked<'a>
    where
        Self: 'a;

    #[inline(always)]
    fn log(&self) -> &TreeLog<M> {
        &self.versions.log
    }

    #[inline(always)]
    fn enter(&self, key: K::Ref<'_>, hint: Hint, guard: &K::Guard) -> (Locked<'_>, Found) {
        loop {
            if let Some(locked) = self.try_lock_node::<false>(key, hint, guard) {
                return locked;
            }
        }
    }

    #[inline(always)]
    fn change<V: Storage>(
        &self,
        node: Locked<'_>,
        found: Found,
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
        guard: &K::Guard,
    ) -> Result<Outcome> {
        self.apply::<V>(node, found, key, value, guard)
    }

    #[cold]
    fn make_room(&self, backoff: &mut Backoff, reclaims: u64) -> bool {
        backoff.make_room(&self.store, (self.log(), reclaims), || false, || self.reclaim_log(reclaims))
    }

    #[inline(always)]
    fn after_write(&self) -> Result<()> {
        if self.versions.is_due() {
            self.help_log();
        }
        self.pool.health()
    }
}

impl<K: KeyCodec, M: Medium> LodgeTree<K, M> {
    /// Writes without searching the previous value: only the flush reads the leaf.
    #[inline(always)]
    pub(super) fn blind_put<V: Storage>(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        if self.nodes.have_default_layout() {
            self.blind_put_as::<true, V>(key, value)
        } else {
            self.blind_put_as::<false, V>(key, value)
        }
    }

    /// Buffers an item in one inlined function, without a loop: if a fence is followed by more than about sixty
    /// stores, including registers saved by calls, before the next fence, processors stall until it completes.
    #[inline(always)]
    fn blind_put_as<const DEFAULT: bool, V: Storage>(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<()> {
        let done = {
            let guard = K::pin();
            match self.try_lock_node::<DEFAULT>(key, Hint::Blind, &guard) {
                None => Ok(Outcome::Again),
                Some((node, found)) => match self.buffer_at_once::<V>(&node, &found, key, value, &guard) {
                    Some(done) => done.map(|()| Outcome::Done),
                    None => self.apply::<V>(node, found, key, Some(value), &guard),
                },
            }
        };
        match done {
            Ok(Outcome::Done) => self.after_write(),
            Ok(Outcome::Again) => self.put_slow::<V>(key, value),
            Err(error) if error.is_no_room() => self.put_slow::<V>(key, value),
            Err(error) => Err(error),
        }
    }

    #[cold]
    fn put_slow<V: Storage>(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.write_at::<V, _>(key, Hint::Blind, |node, found, guards| {
            let done = self.apply::<V>(node, found, key, Some(value), &guards.0)?;
            Ok(matches!(done, Outcome::Done).then_some(()))
        })
    }

    /// Writes a value to the log and the buffer, unless more work is necessary.
    #[inline(always)]
    fn buffer_at_once<V: Storage>(
        &self,
        node: &Locked<'_>,
        found: &Found,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        guard: &K::Guard,
    ) -> Option<Result<()>> {
        if node.counts().index > self.index_max
            || found.item.is_none() && self.is_without_room(node, found.at)
        {
            return None;
        }
        let spot = self.reserve_entry(found.item.is_some())?;
        let mut change =
            match self.write_records::<V>((node.entry(found.at).leaf, found.key), key, Some(value)) {
                Ok(change) => change,
                Err(error) => return Some(Err(error)),
            };
        let place = (spot, Flushed::none());
        self.log_and_buffer(node, (found, K::fingerprint(key)), &mut change, place, guard);
        self.count(found, true);
        Some(Ok(()))
    }

    /// Locks the node whose range holds `key`, unless another thread intervenes; returns it with the state of the key,
    /// which is determined before it is locked.
    #[inline(always)]
    fn try_lock_node<const DEFAULT: bool>(
        &self,
        key: K::Ref<'_>,
        hint: Hint,
        guard: &K::Guard,
    ) -> Option<(Locked<'_>, Found)> {
        let (id, version) = self.inner.find(key, guard, |node| self.version_as::<DEFAULT>(node));
        let node = self.nodes.get_as::<DEFAULT>(id);
        let still = || node.lock.validate(version);
        let found = self.locate(node, key, K::fingerprint(key), hint, guard, still).ok()?;
        Some((node.lock_at(version)?, found))
    }
}
