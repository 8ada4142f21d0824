//! The descriptors of all leaves: one for each block, in block order. A leaf number therefore locates
//! the items, which a thread can prefetch before it has the descriptor.

use std::sync::Mutex;

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::sync::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use bristlecone_pm::{Error, LINE_BYTES, Manifest, ManifestReader, Medium, Memory, PoolFile, Result};
use crossbeam_utils::CachePadded;

use super::layout::Shape;
use super::leaf::{LEAVES_MAX, Leaf};
use crate::index::parts::arena::{Arena, Zeroed};
use crate::index::parts::prefetch;

/// Data associated with a number, either of a range or of a chunk.
#[repr(C)]
#[derive(Debug)]
struct Row {
    /// Offset of the chunk that has this range.
    chunk: AtomicU64,
    /// The range of the chunk with this number, plus one; zero if it has none yet.
    range: AtomicU32,
    _rest: AtomicU32,
}

// SAFETY: atomics, for which zero is a value.
unsafe impl Zeroed for Row {}

/// Descriptors by number. The descriptors of a chunk's blocks are consecutive, a *range*. A chunk
/// keeps its range when it leaves the tree and returns.
#[derive(Debug)]
pub struct Leaves {
    arena: Arena<Leaf>,
    rows: Arena<Row>,
    /// Held while a range is assigned to a chunk. On a cache line separate from the fields that every
    /// operation reads.
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

    /// Records the descriptors in the manifest for the next open of the tree.
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        self.arena.save(manifest)?;
        self.rows.save(manifest)
    }

    /// Takes over the descriptors of a closed tree. There must be none yet.
    pub fn resume(&mut self, manifest: &mut ManifestReader<'_>) -> Option<()> {
        self.arena = Arena::resume(size_of::<Leaf>(), manifest)?;
        self.rows = Arena::resume(size_of::<Row>(), manifest)?;
        Some(())
    }

    /// Takes over the descriptors of a killed process.
    pub fn recover(&mut self, manifest: &mut ManifestReader<'_>) -> Option<()> {
        self.arena = Arena::recover(size_of::<Leaf>(), manifest)?;
        self.rows = Arena::recover(size_of::<Row>(), manifest)?;
        (self.arena.begun() >> self.range_shift <= self.rows.begun()).then_some(())
    }

    /// Returns the number of descriptors, and of those in a range.
    pub fn begun(&self) -> (u32, u32) {
        (self.arena.begun(), 1 << self.range_shift)
    }

    /// Returns the offset of the chunk with a range of descriptors, if both agree.
    pub fn chunk_of_range(&self, range: u32) -> Option<u64> {
        let chunk = self.row(range).chunk.load(Relaxed);
        let number =
            u32::try_from(chunk >> self.chunk_shift).ok().filter(|&number| number < self.rows.begun())?;
        (self.row(number).range.load(Relaxed) == range + 1).then_some(chunk)
    }

    #[inline(always)]
    pub fn get(&self, id: u32) -> &Leaf {
        self.arena.get_spaced::<{ size_of::<Leaf>() }>(id)
    }

    /// Prefetches a descriptor for writing.
    pub fn prefetch(&self, id: u32) {
        let start = std::ptr::from_ref(self.get(id)).cast::<u8>();
        prefetch(start);
        prefetch(start.wrapping_add(LINE_BYTES));
    }

    /// Returns the block of a leaf.
    #[inline(always)]
    pub fn block(&self, id: u32) -> u64 {
        let within = id & ((1 << self.range_shift) - 1);
        // The number came from a thread that saw the chunk.
        let chunk = self.row(id >> self.range_shift).chunk.load(Relaxed);
        chunk + (u64::from(within) << self.block_shift)
    }

    #[inline(always)]
    fn row(&self, number: u32) -> &Row {
        self.rows.get_spaced::<{ size_of::<Row>() }>(number)
    }

    /// Returns the leaf number of a block that was [`add`](Self::add)ed.
    pub fn of(&self, block: u64) -> u32 {
        self.known(block).expect("a block with a number")
    }

    /// Assigns a number to a block, if it has none.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the descriptor, or no free number.
    pub fn add(&self, block: u64) -> Result<u32> {
        if let Some(id) = self.known(block) {
            return Ok(id);
        }
        self.add_range((block >> self.chunk_shift) as u32)?;
        Ok(self.of(block))
    }

    /// Returns the leaf number of a block, if it has one.
    pub fn known(&self, block: u64) -> Option<u32> {
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

    /// Returns the bytes of DRAM, including descriptors of unused blocks.
    pub fn bytes(&self) -> u64 {
        self.arena.bytes() + self.rows.bytes()
    }
}

/// Returns whether there are numbers for the leaves of a range of 2^`range_shift` leaves.
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
