//! Reading a leaf in a scan: the slots of all its subnodes.

use std::ops::Bound;

use bristlecone_pm::{Error, Medium, Result, Word};

use super::SsTree;
use super::layout::slot_offset;
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::optimistic_lock::Version;
use crate::index::parts::search::Level;
use crate::index::parts::slot::Slot;
use crate::index::parts::volatile_index::VolatileIndex;
use crate::index::parts::words::Words;
use crate::index::scan::{Leafwise, value_or_noted};
use crate::index::visit::{Visiting, visit_leaf};
use crate::index::{Batch, Scan, Visit};

const SLOT_WORDS: usize = size_of::<Slot>() / size_of::<Word>();

impl<K: KeyCodec, V: Storage, M: Medium> Scan<K, V> for SsTree<K, M> {
    fn scan_forward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        self.ascend(bounds, into)
    }

    fn scan_backward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        self.descend(bounds, into)
    }

    fn visit(
        &self,
        bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        visit: &mut Visit<'_, K, V>,
    ) -> Result<()> {
        let mut at = Visiting::default();
        while visit_leaf::<K, V, _>(self, bounds, &mut at, visit)?.is_continue() {}
        Ok(())
    }
}

impl<K: KeyCodec, M: Medium> Leafwise<K> for SsTree<K, M> {
    #[inline(always)]
    fn inner(&self) -> &VolatileIndex<K> {
        &self.inner
    }

    #[inline(always)]
    fn level(&self) -> Level {
        self.leaves.level
    }

    #[inline(always)]
    fn version(&self, leaf: u32) -> Option<Version> {
        self.version_of(leaf)
    }

    #[inline(always)]
    fn prefetch_descriptor(&self, leaf: u32) {
        self.leaves.prefetch(leaf);
    }

    #[inline(always)]
    fn prefetch_items(&self, leaf: u32) {
        let view = self.leaves.get(leaf).view();
        for (at, &subnode) in view.subnodes.iter().enumerate().take(view.count) {
            // Nothing is read behind the last taken slot.
            let slots = u64::BITS - view.taken(self.shape, at).leading_zeros();
            let end = slot_offset(0, slots as usize) as usize;
            self.pool.prefetch_lines(subnode, end);
        }
    }

    #[inline(always)]
    fn snapshot(&self, leaf: u32, version: Version, words: &mut Words) -> Option<()> {
        let leaf = self.leaves.get(leaf);
        let view = leaf.view();
        leaf.lock.validate(version).then_some(())?;
        for (at, &subnode) in view.subnodes.iter().enumerate().take(view.count) {
            let slots = self.pool.words(slot_offset(subnode, 0), self.shape.slots * SLOT_WORDS);
            words.copy(self.medium(), at * self.shape.stride, slots, view.taken(self.shape, at));
        }
        leaf.lock.validate(version).then_some(())
    }

    #[inline(always)]
    fn prefetch_records(&self, leaf: u32) {
        self.prefetch_records_of(&self.leaves.get(leaf).view());
    }

    #[inline(always)]
    fn prefetch_some(&self, leaf: u32, positions: &[u8]) {
        let view = self.leaves.get(leaf).view();
        for at in positions {
            let (at, slot) = (usize::from(*at) / self.shape.stride, usize::from(*at) % self.shape.stride);
            if at < view.count && slot < self.shape.slots {
                let item = self.pool.at::<Slot>(slot_offset(view.subnodes[at], slot));
                self.prefetch_key(item.key.load(self.medium()));
                self.prefetch_value(item.value.load(self.medium()));
            }
        }
    }

    #[inline(always)]
    fn prefetch_key(&self, word: u64) {
        self.keys.prefetch(word);
    }

    #[inline(always)]
    fn prefetch_value(&self, word: u64) {
        self.values.prefetch(word);
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
        value_or_noted::<V, M>(&self.values, word, guard, lenient, damage)
    }
}
