//! A node of the inner index: `count` entries, entry `i` covering `[key(i), key(i + 1))`, the
//! last one up to the high key.
//!
//! ```text
//! lock, high key, next, count, level, leftmost (32 B) | children (4 B each) | keys (8 B each), line by line
//! ```

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use bristlecone_pm::LINE_BYTES;

use crate::shared::arena::{Arena, Zeroed};
use crate::shared::prefetch;
use crate::shared::search::GROUP;
use crate::shared::version_lock::VersionLock;

/// No node.
pub const NONE: u32 = u32::MAX;
/// Bytes before the children.
const HEADER_BYTES: usize = 32;

/// The header; children and keys follow it in the arena. Changes only under the lock; readers
/// validate, hence relaxed accesses.
#[repr(C)]
pub struct Node {
    pub lock: VersionLock,
    high: AtomicU64,
    next: AtomicU32,
    count: AtomicU32,
    level: AtomicU32,
    leftmost: AtomicU32,
}

// SAFETY: atomics only, for which zero is a value.
unsafe impl Zeroed for Node {}

const _: () = assert!(size_of::<Node>() == HEADER_BYTES);

/// The nodes of one index.
pub struct Nodes {
    arena: Arena<Node>,
    capacity: usize,
    keys_at: usize,
}

/// A node with its arrays.
#[derive(Clone, Copy)]
pub struct NodeRef<'a> {
    pub id: u32,
    node: &'a Node,
    capacity: usize,
    keys_at: usize,
    arena: PhantomData<&'a Nodes>,
}

impl Nodes {
    pub fn new(node_bytes: usize) -> Self {
        let fits = |capacity: &usize| keys_at(*capacity) + 8 * capacity <= node_bytes;
        let capacity = (GROUP..).step_by(GROUP).take_while(fits).last().expect("nodes have room for a group");
        Self { arena: Arena::new(node_bytes), capacity, keys_at: keys_at(capacity) }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline(always)]
    pub fn get(&self, id: u32) -> NodeRef<'_> {
        let (capacity, keys_at) = (self.capacity, self.keys_at);
        NodeRef { id, node: self.arena.get(id), capacity, keys_at, arena: PhantomData }
    }

    /// Fetches the children of a node of the default size, which are asked for only once all keys
    /// were compared.
    #[inline(always)]
    pub fn prefetch(&self, id: u32) {
        let start = std::ptr::from_ref(self.arena.get(id)).cast::<u8>();
        prefetch(start.wrapping_add(LINE_BYTES));
        prefetch(start.wrapping_add(2 * LINE_BYTES));
    }

    /// A node that nobody else knows, unlocked and without entries.
    pub fn alloc(&self, level: u32, leftmost: bool) -> u32 {
        let id = self.arena.alloc();
        let node = self.get(id);
        node.node.level.store(level, Relaxed);
        node.node.leftmost.store(leftmost.into(), Relaxed);
        node.keys().iter().for_each(|key| key.store(u64::MAX, Relaxed));
        node.node.count.store(0, Relaxed);
        node.set_right(None);
        node.lock.renew();
        id
    }

    pub fn free(&self, id: u32) {
        self.arena.free(id);
    }

    pub fn bytes(&self) -> u64 {
        self.arena.bytes()
    }
}

/// Where the keys begin: at a line of their own.
#[inline(always)]
const fn keys_at(capacity: usize) -> usize {
    (HEADER_BYTES + 4 * capacity).next_multiple_of(LINE_BYTES)
}

impl std::ops::Deref for NodeRef<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.node
    }
}

impl<'a> NodeRef<'a> {
    /// Every key word that entries may occupy, `u64::MAX` where none is.
    #[inline(always)]
    pub fn keys(self) -> &'a [AtomicU64] {
        // SAFETY: the arena keeps `keys_at + 8 * capacity` bytes per node, and any bytes
        // are values of atomics.
        unsafe {
            let start = std::ptr::from_ref(self.node).cast::<u8>().add(self.keys_at);
            std::slice::from_raw_parts(start.cast(), self.capacity)
        }
    }

    #[inline(always)]
    fn children(self) -> &'a [AtomicU32] {
        // SAFETY: as in `keys`, before them.
        unsafe {
            let start = std::ptr::from_ref(self.node).cast::<u8>().add(HEADER_BYTES);
            std::slice::from_raw_parts(start.cast(), self.capacity)
        }
    }

    /// Number of entries, never more than there is room for.
    #[inline(always)]
    pub fn count(self) -> usize {
        (self.node.count.load(Relaxed) as usize).min(self.capacity)
    }

    /// Keeps the first `count` entries only.
    pub fn truncate(self, count: usize) {
        self.keys()[count..self.count()].iter().for_each(|key| key.store(u64::MAX, Relaxed));
        self.node.count.store(count as u32, Relaxed);
    }

    /// Distance from the leaves; the nodes that point to leaves have level 1.
    #[inline(always)]
    pub fn level(self) -> u32 {
        self.node.level.load(Relaxed)
    }

    /// Whether the node's range begins at minus infinity, whatever its first key says.
    pub fn is_leftmost(self) -> bool {
        self.node.leftmost.load(Relaxed) != 0
    }

    /// The right sibling and the high key; the rightmost node has neither.
    #[inline(always)]
    pub fn right(self) -> Option<(u32, u64)> {
        let next = self.node.next.load(Relaxed);
        (next != NONE).then(|| (next, self.node.high.load(Relaxed)))
    }

    /// The high key, as a word: `u64::MAX` for the rightmost node.
    #[inline(always)]
    pub fn high(self) -> u64 {
        self.node.high.load(Relaxed)
    }

    pub fn set_right(self, right: Option<(u32, u64)>) {
        let (next, high) = right.unwrap_or((NONE, u64::MAX));
        self.node.next.store(next, Relaxed);
        self.node.high.store(high, Relaxed);
    }

    #[inline(always)]
    pub fn key(self, at: usize) -> u64 {
        self.keys()[at].load(Relaxed)
    }

    #[inline(always)]
    pub fn child(self, at: usize) -> u32 {
        self.children()[at].load(Relaxed)
    }

    pub fn set(self, at: usize, key: u64, child: u32) {
        self.keys()[at].store(key, Relaxed);
        self.children()[at].store(child, Relaxed);
    }

    pub fn set_child(self, at: usize, child: u32) {
        self.children()[at].store(child, Relaxed);
    }

    /// Makes room at `at` and puts an entry there. The node is not full.
    pub fn insert(self, at: usize, key: u64, child: u32) {
        let count = self.count();
        for from in (at..count).rev() {
            self.set(from + 1, self.key(from), self.child(from));
        }
        self.set(at, key, child);
        self.node.count.store(count as u32 + 1, Relaxed);
    }

    /// Closes the gap over the entry at `at`.
    pub fn remove(self, at: usize) {
        let count = self.count();
        for from in at + 1..count {
            self.set(from - 1, self.key(from), self.child(from));
        }
        self.truncate(count - 1);
    }

    pub fn position(self, child: u32) -> Option<usize> {
        (0..self.count()).find(|&at| self.child(at) == child)
    }
}
