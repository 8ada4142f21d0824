//! Scanning: one leaf at a time, in order, with what is buffered for it. Not a snapshot of the
//! tree, but of each leaf.

use std::ops::Bound;

use bristlecone_pm::{Medium, Result};

use super::LodgeTree;
use super::layout::{leaf_bytes, slot_offset};
use super::node::NodeRef;
use super::places::NODE_SLOTS_MAX;
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::inner::{Cursor, Step};
use crate::shared::version_lock::Version;
use crate::shared::words::Words;
use crate::trees::Batch;
use crate::trees::scan::{Bounds, append, overlay, shorten, verified};

/// A leaf as a scan found it, and where the scan goes on.
struct Sight<K: KeyCodec> {
    words: Words,
    /// Where the leaf begins, or where the next one does. `None`: there is none before or after.
    further: Option<K::Owned>,
    /// The word of that fence, or 0.
    fence: u64,
}

/// Looks, told how often it did, until it saw something.
fn until_seen<T>(look: impl Fn(u32) -> Option<T>) -> T {
    (0..u32::MAX).find_map(look).expect("a reader who locks is a reader who sees")
}

impl<K: KeyCodec, V: Codec, M: Medium> LodgeTree<K, V, M> {
    /// See [`Index::scan_forward`](crate::trees::Index::scan_forward). Between two leaves the batch
    /// keeps where the next one begins.
    pub(super) fn ascend(&self, bounds: Bounds<'_, '_, K>, into: &mut Batch<K, V>) -> bool {
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
                let (locked, version) = self.nodes.get(id).hold(version, tries)?;
                // Who holds a lock waits for nobody to the right.
                let next_version = |node| match locked {
                    None => self.version_of(node),
                    Some(_) => self.version_if_free(node),
                };
                self.look_ahead(id, version, cursor, key, &guards.0, next_version)
            };
            let mut sight = until_seen(look);
            into.entries.clear();
            let read =
                (|word| K::read(&self.keys, word, &guards.0), |word| V::read(&self.values, word, &guards.1));
            let wanted = (from, shorten::<K>(bounds.1));
            if into.checked
                && let Err(error) = self.verify_fences(Some(key), sight.fence, &guards.0)
            {
                return into.fail(error);
            }
            if into.checked && !verified(&sight.words, wanted, into, read.0, self.verifiers()) {
                return false;
            }
            let outside = append::<K, V, true>(self.nodes.level(), &mut sight.words, wanted, into, read);
            into.ended = outside.above || sight.further.is_none();
            into.fence = Some(sight.further);
            if !into.entries.is_empty() {
                return true;
            }
        }
        false
    }

    /// See [`Index::scan_backward`](crate::trees::Index::scan_backward). Between two leaves the batch
    /// keeps where the last one begins.
    pub(super) fn descend(&self, bounds: Bounds<'_, '_, K>, into: &mut Batch<K, V>) -> bool {
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
                let (_locked, version) = self.nodes.get(id).hold(version, tries)?;
                self.look_back(id, version, to, &guards.0)
            };
            let mut sight = until_seen(look);
            into.entries.clear();
            let read =
                (|word| K::read(&self.keys, word, &guards.0), |word| V::read(&self.values, word, &guards.1));
            let wanted = (shorten::<K>(bounds.0), to);
            let aim = match to {
                Bound::Included(key) | Bound::Excluded(key) => Some(key),
                Bound::Unbounded => None,
            };
            if into.checked
                && let Err(error) = self.verify_fences(aim, sight.fence, &guards.0)
            {
                return into.fail(error);
            }
            if into.checked && !verified(&sight.words, wanted, into, read.0, self.verifiers()) {
                return false;
            }
            let outside = append::<K, V, false>(self.nodes.level(), &mut sight.words, wanted, into, read);
            into.ended = outside.below || sight.further.is_none();
            into.fence = Some(sight.further);
            if !into.entries.is_empty() {
                return true;
            }
        }
        false
    }

    /// Compares the fences of the node that a key leads to, or of the last one, with their checksums,
    /// and the one that a scan goes on from: a damaged one leads to another leaf.
    #[cold]
    fn verify_fences(&self, key: Option<K::Ref<'_>>, next: u64, guard: &K::Guard) -> Result<()> {
        if K::INLINE {
            return Ok(());
        }
        let fences = until_seen(|tries| {
            let version_of = |node| self.version_of(node);
            let (id, version) = match key {
                Some(key) => self.inner.find(key, guard, version_of),
                None => {
                    let (id, version, _) = self.inner.find_before(None, guard, version_of);
                    (id, version)
                }
            };
            let node = self.nodes.get(id);
            let (_locked, version) = node.hold(version, tries)?;
            let fences: Vec<u64> = (0..node.counts().index).map(|at| node.fence(at)).collect();
            node.lock.validate(version).then_some(fences)
        });
        // The first leaf has none.
        let fences = fences.into_iter().chain(std::iter::once(next)).filter(|&fence| fence != 0);
        fences.into_iter().try_for_each(|fence| K::verify(&self.keys, fence))
    }

    /// Returns what compares the records of a key's word, and of a value's, with their checksums.
    fn verifiers(&self) -> (impl Fn(u64) -> Result<()>, impl Fn(u64) -> Result<()>) {
        (|word| K::verify(&self.keys, word), |word| V::verify(&self.values, word))
    }

    /// The leaf that holds `key`, and where the next one begins. `None`: something changed.
    fn look_ahead(
        &self,
        id: u32,
        version: Version,
        cursor: Cursor,
        key: K::Ref<'_>,
        guard: &K::Guard,
        next_version: impl Fn(u32) -> Option<Version>,
    ) -> Option<Sight<K>> {
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
                Step::End => return still().then_some(Sight { words, further: None, fence: 0 }),
                Step::Lost => return None,
            }
        };
        let further = Some(K::owned(K::read(&self.keys, fence, guard)));
        // What was seen of both nodes was so at the moment when the second one was looked at.
        still().then_some(Sight { words, further, fence })
    }

    /// The last leaf with keys up to a bound, and where it begins. `None`: something changed.
    fn look_back(
        &self,
        id: u32,
        version: Version,
        to: Bound<K::Ref<'_>>,
        guard: &K::Guard,
    ) -> Option<Sight<K>> {
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
                let begins = at > 0 && K::read(&self.keys, fence, guard) == K::shorten(key);
                at - usize::from(begins)
            }
        };
        let entry = node.entry(at);
        still().then_some(())?;
        self.prefetch_leaf(entry.leaf);
        let words = self.snapshot(node, version, at)?;
        let first = entry.leaf == self.first;
        let further = (!first).then(|| K::owned(K::read(&self.keys, entry.fence, guard)));
        Some(Sight { words, further, fence: if first { 0 } else { entry.fence } })
    }

    /// The items of a leaf, and in their place what is buffered. `None`: the node changed.
    fn snapshot(&self, node: NodeRef<'_>, version: Version, at: usize) -> Option<Words> {
        let entry = node.entry(at);
        node.lock.validate(version).then_some(())?;
        let mut words = Words::default();
        let slots = self.pool.words(slot_offset(entry.leaf, 0), 2 * self.slots);
        words.copy(self.medium(), 0, slots, u64::from(entry.slots.bitmap & self.slots_mask()));
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

    /// Asks for the lines of a leaf.
    #[inline(always)]
    pub(super) fn prefetch_leaf(&self, leaf: u64) {
        self.pool.prefetch_lines(leaf, leaf_bytes(self.slots));
    }
}
