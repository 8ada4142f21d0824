//! A write-ahead log in chunks of the pool: each thread appends to a chunk of its own, in the memory
//! of its own node where the machine has several.
//!
//! ```text
//! chunk   generation | spare         slot 0, 24 B
//!         stamp, key, value          slot 1: the first entry
//!         stamp, key, value          …
//! stamp   bit 0 removed | bits 1-8 generation | bits 9-63 sequence
//! ```
//!
//! **The word that commits** is the stamp. An entry counts while its stamp carries the generation
//! of its chunk, and the entries of a chunk end with the first one that does not. What a chunk held
//! before stays in it: the stamp behind the last entry never carries the generation.
//!
//! # Append
//! 1. A stamp behind the entry that would count gets zero; key and value. If they share the stamp's
//!    line, the line keeps the order of its stores; otherwise they are flushed and fenced first. *The
//!    stamp is of an older generation, or zero: the entry is not there. A torn entry looks the same.*
//! 2. The stamp; flush, fence. *The entry is there, or it is not.*
//!
//! # Recycle (nothing needs the entries of some chunks any more)
//! 1. The next generation is stored; flush, one fence for all chunks. *The chunk is empty, or
//!    still full of entries that nobody needed.* Only now may the chunk be used again.
//!
//! What an entry means, and which of two for one key is newer, is the tree's business: sequences
//! need an order only among entries that the tree compares.

mod append;
mod chunks;
mod copies;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use crossbeam_utils::CachePadded;

pub use self::append::LogSpot;
pub use self::copies::Copies;
use crate::latch::Latch;
use crate::numa::Nodes;
use crate::{LINE_BYTES, Medium, Persistent, PoolFile, SlotKind, TreeId, Word};

/// Threads that append without sharing.
const APPENDERS: usize = 64;
/// Bytes of an entry, and of the header that stands in the place of the first one.
pub const LOG_ENTRY_BYTES: usize = 24;
/// Generations of a chunk: 1 to this. Zero is what a fresh chunk holds everywhere.
const GENERATIONS: u64 = 255;
const GENERATION_SHIFT: u32 = 1;
const SEQUENCE_SHIFT: u32 = 9;

/// An entry on the medium.
#[repr(C)]
struct Cell {
    stamp: Word,
    item: Item,
}

/// What an entry says.
#[repr(C)]
struct Item {
    key: Word,
    value: Word,
}

// SAFETY: repr(C), words only, no padding (sizes asserted below).
unsafe impl Persistent for Cell {}

const _: () = {
    assert!(size_of::<Cell>() == LOG_ENTRY_BYTES);
    // The pool clears the first word of a chunk: that has to be its generation.
    assert!(std::mem::offset_of!(Cell, stamp) == 0);
};

impl Cell {
    /// Whether it stands in two lines.
    fn straddles(&self) -> bool {
        line_of(&self.stamp) != line_of(&self.item.value)
    }
}

fn line_of(word: &Word) -> usize {
    std::ptr::from_ref(word).addr() / LINE_BYTES
}

/// An entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Orders entries as their tree wants it: below 2^55.
    pub sequence: u64,
    /// Whether the key was removed.
    pub removed: bool,
    /// The key's word.
    pub key: u64,
    /// The value's word.
    pub value: u64,
}

impl LogEntry {
    fn stamp(&self, generation: u64) -> u64 {
        u64::from(self.removed) | generation << GENERATION_SHIFT | self.sequence << SEQUENCE_SHIFT
    }
}

/// A chunk of a log. Not to be copied: who holds it decides when it is recycled.
#[derive(Debug)]
pub struct LogChunk {
    id: u32,
    offset: u64,
    generation: u64,
    /// The node that its memory belongs to.
    node: u16,
}

impl LogChunk {
    /// The chunk's number in the pool.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether an entry with this stamp counts.
    fn counts(&self, stamp: u64) -> bool {
        stamp >> GENERATION_SHIFT & GENERATIONS == self.generation
    }
}

/// Where one thread appends.
#[derive(Debug, Default)]
struct Appender {
    chunk: Option<LogChunk>,
    /// Slot of the next entry.
    next: usize,
    epoch: u64,
    began: bool,
}

impl Appender {
    fn has_room(&self, slots: usize) -> bool {
        self.chunk.is_some() && self.next < slots
    }
}

#[derive(Debug, Default)]
struct Chunks {
    /// Chunks that take no more entries, since the last turn.
    sealed: Vec<LogChunk>,
    /// Chunks without entries.
    free: Vec<LogChunk>,
    /// One more without entries, so that even in a full pool there is a place for copies.
    spare: Option<LogChunk>,
}

/// The log of one tree. See the module.
#[derive(Debug)]
pub struct Log<M: Medium> {
    pool: Arc<PoolFile<M>>,
    owner: TreeId,
    nodes: Nodes,
    /// Slots of a chunk that are used, the header's included.
    slots: usize,
    /// One for each thread, and the last one for copies.
    appenders: Box<[CachePadded<Latch<Appender>>]>,
    chunks: Mutex<Chunks>,
    /// Chunks that are not free.
    in_use: AtomicUsize,
    /// Appenders that ever appended.
    active: AtomicUsize,
}

impl<M: Medium> Log<M> {
    /// Takes over the chunks of a tree's log. What stands in them is read with
    /// [`entries`](Self::entries); chunks that are needed go back by [`seal`](Self::seal). A chunk
    /// takes `entries_max` entries, or as many as it has room for.
    pub fn open(pool: &Arc<PoolFile<M>>, owner: TreeId, entries_max: Option<usize>) -> (Self, Vec<LogChunk>) {
        let room = pool.chunk_bytes() as usize / LOG_ENTRY_BYTES;
        let slots = entries_max.map_or(room, |entries| (entries + 1).min(room));
        let nodes = Nodes::here();
        let owned = pool.chunks_of(owner).into_iter().filter(|chunk| chunk.kind == SlotKind::Log);
        let chunks: Vec<_> = owned
            .map(|chunk| {
                let generation = pool.at::<Word>(chunk.offset);
                let node = nodes.of_memory(generation);
                let generation = generation.load(pool.medium());
                LogChunk { id: chunk.id, offset: chunk.offset, generation, node }
            })
            .collect();
        let log = Self {
            pool: Arc::clone(pool),
            owner,
            nodes,
            slots,
            appenders: (0..=APPENDERS).map(|_| CachePadded::default()).collect(),
            chunks: Mutex::default(),
            in_use: AtomicUsize::new(chunks.len()),
            active: AtomicUsize::new(0),
        };
        (log, chunks)
    }

    fn cell(&self, chunk: &LogChunk, slot: usize) -> &Cell {
        self.pool.at(chunk.offset + (slot * LOG_ENTRY_BYTES) as u64)
    }

    /// Entries that a chunk has room for.
    pub fn chunk_entries(&self) -> usize {
        self.slots - 1
    }

    /// The entries of a chunk, oldest first.
    pub fn entries(&self, chunk: &LogChunk) -> impl Iterator<Item = LogEntry> {
        let medium = self.pool.medium();
        (1..self.slots).map_while(move |slot| {
            let cell = self.cell(chunk, slot);
            let stamp = cell.stamp.load(medium);
            let counts = chunk.generation != 0 && chunk.counts(stamp);
            counts.then(|| LogEntry {
                sequence: stamp >> SEQUENCE_SHIFT,
                removed: stamp & 1 != 0,
                key: cell.item.key.load(medium),
                value: cell.item.value.load(medium),
            })
        })
    }
}

#[cfg(test)]
mod tests;
