//! The slots of a tree's chunks, for recovery and salvage.

use bristlecone_pm::sync::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use bristlecone_pm::{ChunkRange, Error, Result};

use super::layout::Shape;

/// Every subnode slot of the tree, and the set of them that a `next` refers to.
pub struct Census {
    pub ranges: Vec<ChunkRange>,
    subnode_bytes: u64,
    /// Bits of an offset within its chunk.
    within: u32,
    /// For each chunk of the pool from the first to the last: one more than its index in `ranges`, or zero if it is not in
    /// the tree.
    places: Vec<u32>,
    named: Vec<Box<[AtomicU64]>>,
    pub occupied: AtomicUsize,
    pub reached: AtomicUsize,
}

impl Census {
    pub fn new(ranges: Vec<ChunkRange>, chunk_bytes: u64, shape: Shape) -> Self {
        debug_assert!(ranges.is_sorted_by_key(|range| range.offset));
        let words = |range: &ChunkRange| (0..range.slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let named = ranges.iter().map(words).collect();
        let subnode_bytes = shape.subnode_bytes as u64;
        let within = chunk_bytes.ilog2();
        let place = |offset: u64| ((offset - ranges[0].offset) >> within) as usize;
        let mut places = vec![0; ranges.last().map_or(0, |last| place(last.offset) + 1)];
        for (at, range) in (1..).zip(&ranges) {
            places[place(range.offset)] = at;
        }
        Self {
            ranges,
            subnode_bytes,
            within,
            places,
            named,
            occupied: AtomicUsize::new(0),
            reached: AtomicUsize::new(0),
        }
    }

    pub fn offsets(&self, chunk: usize) -> impl Iterator<Item = u64> + use<> {
        let ChunkRange { offset, slots, .. } = self.ranges[chunk];
        let subnode_bytes = self.subnode_bytes;
        (0..slots as u64).map(move |slot| offset + slot * subnode_bytes)
    }

    /// Returns the word and the bit of the subnode at `offset`, if one can be there.
    pub fn bit(&self, offset: u64) -> Option<(&AtomicU64, u64)> {
        let place = offset.checked_sub(self.ranges.first()?.offset)? >> self.within;
        let chunk = self.places.get(usize::try_from(place).ok()?)?.checked_sub(1)? as usize;
        let (within, subnode_bytes) =
            ((offset - self.ranges[chunk].offset) as u32, self.subnode_bytes as u32);
        let slot = (within / subnode_bytes) as usize;
        let fits = within.is_multiple_of(subnode_bytes) && slot < self.ranges[chunk].slots;
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

    /// As [`is_named`](Self::is_named), for a subnode of a chunk.
    #[inline(always)]
    pub fn is_named_at(&self, chunk: usize, slot: usize) -> bool {
        self.named[chunk][slot / 64].load(Relaxed) >> (slot % 64) & 1 != 0
    }
}
