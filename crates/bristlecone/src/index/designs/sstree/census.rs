//! The slots of a tree's chunks, for recovery and salvage.

use bristlecone_pm::sync::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use bristlecone_pm::{ChunkRange, Error, Result};

use super::layout::Shape;

/// Every subnode slot of the tree, and the set of them that a `next` refers to.
pub struct Census {
    pub ranges: Vec<ChunkRange>,
    subnode_bytes: u64,
    named: Vec<Box<[AtomicU64]>>,
    pub occupied: AtomicUsize,
    pub reached: AtomicUsize,
}

impl Census {
    pub fn new(ranges: Vec<ChunkRange>, shape: Shape) -> Self {
        debug_assert!(ranges.is_sorted_by_key(|range| range.offset));
        let words = |range: &ChunkRange| (0..range.slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let named = ranges.iter().map(words).collect();
        let subnode_bytes = shape.subnode_bytes as u64;
        Self { ranges, subnode_bytes, named, occupied: AtomicUsize::new(0), reached: AtomicUsize::new(0) }
    }

    pub fn offsets(&self, chunk: usize) -> impl Iterator<Item = u64> + use<> {
        let ChunkRange { offset, slots, .. } = self.ranges[chunk];
        let subnode_bytes = self.subnode_bytes;
        (0..slots as u64).map(move |slot| offset + slot * subnode_bytes)
    }

    /// Returns the word and the bit of the subnode at `offset`, if one can be there.
    pub fn bit(&self, offset: u64) -> Option<(&AtomicU64, u64)> {
        let chunk = self.ranges.partition_point(|range| range.offset <= offset).checked_sub(1)?;
        let within = offset - self.ranges[chunk].offset;
        let slot = (within / self.subnode_bytes) as usize;
        let fits = within.is_multiple_of(self.subnode_bytes) && slot < self.ranges[chunk].slots;
        fits.then(|| (&self.named[chunk][slot / 64], 1 << (slot % 64)))
    }

    pub fn name(&self, offset: u64, by: u64) -> Result<()> {
        let (word, bit) = self.bit(offset).ok_or_else(|| {
            Error::corrupted(format!("next offset {offset:#x} is not a subnode"), format!("subnode {by:#x}"))
        })?;
        if word.fetch_or(bit, Relaxed) & bit != 0 {
            let what = format!("subnode {offset:#x} follows two others");
            return Err(Error::corrupted(what, format!("subnode {by:#x}")));
        }
        Ok(())
    }

    /// Returns the named subnodes of a chunk, 64 in a word.
    pub fn named_in(&self, chunk: usize) -> impl Iterator<Item = u64> {
        self.named[chunk].iter().map(|word| word.load(Relaxed))
    }

    pub fn is_named(&self, offset: u64) -> bool {
        self.bit(offset).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
    }
}
