//! Scans: one leaf at a time, in order, merged with its buffered items. Each leaf is consistent; the
//! tree as a whole is not a snapshot.

use std::ops::Bound;

use bristlecone_pm::sync::wait::again;
use bristlecone_pm::{Error, Medium, Result};
use smallvec::SmallVec;

use super::LodgeTree;
use super::layout::slot_offset;
use super::places::{NODE_SLOTS_MAX, NodeRef};
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::optimistic_lock::Version;
use crate::index::parts::volatile_index::{Cursor, Step};
use crate::index::parts::words::Words;
use crate::index::scan::{Bounds, append, overlay, shorten, value_or_noted};
use crate::index::{Batch, Scan};

/// A leaf read by a scan, and the position where the scan continues.
struct Probe<K: KeyCodec> {
    words: Words,
    /// The low fence of this leaf or of the next one. `None` if there is no leaf before or after.
    further: Option<K::Owned>,
    /// The word of that fence, or 0.
    fence: u64,
}

/// Calls `look` with the number of attempts, until it returns a result.
fn until_probed<T>(look: impl Fn(u32) -> Option<T>) -> T {
    let mut round = 0;
    let looks = (0..u32::MAX).find_map(|tries| {
        again(&mut round);
        look(tries)
    });
    looks.expect("a reader that locks is a reader that sees")
}

impl<K: KeyCodec, V: Storage, M: Medium> Scan<K, V> for LodgeTree<K, M> {
    /// Between two leaves the batch keeps the low fence of the next one.
    fn scan_forward(&self, bounds: Bounds<'_, '_, K>, into: &mut Batch<K, V>) -> bool {
        let guards = (K::pin(), V::pin());
        while !into.ended {
            let fence = into.fence.take().flatten();
            let from = match &fence {
                Some(fence) => Bound::Included(K::borrow(fence)),
                None => shorten::<K>(bounds.0),
            };
            let key = match from {
                Bound::Included(key) | Bound::Excluded(key) => K::shorten(key),
                Bound::Unbounded => K::least(),
            };
            let look = |tries| {
                let (id, version, cursor) =
                    self.inner.seek(Some(key), &guards.0, |node| self.version_of(node), |_| {});
                let (locked, version) = self.nodes.get(id).hold(version, self.tries(tries))?;
                // A thread that holds a lock must not wait for one to the right.
                let next_version = |node| match locked {
                    None => self.version_of(node),
                    Some(_) => self.version_if_free(node),
                };
                self.look_ahead(id, version, cursor, key, &guards.0, next_version)
            };
            let probe = until_probed(look);
            into.entries.clear();
            let read = self.readers::<V>(&guards, into.lenient);
            let wanted = (from, shorten::<K>(bounds.1));
            if !into.lenient
                && let Err(error) = self.verify_fences(Some(key), probe.fence, &guards.0)
            {
                return into.fail(error);
            }
            let outside = append::<K, V, true>(self.nodes.level(), &probe.words, wanted, into, read);
            if into.damage.is_some() {
                return false;
            }
            into.ended = outside.above || probe.further.is_none();
            if let Some((fence, further)) = fence.zip(probe.further.as_ref())
                && *further <= fence
            {
                self.meet_no_bound(probe.fence, into);
            }
            into.fence = Some(probe.further);
            if !into.entries.is_empty() {
                return true;
            }
        }
        false
    }

    /// Between two leaves the batch keeps the low fence of the last one.
    fn scan_backward(&self, bounds: Bounds<'_, '_, K>, into: &mut Batch<K, V>) -> bool {
        let guards = (K::pin(), V::pin());
        while !into.ended {
            let fence = into.fence.take().flatten();
            let to = match &fence {
                Some(fence) => Bound::Excluded(K::borrow(fence)),
                None => shorten::<K>(bounds.1),
            };
            let look = |tries| {
                let version_of = |node| self.version_of(node);
                let (id, version) = match to {
                    Bound::Included(key) => self.inner.find(key, &guards.0, version_of),
                    Bound::Excluded(key) => {
                        let (id, version, _) = self.inner.find_before(Some(key), &guards.0, version_of);
                        (id, version)
                    }
                    Bound::Unbounded => {
                        let (id, version, _) = self.inner.find_before(None, &guards.0, version_of);
                        (id, version)
                    }
                };
                let (_locked, version) = self.nodes.get(id).hold(version, self.tries(tries))?;
                self.look_back(id, version, to, &guards.0)
            };
            let probe = until_probed(look);
            into.entries.clear();
            let read = self.readers::<V>(&guards, into.lenient);
            let wanted = (shorten::<K>(bounds.0), to);
            let bound = match to {
                Bound::Included(key) | Bound::Excluded(key) => Some(key),
                Bound::Unbounded => None,
            };
            if !into.lenient
                && let Err(error) = self.verify_fences(bound, probe.fence, &guards.0)
            {
                return into.fail(error);
            }
            let outside = append::<K, V, false>(self.nodes.level(), &probe.words, wanted, into, read);
            if into.damage.is_some() {
                return false;
            }
            into.ended = outside.below || probe.further.is_none();
            if let Some((fence, further)) = fence.zip(probe.further.as_ref())
                && *further >= fence
            {
                self.meet_no_bound(probe.fence, into);
            }
            into.fence = Some(probe.further);
            if !into.entries.is_empty() {
                return true;
            }
        }
        false
    }
}

impl<K: KeyCodec, M: Medium> LodgeTree<K, M> {
    /// Ends a scan at a fence that it has passed already: it would never end. A lenient one has the items up to there.
    #[cold]
    fn meet_no_bound<V: Storage>(&self, fence: u64, into: &mut Batch<K, V>) {
        into.ended = true;
        if !into.lenient {
            into.fail(Error::corrupted("fences that are out of order", format!("fence {fence:#x}")));
        }
    }

    /// Verifies the checksums of the fences of the node that a key leads to, or of the last one, and
    /// of the fence where a scan continues: a damaged one leads to another leaf.
    fn verify_fences(&self, key: Option<K::Ref<'_>>, next: u64, guard: &K::Guard) -> Result<()> {
        if K::INLINE {
            return Ok(());
        }
        let fences = until_probed(|tries| {
            let version_of = |node| self.version_of(node);
            let (id, version) = match key {
                Some(key) => self.inner.find(key, guard, version_of),
                None => {
                    let (id, version, _) = self.inner.find_before(None, guard, version_of);
                    (id, version)
                }
            };
            let node = self.nodes.get(id);
            let (_locked, version) = node.hold(version, self.tries(tries))?;
            let fences: SmallVec<[u64; 32]> = (0..node.counts().index).map(|at| node.fence(at)).collect();
            node.lock.validate(version).then_some(fences)
        });
        // The first leaf has none.
        let fences = fences.into_iter().chain(std::iter::once(next)).filter(|&fence| fence != 0);
        fences.into_iter().try_for_each(|fence| self.keys.verify_held(fence, guard))
    }

    /// Returns functions that read a key's word, verify its record, and read a value's word, verified unless the caller
    /// is `lenient`.
    #[inline(always)]
    #[allow(clippy::type_complexity, reason = "two closures")]
    fn readers<'a, V: Storage>(
        &'a self,
        guards: &'a (K::Guard, V::Guard),
        lenient: bool,
    ) -> (impl Fn(u64) -> Result<K::Ref<'a>>, impl Fn(u64, &mut Option<Error>) -> V::Ref<'a>) {
        let value = move |word, damage: &mut Option<Error>| {
            value_or_noted::<V, M>(&self.values, word, &guards.1, lenient, damage)
        };
        (move |word| self.keys.read_in_scan(word, &guards.0, lenient), value)
    }

    /// Returns the leaf that holds `key`, and the low fence of the next one. Returns `None` if
    /// something changed.
    fn look_ahead(
        &self,
        id: u32,
        version: Version,
        cursor: Cursor,
        key: K::Ref<'_>,
        guard: &K::Guard,
        next_version: impl Fn(u32) -> Option<Version>,
    ) -> Option<Probe<K>> {
        let node = self.nodes.get(id);
        let still = || node.lock.validate(version);
        let at = self.place(node, key, guard, &still).ok()?;
        let index = node.counts().index;
        let (entry, next) = (node.entry(at), (at + 1 < index).then(|| node.entry(at + 1)));
        still().then_some(())?;
        self.prefetch_leaf(entry.leaf);
        next.into_iter().for_each(|next| self.prefetch_leaf(next.leaf));
        let words = self.snapshot(node, version, at)?;
        let fence = if at + 1 < index {
            let fence = node.fence(at + 1);
            still().then_some(fence)?
        } else {
            match self.inner.next(cursor, next_version) {
                Step::Leaf(next, seen, _) => {
                    let next = self.nodes.get(next);
                    let fence = next.fence(0);
                    next.lock.validate(seen).then_some(fence)?
                }
                Step::End => return still().then_some(Probe { words, further: None, fence: 0 }),
                Step::Lost => return None,
            }
        };
        let further = Some(K::owned(self.keys.read(fence, guard)));
        // Both nodes were in the observed state when the second one was read.
        still().then_some(Probe { words, further, fence })
    }

    /// Returns the last leaf with keys up to a bound, and its low fence. Returns `None` if something
    /// changed.
    fn look_back(
        &self,
        id: u32,
        version: Version,
        to: Bound<K::Ref<'_>>,
        guard: &K::Guard,
    ) -> Option<Probe<K>> {
        let node = self.nodes.get(id);
        let still = || node.lock.validate(version);
        let at = match to {
            Bound::Unbounded => node.counts().index.checked_sub(1)?,
            Bound::Included(key) => self.place(node, key, guard, &still).ok()?,
            Bound::Excluded(key) => {
                let at = self.place(node, key, guard, &still).ok()?;
                let fence = node.fence(at);
                still().then_some(())?;
                // A leaf that begins with the key has nothing before it.
                let begins = at > 0 && self.keys.read(fence, guard) == K::shorten(key);
                at - usize::from(begins)
            }
        };
        let entry = node.entry(at);
        still().then_some(())?;
        self.prefetch_leaf(entry.leaf);
        let words = self.snapshot(node, version, at)?;
        let first = entry.leaf == self.first;
        let further = (!first).then(|| K::owned(self.keys.read(entry.fence, guard)));
        Some(Probe { words, further, fence: if first { 0 } else { entry.fence } })
    }

    /// Returns the items of a leaf, overlaid by the buffered ones. Returns `None` if the node
    /// changed.
    fn snapshot(&self, node: NodeRef<'_>, version: Version, at: usize) -> Option<Words> {
        let entry = node.entry(at);
        node.lock.validate(version).then_some(())?;
        let mut words = Words::default();
        let slots = self.pool.words(slot_offset(entry.leaf, 0), 2 * self.slots);
        words.copy(self.medium(), 0, slots, u64::from(entry.slots.bitmap & self.slots_mask()));
        if !(K::INLINE && self.values.are_words()) {
            words.iter().for_each(|(_, [key, value])| {
                self.keys.prefetch(key);
                self.values.prefetch(value);
            });
        }
        let mut buffered = [(0, 0, false); NODE_SLOTS_MAX];
        let mut count = 0;
        for item in node.all_buffered().filter(|item| item.owner == at) {
            buffered[count] = (item.key, item.value, item.removed);
            count += 1;
        }
        node.lock.validate(version).then_some(())?;
        for &(key, value, removed) in &buffered[..count] {
            overlay::<K, M>(&self.keys, &mut words, key, (!removed).then_some(value));
        }
        Some(words)
    }
}
