//! Locating the slot of a key.
//!
//! 1. `begin` probes the leaf of the key before the thread is pinned. Pinning takes a locked instruction, which waits
//!    for the flush of the previous operation; meanwhile the lines of the key are being fetched.
//! 2. `enter` converts the probe to a position after pinning. It uses `confirm` if the leaf still covers the key and
//!    the probe is valid, otherwise `descend`, past leaves that were replaced.
//! 3. `find_slot` compares the keys of the slots that were in the bitmap when it was read.

use bristlecone_pm::sync::epoch::Guard;
use bristlecone_pm::{LINE_BYTES, Medium};

use super::layout::{Shape, Stored};
use super::leaf::{FROZEN, Leaf};
use super::meta::Tag;
use super::{LOCK_WRITES, NbTree};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::optimistic_lock::{Stale, Version, pause};

/// Guards that keep leaves, blocks, keys and values alive while they are read.
pub(super) struct Pins<K: KeyCodec> {
    pub epoch: Guard,
    pub key: K::Guard,
}

impl<K: KeyCodec> Pins<K> {
    pub fn new() -> Self {
        Self::beside(K::pin())
    }

    /// Creates the other guard beside that of the keys.
    pub fn beside(key: K::Guard) -> Self {
        Self { epoch: bristlecone_pm::sync::epoch::pin(), key }
    }
}

/// Result of searching a key without being pinned.
pub(super) struct Probe {
    pub leaf: u32,
    pub version: Version,
    /// The bitmap whose slots were searched.
    pub seen: u64,
    pub slot: Option<usize>,
}

/// A key that is about to change.
pub(super) struct Target {
    pub tag: Tag,
    /// Taken by the first attempt.
    pub probe: Option<Probe>,
}

/// The leaf that covers a key, valid while the thread is pinned.
pub(super) struct Position<'t> {
    pub id: u32,
    pub leaf: &'t Leaf,
    /// The bitmap whose slots were searched.
    pub seen: u64,
    /// The slot of the key.
    pub slot: Option<usize>,
}

impl Position<'_> {
    /// Returns whether the leaf accepts no new keys.
    #[inline(always)]
    pub fn is_frozen(&self) -> bool {
        self.seen & FROZEN != 0
    }

    /// Returns whether writers must replace the leaf instead of changing values in it.
    #[inline(always)]
    pub fn is_to_be_replaced(&self) -> bool {
        self.is_frozen() && self.leaf.is_still()
    }
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Probes for a key, and then pins.
    #[inline(always)]
    pub(super) fn begin(&self, key: K::Ref<'_>) -> (Target, Pins<K>) {
        let tag = Tag::of::<K>(key);
        let guard = K::pin();
        let probe = self.probe(key, tag, &guard);
        if !K::INLINE
            && let Some(Probe { leaf, slot: None, .. }) = &probe
        {
            self.keys.prefetch_near(key, self.leaves.block(*leaf));
        }
        (Target { tag, probe }, Pins::beside(guard))
    }

    /// Searches a key before the thread is pinned. Returns `None` if the descriptor was reused for another leaf
    /// meanwhile.
    #[inline(always)]
    pub(super) fn probe(&self, key: K::Ref<'_>, tag: Tag, guard: &K::Guard) -> Option<Probe> {
        let (id, version) = self.inner.find(key, guard, |leaf| {
            // A new key goes here if its home line is full.
            self.prefetch_line(leaf, Shape::beside(self.shape.home(tag.hash)));
            self.version_ahead(leaf, tag)
        });
        let leaf = self.leaves.get(id);
        let seen = self.bitmap(leaf);
        let slot = self.find_slot_while(leaf, seen, key, tag, guard, || leaf.incarnation.validate(version));
        Some(Probe { leaf: id, version, seen, slot: slot.ok()? })
    }

    /// Returns the leaf that covers a key, with the key's slot, locked in the ablations. Returns `None` if the leaf no
    /// longer covers it.
    #[inline(always)]
    pub(super) fn enter(
        &self,
        key: K::Ref<'_>,
        tag: Tag,
        probe: Option<Probe>,
        pins: &Pins<K>,
    ) -> Option<(Position<'_>, Option<impl Drop>)> {
        let confirmed = probe.and_then(|probe| self.confirm(probe, pins));
        let (id, leaf) = match &confirmed {
            Some(at) => (at.id, at.leaf),
            None => self.descend(key, tag, pins),
        };
        let lock = (self.locking() >= LOCK_WRITES).then(|| leaf.lock());
        if self.locking() >= LOCK_WRITES && leaf.succession().is_open() {
            return None;
        }
        let at = confirmed.unwrap_or_else(|| {
            let seen = self.bitmap(leaf);
            Position { id, leaf, seen, slot: self.find_slot(leaf, seen, key, tag, pins) }
        });
        Some((at, lock))
    }

    /// Returns the leaf of a probe if it still covers the key, and remains valid while the caller is pinned. The
    /// results of the probe are valid then.
    #[inline(always)]
    pub(super) fn confirm(&self, probe: Probe, _pins: &Pins<K>) -> Option<Position<'_>> {
        let Probe { leaf: id, version, seen, slot } = probe;
        let leaf = self.leaves.get(id);
        // In this order: the succession may belong to another leaf that reuses the descriptor.
        let in_charge = !leaf.succession().is_open() && leaf.incarnation.validate(version);
        in_charge.then_some(Position { id, leaf, seen, slot })
    }

    /// Returns the leaf that covers a key, past replaced leaves that are still in the index.
    pub(super) fn descend(&self, key: K::Ref<'_>, tag: Tag, pins: &Pins<K>) -> (u32, &Leaf) {
        for round in 0_u32.. {
            let (mut id, _) = self.inner.find(key, &pins.key, |leaf| self.version_ahead(leaf, tag));
            let mut leaf = self.leaves.get(id);
            if !leaf.succession().is_open() {
                return (id, leaf);
            }
            // A follower changes nothing: it treats a removed leaf as empty while it is in the index.
            if !self.pool.is_followed() {
                self.install(id, key, pins);
            } else if leaf.succession().is_removed() {
                return (id, leaf);
            }
            while leaf.succession().is_open() && !leaf.succession().is_removed() {
                id = self.successor(leaf, key, pins);
                leaf = self.leaves.get(id);
            }
            if !leaf.succession().is_open() {
                return (id, leaf);
            }
            // The leaf was removed and is out of the index by now, or it is a successor that is not in the index yet.
            pause(round);
        }
        unreachable!("rounds are not counted out")
    }

    /// Returns the version of a leaf in which a key is searched. Prefetches the key's home line, its most likely
    /// place, while the descriptor is being fetched.
    #[inline(always)]
    pub(super) fn version_ahead(&self, leaf: u32, tag: Tag) -> Option<Version> {
        self.prefetch_line(leaf, self.shape.home(tag.hash));
        self.version_of(leaf)
    }

    /// Prefetches the record that a value word refers to, if any.
    #[inline(always)]
    pub(super) fn prefetch_value_of(&self, word: u64) {
        if let Stored::Record(record) = Stored::decode(word) {
            self.values.records.prefetch(record);
        }
    }

    #[inline(always)]
    pub(super) fn prefetch_line(&self, leaf: u32, line: usize) {
        self.pool.prefetch(self.leaves.block(leaf) + (line * LINE_BYTES) as u64);
    }

    /// Returns the slot of a key among the slots `seen`.
    #[inline(always)]
    pub(super) fn find_slot(
        &self,
        leaf: &Leaf,
        seen: u64,
        key: K::Ref<'_>,
        tag: Tag,
        pins: &Pins<K>,
    ) -> Option<usize> {
        self.find_slot_while(leaf, seen, key, tag, &pins.key, || true).unwrap_or_default()
    }

    /// Same as [`find_slot`](Self::find_slot) for a thread whose leaf may have been reused: returns an error unless
    /// `still` confirms it.
    #[inline(always)]
    pub(super) fn find_slot_while(
        &self,
        leaf: &Leaf,
        seen: u64,
        key: K::Ref<'_>,
        tag: Tag,
        guard: &K::Guard,
        still: impl Fn() -> bool,
    ) -> Result<Option<usize>, Stale> {
        self.find_among(leaf, self.candidates(leaf, tag) & seen & self.shape.all(), key, guard, still)
    }

    /// Same as [`find_slot_while`](Self::find_slot_while), among the slots with the key's fingerprint.
    #[inline(always)]
    pub(super) fn find_among(
        &self,
        leaf: &Leaf,
        mut hits: u64,
        key: K::Ref<'_>,
        guard: &K::Guard,
        still: impl Fn() -> bool,
    ) -> Result<Option<usize>, Stale> {
        while hits != 0 {
            let slot = hits.trailing_zeros() as usize;
            let item = self.slot(leaf, slot);
            let word = item.key.load(self.medium());
            if !K::INLINE {
                if !still() {
                    return Err(Stale);
                }
                // The item most likely belongs to the key: fetch both its records concurrently.
                self.prefetch_value_of(item.value.load(self.medium()));
            }
            if self.keys.read(word, guard) == K::shorten(key) {
                return Ok(Some(slot));
            }
            hits &= hits - 1;
        }
        Ok(None)
    }
}
