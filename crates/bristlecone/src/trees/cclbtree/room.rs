//! Room for leaves, and the promise that what was buffered can be flushed: a leaf that holds more
//! with its buffer than it has slots *overflows*, and there are always as many free slots in the
//! pool as leaves that overflow.

use std::sync::RwLockReadGuard;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bristlecone_pm::{Error, Medium, Result, wait};

use super::Core;
use super::buffer::Locked;
use super::flush::Items;
use super::layout::{LEAF_BYTES, LeafWord};
use crate::shared::change::Item;
use crate::shared::form::{KeyForm, ValueForm};

/// Room for leaves that nobody else gets while this lives.
pub(super) struct Promise<'a> {
    promised: &'a AtomicU64,
    leaves: u64,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.promised.fetch_sub(self.leaves, Relaxed);
    }
}

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

    /// A leaf that overflows has a slot promised.
    pub(super) fn count_overflow(&self, before: bool, after: bool) {
        match (before, after) {
            (false, true) => _ = self.promised.fetch_add(1, Relaxed),
            (true, false) => _ = self.promised.fetch_sub(1, Relaxed),
            _ => {}
        }
    }

    /// Promises room for so many leaves beside those that were promised, if there is any.
    pub(super) fn promise(&self, leaves: u64) -> Option<Promise<'_>> {
        let needed = self.promised.fetch_add(leaves, Relaxed) + leaves;
        let promise = Promise { promised: &self.promised, leaves };
        let in_pool = || self.pool.chunks_available() * self.leaves_per_chunk();
        let in_heap = || {
            let stats = self.leaves.stats();
            stats.chunks * self.leaves_per_chunk() - stats.live_slots
        };
        (in_pool() >= needed || in_heap() + in_pool() >= needed).then_some(promise)
    }

    /// A slot for a new leaf that takes over part of `split`.
    pub(super) fn alloc_leaf(&self, split: &Locked<'_>) -> Result<u64> {
        if self.overflows(split) {
            return self.leaves.alloc();
        }
        let full = || Error::PoolFull { max_bytes: self.pool.max_bytes() };
        let _promise = self.promise(1).ok_or_else(full)?;
        self.leaves.alloc()
    }

    /// Held by every writer where collection stops them.
    #[inline(always)]
    pub(super) fn pass_collection(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.is_naive().then(|| wait::read(&self.collection.stop))
    }
}
