//! Reading a key's item. No thread waits for another one: a reader that sees a value that may not be durable flushes
//! it itself.

use bristlecone_pm::sync::wait::again;
use bristlecone_pm::{Medium, Persist, Result, Word};
use smallvec::SmallVec;

use super::NbTree;
use super::layout::{EMPTY, Stored};
use super::leaf::{FROZEN, Leaf};
use super::lookup::Pins;
use super::meta::Tag;
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::optimistic_lock::Version;
use crate::index::parts::slot::{Slot, bits};
use crate::index::{Read, get_in_leaf};

/// Result of a read by an unpinned thread.
#[derive(Clone, Copy)]
pub(super) enum LockState {
    /// The words of key and value. Without an item these are the slots with the key's fingerprint, one bit each, and
    /// `EMPTY`.
    Found { key: u64, value: u64 },
    /// The leaf is being replaced, or reading the value needs a pinned thread.
    Unclear,
    /// The descriptor was reused for another leaf.
    Stale,
}

impl<K: KeyCodec, V: Storage, M: Medium> Read<K, V> for NbTree<K, M> {
    fn get(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) -> Result<bool> {
        let guards = (K::pin(), V::pin());
        let tag = Tag::of::<K>(key);
        if self.locking() == super::LOCK_ALL {
            return self.get_slow::<V>(key, tag, show);
        }
        let mut round = 0;
        loop {
            again(&mut round);
            let (id, version) = self.inner.find(key, &guards.0, |leaf| self.version_ahead(leaf, tag));
            let leaf = self.leaves.get(id);
            match self.glance(leaf, version, key, tag, &guards.0) {
                LockState::Found { key: held, value } => match self.at_a_glance::<V>(value) {
                    Some(None) if K::INLINE => return Ok(false),
                    Some(None) => {
                        let similar = self.similar(leaf, held);
                        if leaf.incarnation.validate(version) {
                            return self.absent::<V>(key, &similar, &guards.0, show);
                        }
                    }
                    Some(Some(value)) => {
                        self.keys.verify_held(held, &guards.0)?;
                        show(self.values.of::<V>().read_verified(value, &guards.1)?);
                        return Ok(true);
                    }
                    None => return self.get_slow::<V>(key, tag, show),
                },
                LockState::Unclear => return self.get_slow::<V>(key, tag, show),
                LockState::Stale => {}
            }
        }
    }

    fn get_many(&self, keys: &[K::Ref<'_>], show: &mut dyn FnMut(usize, V::Ref<'_>)) -> Result<()> {
        self.look_many::<V>(keys, show)
    }
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Returns the words of the keys in these slots.
    #[inline]
    fn similar(&self, leaf: &Leaf, slots: u64) -> SmallVec<[u64; 4]> {
        bits(slots).map(|slot| self.slot(leaf, slot).key.load(self.medium())).collect()
    }

    /// Reports a key as absent if none of the keys with its fingerprint is damaged.
    #[inline]
    fn absent<V: Storage>(
        &self,
        key: K::Ref<'_>,
        similar: &[u64],
        guard: &K::Guard,
        show: &mut dyn FnMut(V::Ref<'_>),
    ) -> Result<bool> {
        similar.iter().try_for_each(|word| self.keys.verify_held(*word, guard))?;
        if self.keys.has_damage() { get_in_leaf::<K, V>(self, key, show) } else { Ok(false) }
    }

    /// Returns the word of the value that a value word represents, if there is one. Returns `None` if this needs a
    /// pinned thread.
    #[inline(always)]
    pub(super) fn at_a_glance<V: Storage>(&self, word: u64) -> Option<Option<u64>> {
        match Stored::decode(word) {
            Stored::Empty => Some(None),
            Stored::Plain(value) if V::INLINE => Some(Some(value)),
            Stored::Record(record) if !V::INLINE => Some(Some(record)),
            Stored::Plain(_) | Stored::Record(_) | Stored::Sealed(_) => None,
        }
    }

    /// Searches a leaf whose descriptor may be reused for another one meanwhile; reports if so.
    #[inline(always)]
    pub(super) fn glance(
        &self,
        leaf: &Leaf,
        version: Version,
        key: K::Ref<'_>,
        tag: Tag,
        guard: &K::Guard,
    ) -> LockState {
        let still = || leaf.incarnation.validate(version);
        let seen = self.bitmap(leaf);
        if seen & FROZEN != 0 {
            return LockState::Unclear;
        }
        let hits = self.candidates(leaf, tag) & seen & self.shape.all();
        let Ok(found) = self.find_among(leaf, hits, key, guard, still) else {
            return LockState::Stale;
        };
        let (mut key, mut value, mut unclear) = (hits, EMPTY, false);
        if let Some(slot) = found {
            value = self.slot(leaf, slot).value.load(self.medium());
            if !K::INLINE && value != EMPTY {
                key = self.slot(leaf, slot).key.load(self.medium());
            }
            unclear = !self.visible_is_durable && leaf.is_flushing(self.shape, slot);
        }
        match still() {
            false => LockState::Stale,
            true if unclear => LockState::Unclear,
            true => LockState::Found { key, value },
        }
    }

    /// Looks up a key while pinned: nothing is reclaimed, forwarding leaves are followed, sealed and boxed values are
    /// resolved, and pending flushes are helped.
    #[cold]
    fn get_slow<V: Storage>(
        &self,
        key: K::Ref<'_>,
        tag: Tag,
        show: &mut dyn FnMut(V::Ref<'_>),
    ) -> Result<bool> {
        let pins = Pins::<K>::new();
        let is_followed = self.pool.is_followed();
        let mut round = 0;
        loop {
            again(&mut round);
            let (_, leaf) = self.descend(key, tag, &pins);
            if is_followed && leaf.succession().is_removed() {
                // The leaf was in the index: no thread has stored the key elsewhere yet.
                return Ok(false);
            }
            let lock = (self.locking() == super::LOCK_ALL && !is_followed).then(|| leaf.lock());
            let seen = self.bitmap(leaf);
            let slot = self.find_slot(leaf, seen, key, tag, &pins);
            let word = slot.map(|slot| {
                let word = self.slot(leaf, slot).value.load(self.medium());
                self.make_durable(leaf, slot);
                self.resolve(word)
            });
            let held = slot.map(|slot| self.slot(leaf, slot).key.load(self.medium()));
            let similar = if K::INLINE {
                SmallVec::new()
            } else {
                self.similar(leaf, self.candidates(leaf, tag) & seen & self.shape.all())
            };
            self.medium().reached("nbtree read.1");
            if leaf.succession().is_open() {
                // The cell of the seal may belong to a new leaf by now, and have changed.
                continue;
            }
            // While pinned, the value remains valid; and `show` may write to this leaf.
            drop(lock);
            let Some(value) = word.map(|word| self.verified::<V>(word, &pins)).transpose()?.flatten() else {
                return self.absent::<V>(key, &similar, &pins.key, show);
            };
            held.map_or(Ok(()), |word| self.keys.verify_held(word, &pins.key))?;
            show(value);
            return Ok(true);
        }
    }

    /// Makes a value just read in a slot durable: a reader must not return a value that a crash could undo. Its
    /// writer may be far from its flush, so readers do not wait for it.
    pub(super) fn make_durable(&self, leaf: &Leaf, slot: usize) {
        if !self.visible_is_durable && leaf.is_flushing(self.shape, slot) {
            self.medium().persist(self.slot(leaf, slot), "nbtree read.2");
        }
    }

    /// Makes everything read in the leaf durable.
    pub(super) fn make_all_durable(&self, leaf: &Leaf) {
        if !self.visible_is_durable && leaf.pending.is_flushing_anywhere() {
            self.medium().persist(self.words_of(leaf.block()), "nbtree read.2");
        }
    }

    /// Returns a value word without its seal: the sealed value, while the leaf's successors are not valid yet.
    #[inline(always)]
    pub(super) fn resolve(&self, word: u64) -> u64 {
        match Stored::decode(word) {
            Stored::Sealed(0) => EMPTY,
            Stored::Sealed(cell) => self.pool.at::<Word>(cell).load(self.medium()),
            _ => word,
        }
    }

    /// Calls `show` with the value that an unsealed word represents.
    pub(super) fn with_value<V: Storage, R>(
        &self,
        word: u64,
        pins: &Pins<K>,
        show: impl FnOnce(V::Ref<'_>) -> R,
    ) -> Option<R> {
        let word = match Stored::decode(word) {
            Stored::Empty | Stored::Sealed(_) => return None,
            Stored::Plain(value) => value,
            // Without verification, no record is an error.
            Stored::Record(record) if V::INLINE => self.boxed(record, true).unwrap_or_default(),
            Stored::Record(record) => record,
        };
        Some(show(self.values.of::<V>().read(word, V::guard(&pins.epoch))))
    }

    /// Returns the value that an unsealed word represents, verified.
    fn verified<'a, V: Storage>(&'a self, word: u64, pins: &'a Pins<K>) -> Result<Option<V::Ref<'a>>> {
        let word = match Stored::decode(word) {
            Stored::Empty | Stored::Sealed(_) => return Ok(None),
            Stored::Plain(value) => value,
            Stored::Record(record) if V::INLINE => self.boxed(record, false)?,
            Stored::Record(record) => record,
        };
        self.values.of::<V>().read_verified(word, V::guard(&pins.epoch)).map(Some)
    }

    /// Returns a word value that is stored in a record, after verifying the record unless the caller is `lenient`.
    pub(super) fn boxed(&self, record: u64, lenient: bool) -> Result<u64> {
        let guard = bristlecone_pm::sync::epoch::pin();
        let bytes = match lenient {
            true => self.values.records.read(record, &guard),
            false => self.values.records.read_verified(record, &guard)?,
        };
        Ok(bytes.try_into().map_or(0, u64::from_le_bytes))
    }

    #[inline(always)]
    pub(super) fn slot(&self, leaf: &Leaf, slot: usize) -> &Slot {
        debug_assert!(slot < self.shape.slots, "slot {slot} of {}", self.shape.slots);
        self.pool.at(self.shape.slot(leaf.block(), slot))
    }

    /// Returns all words of a block.
    pub(super) fn words_of(&self, block: u64) -> &[Word] {
        self.pool.words(block, self.shape.block_bytes / 8)
    }

    /// Returns all slots of a block.
    #[inline(always)]
    pub(super) fn slots_of(&self, block: u64) -> &[Slot] {
        self.pool.slice(self.shape.first(block), self.shape.slots)
    }

    /// Prefetches the lines of a block for reading or writing.
    pub(super) fn prefetch_block(&self, block: u64) {
        self.pool.prefetch_lines(block, self.shape.block_bytes);
    }
}
