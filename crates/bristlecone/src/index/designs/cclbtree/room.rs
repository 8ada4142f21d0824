//! Space for leaves, and the guarantee that buffered items can be flushed. A leaf that has more items than slots,
//! buffer included, *overflows*. There are always as many free slots in the pool as overflowing leaves. A leaf
//! that no thread has searched since keys were buffered may overflow, and counts as such.
//!
//! Another tree of the pool may take these slots, and the medium may be full before the pool is: from then on the
//! guarantee covers only the available bytes. Items in the tree can still be changed and removed: in place in the leaf,
//! or, if they are pending, by an entry behind the copies that collection makes in the spare chunk. This fails if
//! overflowing leaves have more pending items than a chunk holds, until there is space for a chunk again. It also fails
//! after a crash in the middle of a collection, which finds the spare chunk in use.
//!
//! A write without space fails only after it has collected the whole log, a few times at most and until that frees
//! nothing. It also frees all records that no reader holds any more.

use bristlecone_pm::sync::{AtomicU64, Ordering::Acquire, Ordering::Release};
use bristlecone_pm::{Manifest, ManifestReader, Medium, Memory, Result};

use super::Core;
use super::buffer::{Locked, State};
use super::flush::{Items, growth};
use super::layout::{LEAF_BYTES, Leaf, LeafWord};
use crate::index::parts::buffered::{Item, Pending};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::counter::Counter;

/// Number of chunks, beyond the needs of all leaves, that count as plenty.
const PLENTY_CHUNKS: u64 = 2;

/// Numbers of reserved leaves.
#[derive(Debug, Default)]
pub(super) struct Promised {
    /// Reserved by active writes.
    under_way: AtomicU64,
    /// Reserved for overflowing leaves.
    overflowing: Counter,
    /// Reserved for leaves whose pending items are uncounted.
    pub uncounted: Counter,
}

impl Promised {
    /// Returns empty reservations; the uncounted number is visible to followers.
    pub(super) fn new(memory: &Memory) -> Self {
        Self { uncounted: Counter::new(memory), ..Self::default() }
    }

    /// Saves the reservations after the last write.
    pub(super) fn save(&self, manifest: &mut Manifest) -> Option<()> {
        if !manifest.is_live() {
            self.overflowing.save(manifest)?;
        }
        self.uncounted.save(manifest)
    }

    /// Takes over the reservations saved by [`save`](Self::save).
    pub(super) fn resume(manifest: &mut ManifestReader<'_>) -> Option<Self> {
        let overflowing = if manifest.is_live() { Counter::default() } else { Counter::resume(manifest)? };
        let uncounted = Counter::resume(manifest)?;
        Some(Self { overflowing, uncounted, ..Self::default() })
    }
}

/// An exclusive reservation of space for leaves, until dropped.
pub(super) struct Promise<'a> {
    under_way: &'a AtomicU64,
    leaves: u64,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        // Pairs with the addition in `promise`: a thread that does not count the reservation counts its result.
        self.under_way.fetch_sub(self.leaves, Release);
    }
}

impl<K: KeyCodec, M: Medium> Core<K, M> {
    pub(super) fn leaves_per_chunk(&self) -> u64 {
        self.pool.chunk_bytes() / LEAF_BYTES
    }

    /// Returns whether flushing a leaf's pending items needs another leaf.
    pub(super) fn overflows(&self, leaf: &Locked<'_>) -> bool {
        let state = leaf.state();
        if state.pending == 0 {
            return false;
        }
        let word = LeafWord::unpack(self.leaf(state.leaf).header.word.load(self.medium()));
        if word.bitmap.count_ones() as usize + state.pending < self.slots {
            return false;
        }
        self.room_for(state.leaf, &self.pending_items(leaf, None, &K::pin())).is_none()
    }

    /// Returns the pending items of a leaf, with the leaf's slots for them, except the pending slot `except`.
    #[inline(always)]
    pub(super) fn pending_items(&self, leaf: &Locked<'_>, except: Option<usize>, guard: &K::Guard) -> Items {
        let state = leaf.state();
        let cells = self.leaf(state.leaf);
        let slots = (0..state.pending).filter(|at| Some(*at) != except);
        let item = |at| {
            let (key, value) = leaf.slot(at);
            self.pending(cells, Item { key, value, removed: state.is_removed(at) }, guard)
        };
        slots.map(item).collect()
    }

    /// Returns an item to be merged into a leaf, with the leaf's slot for its key.
    #[inline(always)]
    pub(super) fn pending(&self, cells: &Leaf, item: Item, guard: &K::Guard) -> Pending {
        let key = self.keys.read(item.key, guard);
        let tag = K::fingerprint(key);
        let slot = self.locate_in_leaf(cells, key, tag, guard, &|| true);
        Pending::of(item, tag, slot.ok().flatten().map(|(slot, ..)| slot))
    }

    /// Updates the reserved slots when a leaf begins or ceases to overflow.
    pub(super) fn count_overflow(&self, before: bool, after: bool) {
        if before != after {
            self.promised.overflowing.add(i64::from(after) - i64::from(before));
        }
    }

    /// Counts the pending items of a leaf, unless that was done.
    #[inline(always)]
    pub(super) fn count_pending(&self, leaf: &Locked<'_>) {
        if leaf.state().uncounted {
            self.count_uncounted(leaf);
        }
    }

    #[cold]
    fn count_uncounted(&self, leaf: &Locked<'_>) {
        self.len.add(growth(&self.pending_items(leaf, None, &K::pin())));
        leaf.set_state(State { uncounted: false, ..leaf.state() });
        self.count_overflow(false, self.overflows(leaf));
        self.promised.uncounted.add(-1);
    }

    /// Counts all pending items. Returns whether there was anything to count.
    pub(super) fn count_all(&self) -> bool {
        if self.promised.uncounted.sum() == 0 {
            return false;
        }
        for id in 0..self.buffers.end() {
            let buffer = self.buffers.get(id);
            while buffer.state().uncounted
                && let Some(version) = buffer.lock.read()
            {
                if let Some(leaf) = buffer.lock_at(version) {
                    self.count_pending(&leaf);
                }
            }
        }
        true
    }

    /// Returns whether there is space even if every leaf had to split.
    #[inline(always)]
    pub(super) fn room_is_plenty(&self) -> bool {
        let leaves = self.buffers.live() as u64;
        self.pool.chunks_available().saturating_sub(PLENTY_CHUNKS) * self.leaves_per_chunk() >= leaves
    }

    /// Reserves space for more leaves, if there is any.
    pub(super) fn promise(&self, leaves: u64) -> Option<Promise<'_>> {
        let promised = &self.promised;
        let under_way = promised.under_way.fetch_add(leaves, Acquire) + leaves;
        let promise = Promise { under_way: &promised.under_way, leaves };
        let in_pool = self.pool.chunks_available() * self.leaves_per_chunk();
        if in_pool >= under_way + self.buffers.live() as u64 {
            return Some(promise);
        }
        let needed = under_way + promised.overflowing.sum() + promised.uncounted.sum();
        let in_heap = || {
            let stats = self.leaves.stats();
            stats.chunks * self.leaves_per_chunk() - stats.live_slots
        };
        (in_pool >= needed || in_heap() + in_pool >= needed).then_some(promise)
    }

    /// Returns a slot for a new leaf that takes over part of `split`.
    pub(super) fn alloc_leaf(&self, split: &Locked<'_>) -> Result<u64> {
        if split.state().uncounted || self.overflows(split) {
            return self.leaves.alloc();
        }
        // The medium may have space again.
        let again = || self.pool.retry_growth().then(|| self.promise(1)).flatten();
        let _promise = self.promise(1).or_else(again).ok_or_else(|| self.pool.no_room())?;
        self.leaves.alloc()
    }
}
