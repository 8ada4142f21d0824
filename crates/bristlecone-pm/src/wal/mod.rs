//! A write-ahead log in chunks of the pool: each thread appends to a chunk of its own, in the memory
//! of its own node where the machine has several. What it is on the medium stands in `layout`.
//!
//! ```text
//! chunk   generation, generation | spare    slot 0, 24 B
//!         stamp, key, value                 slot 1: the first entry
//!         stamp, key, value                 …
//!         end mark                          behind the last entry
//! ```
//!
//! **The word that commits** is the stamp. An entry counts while its stamp carries the generation
//! of its chunk, and the entries of a chunk end with the first one that does not. What a chunk held
//! before stays in it.
//!
//! **The end** is told from a damaged entry. An end mark stands behind the last one, but where the next
//! slot begins a line of its own: marking that would take another flush. What is left there is of another
//! generation, or zero, and no entry behind it in that line is of this generation. So anything else ends
//! the reading with an error: a broken check, a generation with a flipped bit, a foreign stamp where an end
//! mark has to be, an entry behind one. (What cannot be told from an entry that was never made is one
//! that begins a line, is the last of its chunk, and has a stamp that was replaced as a whole.)
//!
//! # Append
//! 1. An end mark behind the entry, in the line that the entry ends in; key and value. If they share the
//!    stamp's line, the line keeps the order of its stores; otherwise they are flushed and fenced first.
//!    Where the entry ends with its line, stamps of the next line that would count get zero, if there are
//!    any, before this one. *The stamp is the end mark, or of an older generation, or zero: the entry is
//!    not there. A torn entry looks the same.*
//! 2. The stamp; flush, fence. *The entry is there, or it is not.*
//!
//! # Recycle (nothing needs the entries of some chunks any more)
//! 1. The next generation's end mark is stored in the first slot, then the generation, then its copy, all
//!    in one line; flush, one fence for all chunks. *The chunk is empty, or still full of entries that
//!    nothing needed.* Only now may the chunk be used again.
//!
//! What an entry means, and which of two for one key is newer, is the tree's business: sequences
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

/// Threads that append without sharing.
const APPENDERS: usize = 64;

/// A chunk of a log. Not to be copied: its owner decides when it is recycled.
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

/// What the header of a chunk says about its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// They have checks, and an end.
    Checked,
    /// They are of the time before there were checks.
    Unchecked,
    /// It contradicts itself.
    Broken,
}

/// Where one thread appends.
#[derive(Debug, Default)]
struct Appender {
    chunk: Option<LogChunk>,
    /// Slot of the next entry.
    next: usize,
    /// That of the entries that it appends.
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
    /// Chunks that take no more entries, since the last rotation.
    sealed: Vec<LogChunk>,
    /// Chunks without entries.
    free: Vec<LogChunk>,
    /// One more without entries, so that even in a full pool there is a place for copies.
    reserve: Option<LogChunk>,
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
    appenders: Box<[CachePadded<SpinLock<Appender>>]>,
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

    /// Returns how many entries a chunk has room for.
    pub fn chunk_entries(&self) -> usize {
        self.slots - 1
    }
}

fn first_entry(chunk: u64) -> u64 {
    chunk + LOG_ENTRY_BYTES as u64
}

#[cfg(test)]
mod tests;
