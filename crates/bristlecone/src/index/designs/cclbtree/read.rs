//! Reading a key's item. Readers do not lock: they read and validate. A reader whose validation fails
//! repeatedly locks the leaf, as a writer does, so that none starves.

use bristlecone_pm::sync::wait::again;
use bristlecone_pm::{Medium, Result};
use smallvec::SmallVec;

use super::buffer::{BufferRef, State};
use super::layout::{Leaf, LeafWord};
use super::{CclBTree, Core};
use crate::index::parts::buffered::{Found, Hint};
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::fingerprint;
use crate::index::parts::optimistic_lock::Stale;
use crate::index::parts::slot::bits;
use crate::index::{Read, get_in_leaf};

/// Number of failed validations before a reader locks the leaf.
const PATIENCE: u32 = 8;

impl<K: KeyCodec, V: Storage, M: Medium> Read<K, V> for CclBTree<K, M> {
    fn get(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) -> Result<bool> {
        let found = self.read::<V, _>(key, &mut *show)?;
        match found {
            None if self.keys.has_damage() => get_in_leaf::<K, V>(self, key, show),
            found => Ok(found.is_some()),
        }
    }
}

impl<K: KeyCodec, M: Medium> Core<K, M> {
    /// Looks up `key`. Calls `f` with the value before a thread can reuse it.
    #[inline(always)]
    pub(super) fn read<V: Storage, R>(
        &self,
        key: K::Ref<'_>,
        f: impl FnOnce(V::Ref<'_>) -> R,
    ) -> Result<Option<R>> {
        let (key_guard, value_guard) = (K::pin(), V::pin());
        let mut round = 0;
        // A follower cannot lock.
        while round < PATIENCE || self.pool.is_followed() {
            again(&mut round);
            let (id, version) = self.inner.find(key, &key_guard, |leaf| {
                self.prefetch_leaf(self.buffers.leaf_of(leaf));
                self.version_of(leaf)
            });
            let buffer = self.buffers.get(id);
            let still = || buffer.lock.validate(version);
            if let Ok(found) = self.locate(buffer, key, &key_guard, still) {
                let similar = match found.key {
                    None if !K::INLINE => self.similar(buffer, K::fingerprint(key)),
                    _ => SmallVec::new(),
                };
                if still() {
                    // The words were read while the leaf was valid; while pinned, their records remain.
                    return self.verified::<V, _>(found, &similar, (&key_guard, &value_guard), f);
                }
            }
        }
        // Unlocked by now, so that `f` may write.
        let (found, similar) = self.find_locked(key, &key_guard);
        self.verified::<V, _>(found, &similar, (&key_guard, &value_guard), f)
    }

    /// Calls `f` with a value, after verifying its record and that of its key. Verifies the keys that might be an absent
    /// one.
    #[inline(always)]
    fn verified<V: Storage, R>(
        &self,
        found: Found,
        similar: &[u64],
        guards: (&K::Guard, &V::Guard),
        f: impl FnOnce(V::Ref<'_>) -> R,
    ) -> Result<Option<R>> {
        found.key.iter().chain(similar).try_for_each(|word| self.keys.verify_held(*word, guards.0))?;
        found.value.map(|value| Ok(f(self.values.of::<V>().read_verified(value, guards.1)?))).transpose()
    }

    /// Returns the words of all keys that [`locate`](Self::locate) compares with one with this fingerprint.
    #[inline]
    fn similar(&self, buffer: BufferRef<'_>, tag: u8) -> SmallVec<[u64; 8]> {
        let state = buffer.state();
        let buffered = buffer.keys(state).filter(|(at, _)| *at < state.pending || !state.is_removed(*at));
        let (leaf, medium) = (self.leaf(state.leaf), self.medium());
        let taken = LeafWord::unpack(leaf.header.word.load(medium)).bitmap & self.slots_mask();
        let hits = fingerprint::probe(leaf.header.fingerprints.load(medium), tag) & taken;
        let held = bits(hits).map(|slot| leaf.slots[slot].key.load(medium));
        buffered.map(|(_, word)| word).chain(held).collect()
    }

    /// Returns the state of `key` in its locked leaf.
    #[cold]
    fn find_locked(&self, key: K::Ref<'_>, guard: &K::Guard) -> (Found, SmallVec<[u64; 8]>) {
        let leaf = self.lock_leaf(key, Hint::Present, guard);
        let Ok(found) = self.locate(*leaf, key, guard, || true) else {
            unreachable!("a leaf does not change while it is locked");
        };
        let similar = if K::INLINE { SmallVec::new() } else { self.similar(*leaf, K::fingerprint(key)) };
        (found, similar)
    }

    /// Finds the state of `key` in a leaf. `still` returns whether the data read so far are valid: it is
    /// called before any out-of-line data are accessed.
    #[inline(always)]
    pub(super) fn locate(
        &self,
        buffer: BufferRef<'_>,
        key: K::Ref<'_>,
        guard: &K::Guard,
        still: impl Fn() -> bool,
    ) -> std::result::Result<Found, Stale> {
        let state = buffer.state();
        if let Some(found) = self.locate_buffered(buffer, state, key, guard, &still)? {
            return Ok(found);
        }
        let leaf = self.leaf(state.leaf);
        let slot = self.locate_in_leaf(leaf, key, K::fingerprint(key), guard, &still)?;
        Ok(Found::of_leaf(0, slot))
    }

    /// Returns the state of `key` in the buffer, if it is there.
    #[inline(always)]
    pub(super) fn locate_buffered(
        &self,
        buffer: BufferRef<'_>,
        state: State,
        key: K::Ref<'_>,
        guard: &K::Guard,
        still: &impl Fn() -> bool,
    ) -> std::result::Result<Option<Found>, Stale> {
        for (at, word) in buffer.keys(state) {
            let pending = (at < state.pending).then_some(at);
            let removed = state.is_removed(at);
            // The key of a removal that is merged into the leaf is gone.
            if removed && pending.is_none() && !K::INLINE {
                continue;
            }
            if !K::INLINE && !still() {
                return Err(Stale);
            }
            if self.keys.read(word, guard) == K::shorten(key) {
                let value = (!removed).then(|| buffer.slot(at).1);
                let key = (!removed || pending.is_some()).then_some(word);
                return Ok(Some(Found { item: pending, key, value, ..Found::default() }));
            }
        }
        Ok(None)
    }

    /// Returns the slot of `key` in a leaf, with its words.
    #[inline(always)]
    pub(super) fn locate_in_leaf(
        &self,
        leaf: &Leaf,
        key: K::Ref<'_>,
        tag: u8,
        guard: &K::Guard,
        still: &impl Fn() -> bool,
    ) -> std::result::Result<Option<(usize, u64, u64)>, Stale> {
        let medium = self.medium();
        let tags = leaf.header.fingerprints.load(medium);
        let taken = LeafWord::unpack(leaf.header.word.load(medium)).bitmap;
        let hits = fingerprint::probe(tags, tag) & taken & self.slots_mask();
        for slot in bits(hits) {
            let item = &leaf.slots[slot];
            let word = item.key.load(medium);
            if !K::INLINE && !still() {
                return Err(Stale);
            }
            if self.keys.read(word, guard) == K::shorten(key) {
                return Ok(Some((slot, word, item.value.load(medium))));
            }
        }
        Ok(None)
    }

    /// Returns one bit for every slot of a leaf.
    #[inline(always)]
    pub(super) fn slots_mask(&self) -> u64 {
        (1 << self.slots) - 1
    }
}
