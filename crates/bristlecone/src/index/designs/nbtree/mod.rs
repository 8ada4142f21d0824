//! NBTree: lock-free leaves, one line per operation.
//!
//! Zhang et al., *NBTree: a Lock-free PM-friendly Persistent B+-Tree for eADR-enabled PM Systems*. A leaf has two
//! layers: metadata in DRAM, items on the medium. New keys are appended to a leaf. Their values change in place, by a
//! compare-and-swap of one word. A full leaf is replaced while all threads continue to use it. No operation on leaves
//! ever waits for another one.
//!
//! ```text
//! DRAM   inner index --> descriptor (128 B)                          ,-- successors (once replaced) --> descriptors
//!                        fingerprints (a line) | bitmap, block, pending, succession
//!                                                       |
//! PM                                     block (1 KiB)  v
//!                                        state | birth | slot 0: key, value | slot 1 | ... | slot 62
//! ```
//!
//! **The word that commits** is the value word of a slot: an item exists while it is not EMPTY. One compare-and-swap
//! of the bitmap assigns a slot to its key for the lifetime of the leaf, so that no thread ever sees a key in two
//! slots. From then on the value word determines the state of the item: update, remove and swap are each one
//! compare-and-swap of it. A replacement commits by the `state` of the old block.
//!
//! Descriptors have the order of their blocks. A key has a *home line* in every block, given by its hash, and is
//! stored there unless the line is full. The item's line is therefore prefetched together with the descriptor. In a
//! leaf that is two thirds full, one key in twelve is stored elsewhere.
//!
//! # Insert
//! 1. Keys and values that do not fit a word are written out of line; flush, fence. *A crash here: nothing refers to
//!    the records; recovery finds their slots free.*
//! 2. A slot is claimed by setting its fingerprint; the key is stored, and after it in the same line the value, with a
//!    mark as of update 2. *The item may be present: its insert is not complete, and no thread saw it.*
//! 3. The slot is added to the bitmap. If the bitmap changed meanwhile, the new keys are searched for the same key. A
//!    thread that finds it empties its own slot again (flush, fence) and continues with the other one, as an update.
//!    *The key may be in two slots, of two incomplete inserts: recovery keeps either.*
//! 4. Flush, fence; the mark is removed. *The item is present, or not.*
//!
//! An insert of absent keys only must not overwrite an existing item, whichever one recovery keeps. Its key therefore
//! joins without a value, which then replaces EMPTY as in an update.
//!
//! # Update
//! 1. Same as insert 1.
//! 2. A mark in the descriptor announces the flush. Then, unless writers must stop (sync 1), the value word is
//!    replaced. If the key came without a value, possibly by another thread, the key is stored again first, in the
//!    same line: nothing orders the stores of two threads to different words on the medium.
//! 3. Flush, fence; the mark is removed. *Old or new value.*
//!
//! # Delete
//! 1. The value word becomes EMPTY, as in update 2 and 3. The slot still belongs to the key; a leaf full of such slots
//!    is rewritten instead of split.
//!
//! # Read
//! 1. Read the fingerprints, the bitmap, the item. Readers write nothing unless a leaf is being replaced.
//! 2. *The value read may not be durable yet:* if the mark of update 2 is set, the reader flushes the line itself
//!    before it returns. It never waits for the writer. Where visible stores are durable (`Process`, `Eadr`) there is
//!    neither mark nor flush.
//!
//! Locked instructions wait for earlier flushes. A writer therefore executes none after its flush. The next operation
//! locates its key before its first locked instruction; by then most of the flush is done.
//!
//! # Many (up to sixteen keys together)
//! 1. Leaves, lines and items of all keys are prefetched, stage by stage, before any of them is accessed. Then each
//!    write proceeds as insert 2 and 3 or update 2, and keeps its mark. *Each write happened or not, independently; no
//!    thread was shown one that did not happen.*
//! 2. Their lines are flushed, and one fence waits for all; the marks are removed, and the writes are acknowledged.
//!
//! A write that must wait for anything else, such as the replacement of a leaf, first completes the earlier ones.
//!
//! # Replace (no free slot): copy, sync, link
//! *Copy.*
//! 1. The bitmap is frozen: no key joins any more. Values still change.
//! 2. The items are written to a copy: one or two fresh blocks, with the old block as their origin and a new stamp;
//!    flush, fence. An item in its home line keeps its slot and its fingerprint; the others move to their home line if
//!    there is space. *The old block is not replaced: recovery frees the copy (recover 2).*
//!
//! *Sync.*
//! 1. Writers are asked to stop: after it has set its mark (update 2), each checks for this, removes its mark, and
//!    replaces the leaf as well. *If there is no mark now, no value changes any more, and all are durable.*
//! 2. Changes since the copy are carried over; flush, fence.
//!
//! If there is a mark, which is not waited for, or where there are no marks (`Process`, `Eadr`):
//! 3. Slot by slot, the value word is replaced by a *seal*, the offset of the cell in the copy that holds the same
//!    value. The compare-and-swap fails if the value has changed since; then 2 is repeated for this slot, and the seal
//!    is retried. *Seals refer to durable cells of copies that still exist: recovery restores the values (recover 1).*
//!
//! A sealed slot never changes again. Readers follow the seal to its value; writers help to finish and continue in the
//! new leaf. So every change is made in exactly one place, before or after the seal, or before or after the stop. If a
//! value changes repeatedly while slots are sealed, writers are eventually asked to stop, also where there are no
//! marks: from then on each may change it at most once more.
//!
//! *Link.*
//! 1. One compare-and-swap in the old descriptor decides whose copy is used. Other copies are discarded once 2 is
//!    done.
//! 2. The old block's state becomes REPLACED with the copy's stamp; flush, fence. *The new leaves exist instead of the
//!    old one, or not.* Then the descriptor forwards every thread to them.
//! 3. The index is updated. Until then, the old leaf forwards. Afterwards no thread finds the old leaf any more, and
//!    its block is reused once every thread that found it has unpinned (epochs).
//!
//! The paper instead sets two bits of each value, and carries over concurrent changes afterwards; a change may then be
//! made in both leaves, or in neither, when values repeat. Stopping and sealing need no bit of the value, and avoid
//! this ambiguity.
//!
//! # No room
//! Slots of removed items still belong to their keys. A key that finds no free slot replaces the leaf: by one block if
//! items are few or no second block is available; the block of the old leaf is freed. It becomes free when epochs end,
//! which a pinned thread delays. A write without space therefore unpins, ends as many epochs as possible, and retries,
//! three times. A key without space for its record also replaces its leaf, once, if that has slots without an item,
//! whose keys' records become free; otherwise it replaces up to eight other leaves that have any.
//!
//! # Free (a leaf that lost its last item, unless it is the only one)
//! 1. The bitmap is frozen and every slot sealed as empty; a thread that finds an item replaces the leaf instead.
//! 2. One compare-and-swap in the descriptor, as in link 1, decides that the leaf has no successor: for one leaf of
//!    the tree at a time, so that one remains. The block becomes REPLACED, by nothing; flush, fence. *The leaf exists
//!    unchanged, or it is gone with all of its contents: removals whose flush is pending, and inserts that were too
//!    late to join. Only unacknowledged changes may be lost; recovery frees an empty leaf (recover 2).*
//! 3. The leaf is removed from the index, and its range passes to a neighbour. Only now, when nothing of the leaf can
//!    reappear, does the neighbour cover the range. Any thread that meets the leaf does 2 and 3 if they are not done.
//!
//! # Create
//! 1. The slots of a block beyond its first line are emptied; flush, fence. *The block belongs to no leaf.*
//! 2. In its first line the slots are emptied, and the state becomes LIVE; flush, fence. *The tree has its leaf, or
//!    opening it creates another one.*
//!
//! # Load (a tree that no thread can access yet)
//! 1. Ascending items are written to their own leaves, as many as fit: records, slots, and the state LIVE, as in copy
//!    2 but without an origin; flush, and one fence for many leaves. *The tree is not in the directory yet: all of its
//!    space is free again.*
//!
//! # Recover
//! Every block of the tree's chunks is inspected, on several threads. A LIVE block belongs to a leaf, unless it is
//! part of a replacement that was not linked: its origin is LIVE and older, or was replaced by blocks of another
//! stamp.
//! 1. Seals are replaced by the values that they refer to; of a key in two slots one is emptied.
//! 2. Copies and empty leaves become REPLACED, by no leaf.
//! 3. One fence for both. *A crash before it: the same again. Copies are still copies, and their cells still hold the
//!    same values: no thread has used their blocks.*
//!
//! Metadata and the index are built from the items.
//!
//! # Ablations
//! `locking` makes writers, or writers and readers, lock the leaf (the paper's NBTree-W and
//! NBTree-WR). `layers = 1` keeps the metadata in the block (NBTree-SL).

mod check;
mod copy;
mod inspect;
mod join;
pub(in crate::index) mod layout;
mod leaf;
mod leaves;
mod link;
mod load;
mod lookup;
mod many;
mod meta;
mod pending;
mod read;
mod recover;
mod salvage;
mod scan;
mod split;
mod take_over;
mod uncounted;
mod value;
mod write;

use std::sync::{Arc, Mutex};

use bristlecone_pm::sync::{AtomicU32, AtomicU64, AtomicUsize};
use bristlecone_pm::{Heap, HeapSpec, Medium, Memory, PoolFile, Released, Result, SharedCell};
use crossbeam_utils::CachePadded;

use self::layout::Shape;
use self::leaves::Leaves;
use self::uncounted::Uncounted;
use crate::index::Described;
use crate::index::options::{Parameters, design_options, experimental};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::counter::Counter;
use crate::index::parts::index_saver::IndexSaver;
use crate::index::parts::items::{Items, Values};
use crate::index::parts::no_room::{Epochs, Futile};
use crate::index::parts::optimistic_lock::Version;
use crate::index::parts::search::Level;
use crate::index::parts::volatile_index::VolatileIndex;

design_options! {
    /// Options of an NBTree, fixed when it is created.
    pub struct NbTreeOptions of "nbtree" {
        /// Bytes of a leaf's block. The default is the paper's.
        block_bytes = 1024 in [128, 256, 512, 1024];
        /// Bytes of an inner node.
        inner_bytes = 512 in (256..=4096) step 64;
        /// Threads that lock a leaf: none (0), writers (1), or writers and readers (2).
        locking = 0 in [0, 1, 2] for experimental;
        /// Layers of a leaf: 2, or 1 with its metadata on the medium.
        layers = 2 in [1, 2] for experimental;
    }
}

/// Writers lock.
const LOCK_WRITES: u64 = 1;
/// Writers lock, and readers notice.
const LOCK_ALL: u64 = 2;

/// The tree. See the module's protocol.
pub struct NbTree<K: KeyCodec, M: Medium> {
    pool: Arc<PoolFile<M>>,
    blocks: Heap<M>,
    keys: Items<K, M>,
    values: Values<M>,
    epochs: Epochs,
    saver: IndexSaver<M>,
    shape: Shape,
    locking: u64,
    single_layer: bool,
    /// Whether a visible store is as durable as the domain guarantees.
    visible_is_durable: bool,
    level: Level,
    inner: VolatileIndex<K>,
    leaves: Leaves,
    /// The stamp of the next replacement. On a separate cache line, like all mutable fields, from those that every
    /// operation reads.
    stamps: SharedCell<CachePadded<AtomicU64>>,
    /// Leaves whose epoch has ended. Deferred closures run on any thread, at any time, even after the tree is dropped:
    /// they own this queue and nothing else.
    retired: Released<u32>,
    /// Leaves that were retired and are not free yet.
    outstanding: CachePadded<AtomicUsize>,
    /// The leaf that is being removed from the index, plus one; zero if there is none.
    leaving: CachePadded<AtomicU32>,
    /// Key ranges where no leaf had a key to free.
    futile: Mutex<Futile<u64>>,
    len: Counter,
    uncounted: Uncounted,
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Returns which threads lock leaves: none, except in experiments.
    #[inline(always)]
    fn locking(&self) -> u64 {
        experimental(self.locking, 0)
    }

    /// Returns whether a leaf's metadata are on the medium: in experiments only.
    #[inline(always)]
    fn is_single_layer(&self) -> bool {
        experimental(self.single_layer.into(), 0) != 0
    }

    /// Returns a tree that has not inspected its blocks yet, with its descriptors in the given memory.
    fn unrecovered(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: NbTreeOptions,
        memory: &Memory,
    ) -> Result<Self> {
        let shape = Shape::new(options.block_bytes as usize, options.layers);
        let block_bytes = options.block_bytes as u32;
        Ok(Self {
            pool: Arc::clone(pool),
            blocks: Heap::open(
                pool,
                HeapSpec { tagged: true, ..HeapSpec::new(entry.id, layout::BLOCKS, block_bytes) },
            ),
            keys: Items::keys(pool, entry.id)?,
            values: Values::open(pool, entry.id, entry.values)?,
            epochs: Epochs::default(),
            saver: IndexSaver::new(pool, &entry),
            shape,
            locking: options.locking,
            single_layer: options.layers == 1,
            visible_is_durable: pool.domain().visible_is_durable(),
            level: Level::detect(),
            inner: VolatileIndex::new(options.inner_bytes as usize, 0, &Memory::private())?,
            leaves: Leaves::new(pool, shape, memory)?,
            stamps: memory.cell_of(CachePadded::new(AtomicU64::new(1))),
            retired: Released::new(&pool.memory()),
            outstanding: CachePadded::default(),
            leaving: CachePadded::default(),
            futile: Mutex::default(),
            len: Counter::new(memory),
            uncounted: Uncounted::new(memory),
        })
    }

    #[inline(always)]
    fn medium(&self) -> &M {
        self.pool.medium()
    }

    #[inline(always)]
    fn version_of(&self, leaf: u32) -> Option<Version> {
        self.leaves.get(leaf).incarnation.read()
    }
}
