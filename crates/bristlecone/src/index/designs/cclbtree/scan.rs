//! Reading a leaf in a scan: its items, overlaid by the newer ones of its buffer.

use std::ops::Bound;

use bristlecone_pm::{Error, Medium, Result};

use super::buffer::BATCH_MAX;
use super::layout::{LeafWord, SLOTS_OFFSET};
use super::{CclBTree, Core};
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::optimistic_lock::Version;
use crate::index::parts::prefetch;
use crate::index::parts::search::Level;
use crate::index::parts::slot::bits;
use crate::index::parts::volatile_index::VolatileIndex;
use crate::index::parts::words::Words;
use crate::index::scan::{Leafwise, overlay, value_or_noted};
use crate::index::{Batch, Scan};

impl<K: KeyCodec, V: Storage, M: Medium> Scan<K, V> for CclBTree<K, M> {
    fn scan_forward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        self.ascend(bounds, into)
    }

    fn scan_backward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        self.descend(bounds, into)
    }
}

impl<K: KeyCodec, M: Medium> Leafwise<K> for Core<K, M> {
    // Leaves are small: they are processed before a line arrives that was prefetched one leaf ago.
    const AHEAD: usize = 6;
    const ITEMS_AHEAD: usize = 3;

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
        prefetch(std::ptr::from_ref(&*self.buffers.get(leaf)));
    }

    #[inline(always)]
    fn prefetch_items(&self, leaf: u32) {
        self.prefetch_leaf(self.buffers.leaf_of(leaf));
    }

    #[inline(always)]
    fn snapshot(&self, leaf: u32, version: Version, words: &mut Words) -> Option<()> {
        let buffer = self.buffers.get(leaf);
        let state = buffer.state();
        let cells = self.leaf(state.leaf);
        let taken = LeafWord::unpack(cells.header.word.load(self.medium())).bitmap & self.slots_mask();
        words.copy(self.medium(), 0, self.pool.words(state.leaf + SLOTS_OFFSET, 2 * self.slots), taken);
        if !K::INLINE && state.pending > 0 {
            // They are compared with the pending items.
            words.iter().for_each(|(_, [key, _])| self.prefetch_key(key));
        }
        let mut pending = [(0, 0); BATCH_MAX];
        for (at, item) in pending.iter_mut().enumerate().take(state.pending.min(self.buffers.batch())) {
            *item = buffer.slot(at);
        }
        buffer.lock.validate(version).then_some(())?;
        for (at, &(key, value)) in pending.iter().enumerate().take(state.pending) {
            overlay::<K, M>(&self.keys, words, key, (!state.is_removed(at)).then_some(value));
        }
        Some(())
    }

    #[inline(always)]
    fn prefetch_records(&self, leaf: u32) {
        let leaf = self.buffers.leaf_of(leaf);
        let taken =
            LeafWord::unpack(self.leaf(leaf).header.word.load(self.medium())).bitmap & self.slots_mask();
        for slot in bits(taken) {
            let item = self.slot(leaf, slot);
            self.prefetch_key(item.key.load(self.medium()));
            self.prefetch_value(item.value.load(self.medium()));
        }
    }

    #[inline(always)]
    fn prefetch_some(&self, leaf: u32, positions: &[u8]) {
        let leaf = self.buffers.leaf_of(leaf);
        // Positions behind the slots are those of buffered items.
        for at in positions.iter().map(|at| usize::from(*at)).filter(|at| *at < self.slots) {
            let item = self.slot(leaf, at);
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
