//! The write-ahead log: pending changes of leaves and of the shape of the tree, so that recovery can complete
//! or undo them. Changes that fit one line are not logged.
//!
//! ```text
//! line 0..8    the lane of frees, at most one at a time
//! line 8..64   a lane each: kind, then its operands
//!              8..36 changes and splits of leaves; 36..42 splits of their parents; 42..63 splits
//!              of the levels above, a lane each; 63 the root
//! ```
//!
//! A thread that splits a node keeps its lane while it splits the parent. Each level has its own lanes, so a
//! thread that waits for a lane waits for one that needs only lanes above it.
//!
//! The kind commits a record: it is stored behind the rest in the same line, or, if a record is longer than a
//! line, after the rest is durable. A lane whose kind is zero is empty. Every record except a rebuild is wiped
//! durably before its locks are released, so a record never refers to a node that has changed since.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use bristlecone_pm::sync::{AtomicUsize, Ordering::Relaxed};
use bristlecone_pm::{
    Error, Flushed, Heap, HeapSpec, LINE_BYTES, Medium, Persist, PoolFile, Result, TreeId, Word, thread_index,
};
use crossbeam_utils::CachePadded;

use super::layout::{LEVEL_MAX, LOGS};
use crate::index::parts::optimistic_lock::pause;

/// Size of a tree's log in bytes.
const LOG_BYTES: u32 = 4096;
const LINE_WORDS: usize = LINE_BYTES / 8;
/// Number of words of the lane of frees.
const FREE_WORDS: usize = 8 * LINE_WORDS;
const LANES: usize = LOG_BYTES as usize / LINE_BYTES - 8;
/// Number of lanes of leaves, and of the inner nodes above them.
const LEAF_LANES: usize = 28;
const PARENT_LANES: usize = 6;
/// The last level that has its own lane: one below the lane of the root.
const _: () = assert!(LEAF_LANES + PARENT_LANES + LEVEL_MAX as usize == LANES);
/// Maximum number of nodes that one free can remove from the tree.
pub const FREED_MAX: usize = (FREE_WORDS - 5) / 2;

const REBUILD: u64 = 1;
const SPLIT: u64 = 2;
const ROOT: u64 = 3;
const FREE: u64 = 4;

/// A node and its left neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    pub node: u64,
    pub left: u64,
}

/// The contents of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The slot array of a leaf may not match its bitmap.
    Rebuild { leaf: u64 },
    /// `left` is being split; entries at or above the separator move to `right`.
    Split { left: u64, right: u64, separator: u64, level: u8 },
    /// The node becomes the root, or ceases to be it; it is free unless it is the root.
    Root { node: u64 },
    /// Empty nodes leave the tree, lowest first; `parent` holds the highest of them. Their range passes to the
    /// right neighbour or else to the left one. The separator word is freed with them.
    Free { parent: u64, separator: u64, to_right: bool, nodes: Vec<Freed> },
}

pub struct Log<M: Medium> {
    pool: Arc<PoolFile<M>>,
    offset: u64,
    lanes: Box<[CachePadded<Mutex<()>>]>,
    turn: AtomicUsize,
    /// Keeps the log's chunk; the log is its only slot in use.
    _heap: Heap<M>,
}

/// A lane held by one thread.
pub struct Lane<'l, M: Medium> {
    log: &'l Log<M>,
    words: &'l [Word],
    _held: Option<MutexGuard<'l, ()>>,
}

impl<M: Medium> Log<M> {
    /// Takes over the log of a tree; the log of a `fresh` tree is empty, and created if it does not exist.
    pub fn open(pool: &Arc<PoolFile<M>>, id: TreeId, fresh: bool) -> Result<Self> {
        let heap = Heap::open(pool, HeapSpec::new(id, LOGS, LOG_BYTES));
        let offset = match heap.chunks().first() {
            Some(chunk) => {
                heap.mark_live(chunk.offset)?;
                chunk.offset
            }
            None if fresh => heap.alloc()?,
            // A follower reads no log.
            None if pool.is_followed() => 0,
            None => return Err(Error::corrupted("a tree without its log", "log")),
        };
        let lanes = (0..LANES).map(|_| CachePadded::default()).collect();
        let log = Self { pool: Arc::clone(pool), offset, lanes, turn: AtomicUsize::new(0), _heap: heap };
        if fresh {
            let medium = pool.medium();
            let words = pool.words(offset, LOG_BYTES as usize / 8);
            words.iter().step_by(LINE_WORDS).for_each(|kind| kind.store(medium, 0));
            // The fence of create 2 waits for it.
            let _: Flushed = medium.flush(words, "wotree create.1");
        }
        Ok(log)
    }

    /// Returns the bytes of the pool.
    pub fn bytes(&self) -> u64 {
        self.pool.chunk_bytes()
    }

    /// Returns a lane for a change of a leaf: the last one of this thread, so that a rebuild writes only one
    /// word.
    pub fn own_lane(&self) -> Lane<'_, M> {
        self.lane_from(thread_index(), 0..LEAF_LANES)
    }

    /// Returns a lane for a split at a level (0: the leaves): a different one each time, for wear levelling.
    pub fn next_lane(&self, level: u8) -> Lane<'_, M> {
        let lanes = match usize::from(level) {
            0 => 0..LEAF_LANES,
            1 => LEAF_LANES..LEAF_LANES + PARENT_LANES,
            level => LEAF_LANES + PARENT_LANES + level - 2..LEAF_LANES + PARENT_LANES + level - 1,
        };
        self.lane_from(self.turn.fetch_add(1, Relaxed), lanes)
    }

    fn lane_from(&self, first: usize, lanes: Range<usize>) -> Lane<'_, M> {
        for round in 0.. {
            let lane = lanes.start + (first + round as usize) % lanes.len();
            match self.try_lane(lane) {
                Some(lane) => return lane,
                None => pause(round),
            }
        }
        unreachable!("rounds do not end")
    }

    fn try_lane(&self, lane: usize) -> Option<Lane<'_, M>> {
        let held = match self.lanes[lane].try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Lane { log: self, words: self.lane_words(lane), _held: Some(held) })
    }

    /// Returns the lane of the root. Only the caller may replace the root.
    pub fn root_lane(&self) -> Lane<'_, M> {
        Lane { log: self, words: self.lane_words(LANES - 1), _held: None }
    }

    /// Returns the lane of frees. Only the caller may free.
    pub fn free_lane(&self) -> Lane<'_, M> {
        Lane { log: self, words: self.pool.words(self.offset, FREE_WORDS), _held: None }
    }

    fn lane_words(&self, lane: usize) -> &[Word] {
        let line = 8 + lane as u64;
        self.pool.words(self.offset + line * LINE_BYTES as u64, LINE_WORDS)
    }

    /// Returns every lane, for recovery, which keeps those with records until it has processed them.
    pub fn all(&self) -> impl Iterator<Item = Lane<'_, M>> {
        (0..LANES).filter_map(|lane| self.try_lane(lane)).chain(std::iter::once(self.free_lane()))
    }
}

impl<M: Medium> Lane<'_, M> {
    /// Writes a record; durable when this returns. The lane must be empty, or contain a rebuild.
    pub fn write(&self, record: &Record) {
        let medium = self.log.pool.medium();
        let (kind, rest) = match record {
            Record::Rebuild { leaf } => (REBUILD, [*leaf, 0, 0, 0]),
            Record::Split { left, right, separator, level } => {
                (SPLIT, [*left, *right, *separator, u64::from(*level)])
            }
            Record::Root { node } => (ROOT, [*node, 0, 0, 0]),
            Record::Free { parent, separator, to_right, nodes } => {
                (FREE, [*parent, *separator, u64::from(*to_right), nodes.len() as u64])
            }
        };
        if kind == REBUILD && self.words[0].load(medium) == REBUILD {
            // One word is the whole record.
            self.words[1].store(medium, rest[0]);
            medium.persist(&self.words[1], "wotree log.1 again");
            return;
        }
        self.words[0].store(medium, 0);
        let _ordered = medium.ordered_within_line();
        for (cell, word) in self.words[1..].iter().zip(rest) {
            cell.store(medium, word);
        }
        if let Record::Free { nodes, .. } = record {
            for (cells, freed) in self.words[5..].chunks_exact(2).zip(nodes) {
                cells[0].store(medium, freed.node);
                cells[1].store(medium, freed.left);
            }
            let used = 5 + nodes.len() * 2;
            if used > LINE_WORDS {
                let durable = medium.persist_proof(&self.words[LINE_WORDS..used], "wotree log.1 long");
                // The rest of the kind's own line is not flushed yet.
                let _ordered = medium.ordered_within_line();
                self.words[0].publish(medium, kind, &durable, "wotree log.1 long");
                medium.persist(&self.words[0], "wotree log.1 long");
                return;
            }
        }
        // Log 1: relies on line order.
        let ordered = medium.ordered_within_line();
        self.words[0].publish(medium, kind, &ordered, "wotree log.1");
        medium.persist(&self.words[0], "wotree log.1");
    }

    /// Wipes the record, durably when this returns.
    pub fn wipe(&self) {
        let medium = self.log.pool.medium();
        self.words[0].store(medium, 0);
        medium.persist(&self.words[0], "wotree log.2");
    }

    /// Returns the record of the lane; `None` if it is empty; `Err` for a kind that no version writes.
    pub fn read(&self) -> std::result::Result<Option<Record>, u64> {
        let medium = self.log.pool.medium();
        let word = |at: usize| self.words[at].load(medium);
        Ok(Some(match word(0) {
            0 => return Ok(None),
            REBUILD => Record::Rebuild { leaf: word(1) },
            SPLIT if word(4) <= LEVEL_MAX => {
                Record::Split { left: word(1), right: word(2), separator: word(3), level: word(4) as u8 }
            }
            ROOT => Record::Root { node: word(1) },
            FREE if self.words.len() == FREE_WORDS && (1..=FREED_MAX as u64).contains(&word(4)) => {
                let node = |at: u64| {
                    let at = 5 + at as usize * 2;
                    Freed { node: word(at), left: word(at + 1) }
                };
                let nodes = (0..word(4)).map(node).collect();
                Record::Free { parent: word(1), separator: word(2), to_right: word(3) != 0, nodes }
            }
            kind => return Err(kind),
        }))
    }
}
