//! Domains, and the sizes of pools.

use bristlecone::Domain;

/// Every domain.
pub const DOMAINS: [Domain; 5] = [Domain::Process, Domain::Adr, Domain::Eadr, Domain::Msync, Domain::Journal];

/// The sizes of a pool, and the number of trees besides the tested one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// Its name in the names of cells.
    pub name: &'static str,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Maximum number of chunks.
    pub chunks_max: u64,
    /// Number of trees besides the tested one.
    pub beside: u64,
}

/// Chunk size of pools in files.
pub(crate) const FILE_CHUNK: u64 = 2 << 20;
/// Chunk size of most explored pools: recovery reads every chunk in use, and there are many
/// recoveries.
pub(crate) const SMALL_CHUNK: u64 = 4096;

const fn pool_size(name: &'static str, chunk_bytes: u64, chunks_max: u64, beside: u64) -> PoolSize {
    PoolSize { name, chunk_bytes, chunks_max, beside }
}

/// Every pool size.
pub const POOL_SIZES: &[PoolSize] = &[
    pool_size("wide", FILE_CHUNK, 512, 0),
    pool_size("narrow", FILE_CHUNK, 128, 0),
    pool_size("shared", FILE_CHUNK, 256, 3),
    pool_size("tight", FILE_CHUNK, 16, 0),
    pool_size("small-chunks", SMALL_CHUNK, 24, 0),
    pool_size("larger-chunks", 2 * SMALL_CHUNK, 24, 0),
    pool_size("small-chunks-shared", SMALL_CHUNK, 32, 1),
];

impl PoolSize {
    /// Returns the total size of the chunks in bytes.
    pub fn bytes(&self) -> u64 {
        self.chunk_bytes * self.chunks_max
    }
}
