//! Reading a leaf in a scan. Each item is consistent at some point in time during the call that
//! collected its leaf; the leaf as a whole is not a snapshot.

use std::ops::Bound;

use bristlecone_pm::{Error, Medium, Result};

use super::NbTree;
use super::layout::{EMPTY, Stored};
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::optimistic_lock::Version;
use crate::index::parts::search::Level;
use crate::index::parts::slot::bits;
use crate::index::parts::volatile_index::VolatileIndex;
use crate::index::parts::words::Words;
use crate::index::scan::{Bounds, Leafwise, Outside, precedes, shorten, succeeds, value_or_noted};
use crate::index::visit::{Visiting, visit_leaf};
use crate::index::{Batch, Scan, Visit};

impl<K: KeyCodec, V: Storage, M: Medium> Scan<K, V> for NbTree<K, M> {
    fn scan_forward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        let _pinned = bristlecone_pm::sync::epoch::pin();
        Leafwise::ascend(self, bounds, into)
    }

    fn scan_backward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        let _pinned = bristlecone_pm::sync::epoch::pin();
        Leafwise::descend(self, bounds, into)
    }

    fn visit(
        &self,
        bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        visit: &mut Visit<'_, K, V>,
    ) -> Result<()> {
        let mut at = Visiting::default();
        let mut next = || {
            let _pinned = bristlecone_pm::sync::epoch::pin();
            visit_leaf::<K, V, _>(self, bounds, &mut at, visit)
        };
        while next()?.is_continue() {}
        Ok(())
    }
}

/// A scanning thread is pinned: leaves remain valid while it reads them.
impl<K: KeyCodec, M: Medium> Leafwise<K> for NbTree<K, M> {
    #[inline(always)]
    fn inner(&self) -> &VolatileIndex<K> {
        &self.inner
    }

    #[inline(always)]
    fn level(&self) -> Level {
        self.level
    }

    #[inline(always)]
    fn version(&self, leaf: u32) -> Option<Version> {
        self.version_of(leaf)
    }

    #[inline(always)]
    fn prefetch_descriptor(&self, leaf: u32) {
        crate::index::parts::prefetch(&raw const self.leaves.get(leaf).incarnation);
    }

    #[inline(always)]
    fn prefetch_items(&self, leaf: u32) {
        self.prefetch_block(self.leaves.block(leaf));
    }

    /// Returns `None` if its successors are valid by now.
    #[inline(always)]
    fn snapshot(&self, leaf: u32, _: Version, words: &mut Words) -> Option<()> {
        let leaf = self.leaves.get(leaf);
        for slot in bits(self.bitmap(leaf) & self.shape.all()) {
            let item = self.slot(leaf, slot);
            let value = self.resolve(item.value.load(self.medium()));
            if value != EMPTY {
                words.put(slot, item.key.load(self.medium()), value);
            }
        }
        self.make_all_durable(leaf);
        // The cells of the seals may belong to the successors by now, and have changed.
        (!leaf.succession().is_open()).then_some(())
    }

    #[inline(always)]
    fn prefetch_records(&self, leaf: u32) {
        let leaf = self.leaves.get(leaf);
        for slot in bits(self.bitmap(leaf) & self.shape.all()) {
            let item = self.slot(leaf, slot);
            self.prefetch_key(item.key.load(self.medium()));
            self.prefetch_value(item.value.load(self.medium()));
        }
    }

    #[inline(always)]
    fn prefetch_some(&self, leaf: u32, positions: &[u8]) {
        let leaf = self.leaves.get(leaf);
        for at in positions {
            let item = self.slot(leaf, usize::from(*at).min(self.shape.slots - 1));
            self.prefetch_key(item.key.load(self.medium()));
            self.prefetch_value(item.value.load(self.medium()));
        }
    }

    #[inline(always)]
    fn prefetch_key(&self, word: u64) {
        self.keys.prefetch(word);
    }

    #[inline(always)]
    fn prefetch_value(&self, word: u64) {
        self.prefetch_value_of(word);
    }

    #[inline(always)]
    fn key_at<'a>(&'a self, word: u64, guard: &'a K::Guard, lenient: bool) -> Result<K::Ref<'a>> {
        self.keys.read_in_scan(word, guard, lenient)
    }

    #[inline(always)]
    fn value_at<'a, V: Storage>(
        &'a self,
        word: u64,
        guard: &'a V::Guard,
        lenient: bool,
        damage: &mut Option<Error>,
    ) -> V::Ref<'a> {
        let word = match Stored::decode(word) {
            Stored::Plain(value) => value,
            Stored::Record(record) if V::INLINE => self.boxed_or_noted(record, lenient, damage),
            Stored::Empty | Stored::Sealed(_) | Stored::Record(_) => word,
        };
        value_or_noted::<V, M>(&self.values, word, guard, lenient, damage)
    }

    /// Collects items of a leaf or of its successors.
    fn collect<const DESCENDING: bool, V: Storage>(
        &self,
        leaf: u32,
        version: Version,
        bounds: Bounds<'_, '_, K>,
        into: &mut Batch<K, V>,
    ) -> Option<Outside> {
        let guards = (K::pin(), V::pin());
        self.prefetch_items(leaf);
        into.entries.clear();
        let mut outside = Outside::default();
        self.gather::<DESCENDING, V>((leaf, true), version, bounds, into, &mut outside, &guards);
        Some(outside)
    }
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Returns a word value that is stored in a record; notes a damaged one unless the caller is `lenient`.
    #[inline(never)]
    fn boxed_or_noted(&self, record: u64, lenient: bool, damage: &mut Option<Error>) -> u64 {
        self.boxed(record, lenient).unwrap_or_else(|error| {
            damage.get_or_insert(error);
            0
        })
    }

    /// `version` is that of the first leaf.
    fn gather<const DESCENDING: bool, V: Storage>(
        &self,
        (id, is_first): (u32, bool),
        version: Version,
        bounds: Bounds<'_, '_, K>,
        into: &mut Batch<K, V>,
        outside: &mut Outside,
        guards: &(K::Guard, V::Guard),
    ) {
        let mut words = Words::default();
        if self.snapshot(id, version, &mut words).is_some() {
            let own =
                self.append::<DESCENDING, V>(is_first.then_some((id, version)), &words, bounds, into, guards);
            outside.below |= own.below;
            outside.above |= own.above;
            return;
        }
        let succession = self.leaves.get(id).succession();
        if succession.is_removed() {
            return;
        }
        let left = succession.left();
        let Some(right) = succession.right() else {
            return self.gather::<DESCENDING, V>((left, false), version, bounds, into, outside, guards);
        };
        // Either successor may get keys that belonged to the other one: each contributes only its
        // own range.
        let (from, to) = (shorten::<K>(bounds.0), shorten::<K>(bounds.1));
        let middle = K::separator_at(self.inner.separators(), self.leaves.get(right).low(), &guards.0);
        let below = if succeeds::<K>(middle, to) { to } else { Bound::Excluded(middle) };
        let above = if precedes::<K>(middle, from) { from } else { Bound::Included(middle) };
        let mut halves = [(left, (from, below)), (right, (above, to))];
        if DESCENDING {
            halves.reverse();
        }
        let mut seen = [Outside::default(); 2];
        for ((successor, bounds), seen) in halves.into_iter().zip(&mut seen) {
            self.gather::<DESCENDING, V>((successor, false), version, bounds, into, seen, guards);
        }
        let (lower, upper) = if DESCENDING { (seen[1], seen[0]) } else { (seen[0], seen[1]) };
        outside.below |= lower.below || precedes::<K>(middle, from) && upper.below;
        outside.above |= upper.above || succeeds::<K>(middle, to) && lower.above;
    }
}
