//! The descriptors of all leaves: one for each block, in the order of the blocks. Whoever learns
//! the number of a leaf knows where its items are, and can ask for them before the descriptor is
//! there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use bristlecone_pm::{Medium, PoolFile};
use crossbeam_utils::CachePadded;

use super::layout::Shape;
use super::leaf::Leaf;
use crate::shared::arena::{Arena, Zeroed};

/// Offset of a range's chunk.
#[derive(Debug)]
struct Chunk(AtomicU64);

// SAFETY: an atomic, for which zero is a value.
unsafe impl Zeroed for Chunk {}

/// Descriptors by number. Those of a chunk's blocks are in a row, a *range*; a chunk keeps its
/// range also when it leaves the tree and comes back.
#[derive(Debug)]
pub struct Leaves {
    arena: Arena<Leaf>,
    /// By the number of the range.
    chunks: Arena<Chunk>,
    /// Range of each chunk, by offset. Apart from what every operation reads.
    ranges: CachePadded<Mutex<HashMap<u64, u32>>>,
    chunk_bytes: u64,
    block_shift: u32,
    range_shift: u32,
}

impl Leaves {
    pub fn new<M: Medium>(pool: &PoolFile<M>, shape: Shape) -> Self {
        let (chunk_bytes, block_bytes) = (pool.chunk_bytes(), shape.block_bytes as u64);
        Self {
            arena: Arena::new(size_of::<Leaf>()),
            chunks: Arena::new(size_of::<Chunk>()),
            ranges: CachePadded::default(),
            chunk_bytes,
            block_shift: block_bytes.ilog2(),
            range_shift: (chunk_bytes / block_bytes).ilog2(),
        }
    }

    #[inline(always)]
    pub fn get(&self, id: u32) -> &Leaf {
        self.arena.get(id)
    }

    /// Every descriptor, those of blocks not in use included.
    pub fn all(&self) -> impl Iterator<Item = &Leaf> {
        (0..self.arena.begun()).map(|id| self.get(id))
    }

    /// The block of a leaf.
    #[inline(always)]
    pub fn block(&self, id: u32) -> u64 {
        let within = id & ((1 << self.range_shift) - 1);
        // Whoever has the number has it from somebody who saw the chunk.
        let chunk = self.chunks.get(id >> self.range_shift).0.load(Relaxed);
        chunk + (u64::from(within) << self.block_shift)
    }

    /// The number of the leaf of a block.
    pub fn of(&self, block: u64) -> u32 {
        let chunk = block & !(self.chunk_bytes - 1);
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        let range = *ranges.entry(chunk).or_insert_with(|| {
            // Ranges are counted alike in both arenas, since neither gets anything back.
            let range = self.chunks.alloc();
            let leaves = self.arena.alloc_fresh(1 << self.range_shift);
            assert_eq!(leaves.start, range << self.range_shift);
            self.chunks.get(range).0.store(chunk, Relaxed);
            range
        });
        range << self.range_shift | ((block - chunk) >> self.block_shift) as u32
    }

    /// Bytes of DRAM, those of blocks not in use included.
    pub fn bytes(&self) -> u64 {
        self.arena.bytes() + self.chunks.bytes()
    }
}
