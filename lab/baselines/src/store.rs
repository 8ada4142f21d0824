//! The nodes of a baseline: allocation, locks in DRAM, and words.

use std::sync::Arc;

use bristlecone::Medium;
use bristlecone::parts::lock_table::LockTable;
use bristlecone::parts::optimistic_lock::OptimisticLock;
use bristlecone_pm::{
    Error, Heap, HeapSpec, HeapStats, LINE_BYTES, Memory, PoolFile, Result, SlotKind, TreeId, Word,
};

/// The slots of nodes.
pub const NODES: SlotKind = SlotKind::new(32);
/// Words of a line.
pub const LINE_WORDS: usize = LINE_BYTES / 8;

pub struct Store<M: Medium> {
    pub pool: Arc<PoolFile<M>>,
    pub id: TreeId,
    pub node_bytes: u64,
    heap: Heap<M>,
    locks: LockTable,
}

impl<M: Medium> Store<M> {
    pub fn open(pool: &Arc<PoolFile<M>>, id: TreeId, node_lines: u64) -> Result<Self> {
        let node_bytes = node_lines * LINE_BYTES as u64;
        let heap = Heap::open(pool, HeapSpec::new(id, NODES, node_bytes as u32));
        let locks = LockTable::new(pool.max_bytes(), pool.chunk_bytes(), node_bytes, &Memory::private())?;
        heap.chunks().iter().try_for_each(|chunk| locks.admit(chunk.offset))?;
        Ok(Self { pool: Arc::clone(pool), id, node_bytes, heap, locks })
    }

    #[inline(always)]
    pub fn medium(&self) -> &M {
        self.pool.medium()
    }

    /// Returns the words of a node.
    pub fn node_words(&self) -> usize {
        self.node_bytes as usize / 8
    }

    pub fn alloc(&self) -> Result<u64> {
        let node = self.heap.alloc()?;
        match self.locks.admit(node) {
            Ok(()) => Ok(node),
            Err(error) => {
                self.heap.free(node);
                Err(error)
            }
        }
    }

    /// Frees a node that no thread has seen.
    pub fn unalloc(&self, node: u64) {
        self.heap.free(node);
    }

    /// Marks a node as live in recovery: the tree refers to it.
    pub fn mark_live(&self, node: u64) -> Result<()> {
        if self.heap.mark_live(node)? { Ok(()) } else { Err(damaged("a node with two parents", node)) }
    }

    pub fn finish_recovery(&self) {
        self.heap.finish_recovery();
    }

    pub fn stats(&self) -> HeapStats {
        self.heap.stats()
    }

    pub fn dram_bytes(&self) -> u64 {
        self.locks.bytes()
    }

    /// Returns the lock of a node; an error if no node can begin there.
    #[inline(always)]
    pub fn lock(&self, node: u64) -> Result<&OptimisticLock> {
        self.locks.get(node).ok_or_else(|| damaged("a dangling node reference", node))
    }

    #[inline(always)]
    pub fn word(&self, node: u64, at: usize) -> &Word {
        self.pool.at(node + (at * 8) as u64)
    }

    #[inline(always)]
    pub fn load(&self, node: u64, at: usize) -> u64 {
        self.word(node, at).load(self.medium())
    }

    /// Returns the consecutive words of a node.
    pub fn words(&self, node: u64, at: usize, words: usize) -> &[Word] {
        self.pool.words(node + (at * 8) as u64, words)
    }
}

#[cold]
pub fn damaged(what: &str, node: u64) -> Error {
    Error::corrupted(what.to_owned(), format!("node {node:#x}"))
}

/// A locked node; unlocked when dropped.
pub struct Locked<'s>(&'s OptimisticLock);

impl<'s> Locked<'s> {
    /// Creates the guard of a lock that the caller holds.
    pub fn held(lock: &'s OptimisticLock) -> Self {
        Self(lock)
    }

    /// Waits for the lock. Nodes of baselines are never freed.
    pub fn wait(lock: &'s OptimisticLock) -> Self {
        let held = lock.lock();
        debug_assert!(held, "no node is obsolete");
        Self(lock)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}
