//! Domains, and the sizes of pools.

use bristlecone::Domain;

/// Every domain.
pub const DOMAINS: [Domain; 4] = [Domain::Process, Domain::Adr, Domain::Eadr, Domain::Msync];

/// The sizes of a pool, and how many trees stand beside the one that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Its name in those of cells.
    pub name: &'static str,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks that the pool may grow to.
    pub chunks_max: u64,
    /// Trees beside the one.
    pub beside: u64,
}

/// What a file's chunks have.
pub(crate) const FILE_CHUNK: u64 = 2 << 20;
/// What most explored pools have: recovery reads every chunk that is begun, and there are many recoveries.
pub(crate) const SMALL_CHUNK: u64 = 4096;

const fn room(name: &'static str, chunk_bytes: u64, chunks_max: u64, beside: u64) -> Room {
    Room { name, chunk_bytes, chunks_max, beside }
}

/// Every room.
pub const ROOMS: &[Room] = &[
    room("wide", FILE_CHUNK, 512, 0),
    room("narrow", FILE_CHUNK, 128, 0),
    room("shared", FILE_CHUNK, 256, 3),
    room("tight", FILE_CHUNK, 16, 0),
    room("small-chunks", SMALL_CHUNK, 24, 0),
    room("larger-chunks", 2 * SMALL_CHUNK, 24, 0),
    room("small-chunks-shared", SMALL_CHUNK, 32, 1),
];

impl Room {
    /// Returns the bytes that the chunks may take.
    pub fn bytes(&self) -> u64 {
        self.chunk_bytes * self.chunks_max
    }
}
