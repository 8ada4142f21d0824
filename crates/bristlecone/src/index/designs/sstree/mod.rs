//! SSTree: a leaf that grows by subnodes.
//!
//! Hong et al., *Optimizing Structural Modification Operation for B+-Tree on Byte-Addressable Devices*. Splitting a
//! leaf is expensive. A full leaf therefore gets another 256-byte *subnode* in front instead, and later operations move
//! items towards the head, so that the leaf stays compact.
//!
//! ```text
//! DRAM   inner index --> descriptor: version lock | bitmap | offsets of the subnodes | fingerprints of all slots
//!                                              |
//! PM     head subnode            overflow      v              tail
//!        next  ------------------> next ------------------------> next = END
//!        bitmap of the WHOLE leaf  (stale word)                  (stale word)
//!        annex: the staged item    -                             -
//!        slots 0..14               slots 14..28                  slots 28..42
//! ```
//!
//! **The word that commits** is the head's bitmap: an item exists while its bit is set. A new head commits by its
//! `next`, which until then is the free tag. Writers hold the leaf's lock until their change is durable. Readers do not
//! lock and validate the leaf's version, so they never return a value that a crash could undo.
//!
//! The paper stores the fingerprints of overflow subnodes on the medium, each in its predecessor's annex, and flushes
//! an item before the bitmap that refers to it. With the fingerprints in DRAM, most lookups read one line of the
//! medium, and the annex is free for the item that is being inserted: it commits together with the bitmap in one line,
//! so one fence is enough. The option `delegate_fingerprints` gives the paper's tree.
//!
//! # Insert
//! 1. Keys and values that do not fit a word are written out of line, flushed and fenced. *A crash
//!    here: nothing refers to the records; recovery finds their slots free.*
//! 2. The item is written to the free slot nearest to the head, its key last, and is flushed. In the header's line this
//!    flush is not needed, because the line keeps the order of its stores. *Its bit is clear: nothing happened.*
//! 3. In the head's line: the previously staged item is released, the item is written to the annex, its bit is set, and
//!    its slot is recorded as staged. Flush, and one fence for both lines. *The item is present, or not; if the slot
//!    does not have the staged key, recovery copies the item from the annex (recover 5).*
//!
//! If the slot still contains the same key from an earlier use, its old contents could not be distinguished from the
//! new ones: step 2 then has its own fence, and nothing is staged. With delegated fingerprints this is always so.
//!
//! # Expand (no free slot, fewer subnodes than allowed)
//! 1. In the first line of a free subnode: the item, the bitmap shifted up by one subnode (and, delegated, the
//!    fingerprints of the old head). *It still has the free tag: nothing happened.*
//! 2. Its `next` replaces the free tag; one flush, one fence. *The leaf has a new head, or not.*
//!
//! # Update
//! 1. An out-of-line value is written; flush, fence.
//! 2. The value word is stored in place; flush, fence. *Old or new value.* An item of the tail *moves* instead, with
//!    all others there, if the subnodes before have space for them, so that the tail is freed (delegated, as in the
//!    paper: any item behind the head while the head has space):
//!
//! # Move (also after a split, to empty the tail)
//! 1. The new item, and others with it while there is space, are written to free slots; each line is flushed, and one
//!    fence waits for all.
//! 2. One store of the bitmap sets the new bits and clears the old ones; flush, fence. *All moved
//!    or none, each item exactly once.*
//!
//! # Delete
//! 1. The bit is cleared; flush, fence.
//!
//! # Many (up to sixteen keys together)
//! 1. Leaves and lines of all keys are prefetched, stage by stage, before any of them is accessed. Then each write
//!    proceeds as insert 2 and 3 into a free slot, as update 2 in place, or as delete 1, and its leaf stays locked.
//!    *Each write happened or not, independently: no leaf has two.*
//! 2. Their lines are flushed, and one fence waits for all; the leaves are unlocked, and the writes are acknowledged.
//!
//! A leaf is locked only if no thread holds its lock. If one does, if a write must change more than this, or if its
//! leaf already has a pending write, it first completes the earlier ones.
//!
//! # Reclaim (a move or a delete removes the last item of the tail)
//! 1. The free tag is set on the tail, with the flushes and the fence of move 1. *A tagged tail whose bits are set:
//!    recovery removes the tag (recover 1). The paper redoes the move; removing one word needs no free slots and works
//!    for deletes, too.*
//! 2. The bitmap is stored; flush, fence.
//! 3. The predecessor's `next` becomes END; flush, fence. If that is the head, 2 and 3 are one flush. *A tagged tail
//!    without bits: recovery does step 3 (recover 2).* Only now may the subnode be reused.
//!
//! # Split (every slot of every subnode taken)
//! 1. The upper half of the items is written to a new leaf, tail first; flush, fence. *Its head has the free tag; its
//!    overflow subnode is separate, with an empty bitmap, and is freed (recover 3).*
//! 2. The new head's `next` replaces its free tag; flush, fence. *Both leaves hold the upper half: recovery detects the
//!    overlap and does step 3 (recover 4).*
//! 3. The old leaf drops the upper half with one store of its bitmap; flush, fence. Then the new leaf enters the index,
//!    and the items of the old leaf's tail move forward (move).
//!
//! A key above all others of the leaf moves nothing: the new leaf begins empty. For a key below all others, all items
//! but the least move. So ascending and descending loads leave full leaves behind, except for the slots of late keys
//! (`parts/split.rs`).
//!
//! # Free (a leaf without items, unless it is the only one)
//! 1. The leaf is removed from the index; the free tag is set on its head; flush, fence. *An empty leaf is freed by
//!    recovery (recover 3).*
//!
//! # Recover
//! Every subnode of the tree's chunks is inspected, chunk by chunk, on several threads. Tagged ones are free; those
//! that no `next` refers to are heads.
//! 1. A premature tag is removed.
//! 2. A link to a tagged tail without items is cut; flush, fence.
//! 3. Empty tails and leaves are freed; flush, fence.
//! 4. Leaves are sorted by smallest key, and overlaps are resolved permanently; flush, fence.
//! 5. A staged item that did not reach its slot is copied there; flush, fence.
//!
//! Fingerprints and the index are built from the items, so fingerprints never need their own flush.

mod census;
mod check;
mod delete;
pub(in crate::index) mod layout;
mod leaf;
mod load;
mod many;
mod read;
mod recover;
mod salvage;
mod scan;
#[cfg(test)]
mod space;
mod split;
mod take_over;
mod write;

use std::sync::Arc;

use bristlecone_pm::{Heap, Medium, PoolFile};

use self::layout::{LEAF_SLOTS_MAX, Shape, slots_of};
use self::leaf::Leaves;
use crate::index::options::{Parameters, design_options};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::counter::Counter;
use crate::index::parts::index_saver::IndexSaver;
use crate::index::parts::items::{Items, Values};
use crate::index::parts::no_room::Epochs;
use crate::index::parts::optimistic_lock::Version;
use crate::index::parts::volatile_index::VolatileIndex;

design_options! {
    /// Options of an SSTree, fixed when it is created.
    pub struct SsTreeOptions of "sstree" {
        /// Bytes of a subnode. The default is the media line of Optane, as in the paper.
        subnode_bytes = 256 in [128, 192, 256];
        /// Subnodes that a leaf may have, head included; five of 128 or 192 bytes. The paper's Table I counts overflow
        /// subnodes; its default of 2 is 3 here.
        max_subnodes = 3 in (1..=5);
        /// Bytes of an inner node.
        inner_bytes = 512 in (256..=4096) step 64;
        /// Whether updates move items towards the head (Table II of the paper).
        move_items = 1 in [0, 1] for experimental;
        /// Whether only the head's fingerprints are kept in DRAM, and those of every other subnode in its predecessor,
        /// as in the paper. Saves about a byte of DRAM per key and costs a line read for every item that is not in the
        /// head.
        delegate_fingerprints = 0 in [0, 1];
    }
    where |own| slots_of(own.subnode_bytes as usize) * own.max_subnodes as usize <= LEAF_SLOTS_MAX
        => "max_subnodes=5 needs a subnode_bytes of 128 or 192: a leaf has at most 56 slots";
}

impl SsTreeOptions {
    fn shape(self) -> Shape {
        Shape::new(self.subnode_bytes as usize, self.max_subnodes as usize, self.delegate_fingerprints == 0)
    }
}

/// The tree. See the module's protocol.
pub struct SsTree<K: KeyCodec, M: Medium> {
    pool: Arc<PoolFile<M>>,
    subnodes: Heap<M>,
    keys: Items<K, M>,
    values: Values<M>,
    shape: Shape,
    moving: bool,
    /// Whether an insert saves a fence by staging its item in the head's line.
    staging: bool,
    inner: VolatileIndex<K>,
    leaves: Leaves,
    len: Counter,
    epochs: Epochs,
    saver: IndexSaver<M>,
}

impl<K: KeyCodec, M: Medium> SsTree<K, M> {
    #[inline(always)]
    fn medium(&self) -> &M {
        self.pool.medium()
    }

    #[inline(always)]
    fn version_of(&self, leaf: u32) -> Option<Version> {
        self.leaves.get(leaf).lock.read()
    }
}
