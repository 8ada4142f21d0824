//! The sizes of a pool, and where its parts begin.

use super::layout::{DIRECTORY_OFFSET, ENTRY_BYTES, PAGES_LIMIT, TREES_LIMIT};

/// The smallest chunk.
pub(crate) const CHUNK_BYTES_LEAST: u64 = 4096;

/// Most chunks that a pool can have: each has a number of 32 bits, and the number of them fits, too.
const CHUNKS_MAX: u64 = u32::MAX as u64;

/// The sizes of a pool, fixed when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a chunk: a power of two, 2 MiB but for tests and simulators.
    pub chunk_bytes: u64,
    /// Chunks that the pool may grow to.
    pub chunks_max: u64,
    /// Trees whose directory entries are in the header; those of further trees are in chunks.
    pub trees_max: u64,
}

impl Geometry {
    pub(crate) fn is_valid(&self) -> bool {
        self.chunk_bytes.is_power_of_two()
            && (CHUNK_BYTES_LEAST..=1 << 30).contains(&self.chunk_bytes)
            && (1..=CHUNKS_MAX).contains(&self.chunks_max)
            && (1..=4096).contains(&self.trees_max)
            && self.chunk_bytes * self.chunks_max <= 1 << 48
    }

    /// Returns how many entries a page of the directory has.
    #[inline]
    pub(crate) fn page_entries(&self) -> u64 {
        self.chunk_bytes / ENTRY_BYTES
    }

    /// Returns how many pages the directory can have.
    pub(crate) fn pages_max(&self) -> usize {
        TREES_LIMIT.saturating_sub(self.trees_max).div_ceil(self.page_entries()).min(PAGES_LIMIT as u64)
            as usize
    }

    /// Returns where the chunks' descriptors begin, a word each.
    #[inline]
    pub fn descriptors_offset(&self) -> u64 {
        DIRECTORY_OFFSET + self.trees_max * ENTRY_BYTES
    }

    #[inline]
    pub(crate) fn descriptors_end(&self) -> u64 {
        self.descriptors_offset() + self.chunks_max * 8
    }

    /// Returns the bytes before the first chunk.
    #[inline]
    pub fn header_bytes(&self) -> u64 {
        // A power of two, so that bounds need no division.
        (self.descriptors_end() + self.chunk_bytes - 1) & !(self.chunk_bytes - 1)
    }

    /// Returns how many whole chunks a file of `len` bytes has.
    pub(crate) fn chunks_within(&self, len: u64) -> u64 {
        (len.saturating_sub(self.header_bytes()) / self.chunk_bytes).min(self.chunks_max)
    }

    /// Returns the bytes of a pool that has grown to its maximum.
    pub fn max_bytes(&self) -> u64 {
        self.header_bytes() + self.chunks_max * self.chunk_bytes
    }

    /// Returns these sizes with room for so many chunks at most: the header keeps its size, and behind the
    /// descriptors that it has it is zeros, which are descriptors of chunks that were never used.
    pub(crate) fn with_chunks_max(self, chunks_max: u64) -> Option<Self> {
        let other = Self { chunks_max, ..self };
        (other.is_valid() && other.header_bytes() == self.header_bytes()).then_some(other)
    }

    /// Returns the bytes of chunks that a pool with this header may come to have.
    pub(crate) fn chunk_bytes_possible(&self) -> u64 {
        let descriptors = (self.header_bytes() - self.descriptors_offset()) / 8;
        let chunks_max =
            descriptors.min(CHUNKS_MAX).min(((1 << 48) - self.header_bytes()) / self.chunk_bytes);
        chunks_max.max(self.chunks_max) * self.chunk_bytes
    }
}
