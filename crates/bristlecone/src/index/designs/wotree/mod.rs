//! WO-tree: everything in persistent memory, few flushes.
//!
//! Ma et al., *Write-Optimized B+ Tree Index Technology for Persistent Memory*. Inner nodes and
//! leaves stand on the medium, so a tree is back at once after a crash, however large it is.
//!
//! ```text
//! PM     root (the tree's anchor)
//!          |
//!        inner   [ - |k1 |k2 |...]  next, high  ------------->  inner   next = 0
//!                  |   |   |                                       |
//!        leaf    bitmap, slot array   next, high  -->  leaf  -->  leaf   next = 0
//!                items, in no order
//!        log     a lane for each operation under way
//! DRAM   a version lock for each node; nothing else
//! ```
//!
//! A leaf's items lie where there was room; its slot array gives their order. Inner entries are
//! sorted. A node holds the keys below its `high`; at or above it one goes right, at every level,
//! so an entry that is missing in a parent costs a step and loses nothing.
//!
//! **The word that commits** is the leaf's state: the bitmap, and the bit that says that the slot
//! array is right. Up to 16 lines it shares its line with the slot array: *invalid*, slot array,
//! state go out in this order with one flush, and a crash in between finds an invalid slot array
//! and makes it anew from the bitmap and the keys. Nodes of 32 lines have a log record instead,
//! which is what the paper does for every write, and what smaller ones do with the option `log_leaves`.
//!
//! Writers hold their leaf's lock until what they did is durable; readers of a leaf look without
//! it and validate its version. Inner nodes are searched without locks and without waiting: the
//! order of the stores alone keeps a search from going too far right (see `inner.rs`).
//!
//! # Insert
//! 1. Keys and values that do not fit a word are written out of line and flushed.
//! 2. The item goes into a free slot and is flushed; one fence for both. *Its bit is clear:
//!    nothing happened.*
//!
//! # Commit (of an insert, a delete or a split)
//! 1. The state loses its valid bit, and the slot array is written. Within the line this needs no
//!    flush. *The bitmap is the old one, and the slot array follows from it.*
//! 2. The new state; flush, fence. *Before or after.* With a log record: log 1, then state, second
//!    bitmap word and slot array, flushed in any order, and one fence. One bit changes at a time,
//!    so one of the two words changes. *The log names the leaf: its slot array is made anew.*
//!
//! # Update
//! 1. A value out of line is written; flush, fence.
//! 2. The value word is stored in place; flush, fence. *Old or new value.*
//!
//! # Delete
//! A commit without the item's bit. Nothing has to be durable before.
//!
//! # Log (what does not fit one line)
//! 1. The record, its kind last; flush, fence. *It counts, or it does not.*
//! 2. When all is done and durable the kind becomes zero; flush, fence. *What is done is done
//!    again, which changes nothing.* Rebuilds stay: they hold for any leaf at any time.
//!
//! # Split (no free slot)
//! With the leaf locked its parent is, and above a full one the next: up to the first with room, or the
//! root. That many nodes are taken before anything is written. *A pool without room says so here, and
//! nothing has changed; from here on nothing fails, and no other thread fills these nodes.*
//! 1. Log: left node, right node, separator. *The right node is not linked: it is freed (recover 1).*
//! 2. The right node is written whole, every line flushed once; fence. *As before.*
//! 3. In one line of the left node: `next`, then `high`; flush, fence. *Linked: the split is
//!    finished from here (recover 2).*
//! 4. The left node drops what moved: a leaf by a commit, an inner node entry by entry; flush,
//!    fence.
//! 5. The parent gets an entry (enter), for which it may have to split first; then log 2. A root
//!    that splits gets a new one above it (grow).
//!
//! A key above all others of the leaf moves nothing: the new leaf begins empty, and an ascending
//! load leaves full leaves behind.
//!
//! # Enter (an entry into an inner node with room)
//! 1. Entries shift right from the end, child before key, so that one that is there twice is a
//!    duplicate of its left neighbour, which every reader passes over. A line is flushed and fenced
//!    before the shift leaves it. *A duplicate, or nothing: the next writer takes it out.*
//! 2. The place becomes a duplicate of its left neighbour, then gets the new key.
//! 3. Its child; flush, fence. *The entry is there, or it is a duplicate.*
//!
//! # Compact (duplicates leave an inner node)
//! 1. Entries shift left, key before child, a line at a time. Searches under way are told by a
//!    count of turns, and look again.
//!
//! # Complete (an entry is missing above)
//! Splits leave none out; earlier versions did where the pool was full. A writer that came through a
//! left neighbour locks that one and what stands above, as a split does, and enters what is missing: a
//! split, as its parent has to know the leaf, and a free, whose heir has to be the right neighbour,
//! before they go on, and others if there is room.
//!
//! # Grow (the root was split)
//! 1. Log: the new root. *It is not the root: it is freed (recover 3).*
//! 2. The new root is written with both halves; flush, fence.
//! 3. The anchor names it; flush, fence. Then log 2.
//!
//! # Shrink (a free left the root with one child)
//! 1. Log: the old root. *It is the root: nothing happened.*
//! 2. The anchor names the child; flush, fence. *The old root is freed (recover 3).*
//! 3. The old root's state becomes zero; flush, fence; log 2.
//!
//! # Free (a leaf without items, unless it is the first; one at a time, and no splits meanwhile)
//! 1. Log, in a lane of its own: the leaf, the inner nodes that have no other child, the left
//!    neighbour of each, and the separator that goes. *Done again from here.*
//! 2. In the lowest inner node that stays the entry becomes a duplicate of the neighbour that inherits
//!    the range, and is compacted away.
//! 3. The left neighbours' `high`, if they inherit, and `next`; flushes, one fence.
//! 4. The nodes' states and the separator's owner become zero: free; flushes, one fence; log 2.
//!    Readers may still be in the nodes, which are used again when those have left.
//!
//! # Create
//! 1. The log's lanes become empty; flush, fence.
//! 2. An empty leaf is written; flush, fence. *Without a root the tree is made anew.*
//! 3. The anchor names it; flush, fence. *The tree is there.*
//!
//! # Recover
//! The log is read, and nothing else: what opening costs does not depend on the number of keys.
//! 1. Splits that no reader could see are undone.
//! 2. The others are finished from step 3 on, upper levels first.
//! 3. A node that is not the root, though named as one, is freed; frees are finished; slot arrays named by rebuilds are
//!    made anew.
//!
//! Which slots of the tree's chunks are free is found out when room is
//! needed, a few at a time: of a node its state tells, of a record whether the item of its owner
//! refers to it. The number of items is counted when it is asked for.
//!
//! # Damage
//! Since opening looks at nothing, reads meet what is damaged. They show what they can and note what they
//! cannot (`Index::damage`): a leaf that cannot be reached, or is none, or is said to be the last one and
//! is not, or is followed by another one than its neighbour; a record whose header is broken. Writes
//! return an error. Salvage sweeps the tree's chunks for leaves (`salvage.rs`).
//!
//! The paper leaves the locks of nodes on the medium's side, has no bound to its nodes (`high`),
//! and logs each write of a leaf; here locks are in DRAM and a line commits by itself.

mod above;
mod check;
mod free;
mod inner;
pub(in crate::index) mod layout;
mod leaf;
mod log;
mod nodes;
mod read;
mod recover;
mod salvage;
mod scan;
mod split;
#[cfg(test)]
mod tests;
mod write;

use std::marker::PhantomData;
use std::sync::{Arc, RwLock};

use bristlecone_pm::sync::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use bristlecone_pm::{
    Medium, Memory, PoolFile, Posted, RecordSpec, Records, Result, SlotKind, TreeEntry, TreeId, Word,
};

use self::layout::Shape;
use self::log::Log;
use self::nodes::Nodes;
use crate::index::Damage;
use crate::index::options::{Parameters, design_options};
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::parts::counter::Counter;
use crate::index::parts::keeper::Keeper;
use crate::index::parts::no_room::Epochs;

design_options! {
    /// Options of a WO-tree, fixed when it is created.
    pub struct WoTreeOptions of "wotree" {
        /// Lines of a node. The default is the paper's; 2 is for tests.
        node_lines = 16 in [2, 4, 8, 16, 32];
        /// Whether each insert and delete writes a log record for its leaf, as the paper's does, where a line
        /// would commit by itself. Nodes of 32 lines always do.
        log_leaves = 0 in (0..=1);
    }
}

/// The tree. See the module's protocol.
pub struct WoTree<K: KeyCodec, V: Codec, M: Medium> {
    pool: Arc<PoolFile<M>>,
    id: TreeId,
    nodes: Nodes<M>,
    keys: Records<M>,
    values: Records<M>,
    separators: Records<M>,
    log: Log<M>,
    shape: Shape,
    /// Copy of the directory's root.
    root: Posted<AtomicU64>,
    /// Splits share it; a thread that takes nodes out of the tree has it alone.
    shape_lock: RwLock<()>,
    /// (items, leaves) at a moment from which `added` and the others count on.
    base: Base,
    added: Counter,
    removed: Counter,
    /// Leaves.
    grown: Counter,
    freed: Counter,
    epochs: Epochs,
    keeper: Keeper<M>,
    /// What reads came across.
    damage: Damage,
    codecs: PhantomData<fn() -> (K, V)>,
}

/// What was counted once, where followers see it, too.
struct Base(Posted<[std::sync::atomic::AtomicU64; 3]>);

impl Base {
    /// There is nothing; it is being set; it is set.
    const STATES: [u64; 3] = [0, 1, 2];

    fn new(memory: &Memory) -> Self {
        Self(memory.post())
    }

    fn get(&self) -> Option<(u64, u64)> {
        let [state, items, leaves] = &*self.0;
        (state.load(Acquire) == Self::STATES[2]).then(|| (items.load(Relaxed), leaves.load(Relaxed)))
    }

    /// Sets it, unless another thread has done so.
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

/// What keeps the records alive that an operation reads.
struct Pins<K: KeyCodec, V: Codec> {
    keys: K::Guard,
    values: V::Guard,
}

impl<K: KeyCodec, V: Codec, M: Medium> WoTree<K, V, M> {
    /// Takes over what stands on the medium, without looking at it. A `fresh` tree has nothing yet.
    fn unrecovered(
        pool: &Arc<PoolFile<M>>,
        entry: &TreeEntry,
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
            keys: Records::open(pool, unswept(SlotKind::KEY_RECORD))?,
            values: Records::open(pool, owned(SlotKind::VALUE_RECORD))?,
            separators: Records::open(pool, separators)?,
            log: Log::open(pool, entry.id, fresh)?,
            shape,
            root: memory.post_value(AtomicU64::new(root)),
            shape_lock: RwLock::default(),
            base: Base::new(&memory),
            added: Counter::new(&memory),
            removed: Counter::new(&memory),
            grown: Counter::new(&memory),
            freed: Counter::new(&memory),
            epochs: Epochs::default(),
            keeper: Keeper::new(pool, entry),
            damage: Damage::default(),
            codecs: PhantomData,
        })
    }

    #[inline(always)]
    fn medium(&self) -> &M {
        self.pool.medium()
    }

    #[inline(always)]
    fn pin(&self) -> Pins<K, V> {
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
