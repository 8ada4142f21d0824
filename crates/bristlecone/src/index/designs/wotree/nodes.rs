//! The nodes of a tree: allocation, release, locks, and words.
//!
//! Locks are in DRAM, one per slot of a chunk, created when a chunk is first accessed. A node that left the tree
//! keeps its lock, obsolete, until no reader can hold the node. A pinned thread may therefore follow any
//! reference that it ever read.

use std::sync::Arc;

use bristlecone_pm::sync::epoch::Guard;
use bristlecone_pm::sync::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use bristlecone_pm::{
    Error, Heap, HeapSpec, HeapStats, Manifest, ManifestReader, Medium, PoolFile, Released, Result,
    SharedCell, TreeId, Word,
};

use super::layout::{Link, NODES, Pair, Shape, State};
use crate::index::parts::lock_table::LockTable;
use crate::index::parts::locked::{self, Guarded};
use crate::index::parts::optimistic_lock::OptimisticLock;

/// Number of turn counters; see [`Nodes::turns`].
const TURNS: usize = 256;

/// A node and its lock.
#[derive(Clone, Copy)]
pub struct NodeLock<'t> {
    pub node: u64,
    pub lock: &'t OptimisticLock,
}

/// A node locked by its only writer.
pub type Locked<'t> = locked::Locked<NodeLock<'t>>;

impl Guarded for NodeLock<'_> {
    #[inline(always)]
    fn lock(&self) -> &OptimisticLock {
        self.lock
    }

    #[inline(always)]
    fn unlock_above(&self, _: u64) {
        self.lock.unlock();
    }
}

pub struct Nodes<M: Medium> {
    pool: Arc<PoolFile<M>>,
    heap: Heap<M>,
    pub shape: Shape,
    locks: LockTable,
    turns: SharedCell<[AtomicU64; TURNS]>,
    /// Nodes that no reader holds any more.
    retired: Released<u64>,
    limbo: AtomicUsize,
}

impl<M: Medium> Nodes<M> {
    /// Takes over the nodes of a tree. With `fresh` there are none yet, whatever the chunks contain.
    pub fn open(pool: &Arc<PoolFile<M>>, id: TreeId, shape: Shape, fresh: bool) -> Result<Self> {
        let bytes = shape.node_bytes as u32;
        let slots = HeapSpec { tagged: true, unswept: !fresh, ..HeapSpec::new(id, NODES, bytes) };
        let heap = Heap::open(pool, slots);
        let memory = pool.memory();
        let locks = LockTable::new(pool.max_bytes(), pool.chunk_bytes(), shape.node_bytes, &memory)?;
        heap.chunks().iter().try_for_each(|chunk| locks.admit(chunk.offset))?;
        Ok(Self {
            pool: Arc::clone(pool),
            heap,
            shape,
            locks,
            turns: memory.cell(),
            retired: Released::new(&memory),
            limbo: AtomicUsize::new(0),
        })
    }

    /// Records the locks in the manifest for followers.
    pub fn share(&self, manifest: &mut Manifest) -> Option<()> {
        manifest.push_cell(&self.turns)?;
        self.locks.share(manifest)
    }

    /// Takes over the locks recorded by [`share`](Self::share), for a follower that has none yet.
    pub fn follow(&mut self, manifest: &mut ManifestReader<'_>) -> Option<()> {
        self.turns = manifest.read_cell()?;
        self.locks.follow(manifest)
    }

    #[inline(always)]
    pub fn medium(&self) -> &M {
        self.pool.medium()
    }

    /// Ensures that a node is available. May sweep slots, and wait.
    pub fn prepare(&self) -> Result<()> {
        self.drain_retired();
        self.heap.prepare(&|node| self.is_taken(node))
    }

    /// Returns a slot whose first word is durably zero.
    pub fn alloc(&self) -> Result<u64> {
        self.drain_retired();
        let node = self.heap.alloc()?;
        match self.locks.admit(node) {
            Ok(()) => Ok(node),
            Err(error) => {
                self.heap.free(node);
                Err(error)
            }
        }
    }

    /// Frees a node that no other thread saw.
    pub fn unalloc(&self, node: u64) {
        self.heap.free(node);
    }

    /// Keeps a node that is about to leave the tree: no liveness callback may find it free while readers hold it.
    pub fn keep(&self, node: u64) {
        self.heap.keep(node);
    }

    /// Retires a node that has left the tree durably, and whose first word is durably zero.
    pub fn retire(&self, node: u64, guard: &Guard) {
        let queue = self.retired.queue();
        self.limbo.fetch_add(1, Relaxed);
        // SAFETY: the closure owns what it uses, and may run on any thread.
        unsafe { guard.defer_unchecked(move || queue.push(node)) };
    }

    /// Frees the nodes that readers have released.
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

    /// Returns the known number of nodes that have left the tree and that readers still hold.
    pub fn held(&self) -> u64 {
        self.limbo.load(Relaxed).saturating_sub(self.retired.len()) as u64
    }

    /// Returns whether readers have released nodes that are not free yet.
    pub fn has_released(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Returns the statistics of the heap after a sweep of all slots.
    pub fn swept_stats(&self) -> HeapStats {
        self.heap.sweep_all(&|node| self.is_taken(node));
        self.stats()
    }

    /// Returns the known statistics of the heap, without the nodes that readers may still hold.
    pub fn stats(&self) -> HeapStats {
        let stats = self.heap.stats();
        HeapStats { live_slots: stats.live_slots.saturating_sub(self.limbo.load(Relaxed) as u64), ..stats }
    }

    pub fn dram_bytes(&self) -> u64 {
        self.locks.bytes()
    }

    fn is_taken(&self, node: u64) -> bool {
        self.state_word(node).load(self.medium()) != State::Free.encode()
    }

    /// Returns the lock of a node, or an error if no node can be at this offset.
    #[inline(always)]
    pub fn lock(&self, node: u64) -> Result<&OptimisticLock> {
        match self.locks.get(node) {
            Some(lock) => Ok(lock),
            None => Err(Self::no_node(node)),
        }
    }

    #[cold]
    fn no_node(node: u64) -> Error {
        Error::corrupted("a dangling node reference", format!("node {node:#x}"))
    }

    /// Returns the turn counter of an inner node, by which readers without its lock detect that entries moved to
    /// the left. Odd: its links are being changed. Sharing a counter among many nodes is harmless.
    #[inline(always)]
    pub fn turns(&self, node: u64) -> &AtomicU64 {
        &self.turns[(node / self.shape.node_bytes) as usize % TURNS]
    }

    /// Returns every slot of the tree's chunks, used or free.
    pub fn all(&self) -> impl Iterator<Item = u64> {
        let chunks = self.heap.chunks();
        let bytes = self.shape.node_bytes;
        chunks
            .into_iter()
            .flat_map(move |chunk| (0..chunk.slots as u64).map(move |slot| chunk.offset + slot * bytes))
    }

    #[inline(always)]
    pub fn state_word(&self, node: u64) -> &Word {
        self.pool.at(node)
    }

    /// Prefetches a line of a node.
    #[inline(always)]
    pub fn fetch(&self, line: u64) {
        self.pool.prefetch(line);
    }

    #[inline(always)]
    pub fn state(&self, node: u64) -> Option<State> {
        State::decode(self.state_word(node).load(self.medium()))
    }

    /// Returns the second word of the bitmap of a leaf of 32 lines.
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

    /// Returns the link of a node of a level.
    #[inline(always)]
    pub fn link(&self, node: u64, level: u8) -> &Link {
        if level == 0 { self.leaf_link(node) } else { self.pool.at(self.shape.inner_link(node)) }
    }

    /// Returns all the words of a node, up to `bytes`.
    pub fn words(&self, node: u64, bytes: u64) -> &[Word] {
        self.pool.words(node, bytes as usize / 8)
    }
}
