//! A Bε-tree (Brodal, Fagerberg, *Lower Bounds for External Memory Dictionaries*, SODA 2003) as described in
//! LodgeTree's paper (§II-B): inner nodes in DRAM, each with a buffer of changes for its subtree; a log that makes
//! these durable; leaves on the medium, which are DPTree's.
//!
//! A change enters the root's buffer. A full buffer is flushed to the child with the most buffered changes; if this
//! overfills the child's buffer, the child flushes likewise: a cascade. A thread holds at most two nodes' locks, from
//! the root down, so that no reader misses a moving change. A node with too many children is split at the next flush
//! from its parent.
//!
//! **The commit word** is the stamp of a leaf's metadata, of which the greater one counts; and the root's stamp:
//! changes up to this number are in leaves, those above it are in the log.
//!
//! # Write
//! 1. The change is appended to the log (`bristlecone_pm`'s: "log append.1" and "log append.2"). *It exists, or not.*
//!    Then it enters the root's buffer.
//!
//! # Leaf (receives all changes that its parent has for it)
//! 1. New items are stored in free slots, with their fingerprints; split-off items are stored in new leaves; flushes,
//!    one fence. *No metadata names them.*
//! 2. The metadata that does not count gets sibling, bitmap, and last the next stamp; flush, fence. *All of it is
//!    there, or nothing. The log still has the changes; applying them again has no effect.*
//!
//! # Trim (the log has more entries than buffers have space for)
//! 1. The log gets new chunks, and the number of the last change is kept. Then every buffer on the path to each leaf is
//!    emptied once, from left to right, a part whenever the root is full.
//! 2. The root's stamp becomes that number; flush, fence. *The old chunks no longer count.*
//! 3. The old chunks are emptied ("log recycle.1").
//!
//! # Recover
//! The tree is built over the leaves, and the changes in the log above the root's stamp are redone, in order.
//!
//! # Unlink (in recovery: a leaf without items, whose range is unknown)
//! 1. The sibling pointer to it is replaced by its own; flush, fence. *It is linked, or its slot is free.*

mod flush;
mod node;
mod recover;

use std::sync::{Arc, Mutex, RwLock};

use bristlecone::{Medium, Result};
use bristlecone_pm::sync::Ordering::Relaxed;
use bristlecone_pm::sync::{AtomicU64, wait};
use bristlecone_pm::{HeapStats, Log, LogEntry, PoolFile, TreeEntry};

use self::flush::Trim;
use self::node::Nodes;
use crate::index::{Aim, Census, Core, Fate, Span};
use crate::shadow::{Change, Shape, Steps, overlay};
use crate::store::Store;

/// Words of the root on the medium, which is in the slot of a leaf.
const STAMP: usize = 0;
const FIRST: usize = 1;
/// The number of the root in DRAM.
const ROOT: u64 = 0;
/// Selects the leaf's metadata with the greatest stamp.
const NEWEST: u64 = u64::MAX;
/// Number of locks of keys.
const KEYS: usize = 256;
/// Bytes of an entry of a node, which determine its capacity.
const ENTRY_BYTES: u64 = 16;

const STEPS: Steps = Steps {
    items: "betree leaf.1",
    fresh: "betree leaf.1 new",
    meta: "betree leaf.2",
    unlink: "betree unlink.1",
};

/// See the module.
pub struct BeTree<M: Medium> {
    store: Store<M>,
    log: Log<M>,
    shape: Shape,
    /// Offset on the medium.
    root: u64,
    nodes: Nodes,
    /// Maximum number of children of a node, and of changes in its buffer.
    fanout: usize,
    room: usize,
    /// The number of the last change.
    sequence: AtomicU64,
    /// Number of log entries since it got new chunks.
    logged: AtomicU64,
    /// Held by the thread that changes a key.
    keys: Box<[Mutex<()>]>,
    /// Held while a change is in the log and not yet in the tree; exclusively by the thread that gives the log new
    /// chunks.
    gate: RwLock<()>,
    trim: Mutex<Trim>,
    census: Census,
}

impl<M: Medium> BeTree<M> {
    /// Returns a tree in DRAM without nodes. A node is as large as a leaf, and the square root of its entries are
    /// children: ε is one half.
    fn new(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, store: Store<M>, log: Log<M>, lines: u64) -> Self {
        let entries = store.node_bytes / ENTRY_BYTES;
        let fanout = (entries.isqrt() as usize).max(4);
        Self {
            shape: Shape::new(lines, &STEPS),
            root: pool.anchor(entry.id).load(pool.medium()),
            nodes: Nodes::new(),
            fanout,
            room: entries as usize - fanout,
            sequence: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            keys: (0..KEYS).map(|_| Mutex::default()).collect(),
            gate: RwLock::default(),
            trim: Mutex::default(),
            census: Census::default(),
            store,
            log,
        }
    }

    /// Changes a key as `decide` returns for its value. Returns `None` if the log has no space.
    fn change_if_room(&self, key: u64, decide: impl Fn(Option<u64>) -> Fate) -> Result<Option<Option<u64>>> {
        let _gate = wait::read(&self.gate);
        let lock = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let _key = wait::lock(&self.keys[lock as usize % KEYS]);
        let old = self.get(key);
        let new = match decide(old) {
            Fate::Gets(value) => Some(value),
            Fate::Goes if old.is_some() => None,
            Fate::Goes | Fate::Stays => return Ok(Some(old)),
        };
        let Some(spot) = self.log.reserve(|_| true) else { return Ok(None) };
        let sequence = self.sequence.fetch_add(1, Relaxed) + 1;
        let (removed, value) = (new.is_none(), new.unwrap_or_default());
        spot.append(&LogEntry { sequence, removed, key, value }, None);
        self.put((key, new), old);
        Ok(Some(old))
    }

    /// Puts a logged change into the root's buffer.
    fn put(&self, change: Change, old: Option<u64>) {
        self.nodes.write(ROOT).put(change);
        self.logged.fetch_add(1, Relaxed);
        self.census.items.add(i64::from(change.1.is_some()) - i64::from(old.is_some()));
    }
}

impl<M: Medium> Core<M> for BeTree<M> {
    fn open(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, node_lines: u64) -> Result<Self> {
        let store = Store::open(pool, entry.id, node_lines)?;
        let (log, logged) = Log::open(pool, entry.id, None);
        let mut tree = Self::new(pool, entry, store, log, node_lines);
        if tree.root == 0 {
            tree.create()?;
            tree.log.seal(logged);
        } else {
            tree.recover(logged)?;
        }
        Ok(tree)
    }

    fn census(&self) -> &Census {
        &self.census
    }

    fn nodes(&self) -> HeapStats {
        self.store.stats()
    }

    fn log_bytes(&self) -> u64 {
        self.log.chunks_owned() as u64 * self.store.pool.chunk_bytes()
    }

    fn dram_bytes(&self) -> u64 {
        self.nodes.bytes()
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        let mut node = self.nodes.read(ROOT);
        loop {
            if let Some(change) = node.look_up(key) {
                return change;
            }
            let child = node.children[node.child(Aim::At(key))];
            if node.level == 0 {
                return self.shape.find(&self.store, child, NEWEST, key);
            }
            node = self.nodes.read(child);
        }
    }

    fn change(&self, key: u64, decide: impl Fn(Option<u64>) -> Fate) -> Result<Option<u64>> {
        loop {
            if self.nodes.read(ROOT).buffer.len() >= self.room {
                self.hand_down_all()?;
                self.trim_if_due()?;
            }
            if let Some(old) = self.change_if_room(key, &decide)? {
                self.store.pool.health()?;
                return Ok(old);
            }
            self.trim_now()?;
        }
    }

    fn leaf(&self, aim: Aim, into: &mut Vec<(u64, u64)>) -> Result<Span> {
        let (mut span, mut buffered) = (Span::default(), Vec::new());
        let mut node = self.nodes.read(ROOT);
        let leaf = loop {
            let at = node.child(aim);
            span.low = at.checked_sub(1).map(|left| node.pivots[left]).or(span.low);
            span.high = node.pivots.get(at).copied().or(span.high);
            buffered.push(node.buffer[node.own(at)].to_vec());
            if node.level == 0 {
                break node.children[at];
            }
            node = self.nodes.read(node.children[at]);
        };
        let items = self.shape.items(&self.store, leaf, NEWEST);
        // Changes in lower nodes are older.
        let overlaid = buffered.iter().rev().fold(items, |items, changes| overlay(items, changes));
        *into = overlaid;
        into.retain(|(key, _)| span.holds(*key));
        Ok(span)
    }

    fn survey(&self) -> Result<(u64, u64)> {
        self.look_through()
    }
}
