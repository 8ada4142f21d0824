//! Room for leaves, and the promise that what was buffered can be flushed: a leaf that holds more
//! with its buffer than it has slots *overflows*, and there are always as many free slots in the
//! pool as leaves that overflow.

use std::sync::PoisonError;
use std::sync::RwLockReadGuard;
use std::sync::atomic::Ordering::Relaxed;

use bristlecone_pm::{Error, Medium, Result};

use super::Core;
use super::buffer::Locked;
use super::flush::{Item, Items};
use super::layout::{LEAF_BYTES, LeafWord};
use crate::shared::form::{KeyForm, ValueForm};

impl<K: KeyForm, V: ValueForm, M: Medium> Core<K, V, M> {
    pub(super) fn leaves_per_chunk(&self) -> u64 {
        self.pool.chunk_bytes() / LEAF_BYTES
    }

    /// Whether what pends for a leaf takes another leaf to be flushed.
    pub(super) fn overflows(&self, leaf: &Locked<'_>) -> bool {
        let state = leaf.state();
        if state.pending == 0 {
            return false;
        }
        let word = LeafWord::unpack(self.leaf(state.leaf).header.word.load(self.medium()));
        if word.bitmap.count_ones() as usize + state.pending < self.slots {
            return false;
        }
        let items = self.pending_items(leaf, &K::pin());
        self.room_for(state.leaf, &items).is_none()
    }

    /// What pends for a leaf, with the slots that the leaf has for it.
    pub(super) fn pending_items(&self, leaf: &Locked<'_>, guard: &K::Guard) -> Items {
        let state = leaf.state();
        let cells = self.leaf(state.leaf);
        let mut items = Items::default();
        for at in 0..state.pending {
            let (key, value) = leaf.slot(at);
            let item = Item { key, value, removed: state.is_removed(at) };
            let key = K::read(&self.keys, key, guard);
            let slot = self.locate_in_leaf(cells, key, guard, &|| true).ok().flatten();
            items.push(item, slot.map(|(slot, ..)| slot));
        }
        items
    }

    pub(super) fn count_overflow(&self, before: bool, after: bool) {
        match (before, after) {
            (false, true) => _ = self.overflowing.fetch_add(1, Relaxed),
            (true, false) => _ = self.overflowing.fetch_sub(1, Relaxed),
            _ => {}
        }
    }

    /// Whether a leaf may come to overflow, or does so already.
    pub(super) fn may_overflow(&self, leaf: &Locked<'_>) -> bool {
        self.overflows(leaf) || self.has_room_for_leaves(1)
    }

    /// Whether there is room for so many leaves beside those that were promised.
    pub(super) fn has_room_for_leaves(&self, leaves: u64) -> bool {
        let needed = self.overflowing.load(Relaxed) + leaves;
        let in_pool = self.pool.chunks_available() * self.leaves_per_chunk();
        if in_pool >= needed {
            return true;
        }
        let stats = self.leaves.stats();
        in_pool + stats.chunks * self.leaves_per_chunk() - stats.live_slots >= needed
    }

    /// A slot for a new leaf that takes over part of `split`.
    pub(super) fn alloc_leaf(&self, split: &Locked<'_>) -> Result<u64> {
        if !self.overflows(split) && !self.has_room_for_leaves(1) {
            return Err(Error::PoolFull { max_bytes: self.pool.info().max_bytes });
        }
        self.leaves.alloc()
    }

    /// Held by every writer where collection stops them.
    #[inline(always)]
    pub(super) fn pass_collection(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let naive = self.options.naive_collection != 0;
        naive.then(|| self.collection.stop.read().unwrap_or_else(PoisonError::into_inner))
    }
}
