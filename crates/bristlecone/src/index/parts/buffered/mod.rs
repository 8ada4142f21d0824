//! What CCL-BTree and LodgeTree are both editions of: leaves in a chain on the medium, buffers in DRAM before
//! them, and a log that keeps durable what is buffered.
//!
//! - A lock in DRAM guards a leaf, or several, with what is buffered for it. What is done under the lock has the
//!   lock's count as its sequence, in log entries as in the leaf's *stamp*. A log entry counts above its leaf's
//!   stamp, so that one store voids all entries of what has reached the leaf.
//! - The *low fence* of a leaf never changes while the leaf is there: recovery gives every log entry to the leaf
//!   that it was meant for.
//! - A removed key leaves its leaf before the log forgets it: its record is put aside until no entry names it.
//! - The log is kept short by *compaction passes*: what is still needed of it is copied to new chunks, and the old
//!   ones are used again.
//!
//! A design says what a leaf is ([`LeafLayout`]), what a buffer is and which leaves a flush writes; opening,
//! checking and salvaging are the same.

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
    Durable, Flushed, Heap, HeapSpec, LINE_BYTES, Medium, Notes, NotesReader, Persist, PoolFile, RecordSpec,
    Records, Result, SlotKind, Step, TreeEntry, TreeId,
};

pub use self::change::{Change, Item};
pub use self::group::{Leftovers, Part, Pending};
pub use self::leaf::{LeafLayout, Link, tag_of};
pub use self::log::{ASIDE_MIN, RESERVED_CHUNKS, Relief, TreeLog};
pub use self::recover::{Replayed, Survivor};
pub use self::salvage::salvage;
pub use self::write::{Found, Hint, InLeaf, Outcome, Writer};
use super::codec::{Codec, KeyCodec};
use super::counter::Counter;
use super::no_room::Epochs;
use super::slot::{Slot, bits};
use crate::index::TreeStats;

/// The guards of keys and values.
pub type Guards<K, V> = (<K as Codec>::Guard, <V as Codec>::Guard);

/// What a store is generic over and has none of.
type Kinds<L, K, V> = fn() -> (L, K, V);

/// What a tree has on the medium beside its log, and how many items it has.
pub struct Store<L, K, V, M: Medium> {
    pub pool: Arc<PoolFile<M>>,
    pub leaves: Heap<M>,
    pub keys: Records<M>,
    pub values: Records<M>,
    pub epochs: Epochs,
    /// Offset of the first leaf, which never goes.
    pub first: u64,
    /// Slots of a leaf.
    pub slots: usize,
    /// Items, but for buffered ones that no thread has looked for in their leaves.
    pub len: Counter,
    kinds: PhantomData<Kinds<L, K, V>>,
}

impl<L: LeafLayout, K: KeyCodec, V: Codec, M: Medium> Store<L, K, V, M> {
    /// Takes over what the tree of an entry has, with leaves of so many slots.
    pub fn open(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, slots: usize) -> Result<Self> {
        Ok(Self {
            pool: Arc::clone(pool),
            leaves: Heap::open(pool, HeapSpec::new(entry.id, L::KIND, L::bytes(slots) as u32)),
            keys: Records::open(pool, RecordSpec::new(entry.id, SlotKind::KEY_RECORD))?,
            values: Records::open(pool, RecordSpec::new(entry.id, SlotKind::VALUE_RECORD))?,
            epochs: Epochs::default(),
            first: 0,
            slots,
            len: Counter::new(&pool.memory()),
            kinds: PhantomData,
        })
    }

    /// Notes what the tree has, once no thread writes any more.
    pub fn suspend(&self, notes: &mut Notes) -> Option<()> {
        self.len.suspend(notes)?;
        self.leaves.suspend(notes)?;
        self.keys.suspend(notes)?;
        self.values.suspend(notes)
    }

    /// Takes over what the tree of an entry had when it was closed.
    pub fn resume(
        pool: &Arc<PoolFile<M>>,
        entry: &TreeEntry,
        slots: usize,
        notes: &mut NotesReader<'_>,
    ) -> Option<Self> {
        let len = Counter::resume(notes)?;
        let leaves = Heap::open(pool, HeapSpec::new(entry.id, L::KIND, L::bytes(slots) as u32));
        leaves.resume(notes)?;
        let keys = Records::resume(pool, RecordSpec::new(entry.id, SlotKind::KEY_RECORD), notes)?;
        let values = Records::resume(pool, RecordSpec::new(entry.id, SlotKind::VALUE_RECORD), notes)?;
        let first = pool.root(entry.id).ok()??;
        Some(Self { leaves, keys, values, first, len, ..Self::open(pool, entry, slots).ok()? })
    }

    #[inline(always)]
    pub fn medium(&self) -> &M {
        self.pool.medium()
    }

    /// Returns the head of the leaf at an offset.
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

    /// Starts writing back lines of a leaf, given as bits.
    pub fn flush_lines(&self, leaf: u64, lines: impl Into<u64>, step: Step) -> Flushed {
        bits(lines).fold(Flushed::none(), |flushed, line| {
            let words = self.pool.words(leaf + (line * LINE_BYTES) as u64, LINE_BYTES / 8);
            flushed.and(self.medium().flush(words, step))
        })
    }

    /// Leads the directory to the first leaf of a new tree, durably.
    pub fn lead_to_first(&mut self, tree: TreeId, first: u64, durable: &Durable, step: Step) {
        self.first = first;
        let anchor = self.pool.anchor(tree);
        anchor.publish(self.medium(), first, durable, step);
        self.medium().persist(anchor, step);
    }

    /// Returns what the tree occupies, of whose log so many entries are needed.
    pub fn stats(&self, items: u64, (log, log_entries): (&TreeLog<M>, u64), dram_bytes: u64) -> TreeStats {
        let leaves = self.leaves.stats();
        let records = self.keys.stats().1 + self.values.stats().1;
        let log_bytes = log.chunks_owned() as u64 * leaves.chunk_bytes;
        let pm_bytes = leaves.chunks * leaves.chunk_bytes + log_bytes + records;
        TreeStats { items, leaves: leaves.live_slots, pm_bytes, dram_bytes, log_bytes, log_entries }
    }
}
