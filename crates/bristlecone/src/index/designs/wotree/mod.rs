//! WO-tree: everything in persistent memory, few flushes.
//!
//! Ma et al., *Write-Optimized B+ Tree Index Technology for Persistent Memory*. Inner nodes and leaves are on the
//! medium, so a tree of any size is available immediately after a crash.
//!
//! ```text
//! PM     root (the tree's anchor)
//!          |
//!        inner   [ - |k1 |k2 |...]  next, high  ------------->  inner   next = 0
//!                  |   |   |                                       |
//!        leaf    bitmap, slot array   next, high  -->  leaf  -->  leaf   next = 0
//!                unordered items
//!        log     a lane for each pending operation
//! DRAM   a version lock for each node; nothing else
//! ```
//!
//! A leaf's items are unordered; its slot array defines their order. Inner entries are sorted. A node holds the keys
//! below its `high`; for a key at or above it, a search moves right, at every level. An entry missing in a parent
//! therefore costs a step but loses nothing.
//!
//! **The word that commits** is the leaf's state: the bitmap, and the bit that marks the slot array as valid. In nodes
//! of up to 16 lines it shares its line with the slot array: *invalid*, slot array, state are written in this order
//! with one flush. After a crash in between, recovery finds an invalid slot array and rebuilds it from the bitmap and
//! the keys. Nodes of 32 lines have a log record instead. The paper does this for every write, and smaller nodes do it
//! with the option `log_leaves`.
//!
//! Writers hold their leaf's lock until their change is durable; readers of a leaf do not lock and validate its
//! version. Inner nodes are searched without locks and without waiting: the order of the stores alone keeps a search
//! from going too far right (see `inner.rs`).
//!
//! # Insert
//! 1. Keys and values that do not fit a word are written out of line and flushed.
//! 2. The item is written to a free slot and flushed; one fence for both. *Its bit is clear: nothing happened.*
//!
//! # Commit (of an insert, a delete or a split)
//! 1. The valid bit of the state is cleared, and the slot array is written. Within the line this needs no flush. *The
//!    bitmap is the old one, and determines the slot array.*
//! 2. The new state; flush, fence. *Before or after.* With a log record: log 1, then state, second bitmap word and slot
//!    array, flushed in any order, and one fence. One bit changes at a time, so one of the two words changes. *The log
//!    refers to the leaf: its slot array is rebuilt.*
//!
//! # Many (inserts and updates of words, in different leaves whose line commits by itself)
//! 1. Insert 2 and update 2 of all items; one fence. The leaves stay locked. *Of the inserts nothing happened; each
//!    update happened, or did not.*
//! 2. Commit of all leaves with a new item; one fence, then the leaves are unlocked. *Each happened, or did not.*
//!
//! # Update
//! 1. An out-of-line value is written; flush, fence.
//! 2. The value word is stored in place; flush, fence. *Old or new value.*
//!
//! # Delete
//! A commit without the item's bit. Nothing must be durable before.
//!
//! # Log (changes that do not fit one line)
//! 1. The record, its kind last; flush, fence. *It is valid, or not.*
//! 2. When all steps are done and durable the kind becomes zero; flush, fence. *Completed steps are repeated, which
//!    changes nothing.* Rebuilds stay: they are valid for any leaf at any time.
//!
//! # Split (no free slot)
//! The leaf is locked, then its parent, and above a full one the next: up to the first with space, or the root. The
//! necessary nodes are allocated before anything is written. *A pool without space fails here, and nothing has changed.
//! From here on nothing fails, and no other thread fills these nodes.*
//! 1. Log: left node, right node, separator. *The right node is not linked: it is freed (recover 1).*
//! 2. The right node is written completely, every line flushed once; fence. *As before.*
//! 3. In one line of the left node: `next`, then `high`; flush, fence. *Linked: recovery completes the split from here
//!    (recover 2).*
//! 4. The left node drops the moved entries: a leaf by a commit, an inner node entry by entry; flush, fence.
//! 5. The parent gets an entry (enter), for which it may have to split first; then log 2. A root that splits gets a new
//!    one above it (grow).
//!
//! A key above all others of the leaf moves nothing: the new leaf begins empty. For a key below all others, all items
//! but the least move. So ascending and descending loads leave full leaves behind, except for the slots of late keys
//! (`parts/split.rs`).
//!
//! # Enter (an entry into an inner node with space)
//! 1. Entries shift right from the end, child before key, so that an entry that occurs twice is a duplicate of its left
//!    neighbour, which every reader skips. A line is flushed and fenced before the shift leaves it. *A duplicate, or
//!    nothing: the next writer removes it.*
//! 2. The position becomes a duplicate of its left neighbour, then gets the new key.
//! 3. Its child; flush, fence. *The entry is present, or it is a duplicate.*
//!
//! # Compact (duplicates leave an inner node)
//! 1. Entries shift left, key before child, a line at a time. A count of turns makes concurrent searches repeat.
//!
//! # Complete (an entry is missing above)
//! Splits leave none missing; earlier versions did if the pool was full. A writer that came through a left neighbour
//! locks that one and its ancestors, as a split does, and adds the missing entry. A split must do this before it
//! continues, because its parent must know the leaf. A free must do it as well, because its heir must be the right
//! neighbour. Other writers do it if there is space.
//!
//! # Grow (the root was split)
//! 1. Log: the new root. *It is not the root: it is freed (recover 3).*
//! 2. The new root is written with both halves; flush, fence.
//! 3. The anchor refers to it; flush, fence. Then log 2.
//!
//! # Shrink (a free left the root with one child)
//! 1. Log: the old root. *It is the root: nothing happened.*
//! 2. The anchor refers to the child; flush, fence. *The old root is freed (recover 3).*
//! 3. The old root's state becomes zero; flush, fence; log 2.
//!
//! # Free (a leaf without items, unless it is the first; one at a time, and no concurrent splits)
//! 1. Log, in its own lane: the leaf, the inner nodes that have no other child, the left neighbour of each, and the
//!    separator to be freed. *Repeated from here.*
//! 2. In the lowest remaining inner node the entry becomes a duplicate of the neighbour that inherits the range, and is
//!    compacted away.
//! 3. The left neighbours' `high`, if they inherit, and `next`; flushes, one fence.
//! 4. The nodes' states and the separator's owner become zero: free; flushes, one fence; log 2. Readers may still be in
//!    the nodes, which are reused after those have left.
//!
//! # Create
//! 1. The log's lanes become empty; flush, fence.
//! 2. An empty leaf is written; flush, fence. *Without a root the tree is created again.*
//! 3. The anchor refers to it; flush, fence. *The tree exists.*
//!
//! # Recover
//! Only the log is read: the time to open a tree does not depend on its number of keys.
//! 1. Splits that no reader could see are undone.
//! 2. The others are completed from step 3 on, upper levels first.
//! 3. A node that a record marks as root although it is not the root is freed; frees are completed; slot arrays marked
//!    by rebuilds are rebuilt.
//!
//! Free slots of the tree's chunks are determined when space is needed, a few at a time: a node is free according to
//! its state, a record if the item of its owner does not refer to it. The number of items is counted when it is
//! requested.
//!
//! # Damage
//! Because opening inspects nothing, reads encounter damage. They return what is readable and record the damage
//! (`Index::damage`): a leaf that cannot be reached or is not a leaf, a wrong last leaf, a leaf that is followed by
//! another one than its neighbour, a record whose header is damaged. Writes return an error. Salvage sweeps the tree's
//! chunks for leaves (`salvage.rs`).
//!
//! In the paper, the locks of nodes are on the medium, nodes have no upper bound (`high`), and each write of a leaf is
//! logged. Here locks are in DRAM and a line commits by itself.

mod above;
mod check;
mod free;
mod glide;
mod inner;
pub(in crate::index) mod layout;
mod leaf;
mod log;
mod many;
mod nodes;
mod read;
mod recover;
mod salvage;
mod scan;
mod split;
#[cfg(test)]
mod tests;
mod write;

use std::sync::{Arc, RwLock};

use bristlecone_pm::sync::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use bristlecone_pm::{Medium, Memory, PoolFile, RecordSpec, Result, SharedCell, SlotKind, TreeId, Word};

use self::layout::Shape;
use self::log::Log;
use self::nodes::Nodes;
use crate::index::options::{Parameters, design_options};
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::counter::Counter;
use crate::index::parts::index_saver::IndexSaver;
use crate::index::parts::items::{Items, Values};
use crate::index::parts::no_room::Epochs;
use crate::index::{Damage, Described};

design_options! {
    /// Options of a WO-tree, fixed when it is created.
    pub struct WoTreeOptions of "wotree" {
        /// Lines of a node. The default is the paper's; 2 is for tests.
        node_lines = 16 in [2, 4, 8, 16, 32];
        /// Whether each insert and delete writes a log record for its leaf, as in the paper, where a line would commit
        /// by itself. Nodes of 32 lines always do.
        log_leaves = 0 in (0..=1) for experimental;
    }
}

/// The tree. See the module's protocol.
pub struct WoTree<K: KeyCodec, M: Medium> {
    pool: Arc<PoolFile<M>>,
    id: TreeId,
    nodes: Nodes<M>,
    keys: Items<K, M>,
    values: Values<M>,
    separators: Items<K, M>,
    log: Log<M>,
    shape: Shape,
    /// Copy of the directory's root.
    root: SharedCell<AtomicU64>,
    /// Held shared by splits, and exclusively by a thread that removes nodes from the tree.
    shape_lock: RwLock<()>,
    /// (items, leaves) at the time from which `added` and the other counters count on.
    base: Base,
    added: Counter,
    removed: Counter,
    /// Number of added leaves.
    grown: Counter,
    freed: Counter,
    epochs: Epochs,
    saver: IndexSaver<M>,
    /// Damage found by reads.
    damage: Damage,
}

/// The result of the first count, visible to followers.
struct Base(SharedCell<[std::sync::atomic::AtomicU64; 3]>);

impl Base {
    /// Unset; being set; set.
    const STATES: [u64; 3] = [0, 1, 2];

    fn new(memory: &Memory) -> Self {
        Self(memory.cell())
    }

    fn get(&self) -> Option<(u64, u64)> {
        let [state, items, leaves] = &*self.0;
        (state.load(Acquire) == Self::STATES[2]).then(|| (items.load(Relaxed), leaves.load(Relaxed)))
    }

    /// Sets the count, unless another thread has done so.
    fn set(&self, (items, leaves): (u64, u64)) {
        let [state, own_items, own_leaves] = &*self.0;
        if state.compare_exchange(Self::STATES[0], Self::STATES[1], Acquire, Relaxed).is_ok() {
            own_items.store(items, Relaxed);
            own_leaves.store(leaves, Relaxed);
            // Pairs with `get`.
            state.store(Self::STATES[2], Release);
        }
    }
}

/// Guards that keep the records alive that an operation reads.
struct Pins<K: KeyCodec, V: Storage> {
    keys: K::Guard,
    values: V::Guard,
}

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    /// Takes over the state on the medium, without reading it. A `fresh` tree has none yet.
    fn unrecovered(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: WoTreeOptions,
        fresh: bool,
    ) -> Result<Self> {
        let shape = Shape::new(options.node_lines, options.log_leaves != 0);
        let root = pool.anchor(entry.id).load(pool.medium());
        let unswept = |kind| RecordSpec { unswept: true, ..RecordSpec::new(entry.id, kind) };
        let owned = |kind| RecordSpec { owned: true, ..unswept(kind) };
        let memory = pool.memory();
        let separators = RecordSpec { tagged: true, ..owned(layout::SEPARATORS) };
        Ok(Self {
            pool: Arc::clone(pool),
            id: entry.id,
            nodes: Nodes::open(pool, entry.id, shape, fresh)?,
            keys: Items::open(pool, unswept(SlotKind::KEY_RECORD))?,
            values: Values::open_as(pool, owned(SlotKind::VALUE_RECORD), entry.values)?,
            separators: Items::open(pool, separators)?,
            log: Log::open(pool, entry.id, fresh)?,
            shape,
            root: memory.cell_of(AtomicU64::new(root)),
            shape_lock: RwLock::default(),
            base: Base::new(&memory),
            added: Counter::new(&memory),
            removed: Counter::new(&memory),
            grown: Counter::new(&memory),
            freed: Counter::new(&memory),
            epochs: Epochs::default(),
            saver: IndexSaver::new(pool, &entry),
            damage: Damage::default(),
        })
    }

    #[inline(always)]
    fn medium(&self) -> &M {
        self.pool.medium()
    }

    #[inline(always)]
    fn pin<V: Storage>(&self) -> Pins<K, V> {
        Pins { keys: K::pin(), values: V::pin() }
    }

    fn anchor(&self) -> &Word {
        self.pool.anchor(self.id)
    }

    #[inline(always)]
    fn root(&self) -> u64 {
        // Pairs with `set_root`.
        self.root.load(Acquire)
    }

    fn set_root(&self, root: u64) {
        self.root.store(root, Release);
    }
}
