//! The inner nodes of a Bε-tree, in DRAM: children, and a buffer of changes for them.

use std::ops::Range;
use std::sync::{OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bristlecone_pm::sync::Ordering::{Acquire, Relaxed};
use bristlecone_pm::sync::{AtomicU64, wait};

use crate::index::Aim;
use crate::shadow::Change;

/// An inner node.
#[derive(Default)]
pub struct Node {
    /// Its level above the nodes whose children are leaves.
    pub level: u32,
    /// The first keys of children, except for the first child.
    pub pivots: Vec<u64>,
    /// Numbers of nodes, or leaves.
    pub children: Vec<u64>,
    /// Changes in order, newer than those of the children.
    pub buffer: Vec<Change>,
}

/// Merges newer changes over older ones, both in order.
pub fn merge(older: &mut Vec<Change>, newer: &[Change]) {
    older.retain(|(key, _)| newer.binary_search_by_key(key, |(key, _)| *key).is_err());
    older.extend(newer);
    // Two runs, which a stable sort merges.
    older.sort_by_key(|(key, _)| *key);
}

impl Node {
    /// Returns the child whose range contains an aim.
    #[inline(always)]
    pub fn child(&self, aim: Aim) -> usize {
        self.pivots.partition_point(|low| aim.is_at_or_after(*low))
    }

    /// Returns the buffered change of a key.
    #[inline(always)]
    pub fn look_up(&self, key: u64) -> Option<Option<u64>> {
        let found = self.buffer.binary_search_by_key(&key, |(key, _)| *key);
        found.ok().map(|at| self.buffer[at].1)
    }

    pub fn put(&mut self, change: Change) {
        match self.buffer.binary_search_by_key(&change.0, |(key, _)| *key) {
            Ok(at) => self.buffer[at] = change,
            Err(at) => self.buffer.insert(at, change),
        }
    }

    /// Returns the range of the buffered changes of a child.
    pub fn own(&self, child: usize) -> Range<usize> {
        let below = |low: &u64| self.buffer.partition_point(|(key, _)| key < low);
        let from = child.checked_sub(1).map_or(0, |left| below(&self.pivots[left]));
        from..self.pivots.get(child).map_or(self.buffer.len(), below)
    }

    /// Returns the child with the most buffered changes.
    pub fn fullest(&self) -> usize {
        (0..self.children.len()).max_by_key(|child| self.own(*child).len()).expect("a node has children")
    }

    /// Adds a child to the right of one.
    pub fn add(&mut self, left: usize, low: u64, child: u64) {
        self.pivots.insert(left, low);
        self.children.insert(left + 1, child);
    }

    /// Removes the upper half; returns it, and its first key.
    pub fn split(&mut self) -> (u64, Self) {
        let at = self.children.len().div_ceil(2);
        let buffered = self.own(at).start;
        let upper = Self {
            level: self.level,
            pivots: self.pivots.split_off(at),
            children: self.children.split_off(at),
            buffer: self.buffer.split_off(buffered),
        };
        (self.pivots.pop().expect("a pivot between the halves"), upper)
    }

    fn bytes(&self) -> usize {
        (self.pivots.capacity() + self.children.capacity()) * 8 + self.buffer.capacity() * size_of::<Change>()
    }
}

/// All nodes by number, each with its lock. Nodes are never freed.
pub struct Nodes {
    /// Each has twice the size of the previous one.
    segments: [OnceLock<Box<[RwLock<Node>]>>; 32],
    count: AtomicU64,
}

impl Nodes {
    pub fn new() -> Self {
        Self { segments: [const { OnceLock::new() }; 32], count: AtomicU64::new(0) }
    }

    /// Returns the segment of a node, and its index there.
    fn place(number: u64) -> (usize, usize) {
        let segment = (number + 1).ilog2();
        (segment as usize, (number + 1 - (1 << segment)) as usize)
    }

    fn lock(&self, number: u64) -> &RwLock<Node> {
        let (segment, at) = Self::place(number);
        &self.segments[segment].get().expect("a node that was added")[at]
    }

    #[inline(always)]
    pub fn read(&self, number: u64) -> RwLockReadGuard<'_, Node> {
        wait::read(self.lock(number))
    }

    pub fn write(&self, number: u64) -> RwLockWriteGuard<'_, Node> {
        wait::write(self.lock(number))
    }

    /// Adds a node; returns its number.
    pub fn add(&self, node: Node) -> u64 {
        let number = self.count.fetch_add(1, Relaxed);
        let (segment, _) = Self::place(number);
        self.segments[segment].get_or_init(|| (0..1 << segment).map(|_| RwLock::default()).collect());
        *self.write(number) = node;
        number
    }

    pub fn count(&self) -> u64 {
        self.count.load(Acquire)
    }

    /// Returns the bytes of DRAM.
    pub fn bytes(&self) -> u64 {
        let segments = self.segments.iter().filter_map(OnceLock::get);
        let nodes = segments.flat_map(|segment| segment.iter());
        nodes.map(|node| (size_of::<RwLock<Node>>() + wait::read(node).bytes()) as u64).sum()
    }
}
