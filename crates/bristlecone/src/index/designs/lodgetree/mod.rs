//! LodgeTree: the buffer lodges in the last-level inner nodes.
//!
//! *LodgeTree: a last-level distributed and surrogate buffer tree for non-volatile memory.* A quarter to a half of the
//! last-level inner nodes is empty. Items are buffered there, and written to a few leaves at a time. A log, one
//! partition for each thread, makes buffered items durable.
//!
//! ```text
//! DRAM   inner index --> node: one lock for the node and its leaves
//!                        separators and leaves -->  ...  <-- buffered items
//!                              |                             each knows its leaf and its log
//! PM     leaf (512 B)          v                  leaf
//!        word: bitmap | the valid sibling         word
//!        siblings ------------------------------> siblings -->
//!        stamp: entries up to here are merged     stamp
//!        fingerprints | low fence | 27 slots
//!
//!        logs, one for each thread at a time: stamp | key | value   (24 B an entry)
//! ```
//!
//! **The word that commits** is the stamp of a log entry for buffered items, and the word of a leaf for everything
//! else. Writers hold the node's lock until their change is durable; readers do not lock and validate its version.
//! Readers therefore never return a value that a crash could undo, and wait at most for a flush of `flush_leaves`
//! leaves and a log entry. A reader whose validation fails a few times in a row locks the node, so that none starves.
//!
//! **Sequences.** A change made under a node's lock has the count of that lock as its sequence, in log entries as in
//! the leaves' stamps. So writes to one key have the order of the lock, in any partition. An entry is valid only above
//! its leaf's stamp: an old value in a log that another entry keeps alive is invalid once anything newer is merged
//! into the leaf. (The paper replays every remaining log, which restores the old value of such a key.)
//!
//! # Write
//! 1. Keys and values that do not fit a word are written out of line and flushed. *A crash here: nothing refers to the
//!    records; recovery finds their slots free.*
//! 2. The item is written to the node's buffer, over an older one of its key. No thread reads the buffer before the
//!    node is unlocked.
//! 3. The entry is appended to this thread's log (see [`Log`](bristlecone_pm::Log)). *The change is present, or not.*
//!    Only now is the older item's entry no longer needed.
//!
//! A write that returns the previous value searches the leaf first. An upsert does not, so it accesses only the log on
//! the medium: whether its key is new is determined, and counted, when it is flushed, or when the number of items is
//! requested. An out-of-line key that the leaf has already is written once more; the leaf keeps its own.
//!
//! # Flush (the node is full)
//! The write that finds no space is not logged. It is merged into its leaf immediately, with all items buffered for
//! that leaf and for the leaves of the oldest items, until `flush_leaves` leaves are found or one would split. If its
//! own leaf or the first of the others would split, it is not flushed itself, but logged after others have made space.
//! Then the buffer is scanned from its oldest item in the same way, except that a leaf that would split and is the
//! first is flushed alone. A leaf that would split for a single item is postponed, because its new leaf takes the slot
//! that it frees. All items buffered for these leaves are written:
//! 1. If new items need the slots of removed ones, the word drops those first; flush, fence.
//! 2. New items are written to free slots, new values over old ones; flush, one fence for all leaves. *Values over old
//!    ones are in the log. New items' bits are clear.* Meanwhile the items leave the buffer.
//! 3. The words are stored. *All new items of a leaf are present, or none. The log still has them.*
//! 4. The stamps invalidate the log entries; one flush with the word, one fence for all leaves. The line keeps their
//!    order: the stamp must never be durable without the word. A full log without needed entries is then emptied and
//!    reused. A write that is logged afterwards needs no fence here: that of its entry suffices, because the log still
//!    has everything. *A crash here: the log may have one entry more than the buffer has space for; therefore this
//!    does not apply if a node has only one leaf, or if the maximum is buffered for the write's leaf.* Its sequence is
//!    one above the stamps'.
//!
//! # Place (there is no space to flush the buffer, and the leaf holds the item)
//! 1. A removal clears the bit in the leaf's word; flush, fence. *The item is present, or not.*
//! 2. An out-of-line value is written; flush, fence. Then the value word is stored; flush, fence. *Old or new value.*
//!
//! # Split of a leaf (it would hold more than `split_items`)
//! 1. The upper half of all items is written to a new leaf; flush, fence. *Nothing refers to it.*
//! 2. The invalid sibling pointer is set to the new leaf; then one store of the word drops the moved items, and
//!    switches to that pointer. Flush, fence. *Split or not. Buffered items of the lower half are still in the log;
//!    those of the upper half were invalidated by the new stamp.* If nothing is buffered for the lower half, the stamp
//!    rises with the word, and the split is complete: the fence is as in flush 4.
//! 3. The new items of the lower half are merged into the old leaf: flush 2 to 4.
//!
//! Items above all others of the leaf leave it full. For items below all others, the new leaf is full. So ascending and
//! descending loads leave full leaves behind, except for the slots of late keys (`parts/split.rs`).
//!
//! # Split of a node (its index part leaves less than a quarter for the buffer)
//! Volatile. Into as many nodes as the last time; one more in a burst, one fewer when it has cooled; but at most as
//! many as the parent has space for.
//!
//! # Merge (a removal leaves a leaf less than a third full)
//! 1. The items buffered for it and its neighbour in the node are flushed.
//! 2. The right leaf's items are written to free slots of the left one; flush, fence. *Their bits are clear.*
//! 3. The stamp rises above both; then the invalid pointer is set past the right leaf, and the word adds the items and
//!    switches. One flush, one fence. *Merged or not.*
//!
//! Small nodes merge with a neighbour, which is volatile; so leaves of two nodes can merge, too.
//!
//! # Compact (there are more logs than the buffered items need)
//! 1. The oldest logs are to be freed; or all of them, and every thread rotates to a new one, if set-aside keys wait
//!    for it.
//! 2. Node after node, a few with every write, the buffered entries in these logs are appended again; flush, one fence
//!    for a node. *Both copies are equal; the newer one is valid.* If the log has no space left for that, items that
//!    fit are merged into the leaves: flush 1 to 4.
//! 3. These logs are emptied. If all were, the records of removed keys, which entries of old logs refer to, may be
//!    reused.
//!
//! So an old entry cannot pin a log forever. While the pass lags, the logs grow by a quarter at most, or by one for
//! each thread: then writes bypass the log and go to their leaves instead, as they do when there is no space for a
//! log. Their records are fenced first. No thread waits. Only a write without space runs a whole pass itself, once,
//! before it fails. Buffered items of a full leaf can be changed or removed even then, by an entry behind the copies.
//!
//! # Create
//! 1. An empty leaf is written; flush, fence. *Nothing refers to it, and the tree is created again.*
//! 2. The directory refers to it; flush, fence. *The tree exists.*
//!
//! # Recover
//! (1) The chain of leaves is followed from the first one, which the directory refers to. (2) Their items and fences
//! are read. (3) Log entries above their leaf's stamp are buffered again, log by log on several threads; a damaged one
//! is an error. (4) Nodes are built over the leaves, with space for the buffered items.

mod apply;
mod buffer;
mod check;
mod flush;
mod gather;
pub(in crate::index) mod layout;
mod log;
mod merge;
mod node;
mod places;
mod read;
mod recover;
mod room;
mod scan;
mod split;
#[cfg(test)]
mod tests;
mod versions;
mod write;

use std::ops::Deref;

use bristlecone_pm::Medium;

use self::layout::{Header, SLOTS_MAX};
use self::node::Nodes;
use self::places::NODE_SLOTS_MAX;
use self::versions::VersionLog;
use crate::index::options::{Parameters, design_options, experimental};
use crate::index::parts::buffered::Store;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::counter::Counter;
use crate::index::parts::index_saver::IndexSaver;
use crate::index::parts::optimistic_lock::{LockState, Version};
use crate::index::parts::volatile_index::VolatileIndex;

design_options! {
    /// Options of a LodgeTree, fixed when it is created.
    pub struct LodgeTreeOptions of "lodgetree" {
        /// Slots of a last-level inner node, for leaves and buffered items.
        node_slots = 29 in (6..=36);
        /// Slots of a leaf.
        leaf_slots = 27 in (3..=27);
        /// Bytes of a node above the last level.
        inner_bytes = 512 in (256..=4096) step 64;
        /// Leaves that a flush writes, the paper's t_node. With 36 it writes all items buffered in a node, until a leaf
        /// would split; with 1 every write is logged.
        flush_leaves = 2 in (1..=36) for experimental;
        /// Items above which a leaf splits, the paper's t_split; at most `leaf_slots` is effective.
        split_items = 26 in (2..);
        /// Ratio between the times since a node's last split and before it that counts as a burst (shorter) or a
        /// cooling (longer), the paper's t. With 1 any difference counts; the paper does not state its value.
        burst_ratio = 1 in (1..=1000) for experimental;
        /// Maximum number of nodes that a node splits into. With 2 the split is the double split that the paper
        /// compares with.
        split_nodes = 4 in (2..=8) for experimental;
        /// Entries of a log; 0: as many as a chunk holds.
        log_entries = 0 in (0..=4_294_967_296);
    }
}

const _: () = assert!(NODE_SLOTS_MAX == 36 && SLOTS_MAX == 27, "what the options allow");

/// The tree. The module's head describes the protocol.
pub struct LodgeTree<K: KeyCodec, M: Medium> {
    store: Store<Header, K, M>,
    saver: IndexSaver<M>,
    options: LodgeTreeOptions,
    versions: VersionLog<M>,
    inner: VolatileIndex<K>,
    nodes: Nodes,
    node_slots: usize,
    /// Number of leaves above which a node splits.
    index_max: usize,
    split_items: usize,
    flush_leaves: usize,
    /// Number of unseen buffered items.
    unseen: Counter,
    /// Number of leaf splits so far: the clock for hotness.
    clock: Counter,
}

impl<K: KeyCodec, M: Medium> Deref for LodgeTree<K, M> {
    type Target = Store<Header, K, M>;

    #[inline(always)]
    fn deref(&self) -> &Store<Header, K, M> {
        &self.store
    }
}

impl<K: KeyCodec, M: Medium> LodgeTree<K, M> {
    /// Returns the maximum number of leaves that a flush writes.
    #[inline(always)]
    fn flush_leaves(&self) -> usize {
        experimental(self.flush_leaves as u64, 2) as usize
    }

    #[inline(always)]
    fn version_of(&self, node: u32) -> Option<Version> {
        self.version_as::<false>(node)
    }

    /// Returns the version of a node, with compile-time knowledge whether it has the `DEFAULT` layout.
    #[inline(always)]
    fn version_as<const DEFAULT: bool>(&self, node: u32) -> Option<Version> {
        let node = self.nodes.get_as::<DEFAULT>(node);
        node.prefetch();
        node.lock.read()
    }

    /// Returns the version of an unlocked node, for threads that hold a lock and must not wait for another one.
    fn version_if_free(&self, node: u32) -> Option<Version> {
        match self.nodes.get(node).lock.try_read() {
            LockState::Free(version) => Some(version),
            LockState::Locked | LockState::Obsolete => None,
        }
    }
}
