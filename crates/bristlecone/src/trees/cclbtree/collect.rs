//! Collecting the log: what is still needed of it is copied to a new one, and the old one is
//! used again. Leaves are not written. Step numbers are those of the story in `mod.rs`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;

use bristlecone_pm::{Durable, Flushed, LOG_ENTRY_BYTES, LogChunk, LogEntry, LogSpot, Medium, Persist};

use super::buffer::Locked;
use super::layout::LEAF_BYTES;
use super::{CclBTree, Core};
use crate::shared::form::{KeyForm, ValueForm};

/// Leaves that the collector looks at between two fences.
const STRIDE: u32 = 256;

/// What is known about a collection, whoever runs it.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// The log is long enough.
    wanted: AtomicBool,
    /// A collection is under way.
    running: AtomicBool,
    round: Mutex<Round>,
    /// Keys that log entries name, but nothing else.
    aside: Mutex<Vec<u64>>,
    /// Keys put aside, those of the round included.
    aside_count: AtomicUsize,
    /// Held for reading by writers, where collection stops them.
    pub stop: RwLock<()>,
}

/// One collection.
#[derive(Debug, Default)]
struct Round {
    epoch: u64,
    /// Buffers `next..end` have not been looked at.
    next: u32,
    end: u32,
    /// Chunks of the old log.
    old: Vec<LogChunk>,
    /// Keys that the old log may name, but not the new one.
    aside: Vec<u64>,
    /// A leaf has something pending of the old log that could go nowhere.
    stuck: bool,
}

impl Collector {
    /// Keeps the record of a key until no log entry that counts names it.
    pub fn put_aside(&self, key: u64) {
        self.aside_count.fetch_add(1, Relaxed);
        lock(&self.aside).push(key);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: KeyForm, V: ValueForm, M: Medium> Core<K, V, M> {
    /// Chunks that the log may fill before it is collected: TH_log, or twice what must be in it
    /// anyway if that is more.
    fn log_chunks_wanted(&self) -> usize {
        let leaves = self.buffers.live() as u64;
        let threshold = leaves * LEAF_BYTES * self.options.log_percent / 100;
        let needed = leaves * self.options.batch * LOG_ENTRY_BYTES as u64;
        let chunk_bytes = ((self.log.chunk_entries() + 1) * LOG_ENTRY_BYTES) as u64;
        (threshold.max(needed) / chunk_bytes).max(1) as usize
    }

    /// Room for a log entry, if there may be another one.
    pub(super) fn reserve_entry(&self) -> Option<LogSpot<'_, M>> {
        let spot = self.log.reserve(|full| {
            let wanted = self.log_chunks_wanted();
            if full >= wanted {
                self.collection.wanted.store(true, Release);
            }
            // While collection lags, writes go to the leaves instead.
            let bounded = self.log.chunks_in_use() < 2 * wanted + 2 * self.log.appenders();
            bounded && (self.log.has_free() || self.has_room_for_leaves(self.leaves_per_chunk()))
        });
        if spot.is_none() {
            self.collection.wanted.store(true, Release);
        }
        spot
    }

    /// Looks at up to `leaves` leaves; begins and ends collections as need be. Whoever comes
    /// second goes away.
    fn collect_some(&self, leaves: u32) {
        let Ok(mut round) = self.collection.round.try_lock() else { return };
        if !self.collection.running.load(Acquire) {
            if !self.collection.wanted.swap(false, Acquire) {
                return;
            }
            self.begin(&mut round);
        }
        let stride = leaves.min(round.end - round.next);
        let mut flushed = Flushed::none();
        for id in round.next..round.next + stride {
            flushed = flushed.and(self.carry_over(id, &mut round));
        }
        // Collect 3: the copies.
        let Durable { .. } = self.medium().fence(flushed, "cclbtree collect.3");
        round.next += stride;
        if round.next == round.end {
            self.finish(&mut round);
        }
    }

    /// Collect 1: a new log begins. Every entry that pends and is of the old one says so.
    fn begin(&self, round: &mut Round) {
        round.epoch += 1;
        round.aside = std::mem::take(&mut lock(&self.collection.aside));
        round.old = self.log.turn(round.epoch);
        // Later buffers begin with the new log.
        (round.next, round.end, round.stuck) = (0, self.buffers.end(), false);
        self.collection.running.store(true, Release);
    }

    /// Collect 2: what pends for a leaf and is in the old log goes to the new one.
    fn carry_over(&self, id: u32, round: &mut Round) -> Flushed {
        let buffer = self.buffers.get(id);
        let mut flushed = Flushed::none();
        let mut leaf = loop {
            // Waits for writers, who may have appended to the old log; later ones cannot.
            let Some(version) = buffer.lock.read() else { return flushed };
            if buffer.state().older_than(round.epoch) == 0 {
                return flushed;
            }
            if let Some(leaf) = buffer.lock_at(version) {
                break leaf;
            }
        };
        let mut state = leaf.state();
        let older = state.older_than(round.epoch);
        for at in (0..state.pending).filter(|at| older >> at & 1 != 0) {
            let Some(spot) = self.log.reserve_copy() else {
                let guards = (K::pin(), V::pin());
                round.stuck |= self.flush(&mut leaf, None, None, &guards).is_err();
                return flushed;
            };
            let (key, value) = leaf.slot(at);
            let removed = state.is_removed(at);
            let entry = LogEntry { sequence: leaf.sequence(), removed, key, value };
            let (epoch, under_way) = spot.append_unfenced(&entry, None);
            flushed = flushed.and(under_way);
            state.set_epoch(at, epoch);
            leaf.set_state(state);
        }
        flushed
    }

    /// Collect 4: nobody needs the old log.
    fn finish(&self, round: &mut Round) {
        let old = std::mem::take(&mut round.old);
        if round.stuck {
            self.log.seal(old);
            lock(&self.collection.aside).append(&mut round.aside);
        } else {
            self.log.recycle(old);
            self.free_keys(&mut round.aside);
        }
        self.collection.running.store(false, Release);
    }

    fn free_keys(&self, keys: &mut Vec<u64>) {
        let guard = K::pin();
        self.collection.aside_count.fetch_sub(keys.len(), Relaxed);
        keys.drain(..).for_each(|key| K::retire(&self.keys, key, &guard));
    }

    /// The naive policy: writers stop, every buffer is flushed, and the log is empty.
    fn collect_all(&self) {
        let _stopped = self.collection.stop.write().unwrap_or_else(PoisonError::into_inner);
        let mut round = lock(&self.collection.round);
        if !self.collection.wanted.swap(false, Acquire) {
            return;
        }
        self.begin(&mut round);
        for id in 0..round.end {
            let buffer = self.buffers.get(id);
            let locked = buffer.lock.read().and_then(|version| buffer.lock_at(version));
            if let Some(mut leaf) = locked.filter(|leaf| leaf.state().pending > 0) {
                round.stuck |= self.flush_pending(&mut leaf);
            }
        }
        round.next = round.end;
        self.finish(&mut round);
    }

    fn flush_pending(&self, leaf: &mut Locked<'_>) -> bool {
        self.flush(leaf, None, None, &(K::pin(), V::pin())).is_err()
    }

    /// The pool is full. Whether the log had anything to give: chunks, or keys that it names.
    pub(super) fn squeeze_log(&self) -> bool {
        let mut gained = self.log.release_free() > 0;
        let worth = self.log.chunks_sealed() > 0 || self.collection.aside_count.load(Relaxed) > 0;
        if worth {
            let before = self.collection.aside_count.load(Relaxed);
            self.collection.wanted.store(true, Release);
            self.collect_now(u32::MAX);
            gained |= self.log.release_free() > 0 || self.collection.aside_count.load(Relaxed) < before;
        }
        gained
    }

    fn collect_now(&self, leaves: u32) {
        if self.options.naive_collection != 0 { self.collect_all() } else { self.collect_some(leaves) }
    }

    fn is_due(&self) -> bool {
        self.collection.wanted.load(Relaxed) || self.collection.running.load(Relaxed)
    }
}

/// The thread that collects in the background. It begins with the first collection and ends with
/// the tree.
#[derive(Debug, Default)]
pub(super) struct Thread {
    shared: Arc<Signal>,
    handle: OnceLock<Option<JoinHandle<()>>>,
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
            // A collector that panicked has left nothing undone that a reopen would not do.
            let _ = handle.join();
        }
    }
}

impl<K: KeyForm, V: ValueForm, M: Medium> CclBTree<K, V, M> {
    /// What a writer does for the log when its own work is done.
    #[inline(always)]
    pub(super) fn after_write(&self) {
        if self.is_due() {
            self.see_to_the_log();
        }
    }

    #[cold]
    fn see_to_the_log(&self) {
        let in_background = self.options.collector_threads != 0 && self.in_background();
        if !in_background {
            // So many that a collection is over before half of a chunk is full.
            let pace = 2 * u64::from(self.buffers.end()) / self.log.chunk_entries() as u64 + 2;
            self.collect_now(pace as u32);
        } else if self.collection.wanted.load(Relaxed) {
            let mut asked = lock(&self.collector.shared.asked);
            if !asked.collect {
                asked.collect = true;
                self.collector.shared.bell.notify_all();
            }
        }
    }

    /// Whether there is a collector, which begins now if it has not yet.
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

/// The collector's life.
fn run<K: KeyForm, V: ValueForm, M: Medium>(core: &Weak<Core<K, V, M>>, signal: &Signal) {
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
            if !core.is_due() || lock(&signal.asked).end {
                break;
            }
            core.collect_now(STRIDE);
        }
    }
}
