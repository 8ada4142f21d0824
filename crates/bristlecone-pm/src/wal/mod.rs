//! A write-ahead log in chunks of the pool: each thread appends to its own chunk, in the memory of its
//! own node if the machine has several. The layout on the medium is described in `layout`.
//!
//! ```text
//! chunk   generation, generation | spare    slot 0, 24 B
//!         stamp, key, value                 slot 1: the first entry
//!         stamp, key, value                 …
//!         end mark                          behind the last entry
//! ```
//!
//! **The commit word** is the stamp. An entry counts while its stamp carries the generation of its chunk,
//! and the entries of a chunk end before the first stamp without it. The earlier contents of a chunk stay
//! in it.
//!
//! **The end** differs from a damaged entry. An end mark follows the last entry, except where the next
//! slot begins a line of its own: marking that would take another flush. Old stamps there have another
//! generation, or are zero, and no later entry in that line has this generation. So anything else ends
//! the reading with an error: an invalid check, a generation with a flipped bit, a foreign stamp in place
//! of an end mark, an entry behind one. (One case is undetectable: an entry that begins a line, is the
//! last of its chunk, and has a stamp that was replaced as a whole looks like one that was never
//! written.)
//!
//! # Append
//! 1. An end mark behind the entry, in the line that the entry ends in; key and value. If they share the
//!    stamp's line, the line keeps the order of its stores; otherwise they are flushed and fenced first.
//!    If the entry ends at the end of its line, stamps of the next line that would count are zeroed
//!    before this one. *The stamp is the end mark, or of an older generation, or zero: the entry does not
//!    exist. A torn entry looks the same.*
//! 2. The stamp; flush, fence. *The entry exists, or it does not.*
//!
//! # Recycle (chunks whose entries are dead)
//! 1. The next generation's end mark is stored in the first slot, then the generation, then its copy, all
//!    in one line; flush, one fence for all chunks. *The chunk is empty, or still full of dead entries.*
//!    Only now may the chunk be reused.
//!
//! The tree defines the meaning of an entry, and which of two entries for one key is newer: sequences
//! need an order only among entries that the tree compares.

mod append;
mod chunks;
mod copies;
mod layout;
#[cfg(test)]
mod policy_tests;
mod read;

use std::sync::{Arc, Mutex};

use crate::sync::AtomicUsize;

use crossbeam_utils::CachePadded;

pub use self::append::LogSpot;
pub use self::copies::Copies;
use self::layout::{Cell, Generation, Header};
pub use self::layout::{LOG_ENTRY_BYTES, LogEntry};
use crate::map::numa::Nodes;
use crate::sync::spin_lock::SpinLock;
use crate::{Medium, PoolFile, SlotKind, TreeId};

/// Number of threads that append without sharing.
const APPENDERS: usize = 64;

/// A chunk of a log. Must not be copied: its owner decides when it is recycled.
#[derive(Debug)]
pub struct LogChunk {
    id: u32,
    offset: u64,
    generation: Generation,
    standing: Standing,
    /// The node that its memory belongs to.
    node: u16,
    /// The epoch of its last entry.
    epoch: u64,
}

impl LogChunk {
    /// Returns the chunk's number in the pool.
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// State of a chunk's entries according to its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The entries have checks, and an end mark.
    Checked,
    /// The entries have no checks.
    Unchecked,
    /// The header is inconsistent.
    Broken,
}

/// Position at which a thread appends.
#[derive(Debug, Default)]
struct Appender {
    chunk: Option<LogChunk>,
    /// Slot of the next entry.
    next: usize,
    /// Epoch of the entries that it appends.
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
    /// Rotations so far.
    epoch: u64,
    /// Chunks sealed since the last rotation.
    sealed: Vec<LogChunk>,
    /// Empty chunks.
    free: Vec<LogChunk>,
    /// One more empty chunk, which guarantees space for copies even in a full pool.
    reserve: Option<LogChunk>,
}

/// The log of one tree. See the module.
#[derive(Debug)]
pub struct Log<M: Medium> {
    pool: Arc<PoolFile<M>>,
    owner: TreeId,
    nodes: Nodes,
    /// Slots of a chunk that are used, including the header.
    slots: usize,
    /// One for each thread, and the last one for copies.
    appenders: Box<[CachePadded<SpinLock<Appender>>]>,
    chunks: Mutex<Chunks>,
    /// Chunks that are not free.
    in_use: AtomicUsize,
    /// Number of appenders that ever appended.
    active: AtomicUsize,
}

impl<M: Medium> Log<M> {
    /// Opens a tree's log on its chunks. [`entries`](Self::entries) reads their contents; chunks that are
    /// still needed must be returned by [`seal`](Self::seal). A chunk takes `entries_max` entries, or as
    /// many as fit.
    pub fn open(pool: &Arc<PoolFile<M>>, owner: TreeId, entries_max: Option<usize>) -> (Self, Vec<LogChunk>) {
        let room = pool.chunk_bytes() as usize / LOG_ENTRY_BYTES;
        let slots = entries_max.map_or(room, |entries| (entries + 1).min(room));
        let nodes = Nodes::here();
        let owned = pool.chunks_of(owner).into_iter().filter(|chunk| chunk.kind == SlotKind::LOG);
        let chunks: Vec<_> = owned
            .map(|chunk| {
                let header = pool.at::<Header>(chunk.offset);
                let node = nodes.of_memory(&header.generation);
                let (generation, standing) =
                    read::standing(header, pool.at(first_entry(chunk.offset)), pool.medium());
                LogChunk { id: chunk.id, offset: chunk.offset, generation, standing, node, epoch: 0 }
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

    fn header(&self, chunk: &LogChunk) -> &Header {
        self.pool.at(chunk.offset)
    }

    /// Returns how many entries fit in a chunk.
    pub fn chunk_entries(&self) -> usize {
        self.slots - 1
    }
}

fn first_entry(chunk: u64) -> u64 {
    chunk + LOG_ENTRY_BYTES as u64
}

#[cfg(test)]
mod tests;
