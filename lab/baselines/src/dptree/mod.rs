//! DPTree (Zhou et al., *DPTree: Differential Indexing for Persistent Memory*, VLDB 2019): one buffer for the whole
//! tree, in DRAM and in a log, which is merged into the base tree when it is large. Leaves of the base tree have two
//! copies of their metadata, so that one store commits a whole merge.
//!
//! **The commit word** is the root's stamp: the number of the last change that leaves have. Of a leaf's two
//! metadata, the one with the greatest stamp not above the root's counts; of the log, entries above it count.
//!
//! # Write
//! 1. The change is appended to the log (`bristlecone_pm`'s: "log append.1" and "log append.2"). *It exists, or
//!    not.* Then it enters the buffer.
//!
//! # Merge (the log has as many entries as the option allows, or a part of the tree's items; or it has no space)
//! 1. New items are stored in free slots, with their fingerprints; the metadata that does not count gets the new
//!    bitmap, and split-off items are stored in new leaves; flushes, one fence. *Stamps are above the root's.*
//! 2. The root's stamp; flush, fence. *All of it counts.*
//! 3. The log is emptied ("log recycle.1"). *Its entries are not above the stamp.* The buffer restarts empty.
//!
//! # Recover
//! The buffer is rebuilt from the log. So a merge that did not commit before a crash is repeated with the same
//! changes, and overwrites the same metadata: removing its remains needs no step.
//!
//! # Unlink (in recovery: a leaf without items, whose range is unknown)
//! 1. The sibling pointer to it is replaced by its own; flush, fence. *It is linked, or its slot is free.*

mod merge;

use std::sync::{Arc, RwLock};

use bristlecone::lab::Inline;
use bristlecone::parts::arena::{Arena, Zeroed};
use bristlecone::parts::optimistic_lock::{OptimisticLock, Version};
use bristlecone::parts::volatile_index::VolatileIndex;
use bristlecone::{Error, Medium, Result};
use bristlecone_pm::sync::Ordering::Relaxed;
use bristlecone_pm::sync::{AtomicU64, wait};
use bristlecone_pm::{HeapStats, Log, LogEntry, Memory, Persist, PoolFile, TreeEntry};

use crate::dram::DramTree;
use crate::index::{Aim, Census, Core, Fate, INDEX_NODE_BYTES, Span, seek};
use crate::shadow::{Change, Shape, Steps, overlay};
use crate::store::{Store, damaged};

/// Words of the root, which is a node.
const STAMP: usize = 0;
const FIRST: usize = 1;
/// The buffer is merged when it reaches this part of the tree's items.
const PART: u64 = 10;
/// Minimum capacity of the buffer, in leaves.
const LEAVES_MIN: u64 = 4;

const STEPS: Steps = Steps {
    items: "dptree merge.1",
    fresh: "dptree merge.1 leaf",
    meta: "dptree merge.1 meta",
    unlink: "dptree unlink.1",
};

/// See the module.
pub struct DpTree<M: Medium> {
    store: Store<M>,
    log: Log<M>,
    shape: Shape,
    root: u64,
    /// The number of the last change.
    sequence: AtomicU64,
    /// Held by readers and writers, and exclusively by the thread that merges.
    state: RwLock<State>,
    /// Never locked: the base tree changes only under exclusive access.
    still: OptimisticLock,
    census: Census,
}

struct State {
    buffer: Buffer,
    /// Over the base tree's leaves.
    index: VolatileIndex<Inline>,
    /// Copy of the root's stamp.
    stamp: u64,
    /// Number of log entries at which the buffer is merged.
    full: u64,
}

/// Changes since the last merge.
struct Buffer {
    tree: DramTree,
    cells: Arena<Cell>,
    /// Number of log entries.
    logged: AtomicU64,
}

/// The buffered change of a key.
#[derive(Default)]
struct Cell {
    value: AtomicU64,
    removed: AtomicU64,
}

// SAFETY: atomics only, for which zero is a value.
unsafe impl Zeroed for Cell {}

impl Buffer {
    fn new(leaf_lines: u64) -> Result<Self> {
        let (tree, cells) =
            (DramTree::build(leaf_lines, &[])?, Arena::new(size_of::<Cell>(), &Memory::private())?);
        Ok(Self { tree, cells, logged: AtomicU64::new(0) })
    }

    fn read(&self, word: u64) -> Option<u64> {
        let cell = self.cells.get(word as u32);
        (cell.removed.load(Relaxed) == 0).then(|| cell.value.load(Relaxed))
    }

    fn write(&self, word: u64, value: Option<u64>) {
        let cell = self.cells.get(word as u32);
        cell.value.store(value.unwrap_or_default(), Relaxed);
        cell.removed.store(value.is_none().into(), Relaxed);
    }

    fn get(&self, key: u64) -> Option<Option<u64>> {
        loop {
            let (leaf, version) = self.tree.find(key);
            let found = leaf.find(key).map(|at| leaf.word(at));
            if !leaf.validate(version) {
                continue;
            }
            let change = found.ok().map(|word| self.read(word));
            if leaf.validate(version) {
                return change;
            }
        }
    }

    /// Returns the changes of the keys of a span, in order.
    fn within(&self, span: Span) -> Vec<Change> {
        let mut changes: Vec<Change> = Vec::new();
        let mut from = span.low.unwrap_or(0);
        loop {
            let (leaf, version, part) = self.tree.seek(Aim::At(from));
            let entries = leaf.entries();
            if !leaf.validate(version) {
                continue;
            }
            let inside = |key: u64| key >= from && span.high.is_none_or(|high| key < high);
            let own = entries.into_iter().filter(|(key, _)| inside(*key));
            let own: Vec<_> = own.map(|(key, word)| (key, self.read(word))).collect();
            if !leaf.validate(version) {
                continue;
            }
            changes.extend(own);
            match part.high {
                Some(high) if span.high.is_none_or(|end| high < end) => from = high,
                _ => return changes,
            }
        }
    }

    /// Applies a change under exclusive access.
    fn put(&self, (key, value): Change) -> Result<()> {
        loop {
            let (leaf, _held) = self.tree.lock(key);
            match leaf.find(key) {
                Ok(at) => self.write(leaf.word(at), value),
                Err(_) if !leaf.has_room() => {
                    leaf.split()?;
                    continue;
                }
                Err(at) => {
                    let cell = self.cells.alloc()?.into();
                    self.write(cell, value);
                    leaf.insert(at, (key, cell));
                }
            }
            self.logged.fetch_add(1, Relaxed);
            return Ok(());
        }
    }
}

impl<M: Medium> DpTree<M> {
    fn number(&self, leaf: u64) -> u32 {
        (leaf / self.store.node_bytes) as u32
    }

    fn leaf_of(&self, number: u32) -> u64 {
        u64::from(number) * self.store.node_bytes
    }

    fn version(&self) -> Option<Version> {
        self.still.read()
    }

    /// Returns the value of a key in the base tree.
    #[inline(always)]
    fn base(&self, state: &State, key: u64) -> Option<u64> {
        let (number, _) = state.index.find(key, &(), |_| self.version());
        self.shape.find(&self.store, self.leaf_of(number), state.stamp, key)
    }

    /// Returns the number of log entries at which a new buffer will be merged.
    fn full(&self) -> u64 {
        (self.census.items.sum() / PART).max(LEAVES_MIN * self.shape.slots as u64)
    }

    /// Creates the root and an empty leaf, durably.
    fn create(&mut self) -> Result<()> {
        let medium = self.store.medium();
        let (root, first) = (self.store.alloc()?, self.store.alloc()?);
        let flushed = self.shape.fill(&self.store, first, &[], 0, 0);
        [0, first].iter().enumerate().for_each(|(at, word)| self.store.word(root, at).store(medium, *word));
        let flushed = flushed.and(medium.flush(self.store.words(root, 0, 2), "dptree create.1"));
        let durable = medium.fence(flushed, "dptree create.1");
        let anchor = self.store.pool.anchor(self.store.id);
        anchor.publish(medium, root, &durable, "dptree create.2");
        medium.persist(anchor, "dptree create.2");
        self.root = root;
        self.census.leaves.add(1);
        let index = VolatileIndex::new(INDEX_NODE_BYTES, self.number(first), &Memory::private())?;
        wait::write(&self.state).index = index;
        Ok(())
    }

    /// Changes a key as `decide` returns for its value. Returns `None` if the buffer must be merged first.
    fn change_if_room(
        &self,
        state: &State,
        key: u64,
        decide: impl Fn(Option<u64>) -> Fate,
    ) -> Result<Option<Option<u64>>> {
        let buffer = &state.buffer;
        loop {
            let (leaf, _held) = buffer.tree.lock(key);
            let found = leaf.find(key);
            let old = match found {
                Ok(at) => buffer.read(leaf.word(at)),
                Err(_) => self.base(state, key),
            };
            let new = match decide(old) {
                Fate::Gets(value) => Some(value),
                Fate::Goes if old.is_some() => None,
                Fate::Goes | Fate::Stays => return Ok(Some(old)),
            };
            if found.is_err() && !leaf.has_room() {
                leaf.split()?;
                continue;
            }
            let Some(spot) = self.log.reserve(|_| true) else { return Ok(None) };
            let cell = match found {
                Ok(at) => leaf.word(at),
                Err(_) => buffer.cells.alloc()?.into(),
            };
            let sequence = self.sequence.fetch_add(1, Relaxed) + 1;
            let (removed, value) = (new.is_none(), new.unwrap_or_default());
            spot.append(&LogEntry { sequence, removed, key, value }, None);
            buffer.write(cell, new);
            if let Err(at) = found {
                leaf.insert(at, (key, cell));
            }
            buffer.logged.fetch_add(1, Relaxed);
            self.census.items.add(i64::from(new.is_some()) - i64::from(old.is_some()));
            return Ok(Some(old));
        }
    }
}

impl<M: Medium> Core<M> for DpTree<M> {
    fn open(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, node_lines: u64) -> Result<Self> {
        let store = Store::open(pool, entry.id, node_lines)?;
        if pool.max_bytes() / store.node_bytes > u64::from(u32::MAX) {
            return Err(Error::invalid("the pool may grow larger than a baseline counts leaves"));
        }
        let (log, logged) = Log::open(pool, entry.id, None);
        let state = State {
            buffer: Buffer::new(node_lines)?,
            index: VolatileIndex::new(INDEX_NODE_BYTES, 0, &Memory::private())?,
            stamp: 0,
            full: 0,
        };
        let root = pool.anchor(entry.id).load(pool.medium());
        let mut tree = Self {
            shape: Shape::new(node_lines, &STEPS),
            root,
            sequence: AtomicU64::new(0),
            state: RwLock::new(state),
            still: OptimisticLock::default(),
            census: Census::default(),
            store,
            log,
        };
        if root == 0 {
            tree.create()?;
            tree.log.seal(logged);
        } else {
            tree.recover(logged)?;
        }
        let full = tree.full();
        wait::write(&tree.state).full = full;
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
        let state = wait::read(&self.state);
        state.index.dram_bytes() + state.buffer.tree.bytes() + state.buffer.cells.bytes()
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        let state = wait::read(&self.state);
        state.buffer.get(key).unwrap_or_else(|| self.base(&state, key))
    }

    fn change(&self, key: u64, decide: impl Fn(Option<u64>) -> Fate) -> Result<Option<u64>> {
        loop {
            let state = wait::read(&self.state);
            let mut least = state.full;
            if state.buffer.logged.load(Relaxed) < state.full {
                if let Some(old) = self.change_if_room(&state, key, &decide)? {
                    drop(state);
                    self.store.pool.health()?;
                    return Ok(old);
                }
                if state.buffer.logged.load(Relaxed) == 0 {
                    return Err(self.store.pool.no_room());
                }
                // Merging any number of entries frees space of the log.
                least = 1;
            }
            drop(state);
            self.merge(least)?;
        }
    }

    fn leaf(&self, aim: Aim, into: &mut Vec<(u64, u64)>) -> Result<Span> {
        let state = wait::read(&self.state);
        let (number, _, span) = seek(&state.index, aim, |_| self.version());
        let items = self.shape.items(&self.store, self.leaf_of(number), state.stamp);
        *into = overlay(items, &state.buffer.within(span));
        Ok(span)
    }

    fn survey(&self) -> Result<(u64, u64)> {
        let state = wait::read(&self.state);
        if let Some(issue) = state.index.check().pop() {
            return Err(Error::corrupted(issue.what, "index"));
        }
        state.buffer.tree.entries()?;
        let mut named = Vec::new();
        state.index.for_each_leaf(|low, number| named.push((low, self.leaf_of(number))));
        let (mut items, mut due) = (0, self.store.load(self.root, FIRST));
        for (at, &(low, leaf)) in named.iter().enumerate() {
            let high = named.get(at + 1).and_then(|(low, _)| *low);
            let held = self.shape.items(&self.store, leaf, state.stamp);
            let inside = |key: u64| low.is_none_or(|low| low <= key) && high.is_none_or(|high| key < high);
            if leaf != due || !held.iter().all(|item| inside(item.0)) {
                return Err(damaged("a leaf in the wrong place, or a key", leaf));
            }
            due = self.shape.next(&self.store, leaf, state.stamp);
            items += overlay(held, &state.buffer.within(Span { low, high })).len() as u64;
        }
        if due != 0 || self.store.load(self.root, STAMP) != state.stamp {
            return Err(damaged("a leaf behind the last, or another stamp", due));
        }
        Ok((items, named.len() as u64 + 1))
    }
}
