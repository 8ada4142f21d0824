//! Lookup of a tree's record chunks by offset; recovery does one lookup for each record.

use std::sync::Arc;

use crate::alloc::slots::Slots;
use crate::{Chunk, Medium, PoolFile};

/// The chunks that a tree had when it was opened.
#[derive(Debug, Default)]
pub struct Marking {
    /// Offset of the first one.
    first: u64,
    /// Bits of an offset within its chunk.
    within: u32,
    /// For each chunk of the pool from the first to the last: one more than its index in `chunks`, or zero if it is not
    /// a record chunk of this tree.
    places: Vec<u32>,
    chunks: Vec<(usize, Arc<Slots>)>,
}

impl Marking {
    /// Builds the lookup for `chunks`, in order of their numbers, each with its class and slots.
    pub fn over<M: Medium>(pool: &PoolFile<M>, chunks: Vec<(Chunk, usize, Arc<Slots>)>) -> Self {
        let (Some((first, ..)), Some((last, ..))) = (chunks.first(), chunks.last()) else {
            return Self::default();
        };
        let mut places = vec![0; (last.id - first.id) as usize + 1];
        for (at, (chunk, ..)) in (1..).zip(&chunks) {
            places[(chunk.id - first.id) as usize] = at;
        }
        let (first, within) = (first.offset, pool.chunk_bytes().trailing_zeros());
        Self {
            first,
            within,
            places,
            chunks: chunks.into_iter().map(|(_, class, slots)| (class, slots)).collect(),
        }
    }

    /// Returns the chunk in which an offset lies: the class of its records, and its slots.
    #[inline]
    pub fn chunk_of(&self, offset: u64) -> Option<(usize, &Slots)> {
        let place = offset.checked_sub(self.first)? >> self.within;
        let at = self.places.get(usize::try_from(place).ok()?)?.checked_sub(1)?;
        let (class, slots) = &self.chunks[at as usize];
        Some((*class, slots))
    }
}
