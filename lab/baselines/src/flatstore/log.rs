//! The log: segments, filled one after the other with entries of all threads.
//!
//! ```text
//! segment   word 0  entries that count; zero: it is free          from the second line on: entries of 24 bytes
//! entry     word 0  number of the change; lowest bit: a delete     1  key     2  value
//! ```
//!
//! **The commit word** is a segment's count. Numbers ascend, so of two entries for a key the later one has the greater
//! number, and a later position.
//!
//! # Append (horizontal batching)
//! A thread posts its entry, and then waits to become the leader. The leader appends all posted entries:
//! 1. The entries; flush, one fence. *They do not count.*
//! 2. The count; flush, fence. *All of them exist.* The other threads find their entries done.
//!
//! # Clean (most entries are dead, or there is no more space; the oldest segment)
//! An entry that the tree in DRAM references is appended again, under its leaf's lock. A delete needs no copy: the
//! entry that it deletes was older, and no longer exists. Then
//! 1. the count becomes zero; flush, fence. *The copies count, so nothing is lost; the segment is free.*
//!
//! One segment is reserved for the copies. If it is in use and no other can be allocated, nothing else is appended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use bristlecone::{Medium, Result};
use bristlecone_pm::sync::Ordering::{Acquire, Relaxed, Release};
use bristlecone_pm::sync::{AtomicU64, wait};
use bristlecone_pm::{
    Alone, Durable, Heap, HeapSpec, HeapStats, LINE_BYTES, Persist, PoolFile, SlotKind, TreeId, Word,
    thread_index,
};

use crate::store::{LINE_WORDS, damaged};

/// The slots of segments.
pub const SEGMENTS: SlotKind = SlotKind::new(35);
/// Segments of a chunk of the pool.
const SEGMENTS_A_CHUNK: u64 = 16;
const ENTRY_WORDS: usize = 3;
const DELETE: u64 = 1;
/// Number of threads that post without sharing.
const DESKS: usize = 64;

/// An entry's change of its key.
#[derive(Clone, Copy)]
pub enum Op {
    Put(u64),
    Delete,
}

/// State of a posted entry: none, posted, or its location.
const IDLE: u64 = 0;
const POSTED: u64 = 1;

/// Slot in which a thread posts an entry.
#[derive(Default)]
struct Desk {
    own: Mutex<()>,
    /// `IDLE`, `POSTED`, or the offset of the entry, once it is durable.
    state: AtomicU64,
    /// The delete bit, the key, the value.
    entry: [AtomicU64; ENTRY_WORDS],
}

/// State of the leader.
#[derive(Default)]
struct Leader {
    /// The segment that is being filled; zero: none.
    segment: u64,
    used: usize,
    number: u64,
    /// The segment reserved for copies.
    spare: Option<u64>,
}

pub struct Log<M: Medium> {
    pool: Arc<PoolFile<M>>,
    segments: Heap<M>,
    /// Maximum number of entries of a segment.
    capacity: usize,
    desks: Box<[Desk]>,
    leader: Mutex<Leader>,
    /// Segments with entries, the oldest first.
    order: Mutex<VecDeque<u64>>,
    cleaning: Mutex<()>,
    /// Number of entries in all segments.
    entries: AtomicU64,
}

impl<M: Medium> Log<M> {
    /// Opens the log of a tree; returns the last entry of every key that has one, in key order.
    pub fn open(pool: &Arc<PoolFile<M>>, id: TreeId) -> Result<(Self, Vec<(u64, u64)>)> {
        let bytes = pool.chunk_bytes() / SEGMENTS_A_CHUNK;
        let segments =
            Heap::open(pool, HeapSpec { tagged: true, ..HeapSpec::new(id, SEGMENTS, bytes as u32) });
        let log = Self {
            pool: Arc::clone(pool),
            capacity: (bytes as usize - LINE_BYTES) / (ENTRY_WORDS * 8),
            desks: (0..DESKS).map(|_| Desk::default()).collect(),
            leader: Mutex::default(),
            order: Mutex::default(),
            cleaning: Mutex::default(),
            entries: AtomicU64::new(0),
            segments,
        };
        let chunks = log.segments.chunks();
        if chunks.is_empty() {
            // A tree without a chunk counts as one whose creation was interrupted.
            wait::lock(&log.leader).spare = Some(log.segments.alloc()?);
        }
        let mut order = Vec::new();
        for chunk in chunks {
            for segment in (0..chunk.slots as u64).map(|slot| chunk.offset + slot * bytes) {
                let count = log.count(segment);
                if count > log.capacity {
                    return Err(damaged("a segment with too many entries", segment));
                }
                if count > 0 {
                    log.segments.mark_live(segment)?;
                    log.entries.fetch_add(count as u64, Relaxed);
                    order.push(segment);
                }
            }
        }
        log.segments.finish_recovery();
        order.sort_unstable_by_key(|segment| log.entry(log.place(*segment, 0))[0]);
        if let Some(&last) = order.last() {
            let used = log.count(last);
            let number = (log.entry(log.place(last, used - 1))[0] >> 1) + 1;
            *wait::lock(&log.leader) = Leader { segment: last, used, number, spare: None };
        }
        *wait::lock(&log.order) = order.into();
        let live = log.read()?.0;
        Ok((log, live))
    }

    /// Returns the last entry of every key that has one, in key order, and the number of segments.
    pub fn read(&self) -> Result<(Vec<(u64, u64)>, u64)> {
        let order = wait::lock(&self.order).clone();
        let mut last = BTreeMap::new();
        let mut before = None;
        for &segment in &order {
            for entry in (0..self.count(segment)).map(|at| self.place(segment, at)) {
                let [number, key, _] = self.entry(entry);
                if before.replace(number >> 1) >= Some(number >> 1) {
                    return Err(damaged("entries of a log out of order", entry));
                }
                match number & DELETE {
                    0 => _ = last.insert(key, entry),
                    _ => _ = last.remove(&key),
                }
            }
        }
        let spare = wait::lock(&self.leader).spare.is_some();
        Ok((last.into_iter().collect(), order.len() as u64 + u64::from(spare)))
    }

    /// Returns the space usage of segments.
    pub fn stats(&self) -> HeapStats {
        self.segments.stats()
    }

    fn place(&self, segment: u64, at: usize) -> u64 {
        segment + ((LINE_WORDS + at * ENTRY_WORDS) * 8) as u64
    }

    fn entry(&self, entry: u64) -> [u64; ENTRY_WORDS] {
        let words = self.pool.words(entry, ENTRY_WORDS);
        [0, 1, 2].map(|at: usize| words[at].load(self.pool.medium()))
    }

    fn count_word(&self, segment: u64) -> &Word {
        self.pool.at(segment)
    }

    fn count(&self, segment: u64) -> usize {
        self.count_word(segment).load(self.pool.medium()) as usize
    }

    /// Returns the value of an entry.
    #[inline(always)]
    pub fn value(&self, entry: u64) -> u64 {
        self.pool.words(entry, ENTRY_WORDS)[2].load(self.pool.medium())
    }

    /// Appends an entry, durably; returns its offset. Has no effect if there is no space.
    pub fn append(&self, key: u64, op: Op) -> Result<u64> {
        let entry = match op {
            Op::Put(value) => [0, key, value],
            Op::Delete => [DELETE, key, 0],
        };
        self.post(entry, false)
    }

    /// Appends a copy of an entry, for which a segment is reserved.
    pub fn copy(&self, entry: u64) -> Result<u64> {
        let [_, key, value] = self.entry(entry);
        self.post([0, key, value], true)
    }

    fn post(&self, entry: [u64; ENTRY_WORDS], is_copy: bool) -> Result<u64> {
        let desk = &self.desks[thread_index() % DESKS];
        let _own = wait::lock(&desk.own);
        desk.entry.iter().zip(entry).for_each(|(cell, word)| cell.store(word, Relaxed));
        // Pairs with the load of the leader.
        desk.state.store(POSTED, Release);
        let mut leader = wait::lock(&self.leader);
        // Pairs with the store of the previous leader.
        let led = if desk.state.load(Acquire) == POSTED { self.lead(&mut leader, is_copy) } else { Ok(()) };
        let done = desk.state.swap(IDLE, Acquire);
        led.map(|()| done)
    }

    /// Appends posted entries, the caller's first, until the segment is full.
    fn lead(&self, leader: &mut Leader, is_copy: bool) -> Result<()> {
        if leader.spare.is_none() {
            match self.segments.alloc() {
                Ok(segment) => leader.spare = Some(segment),
                Err(error) if !is_copy => return Err(error),
                Err(_) => {}
            }
        }
        if leader.segment == 0 || leader.used == self.capacity {
            self.begin(leader, is_copy)?;
        }
        // The rest of the last available segment is for copies.
        let most = if leader.spare.is_some() { self.capacity - leader.used } else { 1 };
        let own = thread_index() % DESKS;
        let posted = (own..DESKS).chain(0..own).map(|at| &self.desks[at]);
        let posted = posted.filter(|desk| desk.state.load(Acquire) == POSTED);
        let batch: Vec<_> = posted.take(most).collect();
        let medium = self.pool.medium();
        let first = leader.used;
        for desk in &batch {
            let [bit, key, value] = [0, 1, 2].map(|at: usize| desk.entry[at].load(Relaxed));
            let cells = self.pool.words(self.place(leader.segment, leader.used), ENTRY_WORDS);
            let words = [leader.number << 1 | bit, key, value];
            cells.iter().zip(words).for_each(|(cell, word)| cell.store(medium, word));
            (leader.used, leader.number) = (leader.used + 1, leader.number + 1);
        }
        let words = self.pool.words(self.place(leader.segment, first), batch.len() * ENTRY_WORDS);
        let durable = medium.persist_proof(words, "flatstore append.1");
        let count = self.count_word(leader.segment);
        count.publish(medium, leader.used as u64, &durable, "flatstore append.2");
        medium.persist(count, "flatstore append.2");
        self.entries.fetch_add(batch.len() as u64, Relaxed);
        for (at, desk) in batch.iter().enumerate() {
            desk.state.store(self.place(leader.segment, first + at), Release);
        }
        Ok(())
    }

    /// Begins another segment. Copies may use the reserved one.
    fn begin(&self, leader: &mut Leader, is_copy: bool) -> Result<()> {
        let segment = match self.segments.alloc() {
            Ok(segment) => segment,
            Err(error) if is_copy => leader.spare.take().ok_or(error)?,
            Err(error) => return Err(error),
        };
        (leader.segment, leader.used) = (segment, 0);
        wait::lock(&self.order).push_back(segment);
        Ok(())
    }

    /// Returns whether an entry is the first of its segment.
    pub fn begins_segment(&self, entry: u64) -> bool {
        let bytes = self.pool.chunk_bytes() / SEGMENTS_A_CHUNK;
        entry % bytes == LINE_BYTES as u64
    }

    /// Returns the maximum number of entries of a segment.
    pub fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// Cleans the oldest segment, if at least `least` entries are dead; `keep` copies an entry if it is its key's last
    /// one. Returns whether it did.
    pub fn clean(&self, live: u64, least: u64, keep: impl Fn(u64, u64) -> Result<()>) -> Result<bool> {
        let _cleaning = wait::lock(&self.cleaning);
        let oldest = {
            let order = wait::lock(&self.order);
            order.front().copied().filter(|_| order.len() > 1)
        };
        let dead = self.entries.load(Relaxed).saturating_sub(live);
        let Some(oldest) = oldest.filter(|_| dead >= least) else { return Ok(false) };
        let count = self.count(oldest);
        for entry in (0..count).map(|at| self.place(oldest, at)) {
            let [number, key, _] = self.entry(entry);
            if number & DELETE == 0 {
                keep(entry, key)?;
            }
        }
        let medium = self.pool.medium();
        self.count_word(oldest).publish(medium, 0, &Alone, "flatstore clean.1");
        let Durable { .. } = medium.persist_proof(self.count_word(oldest), "flatstore clean.1");
        wait::lock(&self.order).pop_front();
        self.entries.fetch_sub(count as u64, Relaxed);
        let mut leader = wait::lock(&self.leader);
        match leader.spare {
            None => leader.spare = Some(oldest),
            Some(_) => self.segments.free(oldest),
        }
        Ok(true)
    }
}
