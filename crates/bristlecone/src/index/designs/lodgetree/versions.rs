//! The partitioned version log: every thread appends to its own log, each log counts its needed entries, and a log
//! without any is reused.
//!
//! A log is a chunk, and its number is the version that a buffered item remembers. A few items that no writer
//! flushes would pin their logs forever: a compaction pass (see `log`) then visits the nodes.

use std::sync::{Arc, Mutex};

use bristlecone_pm::sync::wait::lock;

use bristlecone_pm::sync::Ordering::Release;
use bristlecone_pm::sync::epoch;
use bristlecone_pm::sync::{
    AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
};
use bristlecone_pm::{
    Flushed, Issue, LINE_BYTES, LogChunk, LogEntry, LogSpot, Manifest, ManifestReader, Medium, PoolFile,
    TreeId, own_thread_index,
};
use crossbeam_utils::CachePadded;

use super::places::NodeRef;
use crate::index::parts::buffered::TreeLog;
use crate::index::parts::no_room;
use crate::index::parts::zeroed::zeroed;

/// Requested compaction passes: for the entries of the oldest logs, or of any.
pub(super) const OLDEST: u8 = 1;
pub(super) const ALL: u8 = 2;
/// A log whose entries are appended again elsewhere, as they are found.
const OLD: u32 = 1 << 31;
/// Number of threads that defer releases, and deferred releases of each.
const RELEASERS: usize = 64;
const RELEASED: usize = 32;
const COUNTS_A_LINE: usize = LINE_BYTES / size_of::<AtomicU32>();

/// A count for every chunk. Those of neighbours are on different cache lines, because every thread updates the
/// count of the chunk that it fills.
#[derive(Debug)]
struct Needed {
    counts: Box<[AtomicU32]>,
    /// Number of lines, as a power of two.
    lines_log: u32,
}

impl Needed {
    fn new(chunks: usize) -> Self {
        let lines_log = chunks.div_ceil(COUNTS_A_LINE).next_power_of_two().ilog2();
        Self { counts: zeroed(COUNTS_A_LINE << lines_log), lines_log }
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

/// Logs with one needed entry less, each as its number plus one, or 0. Counting them is deferred, because a locked
/// instruction would wait for the flush before it.
#[derive(Debug, Default)]
struct Released {
    places: [AtomicU32; RELEASED],
    /// The place to be filled next.
    next: AtomicUsize,
}

/// The logs of a tree.
#[derive(Debug)]
pub(super) struct VersionLog<M: Medium> {
    pub log: TreeLog<M>,
    /// For every chunk of the pool, the number of its needed entries.
    needed: Needed,
    /// One for each thread.
    released: Box<[CachePadded<Released>]>,
    /// The requested compaction pass.
    wanted: AtomicU8,
    /// Whether a pass is running.
    pub running: AtomicBool,
    pub pass: Mutex<Pass>,
}

/// Number of chunks of the logs, set-aside keys, and items when a compaction pass for space freed nothing.
type Futile = no_room::Futile<(usize, usize, u64)>;

/// One compaction pass over all nodes.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// Nodes `next..end` have not been visited.
    pub next: u32,
    pub end: u32,
    pub old: Vec<LogChunk>,
    /// Keys that only the old logs refer to.
    pub aside: Vec<u64>,
    pub futile: Futile,
}

/// Reserved space for one entry, which counts as needed.
pub(super) struct Spot<'a, M: Medium> {
    versions: &'a VersionLog<M>,
    spot: LogSpot<'a, M>,
}

impl<'a, M: Medium> Spot<'a, M> {
    pub fn of(versions: &'a VersionLog<M>, spot: LogSpot<'a, M>) -> Self {
        Self { versions, spot }
    }

    /// Returns the log of the entry.
    #[inline(always)]
    pub fn log(&self) -> u32 {
        self.spot.chunk()
    }

    /// Appends the entry durably, together with other pending flushes.
    #[inline(always)]
    pub fn append(self, entry: &LogEntry, records: Option<Flushed>, others: Flushed) {
        // Must be counted before the log can be full.
        self.versions.need(self.log());
        self.spot.append_with(entry, records, others);
    }

    /// Appends a copy, which is fenced later; returns its log.
    pub fn copy(self, entry: &LogEntry) -> (u32, Flushed) {
        let version = self.log();
        self.versions.need(version);
        let flushed = self.spot.append_unfenced(entry, None);
        (version, flushed)
    }
}

impl<M: Medium> VersionLog<M> {
    /// Takes over a tree's logs, with `entries` entries each, or with as many as fit.
    pub fn open(pool: &Arc<PoolFile<M>>, owner: TreeId, entries: u64) -> (Self, Vec<LogChunk>) {
        let (log, logged) = TreeLog::open(pool, owner, entries);
        (Self::over(pool, log), logged)
    }

    fn over(pool: &PoolFile<M>, log: TreeLog<M>) -> Self {
        Self {
            log,
            needed: Needed::new(pool.chunks_max() as usize),
            released: (0..RELEASERS).map(|_| CachePadded::default()).collect(),
            wanted: AtomicU8::default(),
            running: AtomicBool::default(),
            pass: Mutex::default(),
        }
    }

    /// Saves the number of needed entries of each log, after the last write. A running compaction pass is
    /// abandoned: the entries that it has not visited are in normal logs.
    pub fn save(&self, manifest: &mut Manifest) {
        if manifest.is_live() {
            return;
        }
        self.count_all_releases();
        let of_pass = std::mem::take(&mut lock(&self.pass).aside);
        self.log.save(&of_pass, manifest);
        let counts = (0..self.needed.counts.len() as u32).filter_map(|log| {
            let count = self.needed.get(log)?.load(Acquire) & !OLD;
            (count > 0).then_some(u64::from(log) << 32 | u64::from(count))
        });
        manifest.push_all(counts.collect::<Vec<_>>().into_iter());
    }

    /// Takes over the state saved by [`save`](Self::save).
    pub fn resume(
        pool: &Arc<PoolFile<M>>,
        owner: TreeId,
        entries: u64,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let log = Self::over(pool, TreeLog::resume(pool, owner, entries, manifest)?);
        if manifest.is_live() {
            return Some(log);
        }
        for count in manifest.read_all()? {
            log.needed.get((count >> 32) as u32)?.store(*count as u32, Relaxed);
        }
        log.reuse();
        Some(log)
    }

    /// Counts another needed entry of this log.
    pub fn need(&self, version: u32) {
        self.needed.of(version).fetch_add(1, Relaxed);
    }

    /// Empties the logs that are not needed after recovery; the others stay unchanged.
    pub fn keep(&self, chunks: Vec<LogChunk>) {
        self.log.seal(chunks);
        self.reuse();
    }

    /// Records that one entry of each of these logs is no longer needed, because its data are durable elsewhere.
    pub fn release(&self, versions: &[u32]) {
        let Some(own) = own_thread_index().and_then(|index| self.released.get(index)) else {
            return versions.iter().for_each(|version| self.count_released(*version));
        };
        // Only this thread fills places, one after the other, and any thread may empty them. Pairs with
        // `count_releases`.
        let mut next = own.next.load(Relaxed);
        for version in versions {
            if own.places[next].load(Relaxed) != 0 {
                self.count_releases(own);
            }
            own.places[next].store(version + 1, Release);
            next = (next + 1) % RELEASED;
        }
        own.next.store(next, Relaxed);
    }

    /// Counts the deferred releases of all threads.
    pub fn count_all_releases(&self) {
        self.released.iter().for_each(|released| self.count_releases(released));
    }

    fn count_releases(&self, released: &Released) {
        for place in released.places.iter().filter(|place| place.load(Relaxed) != 0) {
            if let Some(version) = place.swap(0, Acquire).checked_sub(1) {
                self.count_released(version);
            }
        }
    }

    fn count_released(&self, version: u32) {
        // Pairs with the other releases: the thread that takes the last one sees all of them.
        if self.needed.of(version).fetch_sub(1, AcqRel) == 1 {
            let _pinned = Self::before_emptying();
            let unneeded = self.log.take_sealed(|id| id == version && self.is_unneeded(id));
            if !unneeded.is_empty() {
                self.log.recycle(unneeded);
            }
        }
    }

    /// Keeps the records of keys that a concurrent compaction pass releases. The pass does not include a log that
    /// another thread is emptying, whose entries refer to such keys until it is durably empty.
    fn before_emptying() -> epoch::Guard {
        epoch::pin()
    }

    pub fn is_unneeded(&self, version: u32) -> bool {
        self.needed.of(version).load(Acquire) == 0
    }

    /// Empties all full logs without needed entries.
    pub fn reuse(&self) {
        self.count_all_releases();
        let _pinned = Self::before_emptying();
        let unneeded = self.log.take_sealed(|id| self.is_unneeded(id));
        if !unneeded.is_empty() {
            self.log.recycle(unneeded);
        }
    }

    pub fn is_old(&self, version: u32) -> bool {
        // A value read without the node's lock may not be the number of a log.
        self.needed.get(version).is_some_and(|needed| needed.load(Relaxed) & OLD != 0)
    }

    /// Returns the number of needed entries of all logs.
    pub fn needed_entries(&self) -> u64 {
        self.count_all_releases();
        self.needed.counts.iter().map(|count| u64::from(count.load(Relaxed) & !OLD)).sum()
    }

    /// Verifies that every log counts as many entries as are buffered.
    pub fn verify<'a>(&self, nodes: impl Iterator<Item = NodeRef<'a>>) -> Option<Issue> {
        self.count_all_releases();
        let mut buffered = std::collections::BTreeMap::<u32, u32>::new();
        nodes.flat_map(NodeRef::all_buffered).for_each(|item| *buffered.entry(item.log).or_default() += 1);
        let count = |log: u32| {
            let (needed, buffered) =
                (self.needed.get(log)?.load(Acquire) & !OLD, buffered.get(&log).copied());
            (needed != buffered.unwrap_or(0)).then_some((log, needed, buffered))
        };
        let (log, needed, buffered) = (0..self.needed.counts.len() as u32).find_map(count)?;
        Some(Issue::new(format!("log {log}"), format!("{needed} entries needed, {buffered:?} buffered")))
    }

    /// Requests a compaction pass.
    pub fn want(&self, pass: u8) {
        self.wanted.fetch_max(pass, Release);
    }

    /// Takes the request for a compaction pass, if there is one.
    pub fn take_wanted(&self) -> Option<u8> {
        let wanted = self.wanted.swap(0, Acquire);
        (wanted > 0).then_some(wanted)
    }

    /// Marks logs whose entries are appended again elsewhere, as they are found.
    pub fn mark_old(&self, logs: &[LogChunk]) {
        logs.iter().for_each(|log| _ = self.needed.of(log.id()).fetch_or(OLD, AcqRel));
    }

    /// Removes these marks.
    pub fn unmark_old(&self, logs: &[LogChunk]) {
        logs.iter().for_each(|log| _ = self.needed.of(log.id()).fetch_and(!OLD, AcqRel));
    }

    /// Returns whether writers must begin or continue a compaction pass.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.wanted.load(Relaxed) > 0 || self.running.load(Relaxed)
    }
}
