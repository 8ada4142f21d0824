//! NBTree: lock-free leaves, one line per operation.
//!
//! Zhang et al., *NBTree: a Lock-free PM-friendly Persistent B+-Tree for eADR-enabled PM Systems*.
//! A leaf has two layers: metadata in DRAM, items on the medium. Keys join a leaf by appending;
//! their values change in place, one word by compare-and-swap; and a leaf without room is replaced
//! while all threads go on working with it. No operation on leaves ever waits for another one.
//!
//! ```text
//! DRAM   inner index --> descriptor (128 B)                          ,-- successors (once replaced) --> descriptors
//!                        fingerprints (a line) | bitmap, block, pending, succession
//!                                                       |
//! PM                                     block (1 KiB)  v
//!                                        state | birth | slot 0: key, value | slot 1 | ... | slot 62
//! ```
//!
//! **The word that commits** is the value word of a slot: an item exists while it is not EMPTY. A
//! slot becomes its key's own by one compare-and-swap of the bitmap, for as long as the leaf lasts,
//! so that no thread ever sees a key in two slots. From then on everything about the item is the value
//! word: update, remove and swap are each one compare-and-swap of it. A replacement commits by the
//! `state` of the old block.
//!
//! Descriptors stand in the order of their blocks, and a key has a *home line* in every block, given
//! by its hash: it stands there unless others have taken the slots. So the item's line is prefetched
//! together with the descriptor. In a leaf two thirds full one key in twelve stands elsewhere.
//!
//! # Insert
//! 1. Keys and values that do not fit a word are written out of line; flush, fence. *A crash here:
//!    nothing refers to the records; recovery finds their slots free.*
//! 2. A slot is claimed by setting its fingerprint; the key is stored, and behind it in the same line
//!    the value, with a mark as of update 2. *The item may be there: its insert is still under way,
//!    and no thread saw it.*
//! 3. The bitmap takes the slot in. If it changed meanwhile, the new keys are searched for the same
//!    key; a thread that finds it empties the slot again (flush, fence) and goes on with the other one, as
//!    update. *The key may stand in two slots, of two inserts under way: recovery keeps either.*
//! 4. Flush, fence; the mark goes. *The item is there, or not.*
//!
//! An insert of absent keys only must not overwrite what it meets, whatever recovery keeps: its key joins
//! without a value, which then takes the place of EMPTY as in update.
//!
//! # Update
//! 1. As insert 1.
//! 2. A mark in the descriptor says that a flush is to come; then, unless writers are to stop (sync 1), the value word
//!    is replaced. If the key came without a value, maybe by another thread, it is stored again before, in the same
//!    line: nothing orders the stores of two threads to different words on the medium.
//! 3. Flush, fence; the mark goes. *Old or new value.*
//!
//! # Delete
//! 1. The value word becomes EMPTY, as in update 2 and 3. The slot remains the key's own; a leaf
//!    full of such slots is rewritten instead of growing.
//!
//! # Read
//! 1. Fingerprints, bitmap, the item. Where no leaf is being replaced nothing is written.
//! 2. *What is read may not be durable yet:* if the mark of update 2 says so, the reader flushes
//!    the line itself before it answers. It never waits for the writer. Where visible stores are
//!    durable (`Process`, `Eadr`) there is neither mark nor flush.
//!
//! Locked instructions wait for flushes before them. So a writer ends with none after its flush, and
//! looks for the next key before it executes the first one: most of that is done by the time that the
//! flush is.
//!
//! # Many (up to sixteen keys in step)
//! 1. Leaves, lines and items of all keys are asked for, stage by stage, before any of them is waited for. Then each write
//!    goes as insert 2 and 3 or update 2, and its mark stays. *Each of them happened or not, by itself; no thread was shown
//!    one that did not.*
//! 2. Their lines are flushed, and one fence waits for all; the marks go, and the writes are acknowledged.
//!
//! A write that has to wait for anything else, as for a leaf to be replaced, waits until those before it are through.
//!
//! # Replace (no slot left): copy, sync, link
//! *Copy.*
//! 1. The bitmap is frozen: no key joins any more. Values go on changing.
//! 2. The items are written to a copy: fresh blocks, one or two of them, with the old block as
//!    their origin and a new stamp; flush, fence. An item in its home line keeps its slot, and its
//!    fingerprint is copied; the others go home if there is room. *The old block is no replaced
//!    one: recovery frees the copy (recover 2).*
//!
//! *Sync.*
//! 1. Writers are asked to stop: one whose mark (update 2) is made looks behind it whether they are, and then takes it back
//!    and replaces the leaf, too. *If no mark is there now, no value changes any more, and all are durable.*
//! 2. What changed since the copy is taken over there; flush, fence.
//!
//! If there is a mark, which is not waited for, or where there are none (`Process`, `Eadr`):
//! 3. Slot by slot, the value word is replaced by a *seal*, the offset of the cell in the copy
//!    that holds the same value. The compare-and-swap fails if the value changed since; then 2 for that one,
//!    and again. *Seals name durable cells of copies that are still there: recovery puts the values back (recover 1).*
//!
//! A sealed slot never changes again. Readers look its value up; writers help to finish and go on
//! in the new leaf. So every change is made in one place only, before or after the seal, or before or after the stop. Where a
//! value changes over and over while slots are sealed, writers are asked to stop at last, also where there are no marks: from then
//! on each may change it once more at most.
//!
//! *Link.*
//! 1. One compare-and-swap in the old descriptor decides whose copy is taken. Other copies are
//!    discarded once 2 is done.
//! 2. The old block's state becomes REPLACED with the copy's stamp; flush, fence. *The new leaves
//!    are there instead of the old one, or not.* Then the descriptor forwards every thread to them.
//! 3. The index learns of them. Until it does, the old leaf forwards. Then no thread finds the old leaf
//!    any more, and its block is used again once every thread that did is gone (epochs).
//!
//! The paper sets two bits of each value and carries what it finds changed over afterwards; a
//! change may then be made in both leaves, or in neither, when values repeat. Stopping and sealing need no bit
//! of the value, and decide.
//!
//! # No room
//! Removals leave slots that are their keys' still. A key that finds none left replaces the leaf, by one block
//! where items are few or no second one is to be had, and gets room by the block that the leaf gives up. It
//! comes free when epochs end, which a pinned thread holds up: so a write without room unpins, ends what
//! epochs it can, and tries again, three times. A key without room for its record replaces its leaf, too,
//! once, if that has slots without an item, whose keys' records come free; or else up to eight other leaves
//! that have any.
//!
//! # Free (a leaf whose last item went, unless it is the only one)
//! 1. The bitmap is frozen and every slot sealed as empty; a thread that finds an item replaces the
//!    leaf instead.
//! 2. One compare-and-swap in the descriptor, as in link 1, decides that no leaf takes its place: for
//!    one leaf of the tree at a time, so that one remains. The block becomes REPLACED, by nothing;
//!    flush, fence. *The leaf is there, as it was found, or it is gone with all that stands in it:
//!    removals whose flush is to come, and inserts that came too late to join. What was not
//!    acknowledged may be lost; an empty leaf is freed by recovery (recover 2).*
//! 3. The leaf leaves the index, and its range goes to a neighbour. Only now, when nothing of the leaf
//!    can come back, does the neighbour answer for it. Any thread that meets the leaf does 2 and 3 if
//!    they are not done.
//!
//! # Create
//! 1. The slots of a block that stand beyond its first line are emptied; flush, fence. *The block is no leaf's.*
//! 2. In its first line the slots are emptied, and the state becomes LIVE; flush, fence. *The tree has its leaf, or
//!    another one is made when it is opened.*
//!
//! # Load (a tree that no thread has yet)
//! 1. Ascending items are written to leaves of their own, as many as these hold: records, slots, and the state LIVE, as in
//!    copy 2 but for an origin; flush, and one fence for many leaves. *The tree is not in the directory yet: whatever it has
//!    is free again.*
//!
//! # Recover
//! Every block of the tree's chunks is looked at, on several threads. One that is LIVE is a leaf's,
//! unless it is of a replacement that was not linked: its origin is LIVE and older, or was replaced
//! by blocks of another stamp.
//! 1. Seals are replaced by the values that they name; of a key in two slots one is emptied.
//! 2. Copies and empty leaves become REPLACED, by no leaf.
//! 3. One fence for both. *A crash before it: the same again. Copies are copies still, and their cells
//!    hold what they held: no thread has used their blocks.*
//!
//! Metadata and the index are built from the items.
//!
//! # Ablations
//! `locking` makes writers, or writers and readers, lock the leaf (the paper's NBTree-W and
//! NBTree-WR). `layers = 1` keeps the metadata in the block (NBTree-SL).

mod check;
mod copy;
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
mod value;
mod write;

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use bristlecone_pm::sync::{AtomicU32, AtomicU64, AtomicUsize};
use bristlecone_pm::{
    Heap, HeapSpec, Medium, Memory, PoolFile, RecordSpec, Records, Released, Result, SlotKind, TreeEntry,
};
use crossbeam_utils::CachePadded;

use self::layout::Shape;
use self::leaves::Leaves;
use crate::index::options::{Parameters, design_options};
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::parts::counter::Counter;
use crate::index::parts::keeper::Keeper;
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
        /// What locks a leaf: nothing (0), writers (1), or writers and readers (2).
        locking = 0 in [0, 1, 2];
        /// Layers of a leaf: 2, or 1 with its metadata on the medium.
        layers = 2 in [1, 2];
    }
}

/// Writers lock.
const LOCK_WRITES: u64 = 1;
/// Writers lock, and readers notice.
const LOCK_ALL: u64 = 2;

/// The tree. See the module's protocol.
pub struct NbTree<K: KeyCodec, V: Codec, M: Medium> {
    pool: Arc<PoolFile<M>>,
    blocks: Heap<M>,
    keys: Records<M>,
    values: Records<M>,
    epochs: Epochs,
    keeper: Keeper<M>,
    shape: Shape,
    locking: u64,
    single_layer: bool,
    /// Whether a store that others see survives whatever the domain's stores survive.
    visible_is_durable: bool,
    level: Level,
    inner: VolatileIndex<K>,
    leaves: Leaves,
    /// The stamp of the next replacement. Apart, as all that changes is, from what every operation reads.
    stamps: CachePadded<AtomicU64>,
    /// Leaves whose epoch is over. Readers' last words are run by any thread, at any time, even
    /// after the tree is gone: so they own this queue and nothing more.
    retired: Released<u32>,
    /// Leaves that were retired and are not free yet.
    outstanding: CachePadded<AtomicUsize>,
    /// The leaf that is on its way out of the index, and one more; zero if none is.
    leaving: CachePadded<AtomicU32>,
    /// Where no leaf had a key to give back.
    futile: Mutex<Futile<u64>>,
    len: Counter,
    codecs: PhantomData<fn() -> (K, V)>,
}

impl<K: KeyCodec, V: Codec, M: Medium> NbTree<K, V, M> {
    /// Returns a tree that has not looked at its blocks yet, with its descriptors in some memory.
    fn unrecovered(
        pool: &Arc<PoolFile<M>>,
        entry: &TreeEntry,
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
            keys: Records::open(pool, RecordSpec::new(entry.id, SlotKind::KEY_RECORD))?,
            values: Records::open(pool, RecordSpec::new(entry.id, SlotKind::VALUE_RECORD))?,
            epochs: Epochs::default(),
            keeper: Keeper::new(pool, entry),
            shape,
            locking: options.locking,
            single_layer: options.layers == 1,
            visible_is_durable: pool.domain().visible_is_durable(),
            level: Level::detect(),
            inner: VolatileIndex::new(options.inner_bytes as usize, 0, &Memory::private())?,
            leaves: Leaves::new(pool, shape, memory)?,
            stamps: CachePadded::new(AtomicU64::new(1)),
            retired: Released::new(&pool.memory()),
            outstanding: CachePadded::default(),
            leaving: CachePadded::default(),
            futile: Mutex::default(),
            len: Counter::new(memory),
            codecs: PhantomData,
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
