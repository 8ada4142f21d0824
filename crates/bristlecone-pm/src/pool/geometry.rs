//! The sizes of a pool, and the offsets of its parts.

use super::layout::{CHUNK_BYTES_LEAST, DIRECTORY_OFFSET, ENTRY_BYTES, PAGES_LIMIT, TREES_LIMIT};

/// Maximum number of chunks of a pool. Numbers of chunks have 32 bits, and their count must fit, too.
const CHUNKS_MAX: u64 = u32::MAX as u64;

/// The sizes of a pool, fixed at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a chunk: a power of two, 2 MiB by default.
    pub chunk_bytes: u64,
    /// Maximum number of chunks.
    pub chunks_max: u64,
    /// Number of directory entries in the header. Entries of further trees are in chunks.
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

    /// Returns the number of entries of a directory page.
    #[inline]
    pub(crate) fn page_entries(&self) -> u64 {
        self.chunk_bytes / ENTRY_BYTES
    }

    /// Returns the maximum number of directory pages.
    pub(crate) fn pages_max(&self) -> usize {
        TREES_LIMIT.saturating_sub(self.trees_max).div_ceil(self.page_entries()).min(PAGES_LIMIT as u64)
            as usize
    }

    /// Returns the offset of the chunks' descriptors, a word each.
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

    /// Returns how many complete chunks a file of `len` bytes has.
    pub(crate) fn chunks_within(&self, len: u64) -> u64 {
        (len.saturating_sub(self.header_bytes()) / self.chunk_bytes).min(self.chunks_max)
    }

    /// Returns the size of a pool at its maximum.
    pub fn max_bytes(&self) -> u64 {
        self.header_bytes() + self.chunks_max * self.chunk_bytes
    }

    /// Returns the sizes of the largest new pool that fits these bytes; `None` if none does.
    pub(crate) fn largest(bytes: u64, chunk_bytes: u64) -> Option<Self> {
        let with = |chunks_max| Self { chunk_bytes, chunks_max, trees_max: super::TREES_MAX };
        with(1).is_valid().then_some(())?;
        let chunks = bytes / chunk_bytes;
        // The header takes some of them: one descriptor for each chunk.
        let mut chunks_max = chunks.saturating_sub(with(chunks).header_bytes() / chunk_bytes);
        while with(chunks_max + 1).max_bytes() <= bytes {
            chunks_max += 1;
        }
        Some(with(chunks_max)).filter(|found| found.is_valid() && found.max_bytes() <= bytes)
    }

    /// Returns these sizes with twice as many chunks; `None` if no pool can have as many.
    pub fn roomier(self) -> Option<Self> {
        Some(Self { chunks_max: self.chunks_max * 2, ..self }).filter(Self::is_valid)
    }

    /// Returns these sizes with at most `chunks_max` chunks. The header keeps its size; behind its descriptors it is
    /// zero, which is the descriptor of a chunk that was never used.
    pub(crate) fn with_chunks_max(self, chunks_max: u64) -> Option<Self> {
        let other = Self { chunks_max, ..self };
        (other.is_valid() && other.header_bytes() == self.header_bytes()).then_some(other)
    }

    /// Returns the bytes of chunks for which this header has descriptors.
    pub(crate) fn chunk_bytes_possible(&self) -> u64 {
        let descriptors = (self.header_bytes() - self.descriptors_offset()) / 8;
        let chunks_max =
            descriptors.min(CHUNKS_MAX).min(((1 << 48) - self.header_bytes()) / self.chunk_bytes);
        chunks_max.max(self.chunks_max) * self.chunk_bytes
    }
}
