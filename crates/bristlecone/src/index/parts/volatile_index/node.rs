//! A node of the inner index: `count` entries, where entry `i` covers
//! `[key(i), key(i + 1))`, and the last one ends at the high key.
//!
//! ```text
//! lock, high key, next, count, level, common and leftmost (32 B)
//! for byte strings: the common prefix (96 B)
//! children (4 B each) | ranks (8 B each), line by line
//! for byte strings: keys (8 B each)
//! ```
//!
//! `ranks` describes the comparison of separators.

mod ranks;

use std::marker::PhantomData;

use bristlecone_pm::sync::wait::reached;
use bristlecone_pm::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use bristlecone_pm::{LINE_BYTES, Manifest, ManifestReader, Memory, Result};

use crate::index::parts::arena::{Arena, Bits, Room, Zeroed};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::optimistic_lock::OptimisticLock;
use crate::index::parts::prefetch;
use crate::index::parts::search::{GROUP, Level};
use crate::index::parts::separators::Separators;

/// No node.
pub const NONE: u32 = u32::MAX;
/// Bytes before the children.
const HEADER_BYTES: usize = 32;

/// Words of a common prefix that a node holds. A longer one is read from a separator.
const PREFIX_WORDS: usize = 12;

/// The header; the prefix, children and keys follow it in the arena. It changes only under the lock. Readers validate, so
/// relaxed accesses suffice.
#[repr(C)]
pub struct Node {
    pub lock: OptimisticLock,
    high: AtomicU64,
    next: AtomicU32,
    count: AtomicU32,
    level: AtomicU32,
    /// Whether the node is the leftmost one of its level (bit 0), and the number of bytes that ranks omit.
    edge: AtomicU32,
}

// SAFETY: atomics only, for which zero is a value.
unsafe impl Zeroed for Node {}

const _: () = assert!(size_of::<Node>() == HEADER_BYTES);

/// The key where a range begins.
#[derive(Clone, Copy)]
pub struct Separator {
    /// Has the order of keys, except for keys of the same rank.
    pub rank: u64,
    /// The result of [`KeyCodec::make_separator`].
    pub word: u64,
}

impl Separator {
    /// Before every key.
    pub const LEAST: Self = Self { rank: 0, word: 0 };

    /// Returns the separator of a word that is known to be valid.
    pub fn of<K: KeyCodec>(separators: &Separators, word: u64, guard: &K::Guard) -> Self {
        Self { rank: K::rank(K::separator_at(separators, word, guard)), word }
    }

    /// Returns another separator for the same key.
    pub fn copy<K: KeyCodec>(self, separators: &Separators, guard: &K::Guard) -> Self {
        Self { rank: self.rank, word: K::copy_separator(separators, self.word, guard) }
    }
}

/// Position of a node in its level.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// Leftmost: its range begins at minus infinity.
    Left,
    /// Behind another node.
    Inside,
}

/// The nodes of one index.
pub struct Nodes {
    arena: Arena<Node>,
    shape: Shape,
}

/// Positions of the arrays in a node, and the search method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Length of each array.
    slots: usize,
    children_at: usize,
    ranks_at: usize,
    /// Position of the words: that of the ranks, if they are the keys.
    words_at: usize,
    level: Level,
}

/// Compile-time knowledge of the node layout.
pub trait Layout {
    /// Returns a node.
    fn get(nodes: &Nodes, id: u32) -> NodeRef<'_>;
}

/// Any layout.
pub struct AnyLayout;

/// Nodes of the default size, keys that are words, and a processor that compares whole lines of keys.
pub struct DefaultLayout;

impl Layout for AnyLayout {
    #[inline(always)]
    fn get(nodes: &Nodes, id: u32) -> NodeRef<'_> {
        nodes.get(id)
    }
}

impl Layout for DefaultLayout {
    #[inline(always)]
    fn get(nodes: &Nodes, id: u32) -> NodeRef<'_> {
        debug_assert!(nodes.have_default_layout());
        match Self::SHAPE {
            Some(shape) => {
                NodeRef { id, node: nodes.arena.get_spaced::<{ Self::BYTES }>(id), shape, arena: PhantomData }
            }
            None => nodes.get(id),
        }
    }
}

impl DefaultLayout {
    const BYTES: usize = 512;

    #[cfg(target_arch = "x86_64")]
    const SHAPE: Option<Shape> = Some(Shape::new(40, true, Level::Avx512));
    #[cfg(not(target_arch = "x86_64"))]
    const SHAPE: Option<Shape> = None;
}

/// A node with its arrays.
#[derive(Clone, Copy)]
pub struct NodeRef<'a> {
    pub id: u32,
    node: &'a Node,
    shape: Shape,
    arena: PhantomData<&'a Nodes>,
}

impl Nodes {
    /// Returns storage for nodes of this size; if `inline`, ranks are keys.
    pub fn new(node_bytes: usize, inline: bool, memory: &Memory) -> Result<Self> {
        let shape = Shape::fitting(node_bytes, inline);
        Ok(Self { arena: Arena::new(node_bytes + shape.prefix_bytes(), memory)?, shape })
    }

    /// Saves the nodes for the next open of their tree: see [`Arena::save`].
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        self.arena.save(manifest)
    }

    /// Takes over the nodes saved by [`save`](Self::save).
    pub fn resume(node_bytes: usize, inline: bool, manifest: &mut ManifestReader<'_>) -> Option<Self> {
        let shape = Shape::fitting(node_bytes, inline);
        Some(Self { arena: Arena::resume(node_bytes + shape.prefix_bytes(), manifest)?, shape })
    }

    /// Returns the number of entries of a node.
    pub fn capacity(&self) -> usize {
        self.shape.slots - usize::from(!self.shape.is_inline())
    }

    #[inline(always)]
    pub fn get(&self, id: u32) -> NodeRef<'_> {
        NodeRef { id, node: self.arena.get(id), shape: self.shape, arena: PhantomData }
    }

    /// Returns whether nodes have the [`DefaultLayout`].
    pub fn have_default_layout(&self) -> bool {
        self.arena.bytes_each() == DefaultLayout::BYTES && Some(self.shape) == DefaultLayout::SHAPE
    }

    /// Prefetches header and children of a node, which suffice to walk from leaf to leaf.
    #[inline(always)]
    pub fn prefetch_header_and_children(&self, id: u32) {
        let node = self.get(id);
        prefetch(node.node);
        node.prefetch_children();
    }

    /// Prefetches all lines of a node.
    #[inline(always)]
    pub fn prefetch_whole(&self, id: u32) {
        let start = std::ptr::from_ref(self.get(id).node).cast::<u8>();
        let bytes = self.shape.words_at + 8 * self.shape.slots;
        (0..bytes).step_by(LINE_BYTES).for_each(|line| prefetch(start.wrapping_add(line)));
    }

    /// Returns a locked node without entries. No other thread knows it, except from a former use.
    pub fn alloc(&self, level: u32, at: Edge) -> Result<u32> {
        let id = self.arena.alloc()?;
        let node = self.get(id);
        if node.lock.count() > 0 {
            reached("index node.reused");
        }
        node.lock.renew_locked();
        node.node.level.store(level, Relaxed);
        node.node.edge.store(u32::from(at == Edge::Left), Relaxed);
        node.ranks().iter().for_each(|rank| rank.store(u64::MAX, Relaxed));
        node.node.count.store(0, Relaxed);
        node.set_right(None);
        Ok(id)
    }

    /// Returns a node for an image, which no thread reads. `None` without memory.
    pub fn alloc_image(&self) -> Option<u32> {
        // None of the nodes that others have reserved.
        let _room = self.arena.reserve(1).ok()?;
        self.arena.alloc_fresh(1).ok().map(|ids| ids.start)
    }

    /// Takes over the nodes of a killed process: see [`Arena::recover`].
    pub fn recover(node_bytes: usize, inline: bool, manifest: &mut ManifestReader<'_>) -> Option<Self> {
        let shape = Shape::fitting(node_bytes, inline);
        Some(Self { arena: Arena::recover(node_bytes + shape.prefix_bytes(), manifest)?, shape })
    }

    /// Frees all nodes that are not in `used`.
    pub fn free_others(&self, used: &Bits) {
        self.arena.free_others(used);
    }

    /// Reserves nodes.
    pub fn reserve(&self, nodes: usize) -> Result<Room<'_>> {
        self.arena.reserve(nodes)
    }

    pub fn free(&self, id: u32) {
        self.arena.free(id);
    }

    pub fn bytes(&self) -> u64 {
        self.arena.bytes()
    }

    /// Returns the number of nodes ever allocated.
    pub fn begun(&self) -> u32 {
        self.arena.begun()
    }
}

impl Shape {
    const fn new(slots: usize, inline: bool, level: Level) -> Self {
        let children_at = HEADER_BYTES + if inline { 0 } else { 8 * PREFIX_WORDS };
        // Ranks begin on their own line.
        let ranks_at = (children_at + 4 * slots).next_multiple_of(LINE_BYTES);
        let words_at = ranks_at + if inline { 0 } else { 8 * slots };
        Self { slots, children_at, ranks_at, words_at, level }
    }

    /// Returns the bytes that the prefix takes, beyond those of a node.
    fn prefix_bytes(self) -> usize {
        (self.children_at - HEADER_BYTES).next_multiple_of(LINE_BYTES)
    }

    /// Returns the shape of nodes of this size.
    fn fitting(node_bytes: usize, inline: bool) -> Self {
        let level = Level::detect();
        let shapes = (GROUP..).step_by(GROUP).map(|slots| Self::new(slots, inline, level));
        let fits = |shape: &Self| shape.words_at + 8 * shape.slots <= node_bytes + shape.prefix_bytes();
        shapes.take_while(fits).last().expect("nodes have room for a group")
    }

    #[inline(always)]
    fn is_inline(self) -> bool {
        self.ranks_at == self.words_at
    }
}

impl std::ops::Deref for NodeRef<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.node
    }
}

impl<'a> NodeRef<'a> {
    /// Prefetches the children of a node of the default size, which are accessed only after all keys were compared, and
    /// the prefix.
    #[inline(always)]
    pub fn prefetch_children(self) {
        let start = std::ptr::from_ref(self.node).cast::<u8>();
        prefetch(start.wrapping_add(LINE_BYTES));
        prefetch(start.wrapping_add(2 * LINE_BYTES));
        if !self.shape.is_inline() {
            prefetch(start.wrapping_add(3 * LINE_BYTES));
        }
    }

    /// Returns the words for the common prefix; none if keys are words.
    #[inline(always)]
    fn prefix(self) -> &'a [AtomicU64] {
        let words = (self.shape.children_at - HEADER_BYTES) / size_of::<u64>();
        // SAFETY: the arena keeps the bytes before the children, and any bytes are values of atomics.
        unsafe {
            let start = std::ptr::from_ref(self.node).cast::<u8>().add(HEADER_BYTES);
            std::slice::from_raw_parts(start.cast(), words)
        }
    }

    /// Returns all rank positions, with `u64::MAX` in unused ones.
    #[inline(always)]
    pub fn ranks(self) -> &'a [AtomicU64] {
        self.words_from(self.shape.ranks_at)
    }

    /// Returns the words of the keys.
    #[inline(always)]
    fn words(self) -> &'a [AtomicU64] {
        self.words_from(self.shape.words_at)
    }

    #[inline(always)]
    fn words_from(self, at: usize) -> &'a [AtomicU64] {
        // SAFETY: `at` is one of the shape's places; the arena keeps `words_at + 8 * slots` bytes
        // per node, and any bytes are values of atomics.
        unsafe {
            let start = std::ptr::from_ref(self.node).cast::<u8>().add(at);
            std::slice::from_raw_parts(start.cast(), self.shape.slots)
        }
    }

    #[inline(always)]
    fn children(self) -> &'a [AtomicU32] {
        // SAFETY: as in `words_from`, before them.
        unsafe {
            let start = std::ptr::from_ref(self.node).cast::<u8>().add(self.shape.children_at);
            std::slice::from_raw_parts(start.cast(), self.shape.slots)
        }
    }

    /// Returns the number of entries, at most the capacity.
    #[inline(always)]
    pub fn count(self) -> usize {
        (self.node.count.load(Relaxed) as usize).min(self.shape.slots)
    }

    /// Returns the stored number of entries, which in a damaged node may exceed the capacity.
    pub fn count_begun(self) -> usize {
        self.node.count.load(Relaxed) as usize
    }

    /// Copies everything but the lock from another node.
    pub fn copy_from(self, other: Self) {
        let header = |node: &'a Node| (&node.high, [&node.next, &node.count, &node.level, &node.edge]);
        let from = other.node;
        let (high, halves) = header(self.node);
        high.store(from.high.load(Relaxed), Relaxed);
        for (to, from) in halves.into_iter().zip([&from.next, &from.count, &from.level, &from.edge]) {
            to.store(from.load(Relaxed), Relaxed);
        }
        self.children()
            .iter()
            .zip(other.children())
            .for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        let words = |node: Self| node.prefix().iter().chain(node.ranks()).chain(node.words());
        words(self).zip(words(other)).for_each(|(to, from)| {
            to.store(from.load(Relaxed), Relaxed);
        });
    }

    /// Keeps only the first `count` entries.
    pub fn truncate(self, count: usize) {
        self.ranks()[count..self.count()].iter().for_each(|rank| rank.store(u64::MAX, Relaxed));
        self.node.count.store(count as u32, Relaxed);
    }

    /// Returns the distance from the leaves; the nodes that point to leaves have level 1.
    #[inline(always)]
    pub fn level(self) -> u32 {
        self.node.level.load(Relaxed)
    }

    /// Returns whether the node's range begins at minus infinity, whatever its first key.
    pub fn is_leftmost(self) -> bool {
        self.node.edge.load(Relaxed) & 1 != 0
    }

    /// Returns the right sibling and the high key; the rightmost node has neither.
    #[inline(always)]
    pub fn right(self) -> Option<(u32, Separator)> {
        let next = self.node.next.load(Relaxed);
        (next != NONE).then(|| {
            let word = self.node.high.load(Relaxed);
            (next, Separator { rank: self.high_rank(self.shape.is_inline()), word })
        })
    }

    /// Returns the high key's rank: `u64::MAX` for the rightmost node. `inline` must match the node.
    #[inline(always)]
    pub fn high_rank(self, inline: bool) -> u64 {
        if inline { self.node.high.load(Relaxed) } else { self.ranks()[self.shape.slots - 1].load(Relaxed) }
    }

    pub fn set_right(self, right: Option<(u32, Separator)>) {
        let (next, high) = right.unwrap_or((NONE, Separator { rank: u64::MAX, word: u64::MAX }));
        self.node.next.store(next, Relaxed);
        self.node.high.store(high.word, Relaxed);
        if !self.shape.is_inline() {
            self.ranks()[self.shape.slots - 1].store(high.rank, Relaxed);
        }
    }

    /// Returns the word of a key.
    #[inline(always)]
    pub fn key(self, at: usize) -> u64 {
        self.words()[at].load(Relaxed)
    }

    /// Returns a key with its rank.
    pub fn separator(self, at: usize) -> Separator {
        Separator { rank: self.ranks()[at].load(Relaxed), word: self.key(at) }
    }

    #[inline(always)]
    pub fn child(self, at: usize) -> u32 {
        self.children()[at].load(Relaxed)
    }

    fn set(self, at: usize, key: Separator, child: u32) {
        self.ranks()[at].store(key.rank, Relaxed);
        self.words()[at].store(key.word, Relaxed);
        self.children()[at].store(child, Relaxed);
    }

    pub fn set_child(self, at: usize, child: u32) {
        self.children()[at].store(child, Relaxed);
    }

    /// Inserts an entry at `at`. The node must not be full.
    pub fn insert(self, at: usize, key: Separator, child: u32) {
        let count = self.count();
        // The order of separators is not asserted: keys of a damaged leaf may lie anywhere.
        debug_assert!(at <= count && count < self.ranks().len(), "entry {at} of {count} in a full node");
        for from in (at..count).rev() {
            self.set(from + 1, self.separator(from), self.child(from));
        }
        self.set(at, key, child);
        self.node.count.store(count as u32 + 1, Relaxed);
    }

    /// Removes the entry at `at` and closes the gap.
    pub fn remove(self, at: usize) {
        let count = self.count();
        for from in at + 1..count {
            self.set(from - 1, self.separator(from), self.child(from));
        }
        self.truncate(count - 1);
    }

    pub fn position(self, child: u32) -> Option<usize> {
        (0..self.count()).find(|&at| self.child(at) == child)
    }
}
