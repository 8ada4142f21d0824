//! Textbook write-ahead logging: all stores of a change are first written to the log, word by word.
//!
//! 1. The words with their offsets; flush, fence. *Nothing happened.*
//! 2. The commit word; flush, fence. *The change happens, now or in recovery.*
//! 3. The words themselves, each line flushed once; fence. *Redone from the log.*
//! 4. The commit word becomes zero; flush, fence.
//!
//! The log is in one slot, which is the tree's anchor: a line with the root, a lane for each of a
//! few concurrent leaf changes, and a longer lane for the single structure change.

use std::sync::{Arc, Mutex, MutexGuard};

use bristlecone::Medium;
use bristlecone_pm::sync::wait;
use bristlecone_pm::{
    Error, Flushed, Heap, HeapSpec, LINE_BYTES, Persist, PoolFile, Result, SlotKind, TreeId, Word,
    thread_index,
};

use crate::store::{LINE_WORDS, Store};

/// The slots of the log.
pub const LOGS: SlotKind = SlotKind::new(33);
/// Maximum number of levels of a tree whose longest change fits the log.
pub const LEVELS_MAX: usize = 12;

/// The stores of a change: offsets and words.
#[derive(Default)]
pub struct Change(Vec<(u64, u64)>);

impl Change {
    /// Adds a word of a node, unless it is already stored there.
    pub fn set<M: Medium>(&mut self, store: &Store<M>, node: u64, at: usize, word: u64) {
        if store.load(node, at) != word {
            self.0.push((node + (at * 8) as u64, word));
        }
    }

    /// Adds a word at any offset.
    pub fn set_at(&mut self, offset: u64, word: u64) {
        self.0.push((offset, word));
    }

    /// Encodes runs of consecutive words: offset, length, words.
    fn encode(&mut self) -> Vec<u64> {
        self.0.sort_unstable_by_key(|(offset, _)| *offset);
        let mut runs = Vec::with_capacity(self.0.len() + 8);
        for run in self.0.chunk_by(|left, right| left.0 + 8 == right.0) {
            runs.extend([run[0].0, run.len() as u64]);
            runs.extend(run.iter().map(|(_, word)| *word));
        }
        runs
    }
}

pub struct Log<M: Medium> {
    pool: Arc<PoolFile<M>>,
    offset: u64,
    lanes: Box<[Mutex<()>]>,
    lane_words: usize,
    long_words: usize,
    /// Keeps the chunk allocated.
    _heap: Heap<M>,
}

impl<M: Medium> Log<M> {
    /// Opens the log of a tree, or creates an empty one: the caller, which stores a reference to
    /// it, must wait for the flush.
    pub fn open(pool: &Arc<PoolFile<M>>, id: TreeId, node_words: usize) -> Result<(Self, Flushed)> {
        // A change may move all items of a leaf; a split moves half of a node at each level.
        let round = |words: usize| words.next_multiple_of(LINE_WORDS);
        let (lane_words, long_words) =
            (round(node_words + 8), round(LEVELS_MAX * (node_words / 2 + 8) + node_words + 8));
        let bytes = |lanes: usize| (LINE_WORDS + lanes * lane_words + long_words) * 8;
        let lanes = [32, 4].into_iter().find(|lanes| bytes(*lanes) as u64 <= pool.chunk_bytes());
        let lanes = lanes.ok_or_else(|| Error::invalid("the pool's chunks are too small for this log"))?;
        let heap = Heap::open(pool, HeapSpec::new(id, LOGS, bytes(lanes) as u32));
        let named = pool.anchor(id).load(pool.medium());
        let offset = if named == 0 {
            heap.alloc()?
        } else {
            heap.mark_live(named)?;
            named
        };
        let lanes = (0..lanes).map(|_| Mutex::default()).collect();
        let log = Self { pool: Arc::clone(pool), offset, lanes, lane_words, long_words, _heap: heap };
        let mut flushed = Flushed::none();
        if named == 0 {
            for lane in 0..=log.lanes.len() {
                let commit = &log.lane(lane)[0];
                commit.store(pool.medium(), 0);
                flushed = flushed.and(pool.medium().flush(commit, "log create"));
            }
        }
        Ok((log, flushed))
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn bytes(&self) -> u64 {
        self.pool.chunk_bytes()
    }

    pub fn root(&self) -> &Word {
        self.pool.at(self.offset)
    }

    /// Returns the words of a lane; the last one is the long lane.
    fn lane(&self, lane: usize) -> &[Word] {
        let words = if lane == self.lanes.len() { self.long_words } else { self.lane_words };
        let start = LINE_WORDS + lane * self.lane_words;
        self.pool.words(self.offset + (start * 8) as u64, words)
    }

    /// Locks a lane for a change of one leaf.
    fn own_lane(&self) -> (MutexGuard<'_, ()>, &[Word]) {
        let lane = thread_index() % self.lanes.len();
        (wait::lock(&self.lanes[lane]), self.lane(lane))
    }

    /// Applies a change of one leaf, durably.
    pub fn write(&self, change: Change) -> Result<()> {
        let (_held, lane) = self.own_lane();
        self.run(lane, change, Flushed::none())
    }

    /// Applies a structure change, durably; its stores come only after `flushed` is durable. Only
    /// one thread may call it at a time.
    pub fn write_long(&self, change: Change, flushed: Flushed) -> Result<()> {
        self.run(self.lane(self.lanes.len()), change, flushed)
    }

    fn run(&self, lane: &[Word], mut change: Change, flushed: Flushed) -> Result<()> {
        let medium = self.pool.medium();
        let runs = change.encode();
        if runs.is_empty() {
            return Ok(());
        }
        if runs.len() >= lane.len() {
            return Err(Error::invalid("the tree is too high for its log"));
        }
        let body = &lane[1..=runs.len()];
        body.iter().zip(&runs).for_each(|(cell, word)| cell.store(medium, *word));
        let durable = medium.fence(flushed.and(medium.flush(body, "log.1")), "log.1");
        lane[0].publish(medium, runs.len() as u64, &durable, "log.2");
        medium.persist(&lane[0], "log.2");
        let flushed = self.store(&change.0);
        let durable = medium.fence(flushed, "log.3");
        lane[0].publish(medium, 0, &durable, "log.4");
        medium.persist(&lane[0], "log.4");
        Ok(())
    }

    /// Stores words in order of offset; each line is flushed once.
    fn store(&self, words: &[(u64, u64)]) -> Flushed {
        let medium = self.pool.medium();
        let mut flushed = Flushed::none();
        for line in words.chunk_by(|left, right| left.0 / LINE_BYTES as u64 == right.0 / LINE_BYTES as u64) {
            for (offset, word) in line {
                self.pool.at::<Word>(*offset).store(medium, *word);
            }
            flushed = flushed.and(medium.flush(self.pool.at::<Word>(line[0].0), "log.3"));
        }
        flushed
    }

    /// Redoes committed changes that may be incomplete.
    pub fn replay(&self) -> Result<()> {
        let medium = self.pool.medium();
        for lane in (0..=self.lanes.len()).map(|lane| self.lane(lane)) {
            let used = lane[0].load(medium) as usize;
            if used == 0 {
                continue;
            }
            let wrong =
                || Error::corrupted("a log that does not make sense", format!("log {:#x}", self.offset));
            let runs: Vec<u64> =
                lane.get(1..=used).ok_or_else(wrong)?.iter().map(|cell| cell.load(medium)).collect();
            let mut rest = &runs[..];
            let mut words = Vec::new();
            while let [offset, len, more @ ..] = rest {
                let run = more.get(..*len as usize).ok_or_else(wrong)?;
                if !offset.is_multiple_of(8) || !self.pool.holds(*offset, len * 8) {
                    return Err(wrong());
                }
                words.extend(run.iter().enumerate().map(|(at, word)| (offset + (at * 8) as u64, *word)));
                rest = &more[run.len()..];
            }
            let durable = medium.fence(self.store(&words), "log replay.1");
            lane[0].publish(medium, 0, &durable, "log replay.2");
            medium.persist(&lane[0], "log replay.2");
        }
        Ok(())
    }
}
