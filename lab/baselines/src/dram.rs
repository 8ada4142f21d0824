//! Common code of µTree and FlatStore: a B+-tree in DRAM, whose leaves store for each key a word with the
//! location of its item on the medium. Threads lock its leaves.

use bristlecone::Result;
use bristlecone::lab::Inline;
use bristlecone::parts::arena::{Arena, Zeroed};
use bristlecone::parts::optimistic_lock::{OptimisticLock, Version, pause};
use bristlecone::parts::volatile_index::VolatileIndex;
use bristlecone_pm::Memory;
use bristlecone_pm::sync::AtomicU64;
use bristlecone_pm::sync::Ordering::Relaxed;

use crate::index::{Aim, INDEX_NODE_BYTES, Span, seek};
use crate::store::{LINE_WORDS, Locked, damaged};

/// Entries of a line: a key and a word each.
const LINE_ENTRIES: usize = LINE_WORDS / 2;

/// A leaf: the location of its entries, which its lock guards.
#[derive(Default)]
struct Head {
    lock: OptimisticLock,
    count: AtomicU64,
    /// The first of its lines.
    lines: AtomicU64,
    /// Its first key; zero for the first leaf. It never changes.
    low: AtomicU64,
}

/// A part of a leaf's entries, in order.
struct Line([AtomicU64; LINE_WORDS]);

// SAFETY: atomics only, for which zero is a value.
unsafe impl Zeroed for Head {}
// SAFETY: as above.
unsafe impl Zeroed for Line {}

/// The tree. See the module.
pub struct DramTree {
    index: VolatileIndex<Inline>,
    heads: Arena<Head>,
    lines: Arena<Line>,
    leaf_lines: u32,
}

/// A leaf. Reads of an unlocked leaf are valid only if its version is.
#[derive(Clone, Copy)]
pub struct Leaf<'t> {
    tree: &'t DramTree,
    head: &'t Head,
}

impl DramTree {
    /// Builds a tree of items in order, in leaves of `leaf_lines` lines.
    pub fn build(leaf_lines: u64, items: &[(u64, u64)]) -> Result<Self> {
        let mut tree = Self {
            index: VolatileIndex::new(INDEX_NODE_BYTES, 0, &Memory::private())?,
            heads: Arena::new(size_of::<Head>(), &Memory::private())?,
            lines: Arena::new(size_of::<Line>(), &Memory::private())?,
            leaf_lines: leaf_lines as u32,
        };
        let mut leaves = Vec::new();
        // As full as leaves are on average after splits.
        for items in items.chunks((tree.capacity() * 3).div_ceil(4)) {
            let low = if leaves.is_empty() { 0 } else { items[0].0 };
            leaves.push((low, tree.new_leaf(low, items)?));
        }
        if leaves.is_empty() {
            leaves.push((0, tree.new_leaf(0, &[])?));
        }
        tree.index = VolatileIndex::build(INDEX_NODE_BYTES, leaves, &Memory::private())?;
        Ok(tree)
    }

    fn capacity(&self) -> usize {
        self.leaf_lines as usize * LINE_ENTRIES
    }

    /// Creates a leaf that no thread knows yet.
    fn new_leaf(&self, low: u64, items: &[(u64, u64)]) -> Result<u32> {
        let id = self.heads.alloc()?;
        let lines = self.lines.alloc_fresh(self.leaf_lines).inspect_err(|_| self.heads.free(id))?;
        let leaf = self.leaf(id);
        leaf.head.lines.store(lines.start.into(), Relaxed);
        leaf.head.low.store(low, Relaxed);
        items.iter().enumerate().for_each(|(at, item)| leaf.put(at, *item));
        leaf.head.count.store(items.len() as u64, Relaxed);
        Ok(id)
    }

    #[inline(always)]
    fn leaf(&self, id: u32) -> Leaf<'_> {
        Leaf { tree: self, head: self.heads.get(id) }
    }

    #[inline(always)]
    fn version_of(&self, id: u32) -> Option<Version> {
        self.heads.get(id).lock.read()
    }

    /// Returns the leaf of a key, and its version.
    #[inline(always)]
    pub fn find(&self, key: u64) -> (Leaf<'_>, Version) {
        let (id, version) = self.index.find(key, &(), |id| self.version_of(id));
        (self.leaf(id), version)
    }

    /// Returns the leaf of a key, locked.
    pub fn lock(&self, key: u64) -> (Leaf<'_>, Locked<'_>) {
        for round in 0_u32.. {
            let (leaf, version) = self.find(key);
            if leaf.head.lock.upgrade(version) {
                return (leaf, Locked::held(&leaf.head.lock));
            }
            pause(round);
        }
        unreachable!("rounds are not counted out")
    }

    /// Returns the leaf of an aim, its version, and its span.
    pub fn seek(&self, aim: Aim) -> (Leaf<'_>, Version, Span) {
        let (id, version, span) = seek(&self.index, aim, |id| self.version_of(id));
        (self.leaf(id), version, span)
    }

    /// Returns the number of leaves.
    pub fn leaves(&self) -> u64 {
        self.heads.begun().into()
    }

    /// Returns the bytes of DRAM.
    pub fn bytes(&self) -> u64 {
        self.index.dram_bytes() + self.heads.bytes() + self.lines.bytes()
    }

    /// Returns every entry, in order, or an inconsistency. No thread may write meanwhile.
    pub fn entries(&self) -> Result<Vec<(u64, u64)>> {
        if let Some(issue) = self.index.check().pop() {
            return Err(bristlecone::Error::corrupted(issue.what, "index"));
        }
        let (mut entries, mut right) = (Vec::new(), Vec::new());
        self.index.for_each_leaf(|low, id| right.push((low.unwrap_or(0), self.leaf(id))));
        for (at, (low, leaf)) in right.iter().enumerate() {
            let high = right.get(at + 1).map(|(low, _)| *low);
            let held = leaf.entries();
            let inside = |key: u64| *low <= key && high.is_none_or(|high| key < high);
            if leaf.head.low.load(Relaxed) != *low
                || !held.iter().all(|(key, _)| inside(*key))
                || !held.is_sorted_by(|left, right| left.0 < right.0)
            {
                return Err(damaged("keys out of order in DRAM", *low));
            }
            entries.extend(held);
        }
        Ok(entries)
    }
}

impl<'t> Leaf<'t> {
    fn line(self, at: usize) -> &'t Line {
        self.tree.lines.get((self.head.lines.load(Relaxed) as usize + at / LINE_ENTRIES) as u32)
    }

    fn put(self, at: usize, (key, word): (u64, u64)) {
        let line = self.line(at);
        line.0[at % LINE_ENTRIES * 2].store(key, Relaxed);
        line.0[at % LINE_ENTRIES * 2 + 1].store(word, Relaxed);
    }

    fn key(self, at: usize) -> u64 {
        self.line(at).0[at % LINE_ENTRIES * 2].load(Relaxed)
    }

    /// Returns the word of an entry.
    pub fn word(self, at: usize) -> u64 {
        self.line(at).0[at % LINE_ENTRIES * 2 + 1].load(Relaxed)
    }

    /// Returns the number of entries, limited to the capacity.
    pub fn count(self) -> usize {
        (self.head.count.load(Relaxed) as usize).min(self.tree.capacity())
    }

    pub fn validate(self, version: Version) -> bool {
        self.head.lock.validate(version)
    }

    /// Returns the index of a key, or its insertion position.
    #[inline(always)]
    pub fn find(self, key: u64) -> std::result::Result<usize, usize> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = (low + high) / 2;
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low < self.count() && self.key(low) == key { Ok(low) } else { Err(low) }
    }

    pub fn entries(self) -> Vec<(u64, u64)> {
        (0..self.count()).map(|at| (self.key(at), self.word(at))).collect()
    }

    /// Returns whether there is space for another entry.
    pub fn has_room(self) -> bool {
        self.count() < self.tree.capacity()
    }

    /// Changes the word of an entry. The leaf must be locked, here and below.
    pub fn set(self, at: usize, word: u64) {
        self.put(at, (self.key(at), word));
    }

    /// Adds an entry, for which there must be space.
    pub fn insert(self, at: usize, entry: (u64, u64)) {
        let count = self.count();
        (at..count).rev().for_each(|from| self.put(from + 1, (self.key(from), self.word(from))));
        self.put(at, entry);
        self.head.count.store(count as u64 + 1, Relaxed);
    }

    pub fn remove(self, at: usize) {
        let count = self.count();
        (at + 1..count).for_each(|from| self.put(from - 1, (self.key(from), self.word(from))));
        self.head.count.store(count as u64 - 1, Relaxed);
    }

    /// Moves the upper half of the entries to a new leaf.
    pub fn split(self) -> Result<()> {
        let _room = self.tree.index.reserve(1)?;
        let entries = self.entries();
        let (kept, moved) = entries.split_at(entries.len().div_ceil(2));
        let right = self.tree.new_leaf(moved[0].0, moved)?;
        self.head.count.store(kept.len() as u64, Relaxed);
        self.tree.index.insert(moved[0].0, right, &());
        Ok(())
    }

    /// Locks the leaf to the left of a locked one. Returns `None` if this is the first.
    pub fn lock_left(self) -> Option<(Leaf<'t>, Locked<'t>)> {
        let low = self.head.low.load(Relaxed);
        if low == 0 {
            return None;
        }
        // No deadlock: a waiting thread waits for one further left, and the leftmost one never waits.
        for round in 0_u32.. {
            let tree = self.tree;
            let (id, version, _) = tree.index.find_before(Some(low), &(), |id| tree.version_of(id));
            let left = tree.leaf(id);
            if left.head.lock.upgrade(version) {
                return Some((left, Locked::held(&left.head.lock)));
            }
            pause(round);
        }
        unreachable!("rounds are not counted out")
    }
}
