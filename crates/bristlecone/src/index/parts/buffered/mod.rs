//! The common basis of CCL-BTree and LodgeTree: leaves in a chain on the medium, buffers in DRAM before them, and
//! a log that makes buffered items durable.
//!
//! - A lock in DRAM protects one or more leaves, together with their buffered items. The lock's count is the
//!   sequence of changes made under it, in log entries and in the leaf's *stamp*. A log entry is valid above its
//!   leaf's stamp, so one store invalidates all entries of changes that are merged into the leaf.
//! - The *low fence* of a leaf never changes while the leaf exists: recovery assigns every log entry to its
//!   original leaf.
//! - A removed key leaves its leaf before its log entries are dropped: its record is set aside until no entry
//!   refers to it.
//! - *Compaction passes* keep the log short: they copy the entries that are still needed to new chunks, and the
//!   old chunks are reused.
//!
//! A design defines its leaves ([`LeafLayout`]), its buffers and the leaves that a flush writes; opening, checking
//! and salvaging are common.

mod aside;
mod change;
mod check;
mod group;
mod leaf;
mod log;
mod recover;
mod salvage;
#[cfg(test)]
pub mod testing;
mod write;

use std::marker::PhantomData;
use std::sync::Arc;

use bristlecone_pm::{
    Durable, Flushed, Heap, HeapSpec, LINE_BYTES, Manifest, ManifestReader, Medium, Persist, PoolFile,
    Result, Step, TreeId,
};

pub use self::change::{Change, Item};
pub use self::group::{Leftovers, Part, Pending, run_of};
pub use self::leaf::{LeafLayout, Link, tag_of};
pub use self::log::{ASIDE_MIN, Backoff, RESERVED_CHUNKS, TreeLog};
pub use self::recover::{Replayed, Survivor};
pub use self::salvage::salvage;
pub use self::write::{Found, Hint, InLeaf, Outcome, Writer};
use super::codec::{KeyCodec, Storage};
use super::counter::Counter;
use super::items::{Items, Values};
use super::no_room::Epochs;
use super::slot::{Slot, bits};
use crate::index::{Described, TreeStats};

/// The guards of keys and values.
pub type Guards<K, V> = (<K as Storage>::Guard, <V as Storage>::Guard);

/// The tree's state on the medium except its log, and its item count.
pub struct Store<L, K, M: Medium> {
    pub pool: Arc<PoolFile<M>>,
    pub leaves: Heap<M>,
    pub keys: Items<K, M>,
    pub values: Values<M>,
    pub epochs: Epochs,
    /// Offset of the first leaf, which is never removed.
    pub first: u64,
    /// Number of slots of a leaf.
    pub slots: usize,
    /// Number of items, without buffered ones that no thread has searched in their leaves.
    pub len: Counter,
    layout: PhantomData<fn() -> L>,
}

impl<L: LeafLayout, K: KeyCodec, M: Medium> Store<L, K, M> {
    /// Takes over the state of a tree, with leaves of `slots` slots.
    pub fn open(pool: &Arc<PoolFile<M>>, entry: Described<'_>, slots: usize) -> Result<Self> {
        Ok(Self {
            pool: Arc::clone(pool),
            leaves: Heap::open(pool, HeapSpec::new(entry.id, L::KIND, L::bytes(slots) as u32)),
            keys: Items::keys(pool, entry.id)?,
            values: Values::open(pool, entry.id, entry.values)?,
            epochs: Epochs::default(),
            first: 0,
            slots,
            len: Counter::new(&pool.memory()),
            layout: PhantomData,
        })
    }

    /// Saves the state of the tree after the last write.
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        self.len.save(manifest)?;
        self.leaves.save(manifest)?;
        self.keys.save(manifest)?;
        self.values.save(manifest)
    }

    /// Takes over the saved state of a closed tree.
    pub fn resume(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        slots: usize,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let len = Counter::resume(manifest)?;
        let leaves = Heap::open(pool, HeapSpec::new(entry.id, L::KIND, L::bytes(slots) as u32));
        leaves.resume(manifest)?;
        let keys = Items::resume_keys(pool, entry.id, manifest)?;
        let values = Values::resume(pool, entry.id, entry.values, manifest)?;
        let first = pool.root(entry.id).ok()??;
        Some(Self { leaves, keys, values, first, len, ..Self::open(pool, entry, slots).ok()? })
    }

    #[inline(always)]
    pub fn medium(&self) -> &M {
        self.pool.medium()
    }

    /// Returns the header of the leaf at an offset.
    #[inline(always)]
    pub fn leaf(&self, offset: u64) -> &L {
        self.pool.at(offset)
    }

    #[inline(always)]
    pub fn slot(&self, leaf: u64, slot: usize) -> &Slot {
        self.pool.at(L::slot_offset(leaf, slot))
    }

    /// Prefetches the lines of a leaf.
    #[inline(always)]
    pub fn prefetch_leaf(&self, leaf: u64) {
        self.pool.prefetch_lines(leaf, L::bytes(self.slots));
    }

    /// Begins to write back lines of a leaf, given as bits.
    pub fn flush_lines(&self, leaf: u64, lines: impl Into<u64>, step: Step) -> Flushed {
        bits(lines).fold(Flushed::none(), |flushed, line| {
            let words = self.pool.words(leaf + (line * LINE_BYTES) as u64, LINE_BYTES / 8);
            flushed.and(self.medium().flush(words, step))
        })
    }

    /// Durably stores the first leaf of a new tree in the directory.
    pub fn lead_to_first(&mut self, tree: TreeId, first: u64, durable: &Durable, step: Step) {
        self.first = first;
        let anchor = self.pool.anchor(tree);
        anchor.publish(self.medium(), first, durable, step);
        self.medium().persist(anchor, step);
    }

    /// Returns the space that the tree occupies, given the number of needed log entries.
    pub fn stats(&self, items: u64, (log, log_entries): (&TreeLog<M>, u64), dram_bytes: u64) -> TreeStats {
        let leaves = self.leaves.stats();
        let records = self.keys.records.stats().1 + self.values.records.stats().1;
        let log_bytes = log.chunks_owned() as u64 * leaves.chunk_bytes;
        let pm_bytes = leaves.chunks * leaves.chunk_bytes + log_bytes + records;
        TreeStats { items, leaves: leaves.live_slots, pm_bytes, dram_bytes, log_bytes, log_entries }
    }
}
