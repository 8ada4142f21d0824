//! The nodes of a tree: where they come from and go to, their locks, and their words.
//!
//! Locks live in DRAM, one to a slot of a chunk, made when a chunk is first touched. A node that
//! left the tree keeps its lock, obsolete, until no reader can hold the node; so whoever is
//! pinned may follow any reference that he ever read.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
};

use bristlecone_pm::{Error, Heap, HeapStats, Medium, PoolFile, Result, SlotKind, TreeId, Word};
use crossbeam_epoch::Guard;
use crossbeam_queue::SegQueue;

use super::layout::{Link, Pair, Shape, State};
use crate::shared::version_lock::VersionLock;

/// Counters of turns; see [`Nodes::turns`].
const TURNS: usize = 256;

pub struct Nodes<M: Medium> {
    pool: Arc<PoolFile<M>>,
    heap: Heap<M>,
    pub shape: Shape,
    locks: LockTable,
    turns: Box<[AtomicU64]>,
    /// Nodes that no reader holds any more.
    retired: Arc<SegQueue<u64>>,
    limbo: AtomicUsize,
}

impl<M: Medium> Nodes<M> {
    /// Takes over the nodes of a tree. With `fresh` there are none yet, whatever the chunks hold.
    pub fn open(pool: &Arc<PoolFile<M>>, id: TreeId, shape: Shape, fresh: bool) -> Result<Self> {
        let bytes = shape.node_bytes as u32;
        let heap = if fresh {
            Heap::open(pool, id, SlotKind::WoNode, bytes, true)?
        } else {
            Heap::open_unsettled(pool, id, SlotKind::WoNode, bytes, true)
        };
        let locks = LockTable::new(pool.max_bytes(), pool.chunk_bytes(), shape.node_bytes);
        heap.chunks().iter().for_each(|chunk| locks.admit(chunk.offset));
        Ok(Self {
            pool: Arc::clone(pool),
            heap,
            shape,
            locks,
            turns: (0..TURNS).map(|_| AtomicU64::new(0)).collect(),
            retired: Arc::default(),
            limbo: AtomicUsize::new(0),
        })
    }

    #[inline(always)]
    pub fn medium(&self) -> &M {
        self.pool.medium()
    }

    /// Sees to it that a node is at hand. May judge slots, and wait.
    pub fn prepare(&self) -> Result<()> {
        self.drain_retired();
        self.heap.prepare(&|node| self.is_taken(node))
    }

    /// A slot whose first word is durably zero.
    pub fn alloc(&self) -> Result<u64> {
        self.drain_retired();
        let node = self.heap.alloc()?;
        self.locks.admit(node);
        Ok(node)
    }

    /// Gives back a node that nobody saw.
    pub fn unalloc(&self, node: u64) {
        self.heap.free(node);
    }

    /// The node is about to leave the tree: no judge may find it free while readers hold it.
    pub fn keep(&self, node: u64) {
        self.heap.keep(node);
    }

    /// The node has left the tree durably, and its first word is durably zero.
    pub fn retire(&self, node: u64, guard: &Guard) {
        let queue = Arc::clone(&self.retired);
        self.limbo.fetch_add(1, Relaxed);
        // SAFETY: the closure owns what it uses, and may run on any thread.
        unsafe { guard.defer_unchecked(move || queue.push(node)) };
    }

    /// Frees what readers have let go of.
    #[inline(always)]
    pub fn drain_retired(&self) {
        if self.limbo.load(Relaxed) != 0 {
            self.drain();
        }
    }

    #[cold]
    fn drain(&self) {
        while let Some(node) = self.retired.pop() {
            self.limbo.fetch_sub(1, Relaxed);
            if let Some(lock) = self.locks.get(node) {
                lock.renew();
            }
            self.heap.free(node);
        }
    }

    /// What the heap occupies, without the nodes that readers may still hold. With `exact` slots
    /// that nobody judged yet are judged.
    pub fn stats(&self, exact: bool) -> HeapStats {
        if exact {
            self.heap.settle_all(&|node| self.is_taken(node));
        }
        let stats = self.heap.stats();
        HeapStats { live_slots: stats.live_slots.saturating_sub(self.limbo.load(Relaxed) as u64), ..stats }
    }

    pub fn dram_bytes(&self) -> u64 {
        self.locks.bytes()
    }

    fn is_taken(&self, node: u64) -> bool {
        self.state_word(node).load(self.medium()) != State::Free.encode()
    }

    /// The lock of a node; an error if no node can stand there.
    #[inline(always)]
    pub fn lock(&self, node: u64) -> Result<&VersionLock> {
        match self.locks.get(node) {
            Some(lock) => Ok(lock),
            None => Err(Self::no_node(node)),
        }
    }

    #[cold]
    fn no_node(node: u64) -> Error {
        Error::corrupted("a reference to no node", format!("node {node:#x}"))
    }

    /// Counts what readers of an inner node without its lock must not miss: entries that moved
    /// to the left. Odd: its links are being changed. Shared by many nodes, at no harm.
    #[inline(always)]
    pub fn turns(&self, node: u64) -> &AtomicU64 {
        &self.turns[(node / self.shape.node_bytes) as usize % TURNS]
    }

    #[inline(always)]
    pub fn state_word(&self, node: u64) -> &Word {
        self.pool.at(node)
    }

    #[inline(always)]
    pub fn state(&self, node: u64) -> Option<State> {
        State::decode(self.state_word(node).load(self.medium()))
    }

    /// The second word of the bitmap of a leaf of 32 lines.
    #[inline(always)]
    pub fn bitmap_word(&self, leaf: u64) -> &Word {
        self.pool.at(leaf + 8)
    }

    #[inline(always)]
    pub fn slot_words(&self, leaf: u64) -> &[Word] {
        self.pool.words(leaf + self.shape.slots_offset(), self.shape.slot_words)
    }

    #[inline(always)]
    pub fn item(&self, leaf: u64, slot: usize) -> &Pair {
        self.pool.at(self.shape.item(leaf, slot.min(self.shape.slots - 1)))
    }

    #[inline(always)]
    pub fn entry(&self, inner: u64, at: usize) -> &Pair {
        self.pool.at(self.shape.entry(inner, at))
    }

    #[inline(always)]
    pub fn leaf_link(&self, leaf: u64) -> &Link {
        self.pool.at(self.shape.leaf_link(leaf))
    }

    /// The link of a node of a level.
    #[inline(always)]
    pub fn link(&self, node: u64, level: u8) -> &Link {
        if level == 0 { self.leaf_link(node) } else { self.pool.at(self.shape.inner_link(node)) }
    }

    /// All the words of a node, up to `bytes`.
    pub fn words(&self, node: u64, bytes: u64) -> &[Word] {
        self.pool.words(node, bytes as usize / 8)
    }
}

/// A chunk of the tree without locks so far.
const UNTOUCHED: *mut VersionLock = std::ptr::dangling_mut();

/// A lock for every slot of the tree's chunks, found by offset.
struct LockTable {
    /// By chunk: null if it is not the tree's, `UNTOUCHED` if no lock of it was asked for yet.
    chunks: Box<[AtomicPtr<VersionLock>]>,
    made: AtomicUsize,
    chunk_shift: u32,
    node_shift: u32,
}

impl LockTable {
    fn new(pool_bytes: u64, chunk_bytes: u64, node_bytes: u64) -> Self {
        let chunks = (0..pool_bytes / chunk_bytes).map(|_| AtomicPtr::default());
        Self {
            chunks: chunks.collect(),
            made: AtomicUsize::new(0),
            chunk_shift: chunk_bytes.trailing_zeros(),
            node_shift: node_bytes.trailing_zeros(),
        }
    }

    fn slots(&self) -> usize {
        1 << (self.chunk_shift - self.node_shift)
    }

    /// The chunk of a node is the tree's. Stays so for good: locks outlive their chunks.
    #[inline]
    fn admit(&self, node: u64) {
        let cell = &self.chunks[(node >> self.chunk_shift) as usize];
        if cell.load(Acquire).is_null() {
            // Who comes second finds what the first one left.
            let _ = cell.compare_exchange(std::ptr::null_mut(), UNTOUCHED, AcqRel, Acquire);
        }
    }

    /// The locks of a chunk, made now if it is the tree's.
    #[cold]
    fn make(&self, cell: &AtomicPtr<VersionLock>) -> Option<*mut VersionLock> {
        if cell.load(Acquire).is_null() {
            return None;
        }
        let locks: Box<[VersionLock]> = (0..self.slots()).map(|_| VersionLock::default()).collect();
        let locks = Box::into_raw(locks).cast::<VersionLock>();
        // Pairs with the loads: who sees the pointer sees zeroed locks.
        match cell.compare_exchange(UNTOUCHED, locks, AcqRel, Acquire) {
            Ok(_) => {
                self.made.fetch_add(1, Relaxed);
                Some(locks)
            }
            Err(theirs) => {
                self.unmake(locks);
                Some(theirs)
            }
        }
    }

    fn unmake(&self, locks: *mut VersionLock) {
        // SAFETY: made by `make` from a box of this many locks, and not shared or no longer.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(locks, self.slots())) });
    }

    #[inline(always)]
    fn get(&self, node: u64) -> Option<&VersionLock> {
        let cell = self.chunks.get((node >> self.chunk_shift) as usize)?;
        let mut locks = cell.load(Acquire);
        if locks.addr() <= UNTOUCHED.addr() {
            locks = self.make(cell)?;
        }
        if node & ((1 << self.node_shift) - 1) != 0 {
            return None;
        }
        let slot = (node & ((1 << self.chunk_shift) - 1)) >> self.node_shift;
        // SAFETY: the chunk's locks, of which there is one for each slot, live as long as `self`.
        Some(unsafe { &*locks.add(slot as usize) })
    }

    fn bytes(&self) -> u64 {
        let made = self.made.load(Relaxed) * self.slots() * size_of::<VersionLock>();
        (made + self.chunks.len() * size_of::<AtomicPtr<VersionLock>>()) as u64
    }
}

impl Drop for LockTable {
    fn drop(&mut self) {
        for cell in &self.chunks {
            let locks = cell.load(Acquire);
            if locks.addr() > UNTOUCHED.addr() {
                self.unmake(locks);
            }
        }
    }
}
