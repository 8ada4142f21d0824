//! Collecting the log: the entries that are still needed are copied to a new log, and the old one is reused. Leaves
//! are not written. Step numbers are those of the protocol in `mod.rs`.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock, RwLockWriteGuard, Weak};
use std::thread::JoinHandle;

use bristlecone_pm::sync::epoch;
use bristlecone_pm::sync::wait::{self, lock};
use bristlecone_pm::sync::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use bristlecone_pm::{Copies, Durable, LOG_ENTRY_BYTES, LogChunk, LogSpot, Medium, Persist};

use super::layout::LEAF_BYTES;
use super::room::Promise;
use super::{CclBTree, Core};
use crate::index::options::experimental;
use crate::index::parts::buffered::{ASIDE_MIN, Item, RESERVED_CHUNKS};
use crate::index::parts::codec::KeyCodec;

/// Number of leaves inspected between two fences.
const STRIDE: u32 = 256;
/// Number of set-aside keys per leaf that justifies a collection: as many as the log has entries when it is
/// collected.
const ASIDE_A_LEAF: usize = 4;

/// State of the collection, independent of the thread that runs it.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// The log has reached the size for a collection.
    wanted: AtomicBool,
    /// A collection is running.
    running: AtomicBool,
    /// The log grows although it should be collected: writers help.
    lagging: AtomicBool,
    round: Mutex<Round>,
    /// Held for reading by writers, if collection stops them.
    pub stop: RwLock<()>,
}

/// One collection.
#[derive(Debug, Default)]
struct Round {
    /// The epoch of the new log.
    epoch: u64,
    /// Buffers `next..end` have not been inspected.
    next: u32,
    end: u32,
    /// Chunks of the old log.
    old: Vec<LogChunk>,
    /// Keys that the old log may refer to, but not the new one.
    aside: Vec<u64>,
}

/// There is no space for pending items of a leaf that are in the old log: the pool and the spare chunk are full. The
/// collection continues with this leaf later.
struct Stuck;

impl Collector {
    /// Prevents collection until the result is dropped. A collector may sleep in the middle of its work.
    pub fn hold(&self) -> impl Drop {
        lock(&self.round)
    }

    fn is_due(&self) -> bool {
        self.wanted.load(Relaxed) || self.running.load(Relaxed)
    }
}

impl<K: KeyCodec, M: Medium> Core<K, M> {
    /// Returns the number of chunks that the log may fill before it is collected: TH_log, or twice the necessary size
    /// if that is larger, but at most a quarter of the pool.
    pub(super) fn log_chunks_wanted(&self) -> usize {
        let leaves = self.buffers.live() as u64;
        let threshold = leaves * LEAF_BYTES * self.options.log_percent / 100;
        let needed = leaves * self.options.batch * LOG_ENTRY_BYTES as u64;
        let chunk_bytes = ((self.log.chunk_entries() + 1) * LOG_ENTRY_BYTES) as u64;
        (threshold.max(needed) / chunk_bytes).min(self.pool.chunks_max() / 4).max(1) as usize
    }

    /// Reserves space for a log entry, if the log may grow.
    #[inline(always)]
    pub(super) fn reserve_entry(&self) -> Option<LogSpot<'_, M>> {
        let mut promise = None;
        let spot = self.log.reserve(|full| {
            let wanted = self.log_chunks_wanted();
            if full >= wanted {
                self.collection.wanted.store(true, Release);
            }
            if full > wanted + wanted / 4 {
                self.collection.lagging.store(true, Release);
            }
            // While collection lags, writes bypass the log and go to the leaves.
            let bounded = self.log.chunks_in_use() <= wanted + wanted / 2 + 2 * self.log.appenders();
            bounded && self.log_may_grow(RESERVED_CHUNKS, &mut promise)
        });
        if spot.is_none() && self.log.may_give() {
            self.collection.wanted.store(true, Release);
            self.collection.lagging.store(true, Release);
        }
        spot
    }

    /// Records that no leaf holds a key any more. Its record is kept until no valid log entry refers to it.
    pub(super) fn let_go_of_key(&self, key: u64) {
        if self.buffers.batch() == 0 {
            // There is no log.
            return self.keys.retire(key, &K::pin());
        }
        let most = || ASIDE_MIN.max(ASIDE_A_LEAF * self.buffers.live());
        let is_enough = self.log.put_aside(key).is_some_and(|aside| aside >= most());
        if is_enough && !self.collection.running.load(Relaxed) {
            self.collection.wanted.store(true, Release);
        }
    }

    /// Reserves space for an entry behind the copies: see
    /// [`TreeLog::reserve_among_copies`](crate::index::parts::buffered::TreeLog).
    pub(super) fn reserve_among_copies(&self) -> Option<LogSpot<'_, M>> {
        self.log.reserve_among_copies(&self.collection.round)
    }

    /// Returns whether there is a chunk for the log that no leaf needs.
    fn log_may_grow<'a>(&'a self, spared: u64, promise: &mut Option<Promise<'a>>) -> bool {
        let free = self.log.chunks_free() as u64;
        if self.pool.chunks_available() + free <= spared {
            return false;
        }
        // The log allocates two chunks before the first entry.
        *promise = self.promise(2 * self.leaves_per_chunk());
        free > 1 || promise.is_some()
    }

    /// Inspects up to `leaves` leaves; begins and ends collections as necessary. Returns immediately if another
    /// thread is collecting. Returns whether there is more to do.
    pub(super) fn collect_some(&self, leaves: u32) -> bool {
        let _stopped = self.stop_writers();
        let Ok(mut round) = self.collection.round.try_lock() else { return false };
        if !self.collection.running.load(Acquire) {
            if !self.collection.wanted.swap(false, Acquire) {
                return false;
            }
            self.begin(&mut round);
        }
        let leaves = if self.is_naive() { u32::MAX } else { leaves };
        self.look(&mut round, leaves).is_ok() && self.collection.is_due()
    }

    /// Ends the running collection, if there is one, and runs another one, unless the log has freed something
    /// meanwhile. Waits for the thread that collects.
    fn collect_whole(&self, reclaims: u64) {
        let _stopped = self.stop_writers();
        let mut round = lock(&self.collection.round);
        while self.log.reclaims() == reclaims {
            if !self.collection.running.load(Acquire) {
                if !self.log.may_give() {
                    return;
                }
                self.begin(&mut round);
            }
            if self.look(&mut round, u32::MAX).is_err() {
                return;
            }
        }
    }

    /// Stops all writers until the result is dropped, under the naive policy.
    fn stop_writers(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.is_naive().then(|| wait::write(&self.collection.stop))
    }

    pub(super) fn is_naive(&self) -> bool {
        experimental(self.options.naive_collection, 0) != 0
    }

    /// Collect 1: begins a new log. Every pending entry of the old one is marked so by its epoch.
    fn begin(&self, round: &mut Round) {
        self.collection.wanted.store(false, Release);
        (round.epoch, round.old, round.aside) = self.log.begin_pass();
        // Later buffers begin with the new log.
        (round.next, round.end) = (0, self.buffers.end());
        self.collection.running.store(true, Release);
    }

    /// Collect 2 and 3 for up to `leaves` leaves; and 4 after the last one.
    fn look(&self, round: &mut Round, leaves: u32) -> Result<(), Stuck> {
        let end = round.next.saturating_add(leaves).min(round.end);
        while round.next < end {
            let mut copies = self.log.copies();
            let stride = end.min(round.next + STRIDE);
            let mut stuck = None;
            while round.next < stride && stuck.is_none() {
                match self.carry_over(round.next, round.epoch, &mut copies) {
                    Ok(()) => round.next += 1,
                    Err(why) => stuck = Some(why),
                }
            }
            // Collect 3: the copies.
            let Durable { .. } = self.medium().fence(copies.flush(), "cclbtree collect.3");
            stuck.map_or(Ok(()), Err)?;
        }
        if round.next == round.end {
            self.finish(round);
        }
        Ok(())
    }

    /// Collect 2: copies a leaf's pending entries from the old log to the new one; or flushes them to the leaf, if
    /// that is the policy, or if the new log is already long.
    fn carry_over(&self, id: u32, epoch: u64, copies: &mut Copies<'_, M>) -> Result<(), Stuck> {
        let buffer = self.buffers.get(id);
        let mut leaf = loop {
            // Wait for writers, which may have appended to the old log; later ones cannot.
            let Some(version) = buffer.lock.read() else { return Ok(()) };
            if buffer.state().older_than(epoch) == 0 {
                return Ok(());
            }
            if let Some(leaf) = buffer.lock_at(version) {
                break leaf;
            }
        };
        let mut state = leaf.state();
        let older = state.older_than(epoch);
        for at in (0..state.pending).filter(|at| older >> at & 1 != 0) {
            let mut promise = None;
            let more = |full| full < self.log_chunks_wanted() && self.log_may_grow(0, &mut promise);
            if self.is_naive() || !copies.reserve(more) {
                if self.flush_pending(&mut leaf).is_ok() {
                    return Ok(());
                }
                if !copies.draw_on_reserve() {
                    return Err(Stuck);
                }
            }
            let (key, value) = leaf.slot(at);
            let item = Item { key, value, removed: state.is_removed(at) };
            state.set_epoch(at, copies.append(&item.entry(leaf.sequence())));
            leaf.set_state(state);
        }
        Ok(())
    }

    /// Collect 4: the old log is no longer needed.
    fn finish(&self, round: &mut Round) {
        self.log.recycle(std::mem::take(&mut round.old));
        self.log.retire_aside::<K>(&self.keys, std::mem::take(&mut round.aside));
        self.collection.lagging.store(false, Release);
        self.collection.running.store(false, Release);
        self.log.give();
    }

    /// Abandons a running collection because the tree is being closed: the next open treats all chunks of the log,
    /// and all pending items, alike. Returns the keys that the old chunks may refer to.
    pub(super) fn of_collection(&self) -> Vec<u64> {
        let mut round = lock(&self.collection.round);
        if self.collection.running.load(Acquire) {
            self.buffers.set_epochs(self.log.epoch());
        }
        std::mem::take(&mut round.aside)
    }

    /// Returns whether the log has freed something since its reclaim counter was `reclaims`, by a whole collection if
    /// necessary.
    pub(super) fn reclaim_log(&self, reclaims: u64) -> bool {
        self.log.reclaim(reclaims, || self.collect_whole(reclaims))
    }
}

/// The thread that collects in the background. It starts with the first collection and ends with the tree.
#[derive(Debug, Default)]
pub(super) struct Thread {
    shared: Arc<Signal>,
    pub(super) handle: OnceLock<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Signal {
    asked: Mutex<Asked>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    collect: bool,
    end: bool,
}

impl Drop for Thread {
    fn drop(&mut self) {
        lock(&self.shared.asked).end = true;
        self.shared.bell.notify_all();
        if let Some(Some(handle)) = self.handle.take() {
            // A collector that panicked left only work that a reopen would complete.
            let _ = handle.join();
        }
    }
}

impl<K: KeyCodec, M: Medium> CclBTree<K, M> {
    /// Does a writer's share of log maintenance before its own work: the write's result is then returned as soon as
    /// possible, without waiting for its fence.
    #[inline(always)]
    pub(super) fn before_write(&self) -> &Core<K, M> {
        if self.collection.is_due() {
            self.help_log();
        }
        &self.core
    }

    #[cold]
    fn help_log(&self) {
        let in_background = experimental(self.options.collector_threads, 1) != 0 && self.in_background();
        if in_background && self.collection.wanted.load(Relaxed) {
            let mut asked = lock(&self.collector.shared.asked);
            if !asked.collect {
                asked.collect = true;
                self.collector.shared.bell.notify_all();
            }
        }
        if !in_background || self.collection.lagging.load(Relaxed) {
            // Enough that a collection ends before half of a chunk is full.
            let pace = 2 * u64::from(self.buffers.end()) / self.log.chunk_entries() as u64 + 2;
            self.collect_some(pace as u32);
        }
    }

    /// Returns whether there is a collector thread, and starts it if necessary.
    fn in_background(&self) -> bool {
        self.collector
            .handle
            .get_or_init(|| {
                let (core, signal) = (Arc::downgrade(&self.core), Arc::clone(&self.collector.shared));
                let named = std::thread::Builder::new().name("bristlecone-log".to_owned());
                named.spawn(move || run(&core, &signal)).ok()
            })
            .is_some()
    }
}

/// Collects whenever necessary, until the tree is dropped.
fn run<K: KeyCodec, M: Medium>(core: &Weak<Core<K, M>>, signal: &Signal) {
    loop {
        {
            let mut asked = lock(&signal.asked);
            while !asked.collect && !asked.end {
                asked = signal.bell.wait(asked).unwrap_or_else(PoisonError::into_inner);
            }
            if asked.end {
                return;
            }
            asked.collect = false;
        }
        loop {
            let Some(core) = core.upgrade() else { return };
            if lock(&signal.asked).end || !core.collect_some(STRIDE) {
                break;
            }
        }
        // Do not hold retired memory while this thread sleeps.
        epoch::pin().flush();
    }
}
