//! Scanning: one leaf at a time, in order. Not a snapshot of the tree, but of each leaf.

use std::ops::Bound;

use bristlecone_pm::{LINE_BYTES, Medium};

use super::inner::Aim;
use super::layout::SLOTS_MAX;
use super::leaf::{Read, Stale, View};
use super::read::{At, Path};
use super::{Pins, WoTree};
use crate::shared::form::{KeyForm, ValueForm};
use crate::trees::Batch;

/// What a leaf says besides its items.
struct Ends<K: KeyForm> {
    /// Where the next leaf begins; `None` at the right end.
    high: Option<K::Owned>,
    /// Whether it has items below, and above, what was asked for.
    below: bool,
    above: bool,
}

impl<K: KeyForm, V: ValueForm, M: Medium> WoTree<K, V, M> {
    /// See [`Index::scan_forward`](crate::trees::Index::scan_forward). The batch's fence is where
    /// the next leaf begins.
    pub(super) fn ascend(
        &self,
        bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        into: &mut Batch<K, V>,
    ) -> bool {
        let pins = self.pin();
        let mut path = Path::default();
        loop {
            let fence = into.fence.take();
            if matches!(fence, Some(None)) {
                return false;
            }
            let from = match (&fence, bounds.0) {
                (Some(Some(fence)), _) => K::borrow(fence),
                (_, Bound::Included(key) | Bound::Excluded(key)) => K::shorten(key),
                (_, Bound::Unbounded) => K::least(),
            };
            let Ok(at) = self.descend(Aim::At(from), &pins.keys, &mut path) else { return false };
            let Ok(ends) = self.collect(&at, bounds, &pins, into) else {
                into.fence = fence;
                continue;
            };
            into.entries.reverse();
            // A high key that does not rise is damage, and would lead nowhere.
            let high = ends.high.filter(|high| !ends.above && K::borrow(high) > K::shorten(from));
            into.fence = Some(high);
            if !into.entries.is_empty() {
                return true;
            }
        }
    }

    /// See [`Index::scan_backward`](crate::trees::Index::scan_backward).
    pub(super) fn descend_scan(
        &self,
        bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        into: &mut Batch<K, V>,
    ) -> bool {
        let pins = self.pin();
        let mut path = Path::default();
        loop {
            let fence = into.fence.take();
            if matches!(fence, Some(None)) {
                return false;
            }
            let aim = match (&fence, bounds.1) {
                (Some(Some(fence)), _) => Aim::Before(K::borrow(fence)),
                (_, Bound::Included(key)) => Aim::At(K::shorten(key)),
                (_, Bound::Excluded(key)) => Aim::Before(K::shorten(key)),
                (_, Bound::Unbounded) => Aim::End,
            };
            let Ok(at) = self.descend(aim, &pins.keys, &mut path) else { return false };
            let low = path.low.map(|low| K::owned(self.separator(low, &pins.keys)));
            let Ok(ends) = self.collect(&at, bounds, &pins, into) else {
                into.fence = fence;
                continue;
            };
            // The low key may be any between the leaf's own and the aim's: the leaf is then met again.
            let falls = |low: &K::Owned| match &fence {
                Some(Some(fence)) => low < fence,
                _ => true,
            };
            into.fence = Some(low.filter(|low| !ends.below && falls(low)));
            if !into.entries.is_empty() {
                return true;
            }
        }
    }

    /// Collects what is wanted of a leaf, ascending.
    fn collect(
        &self,
        at: &At<'_>,
        (from, to): (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        pins: &Pins<K, V>,
        into: &mut Batch<K, V>,
    ) -> Read<Ends<K>> {
        let medium = self.medium();
        let still = || at.lock.validate(at.version);
        self.pool.prefetch_lines(at.leaf + LINE_BYTES as u64, self.shape.node_bytes as usize - LINE_BYTES);
        let view = match self.view(at.leaf, &pins.keys, still) {
            Err(Stale) if still() => View::empty(),
            view => view?,
        };
        let mut words = [(0, 0); SLOTS_MAX];
        let slots = view.order.slots();
        for (words, &slot) in words.iter_mut().zip(slots) {
            let item = self.nodes.item(at.leaf, slot.into());
            *words = (item.key.load(medium), item.word.load(medium));
        }
        let link = self.nodes.leaf_link(at.leaf);
        let (next, high) = (link.next.load(medium), link.high.load(medium));
        if !still() {
            return Err(Stale);
        }
        let words = &words[..slots.len()];
        let key_of = |words: &(u64, u64)| K::read(&self.keys, words.0, &pins.keys);
        let start = words.partition_point(|words| precedes::<K>(key_of(words), from));
        let end = words.partition_point(|words| !succeeds::<K>(key_of(words), to));
        into.entries.clear();
        into.entries.extend(
            words[start..end.max(start)].iter().map(|words| {
                (K::owned(key_of(words)), V::owned(V::read(&self.values, words.1, &pins.values)))
            }),
        );
        let high = (next != 0).then(|| K::owned(self.separator(high, &pins.keys)));
        Ok(Ends { high, below: start > 0, above: end < words.len() })
    }
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
