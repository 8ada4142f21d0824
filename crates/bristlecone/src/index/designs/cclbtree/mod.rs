//! CCL-BTree: buffers at the leaves, a sequential log.
//!
//! Li et al., *CCL-BTree: A Crash-Consistent Locality-Aware B+-Tree for Reducing XPBuffer-Induced Write Amplification
//! in Persistent Memory*. Media write 256 bytes at a time, so the number of such writes matters. A small *buffer* in
//! DRAM before every leaf collects items, and writes them together with the item that overflows it, in one media line.
//! A log, written sequentially, makes buffered items durable.
//!
//! ```text
//! DRAM   inner index --> buffer: version lock | leaf, pending, used, removed, epochs | items
//!                                               |
//! PM     leaf (256 B)                           v            leaf
//!        bitmap and next in ONE word  ---------------------> bitmap, next -->
//!        stamp: entries up to here are merged                stamp
//!        fingerprints                                        fingerprints
//!        slots 0..14; the key in slot 0 is the low fence     slots
//!
//!        log, a chunk per thread: stamp | key | value    (24 B an entry)
//! ```
//!
//! **The word that commits** is the stamp of a log entry for buffered items, and the word of a leaf for everything
//! else: the slots that hold items, and the next leaf. Writers hold the leaf's lock until their change is durable;
//! readers do not lock and validate its version.
//!
//! **Sequences.** A change made under a leaf's lock has the count of that lock as its sequence, in log entries as in
//! the leaf's stamp. So no clock is read, and no line is shared. Sequences of two leaves are not compared: entries must
//! be assigned to their original leaf. Therefore a leaf's low fence is permanently in slot 0, whether its item is
//! present or not. (With fences that recovery derives from the smallest keys, as in the paper, an entry between the
//! largest key of one leaf and the smallest of the next may be compared with the wrong leaf, and be lost.)
//!
//! # Write (the buffer has space, or has the key already)
//! 1. Keys and values that do not fit a word are written out of line and flushed. *A crash here: nothing refers to the
//!    records; recovery finds their slots free.*
//! 2. The entry is appended to this thread's log (see [`Log`]). *The change is present, or not.*
//! 3. The item is written to the buffer, over an older pending one of its key.
//!
//! An upsert that does not return the previous value does not search the leaf: its item is *uncounted* until the next
//! flush, or until an operation needs information that only the leaf has.
//!
//! # Flush (no space in the buffer: all pending items and the new item, which is not logged)
//! 1. If new items need the slots of removed ones, the word drops those first; flush, fence. *A pending removal is in
//!    the log; the new one is not acknowledged.*
//! 2. New items are written to free slots, new values over old ones; flush, fence. *Values over old ones are in the
//!    log, or are the one unacknowledged change. New items' bits are clear.*
//! 3. The word is stored. *All new items are present, or none. The pending items are still in the log.*
//! 4. The stamp invalidates the log entries; one flush with the word, one fence. The line keeps their order: the stamp
//!    must never be durable without the word, or the pending items would be lost. (The paper stores the timestamp
//!    first.)
//!
//! With `log_all` the new item's entry follows, already invalid. Flushed items stay in the buffer for readers, until
//! they are overwritten.
//!
//! # Many (writes of words, in different leaves)
//! 1. Write 2 or flush 2 of all items; one fence for the entries, and for the lines of the leaves. The leaves stay
//!    locked, and so does the log of the thread. *Each logged change is present, or not; of the others nothing
//!    happened.*
//! 2. Flush 3 and 4 of the leaves whose buffer had no space; one fence, then the leaves are unlocked. *Each of these
//!    changes is present, or not.*
//!
//! # Place (there is no space to flush the buffer, and the leaf holds the item)
//! 1. A removal clears the bit in the leaf's word; flush, fence. *The item is present, or not.*
//! 2. An out-of-line value is written; flush, fence. Then the value word is stored; flush, fence. *Old or new value.*
//!
//! # Split (the leaf has no space for its buffer's items)
//! 1. The upper half of all items is written to a new leaf; flush, fence. *Nothing refers to it.*
//! 2. One store of the old leaf's word drops the moved items and links the new leaf; flush, fence. *Split or not.
//!    Pending items of the lower half are still in the log; those of the upper half were invalidated by the new leaf's
//!    stamp.*
//! 3. The new items of the lower half are merged into the old leaf: flush 2 to 4.
//!
//! Items above all others of the leaf leave it full. For items below all others, the new leaf is full. So ascending and
//! descending loads leave full leaves behind.
//!
//! # Merge (after a flush, the leaf is less than half full, and the left leaf has space)
//! 1. The pending items of the left leaf are flushed, because its stamp is about to rise.
//! 2. The right leaf's items, for which nothing is pending, are written to free slots of the left one; flush, fence.
//!    *Their bits are clear.*
//! 3. The stamp rises above both; then the word adds the items and links past the right leaf; one flush, one fence. The
//!    line keeps their order: entries of the right leaf must be invalid before its range belongs to the left one.
//!    *Merged or not.*
//!
//! A removal of a leaf's last item is flushed immediately, so that the leaf can be freed.
//!
//! # Collect (the log has TH_log percent of the leaves' bytes)
//! 1. Every thread rotates to a new chunk. The epoch of a pending item identifies its log.
//! 2. Buffer after buffer, pending entries of the old log are copied to the new one, while writers continue. Leaves are
//!    not written.
//! 3. The copies are fenced.
//! 4. The old chunks are emptied (see [`Log::recycle`]). *Before: both logs have the pending entries, and the copies
//!    are newer. After: only the new one has them.* Only now may the records of removed keys be reused, because entries
//!    of the old log refer to them.
//!
//! A thread of the tree does this in the background. Without that thread, or if it lags by a quarter, each writer
//! processes a few buffers. If that is not enough, the log still does not grow beyond one and a half times its limit:
//! writes flush their buffers instead, as they do when there is no space for a log. So no thread waits, and the log is
//! bounded. Only a write without space runs a whole collection itself, once, before it fails. Pending items of a leaf
//! that overflows can be changed or removed even then, by an entry behind the copies.
//!
//! # Create
//! 1. An empty leaf is written; flush, fence. *Nothing refers to it, and the tree is created again.*
//! 2. The directory refers to it; flush, fence. *The tree exists.*
//!
//! # Recover
//! (1) The chain of leaves is followed from the first one, which the directory refers to. (2) Their items and fences
//! are read; wrong fingerprints are rewritten. (3) Log entries above their leaf's stamp become pending again; a damaged
//! one is an error. The log stays unchanged. (4) Chunks without a leaf or a valid record return to the pool. *A crash
//! in between: the chain and the log are unchanged.*

mod apply;
mod buffer;
mod check;
mod collect;
mod flush;
pub(in crate::index) mod layout;
mod many;
mod merge;
mod read;
mod recover;
mod room;
mod scan;
mod split;
#[cfg(test)]
mod tests;
mod write;

use std::ops::Deref;
use std::sync::Arc;

use bristlecone_pm::Medium;

use self::buffer::Buffers;
use self::collect::{Collector, Thread};
use self::layout::{Leaf, SLOTS_MAX};
use self::room::Promised;
use crate::index::options::{Parameters, design_options, experimental};
use crate::index::parts::buffered::{Store, TreeLog};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::index_saver::IndexSaver;
use crate::index::parts::optimistic_lock::Version;
use crate::index::parts::search::Level;
use crate::index::parts::volatile_index::VolatileIndex;

design_options! {
    /// Options of a CCL-BTree, fixed when it is created.
    pub struct CclBTreeOptions of "cclbtree" {
        /// Items that a leaf's buffer gathers, the paper's N_batch. With 0 there are no buffers and no log: the paper's
        /// `Base`.
        batch = 2 in (0..=8);
        /// Slots of a leaf.
        leaf_slots = 14 in (4..=14);
        /// Bytes of an inner node.
        inner_bytes = 512 in (256..=4096) step 64;
        /// The log is collected when it has this percentage of the leaves' bytes, the paper's TH_log. The paper uses
        /// 20, and half of that is pending anyway: a log twice as long is collected a third as often.
        log_percent = 40 in (1..=1000);
        /// Entries of a log chunk; 0: as many as fit.
        log_entries = 0 in (0..=4_294_967_296);
        /// Whether writes that flush their buffer are also logged, the paper's `+BNode`. They are logged after they are
        /// in their leaf, at the same cost: so a write without space leaves no entry.
        log_all = 0 in [0, 1] for experimental;
        /// Log collection policy: 0 copies needed entries to a new log; 1 stops all writers and flushes every buffer,
        /// like the paper's naive policy.
        naive_collection = 0 in [0, 1] for experimental;
        /// Threads that collect the log in the background. Without one, and whenever it lags, writers keep the log
        /// bounded.
        collector_threads = 1 in [0, 1] for experimental;
    }
    // Two leaves must hold the items of one and its buffer, if a slot is reserved for the fence.
    where |own| own.batch + 2 <= own.leaf_slots => "batch must be at most leaf_slots - 2";
}

const _: () = assert!(buffer::BATCH_MAX == 8 && SLOTS_MAX == 14, "what the options allow");

/// The tree. The module's head describes the protocol.
pub struct CclBTree<K: KeyCodec, M: Medium> {
    core: Arc<Core<K, M>>,
    collector: Thread,
}

/// State that the threads of a tree share with its collector.
pub struct Core<K: KeyCodec, M: Medium> {
    store: Store<Leaf, K, M>,
    saver: IndexSaver<M>,
    options: CclBTreeOptions,
    log: TreeLog<M>,
    inner: VolatileIndex<K>,
    buffers: Buffers,
    level: Level,
    collection: Collector,
    /// Leaves with reserved space: see [`room`].
    promised: Promised,
}

impl<K: KeyCodec, M: Medium> Deref for CclBTree<K, M> {
    type Target = Core<K, M>;

    #[inline(always)]
    fn deref(&self) -> &Core<K, M> {
        &self.core
    }
}

impl<K: KeyCodec, M: Medium> Deref for Core<K, M> {
    type Target = Store<Leaf, K, M>;

    #[inline(always)]
    fn deref(&self) -> &Store<Leaf, K, M> {
        &self.store
    }
}

impl<K: KeyCodec, M: Medium> Core<K, M> {
    /// Returns whether writes that flush their buffer are also logged: in experiments only.
    #[inline(always)]
    fn logs_all(&self) -> bool {
        experimental(self.options.log_all, 0) != 0
    }

    #[inline(always)]
    fn version_of(&self, leaf: u32) -> Option<Version> {
        let buffer = self.buffers.get(leaf);
        // About half of all buffers span two lines.
        buffer.prefetch_end();
        buffer.lock.read()
    }
}
