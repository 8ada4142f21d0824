//! Reading a key's item. Readers do not lock: they read and validate. A reader whose validation fails repeatedly locks
//! the node, as a writer does, so that none starves.

use bristlecone_pm::sync::wait::again;
use bristlecone_pm::{Medium, Result};
use smallvec::SmallVec;

use super::LodgeTree;
use super::layout::{Header, Slots, home, slot_offset};
use super::node::Entry;
use super::places::NodeRef;
use crate::index::parts::buffered::{Found, Hint, InLeaf, tag_of};
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::fingerprint;
use crate::index::parts::optimistic_lock::Stale;
use crate::index::parts::slot::bits;
use crate::index::{Read, get_in_leaf};

impl<K: KeyCodec, V: Storage, M: Medium> Read<K, V> for LodgeTree<K, M> {
    fn get(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) -> Result<bool> {
        let found = self.read::<V, _>(key, &mut *show)?;
        match found {
            None if self.keys.has_damage() => get_in_leaf::<K, V>(self, key, show),
            found => Ok(found.is_some()),
        }
    }
}

impl<K: KeyCodec, M: Medium> LodgeTree<K, M> {
    /// Looks up `key`. Calls `f` with the value before a thread can reuse it.
    #[inline(always)]
    pub(super) fn read<V: Storage, R>(
        &self,
        key: K::Ref<'_>,
        f: impl FnOnce(V::Ref<'_>) -> R,
    ) -> Result<Option<R>> {
        if self.nodes.have_default_layout() {
            self.read_as::<true, V, R>(key, f)
        } else {
            self.read_as::<false, V, R>(key, f)
        }
    }

    #[inline(always)]
    fn read_as<const DEFAULT: bool, V: Storage, R>(
        &self,
        key: K::Ref<'_>,
        f: impl FnOnce(V::Ref<'_>) -> R,
    ) -> Result<Option<R>> {
        let (key_guard, value_guard) = (K::pin(), V::pin());
        let tag = K::fingerprint(key);
        let mut round = 0;
        for tries in 0_u32.. {
            again(&mut round);
            let (id, version) = self.inner.find(key, &key_guard, |node| self.version_as::<DEFAULT>(node));
            let node = self.nodes.get_as::<DEFAULT>(id);
            let Some((locked, version)) = node.hold(version, self.tries(tries)) else { continue };
            let still = || node.lock.validate(version);
            if let Ok(found) = self.locate(node, key, tag, Hint::Present, &key_guard, still) {
                let similar = match found.key {
                    None if !K::INLINE => self.similar(node, found.at, tag, &still),
                    _ => SmallVec::new(),
                };
                if !still() {
                    continue;
                }
                // The words were read while the node was valid; while pinned, their records remain. After the unlock,
                // `f` may write.
                drop(locked);
                let mut words = found.key.iter().chain(&similar);
                words.try_for_each(|word| self.keys.verify_held(*word, &key_guard))?;
                let show = |value| Ok(f(self.values.of::<V>().read_verified(value, &value_guard)?));
                return found.value.map(show).transpose();
            }
        }
        unreachable!("a reader that locks is a reader that finds out")
    }

    /// Returns the words of the fences on both sides of a leaf, and of its keys with this fingerprint: what
    /// [`locate`](Self::locate) compares. Meaningless unless `still` confirms the node afterwards.
    #[inline]
    fn similar(
        &self,
        node: NodeRef<'_>,
        at: usize,
        tag: u8,
        still: &impl Fn() -> bool,
    ) -> SmallVec<[u64; 8]> {
        let entry = node.entry(at);
        let ends = (at..node.counts().index.min(at + 2)).map(|at| node.fence(at)).filter(|fence| *fence != 0);
        let buffered = node.probe(tag).map(|item| node.buffered(item).key);
        let mut words: SmallVec<[u64; 8]> = ends.chain(buffered).collect();
        // The offset may not be that of a leaf any more.
        if still() {
            let tags = self.leaf(entry.leaf).fingerprints.load(self.medium());
            let hits = fingerprint::probe([tags[0], tags[1]], tag)
                | fingerprint::probe([tags[2], tags[3]], tag) << 16;
            let taken = hits as u32 & entry.slots.bitmap & self.slots_mask();
            words.extend(bits(taken).map(|slot| self.slot(entry.leaf, slot).key.load(self.medium())));
        }
        words
    }

    /// Returns the number of attempts that a reader reports: always the first one for a follower, which never locks.
    #[inline(always)]
    pub(super) fn tries(&self, tries: u32) -> u32 {
        if tries > 0 && self.pool.is_followed() { 0 } else { tries }
    }

    /// Finds the state of `key` in a node. `still` returns whether the data read so far are valid: it is called before
    /// any out-of-line data are accessed.
    #[inline(always)]
    pub(super) fn locate(
        &self,
        node: NodeRef<'_>,
        key: K::Ref<'_>,
        tag: u8,
        hint: Hint,
        guard: &K::Guard,
        still: impl Fn() -> bool,
    ) -> std::result::Result<Found, Stale> {
        let at = self.place(node, key, guard, &still)?;
        let items = node.probe(tag);
        if hint == Hint::Blind && items.count() == 0 {
            return Ok(Found { at, in_leaf: InLeaf::Unseen, ..Found::default() });
        }
        let entry = node.entry(at);
        if !still() {
            // The offset may not be that of a leaf any more.
            return Err(Stale);
        }
        // A buffered item needs no access to the leaf.
        if items.count() == 0 {
            if hint == Hint::Absent || !K::INLINE {
                self.pool.prefetch(entry.leaf);
            } else {
                self.pool.prefetch(slot_offset(entry.leaf, entry.slots.first(tag, self.slots)));
            }
        }
        for item in items {
            let buffered = node.buffered(item);
            if !K::INLINE && !still() {
                return Err(Stale);
            }
            if self.keys.read(buffered.key, guard) == K::shorten(key) {
                let value = (!buffered.removed).then_some(buffered.value);
                return Ok(Found {
                    at,
                    item: Some(item),
                    key: Some(buffered.key),
                    value,
                    ..Found::default()
                });
            }
        }
        if hint == Hint::Blind {
            return Ok(Found { at, in_leaf: InLeaf::Unseen, ..Found::default() });
        }
        let slot = self.locate_in_leaf(entry, key, tag, hint, guard, &still)?;
        Ok(Found::of_leaf(at, slot))
    }

    /// Returns the leaf whose range holds `key`, among those of one node.
    #[inline(always)]
    pub(super) fn place(
        &self,
        node: NodeRef<'_>,
        key: K::Ref<'_>,
        guard: &K::Guard,
        still: &impl Fn() -> bool,
    ) -> std::result::Result<usize, Stale> {
        if K::INLINE {
            // Fences are words that order like the keys.
            return Ok(node.last_up_to(K::rank(key)));
        }
        let index = node.counts().index;
        let (mut low, mut high) = (1, index.max(1));
        while low < high {
            let middle = low.midpoint(high);
            let fence = node.fence(middle);
            if !still() {
                return Err(Stale);
            }
            if self.keys.read(fence, guard) <= K::shorten(key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low - 1)
    }

    /// Returns the slot of `key` in a leaf, with its words. It is the slot of a remembered stray with its fingerprint,
    /// or one in the fingerprint's home line. Only if there are more strays from that line than the node remembers,
    /// and for out-of-line keys, the leaf's fingerprints are read. The entry must be validated.
    #[inline(always)]
    pub(super) fn locate_in_leaf(
        &self,
        entry: Entry,
        key: K::Ref<'_>,
        tag: u8,
        hint: Hint,
        guard: &K::Guard,
        still: &impl Fn() -> bool,
    ) -> std::result::Result<Option<(usize, u64, u64)>, Stale> {
        let medium = self.medium();
        let compare = |slot: usize| {
            let cell = self.slot(entry.leaf, slot);
            let word = cell.key.load(medium);
            if !K::INLINE && !still() {
                return Err(Stale);
            }
            let equal = self.keys.read(word, guard) == K::shorten(key);
            Ok(equal.then(|| (slot, word, cell.value.load(medium))))
        };
        let taken = entry.slots.bitmap & self.slots_mask();
        let mut looked = 0;
        if K::INLINE && hint == Hint::Present {
            let (strays, home) = (entry.slots.strays(tag), home(tag, self.slots));
            for slots in [strays, home] {
                for slot in bits(taken & slots) {
                    if let Some(found) = compare(slot)? {
                        return Ok(Some(found));
                    }
                }
            }
            looked = strays | home;
            if !entry.slots.may_be_forgotten(tag, self.slots) {
                return Ok(None);
            }
        }
        let tags = self.leaf(entry.leaf).fingerprints.load(medium);
        let hits =
            fingerprint::probe([tags[0], tags[1]], tag) | fingerprint::probe([tags[2], tags[3]], tag) << 16;
        for slot in bits(hits as u32 & taken & !looked) {
            if let Some(found) = compare(slot)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns a node's information about a leaf with these taken slots, from their fingerprints.
    pub(super) fn slots_of(&self, header: &Header, bitmap: u32) -> Slots {
        let tags = header.fingerprints.load(self.medium());
        bits(bitmap).fold(Slots::default(), |mut slots, slot| {
            slots.take(slot, tag_of(&tags, slot), self.slots);
            slots
        })
    }

    /// Returns one bit for every slot of a leaf.
    #[inline(always)]
    pub(super) fn slots_mask(&self) -> u32 {
        (1 << self.slots) - 1
    }
}
