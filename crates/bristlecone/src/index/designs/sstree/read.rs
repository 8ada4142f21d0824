//! Reading a key's item. Readers do not lock: they read and validate.

use bristlecone_pm::sync::wait::again;
use bristlecone_pm::{Medium, Result};
use smallvec::SmallVec;

use super::SsTree;
use super::layout::{Header, slot_offset};
use super::leaf::Leaf;
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::fingerprint;
use crate::index::parts::optimistic_lock::Stale;
use crate::index::parts::slot::{Slot, bits};
use crate::index::{Read, get_in_leaf};

/// Position and value of a key's item.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// Position of the subnode, where the head is 0.
    pub at: usize,
    pub slot: usize,
    pub key: u64,
    pub value: u64,
}

impl<K: KeyCodec, V: Storage, M: Medium> Read<K, V> for SsTree<K, M> {
    fn get(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) -> Result<bool> {
        let (key_guard, value_guard) = (K::pin(), V::pin());
        let tag = K::fingerprint(key);
        let mut round = 0;
        loop {
            again(&mut round);
            let (id, version) = self.inner.find(key, &key_guard, |leaf| self.version_of(leaf));
            let leaf = self.leaves.get(id);
            let still = || leaf.lock.validate(version);
            match self.locate(leaf, key, tag, &key_guard, still) {
                Ok(Some(found)) if still() => {
                    // The words were read while the leaf was valid; while pinned, their records remain.
                    self.keys.verify_held(found.key, &key_guard)?;
                    show(self.values.of::<V>().read_verified(found.value, &value_guard)?);
                    return Ok(true);
                }
                Ok(None) if K::INLINE && still() => return Ok(false),
                Ok(None) if !K::INLINE => {
                    let similar = self.similar(leaf, tag);
                    if still() {
                        similar.iter().try_for_each(|word| self.keys.verify_held(*word, &key_guard))?;
                        let is_absent = !self.keys.has_damage();
                        return if is_absent { Ok(false) } else { get_in_leaf::<K, V>(self, key, show) };
                    }
                }
                _ => {}
            }
        }
    }

    fn get_many(&self, keys: &[K::Ref<'_>], show: &mut dyn FnMut(usize, V::Ref<'_>)) -> Result<()> {
        self.look_many::<V>(keys, show)
    }
}

impl<K: KeyCodec, M: Medium> SsTree<K, M> {
    /// Finds the item of `key` in a leaf. `still` returns whether the data read so far are valid:
    /// it is called before any out-of-line data are accessed.
    #[inline(always)]
    pub(super) fn locate(
        &self,
        leaf: Leaf<'_>,
        key: K::Ref<'_>,
        tag: u8,
        guard: &K::Guard,
        still: impl Fn() -> bool,
    ) -> std::result::Result<Option<Found>, Stale> {
        if !self.shape.resident {
            return self.locate_delegated(leaf, key, tag, guard, still);
        }
        for bit in bits(leaf.probe(self.leaves.level, tag) & leaf.bitmap()) {
            let place = self.shape.place(bit);
            if let Some(found) = self.compare(leaf.subnode(place.0), place, key, guard, &still)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Same as `locate`, if the fingerprints of a subnode are in its predecessor.
    fn locate_delegated(
        &self,
        leaf: Leaf<'_>,
        key: K::Ref<'_>,
        tag: u8,
        guard: &K::Guard,
        still: impl Fn() -> bool,
    ) -> std::result::Result<Option<Found>, Stale> {
        let view = leaf.view();
        let mut hits = leaf.probe(self.leaves.level, tag) & view.taken(self.shape, 0);
        if hits == 0 && view.count > 1 {
            // Not in the head unless its successors are full: prefetch both headers together.
            self.pool.prefetch(view.subnodes[0]);
            self.pool.prefetch(view.subnodes[1]);
        }
        for at in 0..view.count.min(view.subnodes.len()) {
            if at > 0 {
                let delegated = self.header(view.subnodes[at - 1]).annex.load(self.medium());
                hits = fingerprint::probe(delegated, tag) & view.taken(self.shape, at);
            }
            for slot in bits(hits) {
                if let Some(found) = self.compare(view.subnodes[at], (at, slot), key, guard, &still)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Returns the words of all keys of a leaf with this fingerprint.
    #[inline]
    pub(super) fn similar(&self, leaf: Leaf<'_>, tag: u8) -> SmallVec<[u64; 4]> {
        let key_at = |subnode, slot| self.slot(subnode, slot).key.load(self.medium());
        if self.shape.resident {
            let places =
                bits(leaf.probe(self.leaves.level, tag) & leaf.bitmap()).map(|bit| self.shape.place(bit));
            return places.map(|(at, slot)| key_at(leaf.subnode(at), slot)).collect();
        }
        let view = leaf.view();
        let mut words = SmallVec::new();
        for at in 0..view.count.min(view.subnodes.len()) {
            let hits = match at.checked_sub(1) {
                None => leaf.probe(self.leaves.level, tag),
                Some(before) => {
                    let delegated = self.header(view.subnodes[before]).annex.load(self.medium());
                    fingerprint::probe(delegated, tag)
                }
            };
            words.extend(bits(hits & view.taken(self.shape, at)).map(|slot| key_at(view.subnodes[at], slot)));
        }
        words
    }

    /// Returns the item at a position, if it is that of `key`.
    #[inline(always)]
    fn compare(
        &self,
        subnode: u64,
        (at, slot): (usize, usize),
        key: K::Ref<'_>,
        guard: &K::Guard,
        still: impl Fn() -> bool,
    ) -> std::result::Result<Option<Found>, Stale> {
        let item = self.slot(subnode, slot);
        let word = item.key.load(self.medium());
        if !K::INLINE {
            if !still() {
                return Err(Stale);
            }
            // The item most likely belongs to the key: fetch both its records concurrently.
            self.values.prefetch(item.value.load(self.medium()));
        }
        Ok((self.keys.read(word, guard) == K::shorten(key)).then(|| {
            let value = item.value.load(self.medium());
            Found { at, slot, key: word, value }
        }))
    }

    #[inline(always)]
    pub(super) fn header(&self, subnode: u64) -> &Header {
        self.pool.at(subnode)
    }

    #[inline(always)]
    pub(super) fn slot(&self, subnode: u64, slot: usize) -> &Slot {
        self.pool.at(slot_offset(subnode, slot))
    }
}
