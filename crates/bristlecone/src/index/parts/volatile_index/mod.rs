//! The inner index: volatile, from keys to leaves. A B-link tree with optimistic versions.
//!
//! Readers descend without locks: they record a node's version, choose a child, read the child's version, and
//! validate the node. A node that was split concurrently leads to its right sibling by its high key, so a split
//! needs its parent's lock only afterwards. Writers lock one node at a time, from the leaves upwards. Only the
//! removal of a whole node locks several, from the root downwards, one such removal at a time.
//!
//! With word keys, a descent usually begins in the lowest level: see `hints`.

mod build;
mod change;
mod group;
mod hints;
mod node;
mod remove;
mod replace;
mod take_over;
mod walk;

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::sync::Mutex;

use bristlecone_pm::sync::wait::{lock, reached};
use bristlecone_pm::sync::{AtomicU32, Ordering::Acquire, Ordering::Release};
use bristlecone_pm::{Manifest, ManifestReader, Memory, Result as Fallible, SharedCell};

use self::change::Changes;
use self::hints::Hints;
use self::node::{AnyLayout, DefaultLayout, Edge, Layout, NodeRef, Nodes, Separator};
pub use self::walk::{Cursor, Step};
use super::arena::Room;
use super::codec::KeyCodec;
use super::optimistic_lock::{Stale, Version, pause};
use super::orders::Orders;
use super::separators::Separators;

/// The index. Every key belongs to exactly one leaf.
pub struct VolatileIndex<K: KeyCodec> {
    nodes: Nodes,
    separators: Separators,
    /// Whether the nodes have the default layout.
    by_default: bool,
    root: SharedCell<AtomicU32>,
    hints: Hints,
    changes: Changes,
    /// Followers have none: they cannot keep the keys of a version alive.
    orders: Option<Orders>,
    /// Held while the tree grows or a node is removed.
    structure: Mutex<()>,
    keys: PhantomData<fn() -> K>,
}

/// The entry that a search selects when the key equals a separator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The entry that begins with the key.
    From,
    /// The entry before it.
    Before,
}

/// Position of a key among the separators of a node.
#[derive(Clone, Copy)]
enum Among {
    /// Before all of them.
    Before,
    /// At the position of its rank.
    Rank(u64),
    /// Behind all of them, and behind the high key.
    Behind,
}

impl<K: KeyCodec> VolatileIndex<K> {
    /// Returns an index of one leaf that holds every key.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for it.
    pub fn new(node_bytes: usize, leaf: u32, memory: &Memory) -> Fallible<Self> {
        let nodes = Nodes::new(node_bytes, K::INLINE, memory)?;
        let root = nodes.alloc(1, Edge::Left)?;
        nodes.get(root).insert(0, Separator::LEAST, leaf);
        nodes.get(root).lock.unlock();
        let root = memory.cell_of(AtomicU32::new(root));
        let index = Self::assemble(nodes, Separators::new(K::INLINE, memory)?, root);
        Ok(Self { changes: Changes::new(memory), ..index })
    }

    /// Saves the index for the next open of its tree, once no thread changes it any more. Returns `None` if it is
    /// in memory of this process only.
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        if manifest.is_live() {
            manifest.push_cell(&self.root)?;
            self.changes.save(manifest)?;
        } else {
            manifest.push(self.root.load(Acquire).into());
        }
        self.nodes.save(manifest)?;
        self.separators.save(manifest)
    }

    /// Takes over the index saved by [`save`](Self::save).
    pub fn resume(node_bytes: usize, manifest: &mut ManifestReader<'_>) -> Option<Self> {
        let (root, begins, changes) = if manifest.is_live() {
            (manifest.read_cell()?, 0, Changes::follow(manifest)?)
        } else {
            let root = manifest.read_u32()?;
            let memory = manifest.memory();
            (memory.cell_of(AtomicU32::new(root)), root, Changes::new(&memory))
        };
        let nodes = Nodes::resume(node_bytes, K::INLINE, manifest)?;
        let separators = Separators::resume(K::INLINE, manifest)?;
        let index = (begins < nodes.begun()).then(|| Self::assemble(nodes, separators, root))?;
        let orders = index.orders.filter(|_| !manifest.is_live());
        let index = Self { changes, orders, ..index };
        index.tend_hints();
        Some(index)
    }

    /// Returns the separators of the index, which may also contain those of others.
    pub fn separators(&self) -> &Separators {
        &self.separators
    }

    /// Returns the orders of the leaves, as far as they are remembered.
    #[inline(always)]
    pub fn orders(&self) -> Option<&Orders> {
        if K::INLINE { None } else { self.orders.as_ref() }
    }

    /// Reserves the nodes for `leaves` more leaves, until the result is dropped.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for them.
    pub fn reserve(&self, leaves: usize) -> Fallible<Room<'_>> {
        // One on each level, and a root.
        let levels = self.nodes.get(self.root.load(Acquire)).level() as usize;
        self.nodes.reserve(leaves * (levels + 2))
    }

    fn assemble(nodes: Nodes, separators: Separators, root: SharedCell<AtomicU32>) -> Self {
        Self {
            by_default: nodes.have_default_layout(),
            nodes,
            separators,
            root,
            hints: Hints::default(),
            changes: Changes::default(),
            orders: (!K::INLINE).then(Orders::default),
            structure: Mutex::new(()),
            keys: PhantomData,
        }
    }

    /// Returns the bytes of DRAM.
    pub fn dram_bytes(&self) -> u64 {
        self.nodes.bytes()
            + self.separators.bytes()
            + self.hints.bytes()
            + self.orders.as_ref().map_or(0, Orders::bytes)
    }

    /// Returns the leaf that holds `key`, and its version, both current at one point in time.
    #[inline]
    pub fn find(
        &self,
        key: K::Ref<'_>,
        guard: &K::Guard,
        version_of: impl Fn(u32) -> Option<Version>,
    ) -> (u32, Version) {
        if self.by_default {
            self.find_among::<DefaultLayout>(key, guard, version_of)
        } else {
            self.find_among::<AnyLayout>(key, guard, version_of)
        }
    }

    #[inline(always)]
    fn find_among<L: Layout>(
        &self,
        key: K::Ref<'_>,
        guard: &K::Guard,
        version_of: impl Fn(u32) -> Option<Version>,
    ) -> (u32, Version) {
        for round in 0_u32.. {
            if let Ok((node, seen)) = self.descend::<L>(Some(key), Side::From, 1, guard)
                && let Ok(at) = self.choose(node, seen, Some(key), Side::From, guard)
            {
                let leaf = node.child(at);
                // A leaf number must be validated before use. Afterwards validate the node again.
                if node.lock.validate(seen)
                    && let Some(version) = version_of(leaf)
                    && node.lock.validate(seen)
                {
                    return (leaf, version);
                }
            }
            pause(round);
        }
        unreachable!("rounds are not counted out")
    }

    /// Returns the number of leaves that can currently be added at `key` before a node of the index must split.
    pub fn room_above(&self, key: K::Ref<'_>, guard: &K::Guard) -> usize {
        for round in 0_u32.. {
            if let Ok((node, seen)) = self.descend::<AnyLayout>(Some(key), Side::From, 1, guard)
                && let room = self.nodes.capacity() - node.count()
                && node.lock.validate(seen)
            {
                return room;
            }
            pause(round);
        }
        unreachable!("rounds are not counted out")
    }

    /// Returns the node of `level` whose range holds `key` (the last node for `None`).
    #[inline(always)]
    fn descend<L: Layout>(
        &self,
        key: Option<K::Ref<'_>>,
        side: Side,
        level: u32,
        guard: &K::Guard,
    ) -> Result<(NodeRef<'_>, Version), Stale> {
        let hinted = K::INLINE && side == Side::From && level == 1;
        if hinted
            && let Some(key) = key
            && let Some(found) = self.hinted::<L>(key)
        {
            return Ok(found);
        }
        // Pairs with the release in `grow`.
        let mut node = L::get(&self.nodes, self.root.load(Acquire));
        let mut seen = node.lock.read().ok_or(Stale)?;
        loop {
            let among = self.among(node, seen, key, guard)?;
            let next = match self.right_of(node, seen, (key, among), side, guard)? {
                Some(right) => right,
                None if node.level() == level => {
                    if hinted && let Some(key) = key {
                        self.learn(key, node.id);
                    }
                    return Ok((node, seen));
                }
                None => node.child(self.entry_of(node, seen, (key, among), side, guard)?),
            };
            // An index must be validated before it is followed.
            if !node.lock.validate(seen) {
                return Err(Stale);
            }
            let child = L::get(&self.nodes, next);
            // Header, keys and children are read one after the other, but can be fetched concurrently.
            child.prefetch_children();
            reached("index step down");
            let version = child.lock.read().ok_or(Stale)?;
            if !node.lock.validate(seen) {
                return Err(Stale);
            }
            (node, seen) = (child, version);
        }
    }

    /// Returns the position of a key (`None`: behind all others) in a node.
    #[inline(always)]
    fn among(
        &self,
        node: NodeRef<'_>,
        seen: Version,
        key: Option<K::Ref<'_>>,
        guard: &K::Guard,
    ) -> Result<Among, Stale> {
        let Some(key) = key else { return Ok(Among::Behind) };
        let common = if K::INLINE { 0 } else { node.common() };
        if common == 0 {
            return Ok(Among::Rank(K::rank(key)));
        }
        let order = match node.compare_prefix::<K>(K::shorten(key), common) {
            Some(order) => order,
            None => {
                let separator = self.separator(node, seen, node.key(1), guard)?;
                K::compare_start(K::shorten(key), separator, common)
            }
        };
        Ok(match order {
            Ordering::Less => Among::Before,
            Ordering::Equal => Among::Rank(K::rank_behind(key, common)),
            Ordering::Greater => Among::Behind,
        })
    }

    /// Returns the right sibling, if the key lies beyond this node.
    #[inline(always)]
    fn right_of(
        &self,
        node: NodeRef<'_>,
        seen: Version,
        (key, among): (Option<K::Ref<'_>>, Among),
        side: Side,
        guard: &K::Guard,
    ) -> Result<Option<u32>, Stale> {
        let is_within = match among {
            _ if K::INLINE => key.is_some_and(|key| K::rank(key) < node.high_rank(true)),
            Among::Before => true,
            Among::Rank(rank) => rank < node.high_rank(false),
            Among::Behind => false,
        };
        if is_within {
            return Ok(None);
        }
        let Some((next, high)) = node.right() else { return Ok(None) };
        let Some(key) = key.filter(|_| K::INLINE || matches!(among, Among::Rank(_))) else {
            return Ok(Some(next));
        };
        let high = self.separator(node, seen, high.word, guard)?;
        let key = K::shorten(key);
        let beyond = if side == Side::From { high <= key } else { high < key };
        Ok(beyond.then_some(next))
    }

    #[inline(always)]
    fn separator<'g>(
        &'g self,
        node: NodeRef<'_>,
        seen: Version,
        word: u64,
        guard: &'g K::Guard,
    ) -> Result<K::Ref<'g>, Stale> {
        // Out-of-line data may be accessed only if the word is known to be valid.
        if !K::INLINE && !node.lock.validate(seen) {
            return Err(Stale);
        }
        Ok(K::separator_at(&self.separators, word, guard))
    }

    /// Returns the entry of one node whose range holds the key.
    #[inline(always)]
    fn choose(
        &self,
        node: NodeRef<'_>,
        seen: Version,
        key: Option<K::Ref<'_>>,
        side: Side,
        guard: &K::Guard,
    ) -> Result<usize, Stale> {
        let among = self.among(node, seen, key, guard)?;
        self.entry_of(node, seen, (key, among), side, guard)
    }

    /// Same as [`choose`](Self::choose), for a key whose position is known.
    #[inline(always)]
    fn entry_of(
        &self,
        node: NodeRef<'_>,
        seen: Version,
        (key, among): (Option<K::Ref<'_>>, Among),
        side: Side,
        guard: &K::Guard,
    ) -> Result<usize, Stale> {
        let Some(key) = key else { return Ok(node.count().saturating_sub(1)) };
        // The first key is the low fence, which the descent has verified.
        if K::INLINE {
            let rank = K::rank(key);
            let begun = if side == Side::From { node.count_le(rank) } else { node.count_lt(rank) };
            return Ok(begun.saturating_sub(1));
        }
        let rank = match among {
            Among::Before => return Ok(0),
            Among::Rank(rank) => rank,
            Among::Behind => return Ok(node.count().saturating_sub(1)),
        };
        // Only keys of the same rank are compared in full.
        let (mut low, mut high) = (node.count_lt(rank).max(1), node.count_le(rank));
        while low < high {
            let middle = low.midpoint(high);
            let separator = self.separator(node, seen, node.key(middle), guard)?;
            let key = K::shorten(key);
            if separator < key || side == Side::From && separator == key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low - 1)
    }

    /// Adds a leaf that begins at `separator`, split off the leaf that held it so far. The caller must hold that
    /// leaf's lock, and must have [`reserve`](Self::reserve)d the nodes.
    pub fn insert(&self, separator: K::Ref<'_>, leaf: u32, guard: &K::Guard) {
        self.insert_above(1, K::make_separator(&self.separators, separator), leaf, guard);
    }

    /// Inserts an entry on a level, and the resulting entries on the levels above.
    fn insert_above(&self, level: u32, mut separator: u64, mut child: u32, guard: &K::Guard) {
        for level in level.. {
            match self.insert_at(level, separator, child, guard) {
                None => return,
                Some((word, node)) => (separator, child) = (word, node),
            }
        }
    }

    /// Inserts an entry on a level; if that splits a node, returns the entry for the level above.
    fn insert_at(&self, level: u32, separator: u64, child: u32, guard: &K::Guard) -> Option<(u64, u32)> {
        for round in 0_u32.. {
            // The word belongs to the caller, so it can be read.
            let key = K::separator_at(&self.separators, separator, guard);
            if self.nodes.get(self.root.load(Acquire)).level() < level {
                if self.grow(level, separator, child, guard) {
                    return None;
                }
                continue;
            }
            if let Ok((node, seen)) = self.descend::<AnyLayout>(Some(key), Side::From, level, guard)
                && node.lock.upgrade(seen)
            {
                let change = (level == 1).then(|| self.changes.begin(&self.nodes, node));
                let promoted = self.add_entry(node, key, separator, child, guard);
                drop(change);
                node.lock.unlock();
                if promoted.is_some() {
                    self.tend_hints();
                }
                return promoted;
            }
            pause(round);
        }
        unreachable!("rounds are not counted out")
    }

    fn add_entry(
        &self,
        node: NodeRef<'_>,
        key: K::Ref<'_>,
        separator: u64,
        child: u32,
        guard: &K::Guard,
    ) -> Option<(u64, u32)> {
        let at = self.position(node, key, guard);
        let separator = Separator { rank: K::rank(K::shorten(key)), word: separator };
        if node.count() < self.nodes.capacity() {
            node.insert(at, separator, child);
            node.rank_one::<K>(at, &self.separators, guard);
            return None;
        }
        // Ascending and descending loads leave full nodes behind.
        let ascending = at == node.count() && node.right().is_none();
        let descending = at == 1 && node.is_leftmost();
        let middle = if ascending {
            node.count() - 1
        } else if descending {
            2.min(node.count() - 1)
        } else {
            node.count() / 2
        };
        let right_id = self.nodes.alloc(node.level(), Edge::Inside).expect("nodes were reserved");
        let right = self.nodes.get(right_id);
        for from in middle..node.count() {
            right.insert(from - middle, node.separator(from), node.child(from));
        }
        right.set_right(node.right());
        node.truncate(middle);
        let promoted = K::copy_separator(&self.separators, right.key(0), guard);
        node.set_right(Some((right_id, right.separator(0).copy::<K>(&self.separators, guard))));
        if at <= middle && K::shorten(key) < K::separator_at(&self.separators, promoted, guard) {
            node.insert(at, separator, child);
        } else {
            right.insert(at - middle, separator, child);
        }
        node.rank_all::<K>(&self.separators, guard);
        right.rank_all::<K>(&self.separators, guard);
        right.lock.unlock();
        Some((promoted, right_id))
    }

    /// Returns the position of a new separator in a locked node: behind all that are not greater.
    fn position(&self, node: NodeRef<'_>, key: K::Ref<'_>, guard: &K::Guard) -> usize {
        (1..node.count())
            .find(|&at| K::separator_at(&self.separators, node.key(at), guard) > K::shorten(key))
            .unwrap_or(node.count())
    }

    /// Puts a root over the present one if that is still too low for `level`.
    fn grow(&self, level: u32, separator: u64, child: u32, guard: &K::Guard) -> bool {
        let _only = lock(&self.structure);
        let root = self.root.load(Acquire);
        if self.nodes.get(root).level() >= level {
            return false;
        }
        let id = self.nodes.alloc(level, Edge::Left).expect("nodes were reserved");
        let node = self.nodes.get(id);
        node.insert(0, Separator::LEAST, root);
        node.insert(1, Separator::of::<K>(&self.separators, separator, guard), child);
        node.lock.unlock();
        // Pairs with the acquire in `descend`: a thread that sees the root sees its entries.
        self.root.store(id, Release);
        true
    }
}

#[cfg(test)]
mod tests;
