//! Scanning: one leaf at a time, in order. Not a snapshot of the tree, but of each leaf.

use std::ops::Bound;

use bristlecone_pm::{LINE_BYTES, Medium, Word};

use super::SsTree;
use super::layout::{Slot, slot_offset};
use super::leaf::{Leaf, bits};
use crate::shared::form::{KeyForm, ValueForm};
use crate::shared::inner::Step;
use crate::shared::prefetch;
use crate::shared::search::{ORDER_MAX, order_keys};
use crate::shared::version_lock::Version;
use crate::trees::Batch;

/// How many leaves a scan asks for before it needs them.
const AHEAD: usize = 3;

/// Whether a leaf has items on either side of the bounds within which it was collected.
struct Outside {
    below: bool,
    above: bool,
}

impl<K: KeyForm, V: ValueForm, M: Medium> SsTree<K, V, M> {
    /// See [`Index::scan_forward`](crate::trees::Index::scan_forward).
    pub(super) fn ascend(
        &self,
        bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        into: &mut Batch<K, V>,
    ) -> bool {
        let guard = K::pin();
        let version_of = |leaf| self.version_of(leaf);
        while !into.ended {
            let step = into.cursor.take().map_or(Step::Lost, |at| self.inner.next(at, version_of));
            let (leaf, version, cursor) = match step {
                Step::Leaf(leaf, version, cursor) => (leaf, version, cursor),
                Step::End => return false,
                Step::Lost => {
                    let key = match bounds.0 {
                        Bound::Included(key) | Bound::Excluded(key) => Some(key),
                        Bound::Unbounded => None,
                    };
                    self.inner.seek(key, &guard, version_of)
                }
            };
            for places in 1..=AHEAD {
                if let Some(ahead) = self.inner.ahead(cursor, places) {
                    self.leaves.prefetch(ahead);
                }
            }
            let next = self.inner.ahead(cursor, 1);
            let collected = self.collect::<true>(self.leaves.get(leaf), version, bounds, next, into);
            let Some(outside) = collected else { continue };
            into.ended = outside.above;
            into.cursor = Some(cursor);
            if !into.entries.is_empty() {
                return true;
            }
        }
        false
    }

    /// See [`Index::scan_backward`](crate::trees::Index::scan_backward).
    pub(super) fn descend(
        &self,
        bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        into: &mut Batch<K, V>,
    ) -> bool {
        let guard = K::pin();
        let (from, to) = (shorten::<K>(bounds.0), shorten::<K>(bounds.1));
        // The leaf of an included bound may begin with it; every other leaf begins before.
        let mut inclusive = matches!(to, Bound::Included(_)) && into.fence.is_none();
        loop {
            let fence = into.fence.take();
            if matches!(fence, Some(None)) {
                return false;
            }
            let (leaf, version, low) = match (&fence, to) {
                (Some(Some(fence)), _) => {
                    self.inner.find_before(Some(K::borrow(fence)), &guard, |leaf| self.version_of(leaf))
                }
                (_, Bound::Included(key)) if inclusive => {
                    let (leaf, version) = self.inner.find(key, &guard, |leaf| self.version_of(leaf));
                    // What lies before the key is looked for from the key on.
                    (leaf, version, Some(K::owned(key)))
                }
                (_, Bound::Included(key) | Bound::Excluded(key)) => {
                    self.inner.find_before(Some(key), &guard, |leaf| self.version_of(leaf))
                }
                (_, Bound::Unbounded) => self.inner.find_before(None, &guard, |leaf| self.version_of(leaf)),
            };
            let bounds = if inclusive { (to, to) } else { (from, to) };
            let collected = self.collect::<false>(self.leaves.get(leaf), version, bounds, None, into);
            let Some(outside) = collected else {
                into.fence = fence;
                continue;
            };
            into.fence = Some(low.filter(|_| inclusive || !outside.below));
            inclusive = false;
            if !into.entries.is_empty() {
                return true;
            }
        }
    }

    /// Collects what is wanted of a leaf, in `DESCENDING` order or ascending, while the lines of
    /// the `next` one are on their way. `None`: the leaf changed meanwhile.
    fn collect<const DESCENDING: bool>(
        &self,
        leaf: Leaf<'_>,
        version: Version,
        (from, to): (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        next: Option<u32>,
        into: &mut Batch<K, V>,
    ) -> Option<Outside> {
        let guards = (K::pin(), V::pin());
        self.prefetch_leaf(leaf);
        if let Some(next) = next {
            self.prefetch_leaf(self.leaves.get(next));
        }
        let (mut keys, mut values) = ([0; ORDER_MAX], [0; ORDER_MAX]);
        let len = self.snapshot(leaf, version, &mut keys, &mut values)?;
        let key_of = |at: u8| K::read(&self.keys, keys[at as usize % ORDER_MAX], &guards.0);
        let mut order = [0; ORDER_MAX];
        if K::INLINE {
            // Words order as their keys do.
            order_keys(self.leaves.level, &keys, len, &mut order);
        } else {
            (0..len).for_each(|at| order[at] = at as u8);
            order[..len].sort_unstable_by(|&a, &b| key_of(a).cmp(&key_of(b)));
        }
        let (mut start, mut end) = (0, len);
        if len > 0 && precedes::<K>(key_of(order[0]), from) {
            start = order[..len].partition_point(|&at| precedes::<K>(key_of(at), from));
        }
        if len > 0 && succeeds::<K>(key_of(order[len - 1]), to) {
            end = order[..len].partition_point(|&at| !succeeds::<K>(key_of(at), to)).max(start);
        }
        let entry = |&at: &u8| {
            let value = V::read(&self.values, values[at as usize % ORDER_MAX], &guards.1);
            (K::owned(key_of(at)), V::owned(value))
        };
        into.entries.clear();
        if DESCENDING {
            into.entries.extend(order[start..end].iter().rev().map(entry));
        } else {
            into.entries.extend(order[start..end].iter().map(entry));
        }
        Some(Outside { below: start > 0, above: end < len })
    }

    /// Reads the words of a leaf, unsorted: how many. `None`: it changed meanwhile.
    #[inline(always)]
    fn snapshot(
        &self,
        leaf: Leaf<'_>,
        version: Version,
        keys: &mut [u64; ORDER_MAX],
        values: &mut [u64; ORDER_MAX],
    ) -> Option<usize> {
        let view = leaf.view();
        if !leaf.lock.validate(version) {
            return None;
        }
        let mut len = 0;
        for (at, &subnode) in view.subnodes.iter().enumerate().take(view.count) {
            let slots: &[Slot] = self.pool.slice(slot_offset(subnode, 0), self.shape.slots);
            for slot in bits(view.taken(self.shape, at)) {
                let item = &slots[slot];
                keys[len % ORDER_MAX] = item.key.load(self.medium());
                values[len % ORDER_MAX] = item.value.load(self.medium());
                len += 1;
            }
        }
        leaf.lock.validate(version).then_some(len)
    }

    /// Asks for the lines of a leaf that is read soon.
    #[inline(always)]
    fn prefetch_leaf(&self, leaf: Leaf<'_>) {
        let view = leaf.view();
        for &subnode in view.subnodes.iter().take(view.count) {
            let words: &[Word] = self.pool.words(subnode, self.shape.subnode_bytes / 8);
            for line in words.chunks_exact(LINE_BYTES / 8) {
                prefetch(line.as_ptr());
            }
        }
    }
}

fn shorten<'long: 'short, 'short, K: KeyForm>(bound: Bound<K::Ref<'long>>) -> Bound<K::Ref<'short>> {
    bound.map(K::shorten)
}

/// Whether a key lies before everything that a lower bound lets in.
fn precedes<K: KeyForm>(key: K::Ref<'_>, from: Bound<K::Ref<'_>>) -> bool {
    match from {
        Bound::Included(bound) => K::shorten(key) < K::shorten(bound),
        Bound::Excluded(bound) => K::shorten(key) <= K::shorten(bound),
        Bound::Unbounded => false,
    }
}

/// Whether a key lies behind everything that an upper bound lets in.
fn succeeds<K: KeyForm>(key: K::Ref<'_>, to: Bound<K::Ref<'_>>) -> bool {
    match to {
        Bound::Included(bound) => K::shorten(key) > K::shorten(bound),
        Bound::Excluded(bound) => K::shorten(key) >= K::shorten(bound),
        Bound::Unbounded => false,
    }
}
