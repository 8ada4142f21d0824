//! CCL-BTree: buffers at the leaves, a log in sequence.
//!
//! Li et al., *CCL-BTree: A Crash-Consistent Locality-Aware B+-Tree for Reducing XPBuffer-Induced
//! Write Amplification in Persistent Memory*. Media write 256 bytes at a time, so those are what
//! counts: a small *buffer* in DRAM before every leaf gathers items and writes them together,
//! with the one that overflows it, in one media line. A log, written in sequence, keeps what is
//! buffered durable.
//!
//! ```text
//! DRAM   inner index --> buffer: version lock | leaf, pending, used, removed, epochs | items
//!                                               |
//! PM     leaf (256 B)                           v            leaf
//!        bitmap and next in ONE word  ---------------------> bitmap, next -->
//!        stamp: entries up to here have arrived              stamp
//!        fingerprints                                        fingerprints
//!        slots 0..14; the key in slot 0 is the low fence     slots
//!
//!        log, a chunk per thread: stamp | key | value    (24 B an entry)
//! ```
//!
//! **The word that commits** is the stamp of a log entry for what is buffered, and the word of a
//! leaf for everything else: which slots hold items, and which leaf comes next. Writers hold the
//! leaf's lock until what they did is durable; readers look without a lock and validate its
//! version.
//!
//! **Sequences.** What is done under a leaf's lock has the count of that lock as its sequence, in
//! log entries as in the leaf's stamp. So no clock is asked, and no line is shared. Sequences of
//! two leaves are not compared: entries must be given to the leaf they were meant for. That is why
//! a leaf's low fence stands in slot 0 for good, whether its item is there or not. (With fences
//! that recovery guesses from the smallest keys, as in the paper, an entry between the largest key
//! of one leaf and the smallest of the next may be judged by the wrong leaf, and be lost.)
//!
//! # Write (the buffer has room, or has the key already)
//! 1. What does not fit a word is written out of line and flushed. *A crash here: nothing refers to
//!    the records; recovery finds their slots free.*
//! 2. The entry is appended to this thread's log (see [`Log`]). *The change is there, or not.*
//! 3. The item goes into the buffer, over an older pending one of its key.
//!
//! An upsert that does not return what was there does not look at the leaf: its item is *uncounted* until
//! the next flush, or until an operation asks for what only the leaf knows.
//!
//! # Flush (no room in the buffer: everything pending and the new item, which is not logged)
//! 1. If new items need the slots of removed ones, the word lets those go first; flush, fence. *A
//!    removal that pends is in the log; the new one is not acknowledged.*
//! 2. New items go into free slots, new values over old ones; flush, fence. *Values over old ones
//!    are in the log, or the one unacknowledged change. New items' bits are clear.*
//! 3. The word is stored. *All new items are there, or none. What pended is in the log still.*
//! 4. The stamp voids the log entries; one flush with the word, one fence. The line keeps their
//!    order: the stamp must never be there without the word, or what pended would be lost. (The
//!    paper stores the timestamp first.)
//!
//! With `log_all` the new item's entry follows, void already. Flushed items stay in the buffer for readers, until
//! they are overwritten.
//!
//! # Place (what is buffered has no room, and the leaf holds the item)
//! 1. A removal clears the bit in the leaf's word; flush, fence. *The item is there, or not.*
//! 2. A value out of line is written; flush, fence. Then the value word is stored; flush, fence. *Old or new value.*
//!
//! # Split (the leaf has no room for what its buffer gathered)
//! 1. The upper half of all items is written to a new leaf; flush, fence. *Nothing leads to it.*
//! 2. One store of the old leaf's word drops what moved and leads on to the new leaf; flush,
//!    fence. *Split or not. What pends for the lower half is in the log still; for the upper half
//!    the new leaf's stamp has voided it.*
//! 3. The old leaf takes the new items of the lower half: flush 2 to 4.
//!
//! Items above all others of the leaf leave it full, for ascending loads.
//!
//! # Merge (a flush leaves less than half, and the left leaf has room)
//! 1. What pends for the left leaf is flushed, because its stamp is about to rise.
//! 2. The right leaf's items, for which nothing pends, go into free slots of the left one; flush,
//!    fence. *Their bits are clear.*
//! 3. The stamp rises above both; then the word takes the items in and leads past the right leaf;
//!    one flush, one fence. The line keeps their order: entries of the right leaf must be void
//!    before its range is the left one's. *Merged or not.*
//!
//! A removal that takes a leaf's last item is flushed at once, so that the leaf can go.
//!
//! # Collect (the log has TH_log percent of the leaves' bytes)
//! 1. Every thread rotates to a new chunk. What pends says by its epoch which log it is in.
//! 2. Buffer after buffer, what pends and is in the old log is copied to the new one, while
//!    writers go on. Leaves are not written.
//! 3. The copies are fenced.
//! 4. The old chunks are emptied (see [`Log::recycle`]). *Before: both logs hold what pends, with
//!    the copies newer. After: the new one does.* Only now may the records of removed keys be used
//!    again, because entries of the old log name them.
//!
//! A thread of the tree does this in the background. Where there is none, or where it lags by a
//! quarter, writers do a few buffers each. If that does not help either, the log still does not
//! grow beyond one and a half of its measure: writes flush their buffers instead, as they do when
//! there is no room for a log. So no thread waits, and the log is bounded. Only a write that
//! finds no room collects everything itself, once, before it gives up; and what pends in a leaf that
//! overflows can be changed or removed even then, by an entry behind the copies.
//!
//! # Create
//! 1. An empty leaf is written; flush, fence. *Nothing leads to it, and the tree is made anew.*
//! 2. The directory names it; flush, fence. *The tree is there.*
//!
//! # Recover
//! (1) The chain of leaves is followed from the first one, which the directory names. (2) Their
//! items and fences are read; fingerprints that are not right are written again. (3) Log entries above
//! their leaf's stamp pend again; a damaged one is an error. The log stays as it is. (4) Chunks without a
//! leaf or a record that counts go back to the pool. *A crash in between: the chain and the log say the same as before.*

mod apply;
mod buffer;
mod check;
mod collect;
mod flush;
pub(in crate::index) mod layout;
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
use crate::index::options::{Parameters, design_options};
use crate::index::parts::buffered::{Store, TreeLog};
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::parts::keeper::Keeper;
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
        /// The log is collected when it has this many percent of the leaves' bytes, the paper's TH_log. The paper's is
        /// 20, and half of that is what pends anyway: a log twice as long is collected a third as often.
        log_percent = 40 in (1..=1000);
        /// Entries of a log chunk; 0: as many as it has room for.
        log_entries = 0 in (0..=4_294_967_296);
        /// Whether writes that flush their buffer are logged, too, the paper's `+BNode`. They are logged once they are
        /// in their leaf, at the same cost: so a write that finds no room leaves no entry.
        log_all = 0 in [0, 1];
        /// How the log is collected: 0 copies what is still needed to a new log; 1 stops all writers and flushes every
        /// buffer, as the paper's naive policy does.
        naive_collection = 0 in [0, 1];
        /// Threads that collect the log in the background. Without one, and whenever it lags, writers see to it that the
        /// log stays bounded.
        collector_threads = 1 in [0, 1];
    }
    // Two leaves must hold what one and its buffer gathered, if a slot is the fence's alone.
    where |own| own.batch + 2 <= own.leaf_slots => "batch must be at most leaf_slots - 2";
}

const _: () = assert!(buffer::BATCH_MAX == 8 && SLOTS_MAX == 14, "what the options allow");

/// The tree, whose protocol stands at the head of the module.
pub struct CclBTree<K: KeyCodec, V: Codec, M: Medium> {
    core: Arc<Core<K, V, M>>,
    collector: Thread,
}

/// What the threads of a tree share with its collector.
pub struct Core<K: KeyCodec, V: Codec, M: Medium> {
    store: Store<Leaf, K, V, M>,
    keeper: Keeper<M>,
    options: CclBTreeOptions,
    log: TreeLog<M>,
    inner: VolatileIndex<K>,
    buffers: Buffers,
    level: Level,
    collection: Collector,
    /// Leaves that are promised room: see [`room`].
    promised: Promised,
}

impl<K: KeyCodec, V: Codec, M: Medium> Deref for CclBTree<K, V, M> {
    type Target = Core<K, V, M>;

    #[inline(always)]
    fn deref(&self) -> &Core<K, V, M> {
        &self.core
    }
}

impl<K: KeyCodec, V: Codec, M: Medium> Deref for Core<K, V, M> {
    type Target = Store<Leaf, K, V, M>;

    #[inline(always)]
    fn deref(&self) -> &Store<Leaf, K, V, M> {
        &self.store
    }
}

impl<K: KeyCodec, V: Codec, M: Medium> Core<K, V, M> {
    #[inline(always)]
    fn version_of(&self, leaf: u32) -> Option<Version> {
        let buffer = self.buffers.get(leaf);
        // A buffer stands in two lines as often as not.
        buffer.prefetch_end();
        buffer.lock.read()
    }
}
