//! Scans: one leaf at a time, in order. Each leaf is consistent; the tree as a whole is not a snapshot.

use std::ops::{Bound, Range};

use bristlecone_pm::sync::wait::again;
use bristlecone_pm::{Error, LINE_BYTES, Medium, Result};

use super::inner::Aim;
use super::layout::SLOTS_MAX;
use super::leaf::{Read, View, WRONG_ORDER};
use super::read::{At, NoTrail, Path};
use super::{Pins, WoTree};
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::optimistic_lock::Stale;
use crate::index::scan::{precedes, succeeds};
use crate::index::visit::behind;
use crate::index::{Batch, Scan, Visit};

/// The bounds of a leaf.
struct Ends<K: KeyCodec> {
    /// The low fence of the next leaf; `None` at the right end.
    high: Option<K::Owned>,
    /// Whether it has items below, and above, the requested bounds.
    below: bool,
    above: bool,
}

impl<K: KeyCodec, V: Storage, M: Medium> Scan<K, V> for WoTree<K, M> {
    fn scan_forward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        let pins = self.pin::<V>();
        let mut leaf = [(0, 0); SLOTS_MAX];
        while let Some((wanted, goes_on)) = self.next_leaf(bounds, &pins, &mut leaf, into) {
            into.entries.clear();
            into.entries.extend(self.items(&leaf[wanted], &pins).map(owned::<K, V>).rev());
            if !goes_on || !into.entries.is_empty() {
                return goes_on;
            }
        }
        false
    }

    fn scan_backward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        let pins = self.pin::<V>();
        let mut leaf = [(0, 0); SLOTS_MAX];
        let mut path = Path::default();
        let mut round = 0;
        loop {
            again(&mut round);
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
            let at = match self.reach(aim, &pins.keys, &mut path, into.lenient) {
                Ok(at) => at,
                Err(error) => return self.cut_short(error, into),
            };
            let low = path.low.map(|low| K::owned(self.separator(low, &pins.keys)));
            let Ok((wanted, ends)) = self.collect(&at, bounds, &pins, &mut leaf, into) else {
                into.fence = fence;
                continue;
            };
            into.entries.clear();
            if into.damage.is_some() {
                return false;
            }
            into.entries.extend(self.items(&leaf[wanted], &pins).map(owned::<K, V>));
            // The low key may be any between the leaf's own and the target: the leaf is then visited again.
            let falls = |low: &K::Owned| match &fence {
                Some(Some(fence)) => low < fence,
                _ => true,
            };
            let low = low.filter(|_| !ends.below);
            if low.as_ref().is_some_and(|low| !falls(low)) {
                self.meet_damage("a range that ends before it begins", at.leaf, into);
            }
            into.fence = Some(low.filter(falls));
            if into.damage.is_some() {
                into.entries.clear();
                return false;
            }
            if !into.entries.is_empty() {
                return true;
            }
        }
    }

    fn visit(
        &self,
        bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        visit: &mut Visit<'_, K, V>,
    ) -> Result<()> {
        let mut leaf = [(0, 0); SLOTS_MAX];
        let (mut batch, mut last) = (Batch::default(), None);
        loop {
            let pins = self.pin::<V>();
            let next = self.next_leaf(behind::<K>(&last, bounds), &pins, &mut leaf, &mut batch);
            let Some((wanted, goes_on)) = next.filter(|_| batch.damage.is_none()) else {
                return batch.damage.map_or(Ok(()), Err);
            };
            let mut shown = None;
            for (key, value) in self.items(&leaf[wanted], &pins) {
                if visit.see(key, value).is_break() {
                    return Ok(());
                }
                shown = Some(key);
            }
            last = shown.map(K::owned).or(last);
            if !goes_on {
                return Ok(());
            }
        }
    }
}

/// The words of a leaf's items: keys and values.
type LeafWords = [(u64, u64); SLOTS_MAX];

/// Returns an owned item.
fn owned<K: KeyCodec, V: Storage>((key, value): (K::Ref<'_>, V::Ref<'_>)) -> (K::Owned, V::Owned) {
    (K::owned(key), V::owned(value))
}

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    /// Reads the next leaf of an ascending scan, starting at the fence of the `batch`, and sets the fence to the
    /// beginning of the leaf behind it. Returns the requested items of the leaf, and whether the scan continues; `None`
    /// at its end, or after an error recorded in the batch.
    fn next_leaf<V: Storage>(
        &self,
        bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        pins: &Pins<K, V>,
        leaf: &mut LeafWords,
        batch: &mut Batch<K, V>,
    ) -> Option<(Range<usize>, bool)> {
        let mut path = Path::default();
        let mut round = 0;
        loop {
            again(&mut round);
            let fence = batch.fence.take();
            if matches!(fence, Some(None)) {
                return None;
            }
            let from = match (&fence, bounds.0) {
                (Some(Some(fence)), _) => K::borrow(fence),
                (_, Bound::Included(key) | Bound::Excluded(key)) => K::shorten(key),
                (_, Bound::Unbounded) => K::least(),
            };
            let at = match self.reach(Aim::At(from), &pins.keys, &mut path, batch.lenient) {
                Ok(at) => at,
                Err(error) => {
                    self.cut_short(error, batch);
                    return None;
                }
            };
            let begins = |low| self.separator(low, &pins.keys) == from;
            if matches!(fence, Some(Some(_)))
                && !path.low.is_some_and(begins)
                && !self.follows(&at, from, &pins.keys)
            {
                self.meet_damage("leaves are passed over on the way to it", at.leaf, batch);
            }
            let Ok((wanted, ends)) = self.collect(&at, bounds, pins, leaf, batch) else {
                batch.fence = fence;
                continue;
            };
            let high = ends.high.filter(|_| !ends.above);
            if high.as_ref().is_some_and(|high| K::borrow(high) <= K::shorten(from)) {
                // Such a fence would not advance the scan.
                batch.fence = Some(None);
                self.meet_damage("a range that ends before it begins", at.leaf, batch);
            } else {
                if high.is_none() && !ends.above && self.is_cut_off(&at, &pins.keys) {
                    self.meet_damage("a last leaf that is not the last", at.leaf, batch);
                }
                batch.fence = Some(high);
            }
            return Some((wanted, batch.damage.is_none()));
        }
    }

    /// Records why a scan ends before the last leaf.
    #[cold]
    fn cut_short<V: Storage>(&self, error: Error, into: &mut Batch<K, V>) -> bool {
        self.note_error(&error);
        into.fail(error)
    }

    /// Records damage. A lenient scan continues behind it, others end here.
    #[cold]
    fn meet_damage<V: Storage>(&self, what: &str, node: u64, into: &mut Batch<K, V>) {
        self.note_damage(what, node);
        if !into.lenient {
            into.fail(self.damaged(what, node));
        }
    }

    /// Returns whether a leaf is the one that a key's left neighbour links to. Called if it does not begin where the
    /// previous leaf ended: then one of them changed concurrently, or an inner node is damaged.
    #[cold]
    fn follows(&self, at: &At<'_>, from: K::Ref<'_>, guard: &K::Guard) -> bool {
        let before = self.descend(Aim::Before(from), guard, &mut NoTrail);
        before.is_ok_and(|before| {
            let next = self.nodes.leaf_link(before.leaf).next.load(self.medium());
            let neighbours = [before.leaf, next].contains(&at.leaf);
            neighbours || !before.lock.validate(before.version) || !at.lock.validate(at.version)
        })
    }

    /// Returns whether a leaf is marked as the last one, and others contradict this. Called once per scan.
    pub(super) fn is_cut_off(&self, at: &At<'_>, guard: &K::Guard) -> bool {
        let last = self.descend(Aim::End, guard, &mut NoTrail);
        // While its version is valid, nothing was linked behind it.
        last.map_or(true, |last| last.leaf != at.leaf) && at.lock.validate(at.version)
    }

    /// Returns the items of validated words, except those without readable records.
    fn items<'w, V: Storage>(
        &'w self,
        words: &'w [(u64, u64)],
        pins: &'w Pins<K, V>,
    ) -> impl DoubleEndedIterator<Item = (K::Ref<'w>, V::Ref<'w>)> {
        words.iter().filter(|words| self.is_there::<V>(words)).map(|&(key, value)| {
            (self.keys.read(key, &pins.keys), self.values.of::<V>().read(value, &pins.values))
        })
    }

    /// Reads the words of a leaf, ascending. Returns the requested ones.
    fn collect<V: Storage>(
        &self,
        at: &At<'_>,
        (from, to): (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        pins: &Pins<K, V>,
        words: &mut LeafWords,
        into: &mut Batch<K, V>,
    ) -> Read<(Range<usize>, Ends<K>)> {
        let medium = self.medium();
        let still = || at.lock.validate(at.version);
        self.pool.prefetch_lines(at.leaf + LINE_BYTES as u64, self.shape.node_bytes as usize - LINE_BYTES);
        let view = match self.view(at.leaf, &pins.keys, still) {
            Err(Stale) if still() => {
                self.meet_damage("a reference to no leaf", at.leaf, into);
                View::empty()
            }
            view => view?,
        };
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
        if !view.is_sound() {
            self.meet_damage(WRONG_ORDER, at.leaf, into);
        }
        let words = &words[..slots.len()];
        for &(key, value) in words {
            self.keys.prefetch(key);
            self.values.of::<V>().prefetch(value);
        }
        let key_of = |words: &(u64, u64)| self.keys.read(words.0, &pins.keys);
        if !into.lenient
            && let Err(error) = self
                .verify_items(words, (from, to), pins)
                .and_then(|()| if next == 0 { Ok(()) } else { self.separators.verify_held(high, &pins.keys) })
        {
            self.note_error(&error);
            into.fail(error);
            return Ok((0..0, Ends { high: None, below: true, above: true }));
        }
        let start = words.partition_point(|words| precedes::<K>(key_of(words), from));
        let end = words.partition_point(|words| !succeeds::<K>(key_of(words), to));
        let high = (next != 0).then(|| K::owned(self.separator(high, &pins.keys)));
        Ok((start..end.max(start), Ends { high, below: start > 0, above: end < words.len() }))
    }

    /// Verifies the checksums of the records of all keys, and of the requested values.
    fn verify_items<V: Storage>(
        &self,
        words: &[(u64, u64)],
        (from, to): (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        pins: &Pins<K, V>,
    ) -> Result<()> {
        words.iter().try_for_each(|&(key, value)| {
            self.keys.verify_held(key, &pins.keys)?;
            let found = self.keys.read(key, &pins.keys);
            let wanted = !precedes::<K>(found, from) && !succeeds::<K>(found, to);
            if wanted { self.verify_value::<V>(key, value, &pins.values) } else { Ok(()) }
        })
    }
}
