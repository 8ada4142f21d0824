//! The partitioned version log: every thread appends to a log of its own, each log counts the
//! entries that are still needed, and one that nobody needs is used again.
//!
//! A log is a chunk, and its number is the version that a buffered item remembers. A few items
//! that nobody flushes would keep their logs for ever: when there are too many logs, writers walk
//! over the nodes, a few at a time, and append what is still buffered of the old logs again. Step
//! numbers are those of the story in `mod.rs`.

use std::sync::{Arc, Mutex};

use bristlecone_pm::sync::Ordering::Release;
use bristlecone_pm::sync::epoch;
use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::sync::{
    AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
};
use bristlecone_pm::{
    Durable, Finding, Flushed, LINE_BYTES, Log, LogChunk, LogEntry, LogSpot, Medium, Persist, PoolFile,
    Result, TreeId, own_thread_index,
};
use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use super::LodgeTree;
use super::buffer::Buffered;
use super::node::NodeRef;
use super::room::{Futile, Gifts};
use crate::shared::codec::{Codec, KeyCodec};

/// Walks that may be wanted: over the nodes for what stands in the oldest logs, or in any.
const OLDEST: u8 = 1;
const ALL: u8 = 2;
/// A log whose entries are appended again elsewhere, as they are found.
const OLD: u32 = 1 << 31;
/// Threads that put releases off, and how many each.
const RELEASERS: usize = 64;
const RELEASED: usize = 32;
const COUNTS_A_LINE: usize = LINE_BYTES / size_of::<AtomicU32>();
/// Keys that are put aside before that is worth a walk over the nodes.
const ASIDE_MIN: usize = 1024;

/// A count for every chunk. Those of neighbours stand in different lines, because every thread counts in
/// the chunk that it fills all the time.
#[derive(Debug)]
struct Needed {
    counts: Box<[AtomicU32]>,
    /// How many lines there are, as a power of two.
    lines_log: u32,
}

impl Needed {
    fn new(chunks: usize) -> Self {
        let lines_log = chunks.div_ceil(COUNTS_A_LINE).next_power_of_two().ilog2();
        let counts = (0..COUNTS_A_LINE << lines_log).map(|_| AtomicU32::default()).collect();
        Self { counts, lines_log }
    }

    fn get(&self, version: u32) -> Option<&AtomicU32> {
        let (line, within) =
            (version as usize & ((1 << self.lines_log) - 1), version as usize >> self.lines_log);
        self.counts.get(line * COUNTS_A_LINE + within).filter(|_| within < COUNTS_A_LINE)
    }

    fn of(&self, version: u32) -> &AtomicU32 {
        self.get(version).expect("a chunk of the pool")
    }
}

/// Logs of which a thread needs one entry less, plus one, or 0. Counting them is put off, because a locked
/// instruction would wait for the flush before it.
#[derive(Debug, Default)]
struct Released {
    places: [AtomicU32; RELEASED],
    /// The place that is filled next.
    next: AtomicUsize,
}

/// The logs of a tree.
#[derive(Debug)]
pub(super) struct VersionLog<M: Medium> {
    pub log: Log<M>,
    /// For every chunk of the pool, the entries of it that are needed.
    needed: Needed,
    /// One for each thread.
    released: Box<[CachePadded<Released>]>,
    /// The walk that somebody wants.
    wanted: AtomicU8,
    /// A walk is under way.
    walking: AtomicBool,
    pub walk: Mutex<Walk>,
    pub gifts: Gifts,
    /// Keys that log entries name, but nothing else.
    aside: Mutex<Vec<u64>>,
    /// Keys put aside, those of the walk included.
    aside_count: AtomicUsize,
}

/// One walk over all nodes.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Nodes `next..end` have not been looked at.
    next: u32,
    end: u32,
    old: Vec<LogChunk>,
    /// Keys that only the old logs name.
    aside: Vec<u64>,
    pub futile: Futile,
}

/// Room for one entry, which counts as needed.
pub(super) struct Spot<'a, M: Medium> {
    versions: &'a VersionLog<M>,
    spot: LogSpot<'a, M>,
}

impl<'a, M: Medium> Spot<'a, M> {
    pub fn of(versions: &'a VersionLog<M>, spot: LogSpot<'a, M>) -> Self {
        Self { versions, spot }
    }

    /// The log that the entry will be in.
    #[inline(always)]
    pub fn log(&self) -> u32 {
        self.spot.chunk()
    }

    /// Appends the entry, durably, and with it what else is under way.
    #[inline(always)]
    pub fn append(self, entry: &LogEntry, records: Option<Flushed>, others: Flushed) {
        // Counted before the log can be full.
        self.versions.need(self.log());
        self.spot.append_with(entry, records, others);
    }

    /// The same for copies: who makes them fences later.
    fn copy(self, entry: &LogEntry) -> (u32, Flushed) {
        let version = self.log();
        self.versions.need(version);
        let flushed = self.spot.append_unfenced(entry, None);
        (version, flushed)
    }
}

impl<M: Medium> VersionLog<M> {
    /// Takes over a tree's logs; what stands in them is read with [`entries`](Self::entries).
    pub fn open(pool: &Arc<PoolFile<M>>, owner: TreeId, entries_max: Option<usize>) -> (Self, Vec<LogChunk>) {
        let (log, logged) = Log::open(pool, owner, entries_max);
        let needed = Needed::new(pool.chunks_max() as usize);
        let log = Self {
            log,
            needed,
            released: (0..RELEASERS).map(|_| CachePadded::default()).collect(),
            wanted: AtomicU8::default(),
            walking: AtomicBool::default(),
            walk: Mutex::default(),
            gifts: Gifts::default(),
            aside: Mutex::default(),
            aside_count: AtomicUsize::default(),
        };
        (log, logged)
    }

    /// The entries of a log, oldest first, up to the first one that is damaged.
    pub fn entries(&self, chunk: &LogChunk) -> impl Iterator<Item = Result<LogEntry>> {
        self.log.entries(chunk)
    }

    /// Another entry of this log is needed.
    pub fn need(&self, version: u32) {
        self.needed.of(version).fetch_add(1, Relaxed);
    }

    /// After recovery: logs that are needed stay as they are, the others are emptied.
    pub fn keep(&self, chunks: Vec<LogChunk>) {
        self.log.seal(chunks);
        self.reuse();
    }

    /// An entry of each of these logs is no longer needed: what it says is durable elsewhere.
    pub fn release(&self, versions: &[u32]) {
        let Some(own) = own_thread_index().and_then(|index| self.released.get(index)) else {
            return versions.iter().for_each(|version| self.count_released(*version));
        };
        // Only this thread fills places, one after the other, and anybody may empty them. Pairs with `settle`.
        let mut next = own.next.load(Relaxed);
        for version in versions {
            if own.places[next].load(Relaxed) != 0 {
                self.settle(own);
            }
            own.places[next].store(version + 1, Release);
            next = (next + 1) % RELEASED;
        }
        own.next.store(next, Relaxed);
    }

    /// Counts what threads have released.
    fn settle_all(&self) {
        self.released.iter().for_each(|released| self.settle(released));
    }

    fn settle(&self, released: &Released) {
        for place in released.places.iter().filter(|place| place.load(Relaxed) != 0) {
            if let Some(version) = place.swap(0, Acquire).checked_sub(1) {
                self.count_released(version);
            }
        }
    }

    fn count_released(&self, version: u32) {
        // Pairs with the other releases: whoever takes the last one sees all of them.
        if self.needed.of(version).fetch_sub(1, AcqRel) == 1 {
            let _pinned = Self::before_emptying();
            let unneeded = self.log.take_sealed(|id| id == version && self.is_unneeded(id));
            if !unneeded.is_empty() {
                self.log.recycle(unneeded);
            }
        }
    }

    /// Keeps the records of keys that a walk lets go of meanwhile: the walk knows nothing of a log that another thread
    /// took to empty it, whose entries name such keys until that is durable.
    fn before_emptying() -> epoch::Guard {
        epoch::pin()
    }

    fn is_unneeded(&self, version: u32) -> bool {
        self.needed.of(version).load(Acquire) == 0
    }

    /// Empties all full logs that nobody needs.
    fn reuse(&self) {
        self.settle_all();
        let _pinned = Self::before_emptying();
        let unneeded = self.log.take_sealed(|id| self.is_unneeded(id));
        if !unneeded.is_empty() {
            self.log.recycle(unneeded);
        }
    }

    fn is_old(&self, version: u32) -> bool {
        // What is read without the node's lock may be no number of a log.
        self.needed.get(version).is_some_and(|needed| needed.load(Relaxed) & OLD != 0)
    }

    /// Chunks of the pool.
    pub fn chunks_owned(&self) -> u64 {
        self.log.chunks_owned() as u64
    }

    /// Keeps the record of a key until no log entry that counts names it.
    pub fn put_aside(&self, key: u64) {
        self.aside_count.fetch_add(1, Relaxed);
        lock(&self.aside).push(key);
    }

    /// Every log counts as many entries as are buffered.
    pub fn verify<'a>(&self, nodes: impl Iterator<Item = NodeRef<'a>>) -> Option<Finding> {
        self.settle_all();
        let mut buffered = std::collections::BTreeMap::<u32, u32>::new();
        nodes.flat_map(NodeRef::all_buffered).for_each(|item| *buffered.entry(item.log).or_default() += 1);
        let count = |log: u32| {
            let (needed, buffered) =
                (self.needed.get(log)?.load(Acquire) & !OLD, buffered.get(&log).copied());
            (needed != buffered.unwrap_or(0)).then_some((log, needed, buffered))
        };
        let (log, needed, buffered) = (0..self.needed.counts.len() as u32).find_map(count)?;
        Some(Finding::new(format!("log {log}"), format!("{needed} entries needed, {buffered:?} buffered")))
    }

    /// Keys whose records wait until no log entry that counts names them.
    pub fn keys_aside(&self) -> usize {
        self.aside_count.load(Relaxed)
    }

    fn want(&self, walk: u8) {
        self.wanted.fetch_max(walk, Release);
    }

    /// Whether writers have a walk to begin or to go on with.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.wanted.load(Relaxed) > 0 || self.walking.load(Relaxed)
    }
}

impl<K: KeyCodec, V: Codec, M: Medium> LodgeTree<K, V, M> {
    /// Logs that may be in use before writers look for stragglers: four times what all buffers can
    /// hold, and one for each thread. From twice what they hold on, four threads spent a quarter of their
    /// time looking.
    pub(super) fn logs_wanted(&self) -> usize {
        let items = self.nodes.live() * self.node_slots / 2;
        4 * (items / self.versions.log.chunk_entries() + 1) + self.versions.log.appenders()
    }

    /// Logs that there may be at all, but for one that each thread takes at the same moment: room for what
    /// threads take while a walk is under way.
    pub(super) fn logs_max(&self) -> usize {
        let wanted = self.logs_wanted();
        wanted + (wanted / 4).max(self.versions.log.appenders())
    }

    /// Room for a log entry, if there may be another one. A `steady` change is of a key that is buffered.
    pub(super) fn reserve_entry(&self, steady: bool) -> Option<Spot<'_, M>> {
        let versions = &self.versions;
        let spot = versions.log.reserve(|_| {
            versions.reuse();
            let (used, wanted) = (versions.log.chunks_in_use(), self.logs_wanted());
            if used >= wanted {
                versions.want(OLDEST);
            }
            // While stragglers keep too many logs, writes go to the leaves instead.
            used < self.logs_max() && self.log_may_grow(steady)
        });
        spot.map(|spot| Spot::of(versions, spot))
    }

    /// What a writer does for the log when its own work is done.
    #[cold]
    pub(super) fn see_to_the_log(&self) {
        // So many that a walk is over before half of a log is full.
        let pace = 2 * u64::from(self.nodes.end()) / self.versions.log.chunk_entries() as u64 + 2;
        self.walk(pace as u32);
    }

    /// Looks at up to `nodes` nodes; begins and ends walks as need be. Whoever comes second goes
    /// away.
    fn walk(&self, nodes: u32) {
        let versions = &self.versions;
        let Ok(mut walk) = versions.walk.try_lock() else { return };
        if !versions.walking.load(Acquire) {
            match versions.wanted.swap(0, Acquire) {
                0 => return,
                wanted => self.begin(&mut walk, wanted),
            }
        }
        self.look_at_nodes(&mut walk, nodes);
    }

    /// Ends the walk that is under way, or makes one for what stands in any log.
    pub(super) fn walk_all(&self, walk: &mut Walk) {
        if !self.versions.walking.load(Acquire) {
            self.begin(walk, ALL);
        }
        self.look_at_nodes(walk, u32::MAX);
    }

    /// Walk 1: what is logged from here on is in other logs.
    fn begin(&self, walk: &mut Walk, wanted: u8) {
        let versions = &self.versions;
        walk.old = if wanted == OLDEST {
            let kept = self.logs_wanted() * 3 / 4;
            versions.log.take_oldest(versions.log.chunks_in_use().saturating_sub(kept))
        } else {
            versions.gifts.unmix();
            walk.aside = std::mem::take(&mut lock(&versions.aside));
            versions.log.rotate().1
        };
        for chunk in &walk.old {
            versions.needed.of(chunk.id()).fetch_or(OLD, AcqRel);
        }
        (walk.next, walk.end) = (0, self.nodes.end());
        versions.walking.store(true, Release);
    }

    fn look_at_nodes(&self, walk: &mut Walk, nodes: u32) {
        let stride = nodes.min(walk.end - walk.next);
        for id in walk.next..walk.next + stride {
            if id + stride < walk.end {
                self.nodes.get(id + stride).prefetch();
            }
            self.log_again(id);
        }
        walk.next += stride;
        if walk.next == walk.end {
            self.finish(walk);
        }
    }

    /// Walk 2: what is buffered in a node and stands in an old log is appended again.
    fn log_again(&self, id: u32) {
        // Writers who are waited for may have appended to old logs; later ones cannot.
        let Some(node) = self.lock_if_any(id, |item| self.versions.is_old(item.log)) else { return };
        let (versions, mut flushed) = (&self.versions, Flushed::none());
        let mut copies = SmallVec::<[(usize, u32); 8]>::new();
        let mut has_room = true;
        for (item, buffered) in node.all_buffered().enumerate() {
            if versions.is_old(buffered.log) {
                // What is buffered is bounded, and the old logs are about to go.
                let log = &versions.log;
                let spot = log.reserve_copy(|_| true).or_else(|| log.draw_on_reserve());
                has_room = spot.is_some();
                let Some(spot) = spot else { break };
                let spot = Spot { versions, spot };
                let (log, under_way) = spot.copy(&self.entry_of(node.sequence(), &buffered));
                flushed = flushed.and(under_way);
                copies.push((item, log));
            }
        }
        let Durable { .. } = self.medium().fence(flushed, "lodgetree walk.2");
        for (item, log) in copies {
            let buffered = node.buffered(item);
            node.set_buffered(item, Buffered { log, ..buffered });
            versions.release(&[buffered.log]);
        }
        if !has_room {
            self.flush_what_fits(&node);
        }
    }

    /// Walk 3: old logs that nobody needs are emptied. Where there was room neither for copies nor in
    /// leaves, they stay as they are.
    fn finish(&self, walk: &mut Walk) {
        let versions = &self.versions;
        for chunk in &walk.old {
            versions.needed.of(chunk.id()).fetch_and(!OLD, AcqRel);
        }
        versions.settle_all();
        let old = std::mem::take(&mut walk.old);
        let (empty, needed): (Vec<_>, Vec<_>) =
            old.into_iter().partition(|old| versions.is_unneeded(old.id()));
        let stuck = !needed.is_empty();
        versions.log.seal(needed);
        let gave = !empty.is_empty() || !stuck && !walk.aside.is_empty();
        if !empty.is_empty() {
            versions.log.recycle(empty);
        }
        if stuck {
            // One of them may have lost its last entry meanwhile.
            versions.reuse();
            lock(&versions.aside).append(&mut walk.aside);
        } else {
            let guard = K::pin();
            versions.aside_count.fetch_sub(walk.aside.len(), Relaxed);
            walk.aside.drain(..).for_each(|key| K::retire(&self.keys, key, &guard));
        }
        versions.walking.store(false, Release);
        if gave {
            versions.gifts.give();
        }
    }

    /// A removed key has left its leaf. Its record stays until no log entry that counts names it.
    pub(super) fn retire_key(&self, key: u64) {
        if K::INLINE {
            return;
        }
        self.versions.put_aside(key);
        let count = self.versions.aside_count.load(Relaxed);
        if count >= ASIDE_MIN.max(self.nodes.live()) {
            self.versions.want(ALL);
        }
    }

    /// A log entry that says what a buffered item does.
    pub(super) fn entry_of(&self, sequence: u64, item: &Buffered) -> LogEntry {
        LogEntry { sequence, removed: item.removed, key: item.key, value: item.value }
    }
}
