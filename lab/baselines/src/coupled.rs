//! Common code of the native B+-tree and wB+-Tree: search, node splits, and concurrency by lock
//! coupling with versions. Each defines its own node layout and its durable changes of leaves.
//!
//! A split is one change of the log, from the leaf to the highest node that it changes, so a tree
//! is consistent whenever no thread writes and after every recovery. Nodes are not merged: a leaf
//! without items stays, and is reused.

use std::sync::{Arc, Mutex};

use bristlecone::parts::optimistic_lock::{OptimisticLock, Version};
use bristlecone::{Medium, Result};
use bristlecone_pm::sync::wait;
use bristlecone_pm::sync::{AtomicU64, Ordering::Acquire, Ordering::Release};
use bristlecone_pm::{Flushed, HeapStats, Persist, PoolFile, TreeEntry};

use crate::index::{Aim, Census, Core, Fate, Span};
use crate::log::{Change, LEVELS_MAX, Log};
use crate::store::{Locked, Store, damaged};

/// Layout of a node.
pub trait Layout: Copy + Send + Sync + 'static {
    fn new(node_lines: u64) -> Self;
    /// Returns the maximum number of entries of a node.
    fn capacity(self) -> usize;
    /// Returns the level of a node above the leaves.
    fn level<M: Medium>(self, store: &Store<M>, node: u64) -> u64;
    /// Returns the number of entries of a node, limited to its capacity even if damaged.
    fn count<M: Medium>(self, store: &Store<M>, node: u64) -> usize;
    /// Returns the entry at an index in key order: an item, or a separator and its child.
    fn key<M: Medium>(self, store: &Store<M>, node: u64, at: usize) -> u64;
    fn value<M: Medium>(self, store: &Store<M>, node: u64, at: usize) -> u64;
    /// Returns the child below all separators.
    fn leftmost<M: Medium>(self, store: &Store<M>, node: u64) -> u64;

    /// Writes a node that no other one references yet.
    fn fill<M: Medium>(
        self,
        store: &Store<M>,
        node: u64,
        level: u64,
        leftmost: u64,
        entries: &[(u64, u64)],
    ) -> Flushed;
    /// Adds the stores that give a node these entries to a change.
    fn rewrite<M: Medium>(self, store: &Store<M>, node: u64, entries: &[(u64, u64)], change: &mut Change);
    /// Repairs a node after a crash, durably.
    fn repair<M: Medium>(self, _store: &Store<M>, _node: u64) {}

    /// Changes a locked leaf, durably.
    fn insert<M: Medium>(self, tree: &Coupled<Self, M>, leaf: u64, at: usize, item: (u64, u64))
    -> Result<()>;
    fn replace<M: Medium>(self, tree: &Coupled<Self, M>, leaf: u64, at: usize, value: u64) -> Result<()>;
    fn erase<M: Medium>(self, tree: &Coupled<Self, M>, leaf: u64, at: usize) -> Result<()>;
}

/// See the module.
pub struct Coupled<L, M: Medium> {
    pub store: Store<M>,
    pub log: Log<M>,
    pub layout: L,
    /// Copy of the root in the log.
    root: AtomicU64,
    /// Held by the thread that splits.
    splitting: Mutex<()>,
    census: Census,
}

/// A leaf found by a descent.
struct Found<'t> {
    leaf: u64,
    lock: &'t OptimisticLock,
    version: Version,
    span: Span,
}

impl<L: Layout, M: Medium> Coupled<L, M> {
    /// Returns the number of entries whose keys are at or before the aim.
    #[inline(always)]
    fn place(&self, node: u64, aim: Aim) -> usize {
        let (mut low, mut high) = (0, self.layout.count(&self.store, node));
        while low < high {
            let middle = (low + high) / 2;
            if aim.is_at_or_after(self.layout.key(&self.store, node, middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Descends to the leaf of an aim; `path` gets the inner nodes, the root first.
    #[inline(always)]
    fn descend(&self, aim: Aim, mut path: Option<&mut Vec<u64>>) -> Result<Found<'_>> {
        let (store, layout) = (&self.store, self.layout);
        'root: loop {
            // Pairs with the store when the root was split.
            let mut node = self.root.load(Acquire);
            let mut lock = store.lock(node)?;
            let Some(mut version) = lock.read() else { return Err(damaged("an obsolete node", node)) };
            if self.root.load(Acquire) != node {
                continue;
            }
            let mut span = Span::default();
            path.iter_mut().for_each(|path| path.clear());
            let mut level = layout.level(store, node);
            while level > 0 {
                let place = self.place(node, aim);
                if place > 0 {
                    span.low = Some(layout.key(store, node, place - 1));
                }
                if place < layout.count(store, node) {
                    span.high = Some(layout.key(store, node, place));
                }
                let child = match place {
                    0 => layout.leftmost(store, node),
                    place => layout.value(store, node, place - 1),
                };
                if !lock.validate(version) {
                    continue 'root;
                }
                path.iter_mut().for_each(|path| path.push(node));
                let child_lock = store.lock(child)?;
                let Some(child_version) = child_lock.read() else {
                    return Err(damaged("an obsolete node", child));
                };
                // The child was current when the version of this node was taken.
                if !lock.validate(version) {
                    continue 'root;
                }
                (node, lock, version) = (child, child_lock, child_version);
                level -= 1;
                if layout.level(store, node) != level {
                    return Err(damaged("a node of another level", node));
                }
            }
            return Ok(Found { leaf: node, lock, version, span });
        }
    }

    /// Returns the item of a key in a leaf, or its insertion position.
    #[inline(always)]
    fn find(&self, leaf: u64, key: u64) -> std::result::Result<(usize, u64), usize> {
        match self.place(leaf, Aim::At(key)) {
            0 => Err(0),
            after if self.layout.key(&self.store, leaf, after - 1) == key => {
                Ok((after - 1, self.layout.value(&self.store, leaf, after - 1)))
            }
            place => Err(place),
        }
    }

    fn entries(&self, node: u64) -> Vec<(u64, u64)> {
        let (store, layout) = (&self.store, self.layout);
        (0..layout.count(store, node))
            .map(|at| (layout.key(store, node, at), layout.value(store, node, at)))
            .collect()
    }

    /// Splits the leaf of a key, if it is full.
    fn split(&self, key: u64) -> Result<()> {
        let _splitting = wait::lock(&self.splitting);
        let mut path = Vec::new();
        let leaf = self.descend(Aim::At(key), Some(&mut path))?.leaf;
        let full = |node: u64| self.layout.count(&self.store, node) == self.layout.capacity();
        let splits = path.iter().rev().take_while(|node| full(**node)).count();
        let root_splits = splits == path.len();
        let _leaf = Locked::wait(self.store.lock(leaf)?);
        if !full(leaf) {
            return Ok(());
        }
        let first = path.len() - splits - usize::from(!root_splits);
        let _locks: Vec<_> = path[first..]
            .iter()
            .map(|node| Ok(Locked::wait(self.store.lock(*node)?)))
            .collect::<Result<_>>()?;
        let mut fresh = Vec::new();
        for _ in 0..1 + splits + usize::from(root_splits) {
            match self.store.alloc() {
                Ok(node) => fresh.push(node),
                Err(error) => {
                    fresh.into_iter().for_each(|node| self.store.unalloc(node));
                    return Err(error);
                }
            }
        }
        let root = root_splits.then(|| fresh[0]);
        let (change, flushed) = self.plan(leaf, &path, &mut fresh.clone());
        if let Err(error) = self.log.write_long(change, flushed) {
            fresh.into_iter().for_each(|node| self.store.unalloc(node));
            return Err(error);
        }
        if let Some(root) = root {
            // Pairs with the loads of searches that descend.
            self.root.store(root, Release);
        }
        self.census.leaves.add(1);
        Ok(())
    }

    /// Plans the split of a full leaf and its full ancestors, with nodes allocated for it.
    fn plan(&self, leaf: u64, path: &[u64], fresh: &mut Vec<u64>) -> (Change, Flushed) {
        let (store, layout) = (&self.store, self.layout);
        let mut take = || fresh.pop().expect("as many nodes as splits");
        let mut change = Change::default();
        let items = self.entries(leaf);
        let (kept, moved) = items.split_at(items.len().div_ceil(2));
        let mut right = take();
        let mut separator = moved[0].0;
        let mut flushed = layout.fill(store, right, 0, 0, moved);
        layout.rewrite(store, leaf, kept, &mut change);
        for (height, &node) in path.iter().rev().enumerate() {
            let mut entries = self.entries(node);
            let at = entries.partition_point(|(key, _)| *key < separator);
            entries.insert(at, (separator, right));
            if entries.len() <= layout.capacity() {
                layout.rewrite(store, node, &entries, &mut change);
                return (change, flushed);
            }
            let (kept, moved) = entries.split_at(entries.len() / 2);
            right = take();
            separator = moved[0].0;
            flushed = flushed.and(layout.fill(store, right, height as u64 + 1, moved[0].1, &moved[1..]));
            layout.rewrite(store, node, kept, &mut change);
        }
        let (root, old) = (take(), path.first().copied().unwrap_or(leaf));
        flushed = flushed.and(layout.fill(store, root, path.len() as u64 + 1, old, &[(separator, right)]));
        change.set_at(self.log.offset(), root);
        (change, flushed)
    }

    /// Traverses the nodes below one, which covers a span at a level: counts items and leaves, and
    /// returns an inconsistency. Calls `visit` with each node first.
    fn walk(
        &self,
        node: u64,
        level: u64,
        span: Span,
        visit: &mut impl FnMut(u64) -> Result<()>,
    ) -> Result<(u64, u64)> {
        let (store, layout) = (&self.store, self.layout);
        store.lock(node)?;
        visit(node)?;
        if layout.level(store, node) != level {
            return Err(damaged("a node of another level", node));
        }
        let entries = self.entries(node);
        let inside =
            |key: u64| span.low.is_none_or(|low| low <= key) && span.high.is_none_or(|high| key < high);
        if !entries.is_sorted_by(|left, right| left.0 < right.0)
            || !entries.iter().all(|entry| inside(entry.0))
        {
            return Err(damaged("keys out of order", node));
        }
        if level == 0 {
            return Ok((entries.len() as u64, 1));
        }
        let mut sum = (0, 0);
        for at in 0..=entries.len() {
            let child = if at == 0 { layout.leftmost(store, node) } else { entries[at - 1].1 };
            let low = if at == 0 { span.low } else { Some(entries[at - 1].0) };
            let high = entries.get(at).map_or(span.high, |(key, _)| Some(*key));
            let below = self.walk(child, level - 1, Span { low, high }, visit)?;
            sum = (sum.0 + below.0, sum.1 + below.1);
        }
        Ok(sum)
    }

    fn walk_all(&self, visit: &mut impl FnMut(u64) -> Result<()>) -> Result<(u64, u64)> {
        let root = self.root.load(Acquire);
        self.store.lock(root)?;
        let level = self.layout.level(&self.store, root);
        if level > LEVELS_MAX as u64 {
            return Err(damaged("a root of no level", root));
        }
        self.walk(root, level, Span::default(), visit)
    }

    /// Makes an empty leaf the root, durably; then the anchor names the log.
    fn create(&self, log: Flushed) -> Result<()> {
        let medium = self.store.medium();
        let root = self.store.alloc()?;
        let leaf = self.layout.fill(&self.store, root, 0, 0, &[]);
        self.log.root().store(medium, root);
        let named = medium.flush(self.log.root(), "create.1");
        let durable = medium.fence(log.and(leaf).and(named), "create.1");
        let anchor = self.store.pool.anchor(self.store.id);
        anchor.publish(medium, self.log.offset(), &durable, "create.2");
        medium.persist(anchor, "create.2");
        self.root.store(root, Release);
        self.census.leaves.add(1);
        Ok(())
    }
}

impl<L: Layout, M: Medium> Core<M> for Coupled<L, M> {
    fn open(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, node_lines: u64) -> Result<Self> {
        let store = Store::open(pool, entry.id, node_lines)?;
        let fresh = pool.anchor(entry.id).load(pool.medium()) == 0;
        let (log, flushed) = Log::open(pool, entry.id, store.node_words())?;
        let tree = Self {
            layout: L::new(node_lines),
            root: AtomicU64::new(0),
            splitting: Mutex::default(),
            census: Census::default(),
            store,
            log,
        };
        if fresh {
            tree.create(flushed)?;
            return Ok(tree);
        }
        tree.log.replay()?;
        tree.root.store(tree.log.root().load(tree.store.medium()), Release);
        let (items, leaves) = tree.walk_all(&mut |node| {
            tree.layout.repair(&tree.store, node);
            tree.store.mark_live(node)
        })?;
        tree.store.finish_recovery();
        tree.census.items.add(items as i64);
        tree.census.leaves.add(leaves as i64);
        Ok(tree)
    }

    fn census(&self) -> &Census {
        &self.census
    }

    fn nodes(&self) -> HeapStats {
        self.store.stats()
    }

    fn dram_bytes(&self) -> u64 {
        self.store.dram_bytes()
    }

    fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        loop {
            let Found { leaf, lock, version, .. } = self.descend(Aim::At(key), None).ok()?;
            let found = self.find(leaf, key);
            if lock.validate(version) {
                return found.ok().map(|(_, value)| value);
            }
        }
    }

    fn change(&self, key: u64, decide: impl Fn(Option<u64>) -> Fate) -> Result<Option<u64>> {
        loop {
            let Found { leaf, lock, version, .. } = self.descend(Aim::At(key), None)?;
            if !lock.upgrade(version) {
                continue;
            }
            let held = Locked::held(lock);
            let found = self.find(leaf, key);
            let old = found.ok().map(|(_, value)| value);
            match (decide(old), found) {
                (Fate::Gets(value), Ok((at, _))) => self.layout.replace(self, leaf, at, value)?,
                (Fate::Goes, Ok((at, _))) => {
                    self.layout.erase(self, leaf, at)?;
                    self.census.items.add(-1);
                }
                (Fate::Gets(_), Err(_)) if self.layout.count(&self.store, leaf) == self.layout.capacity() => {
                    drop(held);
                    self.split(key)?;
                    continue;
                }
                (Fate::Gets(value), Err(at)) => {
                    self.layout.insert(self, leaf, at, (key, value))?;
                    self.census.items.add(1);
                }
                (Fate::Stays, _) | (Fate::Goes, Err(_)) => {}
            }
            drop(held);
            self.store.pool.health()?;
            return Ok(old);
        }
    }

    fn leaf(&self, aim: Aim, into: &mut Vec<(u64, u64)>) -> Result<Span> {
        loop {
            let Found { leaf, lock, version, span } = self.descend(aim, None)?;
            *into = self.entries(leaf);
            if lock.validate(version) {
                return Ok(span);
            }
        }
    }

    fn survey(&self) -> Result<(u64, u64)> {
        let mut nodes = 0;
        let (items, _) = self.walk_all(&mut |_| {
            nodes += 1;
            Ok(())
        })?;
        Ok((items, nodes))
    }
}
