//! LodgeTree: the buffer lodges in the last-level inner nodes.
//!
//! *LodgeTree: a last-level distributed and surrogate buffer tree for non-volatile memory.* A
//! quarter to a half of the last-level inner nodes is empty. Items are buffered there, and written
//! to a few leaves at a time; a log, one partition for each thread, keeps what is buffered durable.
//!
//! ```text
//! DRAM   inner index --> node: one lock for the node and its leaves
//!                        separators and leaves -->  ...  <-- buffered items
//!                              |                             each knows its leaf and its log
//! PM     leaf (512 B)          v                  leaf
//!        word: bitmap | which sibling counts      word
//!        siblings ------------------------------> siblings -->
//!        stamp: entries up to here have arrived   stamp
//!        fingerprints | low fence | 27 slots
//!
//!        logs, one for each thread at a time: stamp | key | value   (24 B an entry)
//! ```
//!
//! **The word that commits** is the stamp of a log entry for what is buffered, and the word of a
//! leaf for everything else. Writers hold the node's lock until what they did is durable; readers
//! look without a lock and validate its version. So they are never shown what a crash can take
//! back, and wait at most for a flush of `flush_leaves` leaves and a log entry. A reader that was disturbed a
//! few times in a row locks the node, so that none starves.
//!
//! **Sequences.** What is done under a node's lock has the count of that lock as its sequence, in
//! log entries as in the leaves' stamps. So writes to one key are ordered as the lock ordered them,
//! whichever partition they are in. An entry counts only above its leaf's stamp: an old value in a
//! log that some other entry keeps alive is void once anything newer has reached the leaf. (The
//! paper replays every log that is left, which sets such a key back.)
//!
//! # Write
//! 1. What does not fit a word is written out of line and flushed. *A crash here: nothing refers to
//!    the records; recovery finds their slots free.*
//! 2. The item goes into the node's buffer, over an older one of its key. No thread looks there before the
//!    node is unlocked.
//! 3. The entry is appended to this thread's log (see [`Log`](bristlecone_pm::Log)). *The change is
//!    there, or not.* Only now the older item's entry is no longer needed.
//!
//! A write that returns what was there looks into the leaf first. An upsert does not, so it touches
//! the log and nothing else on the medium: whether its key is new is seen, and counted, when it is
//! flushed, or when the number of items is asked for. A key out of line that the leaf has
//! already is written once more; the leaf keeps its own.
//!
//! # Flush (the node is full)
//! The write that finds no room is not logged: it goes to its leaf right away, with all that is
//! buffered for that leaf, and for those of the oldest items, until `flush_leaves` leaves are found
//! or one would split. If already its own or the first of the others would split, it is not flushed
//! itself, but logged when others have made room. Then the buffer is gone through from its oldest
//! item in the same way, but for a leaf that would split and is the first: that is flushed alone. One
//! that would split for a single item waits, because its new leaf takes the slot that it leaves. All
//! that is buffered for these leaves is written:
//! 1. If new items need the slots of removed ones, the word lets those go first; flush, fence.
//! 2. New items go into free slots, new values over old ones; flush, one fence for all leaves.
//!    *Values over old ones are in the log. New items' bits are clear.* Meanwhile the items leave the
//!    buffer.
//! 3. The words are stored. *All new items of a leaf are there, or none. The log has them still.*
//! 4. The stamps void the log entries; one flush with the word, one fence for all leaves. The line
//!    keeps their order: the stamp must never be there without the word. A full log that then has no
//!    needed entry left is emptied, and used again. A write that is logged afterwards needs no fence
//!    here: that of its entry is soon enough, as the log has everything still. *A crash here: the log
//!    may have one entry more than the buffer has room for; so not where a node has one leaf only, or as
//!    much is buffered for the write's leaf as may be.* Its sequence is one above the stamps'.
//!
//! # Place (what is buffered has no room, and the leaf holds the item)
//! 1. A removal clears the bit in the leaf's word; flush, fence. *The item is there, or not.*
//! 2. A value out of line is written; flush, fence. Then the value word is stored; flush, fence. *Old or new value.*
//!
//! # Split of a leaf (it would hold more than `split_items`)
//! 1. The upper half of all items is written to a new leaf; flush, fence. *Nothing leads to it.*
//! 2. The sibling pointer that does not count is led to the new leaf; then one store of the word
//!    drops what moved, and switches to that pointer. Flush, fence. *Split or not. What is buffered
//!    for the lower half is in the log still; for the upper half the new stamp has voided it.* If
//!    nothing is buffered for the lower half, the stamp rises with the word, and that was all: the
//!    fence is as in flush 4.
//! 3. The old leaf takes what is new of the lower half: flush 2 to 4.
//!
//! Items above all others of the leaf leave it full, for ascending loads.
//!
//! # Split of a node (its index part leaves less than a quarter to the buffer)
//! Volatile. Into as many nodes as the last time; one more in a burst, one fewer when it has
//! cooled; but no more than the parent has room for.
//!
//! # Merge (a removal leaves a leaf less than a third)
//! 1. What is buffered for it and its neighbour in the node is flushed.
//! 2. The right leaf's items go into free slots of the left one; flush, fence. *Their bits are clear.*
//! 3. The stamp rises above both; then the pointer that does not count is led past the right leaf,
//!    and the word takes the items in and switches. One flush, one fence. *Merged or not.*
//!
//! Small nodes merge with a neighbour, which is volatile; so leaves of two nodes can merge, too.
//!
//! # Compact (there are more logs than what is buffered needs)
//! 1. The oldest logs are to go; or all, and every thread rotates to a new one, if keys wait for it.
//! 2. Node after node, a few with every write, what is buffered and stands in a log that is to go is
//!    appended again; flush, one fence for a node. *Both say the same; the newer one counts.*
//!    Where the log has no room left for that, what fits goes to the leaves: flush 1 to 4.
//! 3. These logs are emptied. If all went, the records of removed keys may be used again, which
//!    entries of old logs name.
//!
//! So a straggler cannot keep a log for ever. While the pass lags, the logs grow by a quarter at most,
//! or by one for each thread: then writes go through to their leaves instead, as they do when there is
//! no room for a log. Their records are fenced first. No thread waits. Only a write that finds no room makes a whole
//! pass itself, once, before it gives up; and what is buffered for a full leaf can be changed or removed even then,
//! by an entry behind the copies.
//!
//! # Create
//! 1. An empty leaf is written; flush, fence. *Nothing leads to it, and the tree is made anew.*
//! 2. The directory names it; flush, fence. *The tree is there.*
//!
//! # Recover
//! (1) The chain of leaves is followed from the first one, which the directory names. (2) Their
//! items and fences are read. (3) Log entries above their leaf's stamp are buffered again, log by
//! log on several threads; a damaged one is an error. (4) Nodes are built over the leaves, with room for what is
//! buffered.

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
use crate::index::options::{Parameters, design_options};
use crate::index::parts::buffered::Store;
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::parts::counter::Counter;
use crate::index::parts::keeper::Keeper;
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
        /// Leaves that a flush writes, the paper's t_node. With 36 it writes all that is buffered in a node, until a
        /// leaf would split; with 1 every write is logged.
        flush_leaves = 2 in (1..=36);
        /// Items above which a leaf splits, the paper's t_split; no more than `leaf_slots` counts.
        split_items = 26 in (2..);
        /// How many times as short or as long the time since a node's last split must be as the time before it to be a
        /// burst or a cooling, the paper's t. With 1 any difference counts; the paper does not say its own.
        burst_ratio = 1 in (1..=1000);
        /// Nodes that a node splits into, at most. With 2 the split is the double split that the paper compares with.
        split_nodes = 4 in (2..=8);
        /// Entries of a log; 0: as many as a chunk has room for.
        log_entries = 0 in (0..=4_294_967_296);
    }
}

const _: () = assert!(NODE_SLOTS_MAX == 36 && SLOTS_MAX == 27, "what the options allow");

/// The tree, whose protocol stands at the head of the module.
pub struct LodgeTree<K: KeyCodec, V: Codec, M: Medium> {
    store: Store<Header, K, V, M>,
    keeper: Keeper<M>,
    options: LodgeTreeOptions,
    versions: VersionLog<M>,
    inner: VolatileIndex<K>,
    nodes: Nodes,
    node_slots: usize,
    /// Leaves above which a node splits.
    index_max: usize,
    split_items: usize,
    flush_leaves: usize,
    /// Buffered items that were not looked for.
    unseen: Counter,
    /// Leaf splits so far: the time that hotness is measured in.
    clock: Counter,
}

impl<K: KeyCodec, V: Codec, M: Medium> Deref for LodgeTree<K, V, M> {
    type Target = Store<Header, K, V, M>;

    #[inline(always)]
    fn deref(&self) -> &Store<Header, K, V, M> {
        &self.store
    }
}

impl<K: KeyCodec, V: Codec, M: Medium> LodgeTree<K, V, M> {
    #[inline(always)]
    fn version_of(&self, node: u32) -> Option<Version> {
        self.version_as::<false>(node)
    }

    /// Returns the version of a node, of which the compiler knows whether it has the `DEFAULT` layout.
    #[inline(always)]
    fn version_as<const DEFAULT: bool>(&self, node: u32) -> Option<Version> {
        let node = self.nodes.get_as::<DEFAULT>(node);
        node.prefetch();
        node.lock.read()
    }

    /// Returns the version of a node that is not locked: for threads that hold a lock, and must not wait for another one.
    fn version_if_free(&self, node: u32) -> Option<Version> {
        match self.nodes.get(node).lock.try_read() {
            LockState::Free(version) => Some(version),
            LockState::Locked | LockState::Obsolete => None,
        }
    }
}
