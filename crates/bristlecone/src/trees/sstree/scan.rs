//! Scanning: one leaf at a time, in order. Not a snapshot of the tree, but of each leaf.

use std::ops::Bound;

use bristlecone_pm::{LINE_BYTES, Medium, Word};

use super::SsTree;
use super::layout::{Slot, slot_offset};
use super::leaf::{Leaf, bits};
use crate::shared::form::{KeyForm, ValueForm};
use crate::shared::inner::Step;
use crate::shared::prefetch;
use crate::shared::search::{RANKS, rank_keys};
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
            // A leaf that comes after the last one has nothing before it.
            let (leaf, version, cursor, from) = match step {
                Step::Leaf(leaf, version, cursor) => (leaf, version, cursor, Bound::Unbounded),
                Step::End => return false,
                Step::Lost => {
                    let key = match bounds.0 {
                        Bound::Included(key) | Bound::Excluded(key) => Some(key),
                        Bound::Unbounded => None,
                    };
                    let (leaf, version, cursor) = self.inner.seek(key, &guard, version_of);
                    self.prefetch_leaf(self.leaves.get(leaf));
                    (leaf, version, cursor, bounds.0)
                }
            };
            for places in 1..=AHEAD {
                if let Some(ahead) = self.inner.ahead(cursor, places) {
                    self.leaves.prefetch(ahead);
                }
            }
            let next = self.inner.ahead(cursor, 1);
            let collected =
                self.collect::<true>(self.leaves.get(leaf), version, (from, bounds.1), next, into);
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
            self.prefetch_leaf(self.leaves.get(leaf));
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
        if let Some(next) = next {
            self.prefetch_leaf(self.leaves.get(next));
        }
        let (mut keys, mut values) = ([0; RANKS], [0; RANKS]);
        let mut len = self.snapshot(leaf, version, &mut keys, &mut values)?;
        let key_of = |word: u64| K::read(&self.keys, word, &guards.0);

        let mut outside = Outside { below: false, above: false };
        if !matches!((from, to), (Bound::Unbounded, Bound::Unbounded)) {
            let mut kept = 0;
            for at in 0..len {
                let (below, above) =
                    (precedes::<K>(key_of(keys[at]), from), succeeds::<K>(key_of(keys[at]), to));
                (keys[kept], values[kept]) = (keys[at], values[at]);
                kept += usize::from(!below & !above);
                outside.below |= below;
                outside.above |= above;
            }
            len = kept;
        }
        let mut ranks = [0; RANKS];
        if K::INLINE {
            // Words order as their keys do.
            rank_keys(self.leaves.level, &keys, len, &mut ranks);
        } else {
            let mut order: [u8; RANKS] = std::array::from_fn(|at| at as u8);
            order[..len].sort_unstable_by(|&a, &b| key_of(keys[a as usize]).cmp(&key_of(keys[b as usize])));
            (0..len).for_each(|rank| ranks[order[rank] as usize] = rank as u32);
        }
        into.entries.clear();
        into.entries.reserve(RANKS);
        let spare = &mut into.entries.spare_capacity_mut()[..len];
        for at in 0..len {
            let rank = ranks[at] as usize;
            let value = V::read(&self.values, values[at], &guards.1);
            let place = if DESCENDING { len - 1 - rank } else { rank };
            spare[place].write((K::owned(key_of(keys[at])), V::owned(value)));
        }
        // SAFETY: ranks are a permutation, so each of the first `len` entries was written.
        unsafe { into.entries.set_len(len) };
        Some(outside)
    }

    /// Reads the words of a leaf, unsorted: how many. `None`: it changed meanwhile.
    #[inline(always)]
    fn snapshot(
        &self,
        leaf: Leaf<'_>,
        version: Version,
        keys: &mut [u64; RANKS],
        values: &mut [u64; RANKS],
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
                keys[len % RANKS] = item.key.load(self.medium());
                values[len % RANKS] = item.value.load(self.medium());
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
