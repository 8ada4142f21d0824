//! The descriptors of all leaves: one for each block, in the order of the blocks. A thread that learns
//! the number of a leaf knows where its items are, and can prefetch them before the descriptor is
//! there.

use std::sync::Mutex;

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::sync::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use bristlecone_pm::{Error, LINE_BYTES, Medium, Memory, Notes, NotesReader, PoolFile, Result};
use crossbeam_utils::CachePadded;

use super::layout::Shape;
use super::leaf::{LEAVES_MAX, Leaf};
use crate::index::parts::arena::{Arena, Zeroed};
use crate::index::parts::prefetch;

/// What belongs to a number, be it a range's or a chunk's.
#[repr(C)]
#[derive(Debug)]
struct Row {
    /// Offset of the chunk that has this range.
    chunk: AtomicU64,
    /// The range of the chunk with this number, and one more: zero if it has none yet.
    range: AtomicU32,
    _rest: AtomicU32,
}

// SAFETY: atomics, for which zero is a value.
unsafe impl Zeroed for Row {}

/// Descriptors by number. Those of a chunk's blocks are in a row, a *range*; a chunk keeps its
/// range also when it leaves the tree and comes back.
#[derive(Debug)]
pub struct Leaves {
    arena: Arena<Leaf>,
    rows: Arena<Row>,
    /// Held while a chunk is given a range. Apart from what every operation reads.
    growing: CachePadded<Mutex<()>>,
    chunk_shift: u32,
    block_shift: u32,
    range_shift: u32,
}

impl Leaves {
    pub fn new<M: Medium>(pool: &PoolFile<M>, shape: Shape, memory: &Memory) -> Result<Self> {
        let (chunk_bytes, block_bytes) = (pool.chunk_bytes(), shape.block_bytes as u64);
        Ok(Self {
            arena: Arena::new(size_of::<Leaf>(), memory)?,
            rows: Arena::new(size_of::<Row>(), memory)?,
            growing: CachePadded::default(),
            chunk_shift: chunk_bytes.ilog2(),
            block_shift: block_bytes.ilog2(),
            range_shift: (chunk_bytes / block_bytes).ilog2(),
        })
    }

    /// Notes the descriptors for the next open of the tree.
    pub fn suspend(&self, notes: &mut Notes) -> Option<()> {
        self.arena.suspend(notes)?;
        self.rows.suspend(notes)
    }

    /// Takes over the descriptors of a tree that was closed. There are none yet.
    pub fn resume(&mut self, notes: &mut NotesReader<'_>) -> Option<()> {
        self.arena = Arena::resume(size_of::<Leaf>(), notes)?;
        self.rows = Arena::resume(size_of::<Row>(), notes)?;
        Some(())
    }

    #[inline(always)]
    pub fn get(&self, id: u32) -> &Leaf {
        self.arena.get_spaced::<{ size_of::<Leaf>() }>(id)
    }

    /// Asks for a descriptor that is written soon.
    pub fn prefetch(&self, id: u32) {
        let start = std::ptr::from_ref(self.get(id)).cast::<u8>();
        prefetch(start);
        prefetch(start.wrapping_add(LINE_BYTES));
    }

    /// Returns the block of a leaf.
    #[inline(always)]
    pub fn block(&self, id: u32) -> u64 {
        let within = id & ((1 << self.range_shift) - 1);
        // A thread that has the number has it from one that saw the chunk.
        let chunk = self.row(id >> self.range_shift).chunk.load(Relaxed);
        chunk + (u64::from(within) << self.block_shift)
    }

    #[inline(always)]
    fn row(&self, number: u32) -> &Row {
        self.rows.get_spaced::<{ size_of::<Row>() }>(number)
    }

    /// Returns the number of the leaf of a block, which was [`add`](Self::add)ed.
    pub fn of(&self, block: u64) -> u32 {
        self.known(block).expect("a block with a number")
    }

    /// Gives a block a number, if it has none.
    ///
    /// # Errors
    ///
    /// If there is no memory for its descriptor, or no number.
    pub fn add(&self, block: u64) -> Result<u32> {
        if let Some(id) = self.known(block) {
            return Ok(id);
        }
        self.add_range((block >> self.chunk_shift) as u32)?;
        Ok(self.of(block))
    }

    fn known(&self, block: u64) -> Option<u32> {
        let chunk = (block >> self.chunk_shift) as u32;
        let known = (chunk < self.rows.begun()).then(|| self.row(chunk).range.load(Acquire));
        let range = known?.checked_sub(1)?;
        let within = block & ((1 << self.chunk_shift) - 1);
        Some(range << self.range_shift | (within >> self.block_shift) as u32)
    }

    #[cold]
    fn add_range(&self, chunk: u32) -> Result<()> {
        let _only = lock(&self.growing);
        let next = self.arena.begun() >> self.range_shift;
        let rows = chunk.max(next) + 1;
        self.rows.alloc_fresh(rows.saturating_sub(self.rows.begun()))?;
        let own = &self.row(chunk).range;
        if own.load(Relaxed) != 0 {
            return Ok(());
        }
        if !has_numbers(next, self.range_shift) {
            return Err(Error::invalid("a tree has at most 2^31 leaves: choose larger ones"));
        }
        self.arena.alloc_fresh(1 << self.range_shift)?;
        self.row(next).chunk.store(u64::from(chunk) << self.chunk_shift, Relaxed);
        // Pairs with the acquire in `known`.
        own.store(next + 1, Release);
        Ok(())
    }

    /// Returns the bytes of DRAM, those of blocks not in use included.
    pub fn bytes(&self) -> u64 {
        self.arena.bytes() + self.rows.bytes()
    }
}

/// Returns whether there are numbers for the leaves of a range, of which each has 2^`range_shift`.
fn has_numbers(range: u32, range_shift: u32) -> bool {
    u64::from(range + 1) << range_shift <= LEAVES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_have_numbers_up_to_the_last_one_there_is() {
        for range_shift in [0, 11, 30] {
            let ranges = (LEAVES_MAX >> range_shift) as u32;
            assert!(has_numbers(0, range_shift) && has_numbers(ranges - 1, range_shift));
            assert!(!has_numbers(ranges, range_shift));
        }
    }
}
