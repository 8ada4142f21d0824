//! The log of a tree that buffers: its entries, the keys that only entries refer to, and the space that it returns to
//! a full pool.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use bristlecone_pm::sync::wait::reached;
use bristlecone_pm::sync::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use bristlecone_pm::{
    Log, LogChunk, LogSpot, Manifest, ManifestReader, Medium, PoolFile, TreeId, trace_slow,
};

use super::aside::Aside;
use super::{LeafLayout, Store};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::items::Items;

/// Maximum number of retries of a write without space after the log freed something: other threads may take it first.
const ATTEMPTS: usize = 16;
/// Number of set-aside keys that justifies a compaction pass.
pub const ASIDE_MIN: usize = 1024;
/// Chunks of the pool that a log leaves to others.
pub const RESERVED_CHUNKS: u64 = 2;

/// See the module.
#[derive(Debug)]
pub struct TreeLog<M: Medium> {
    log: Log<M>,
    /// Keys that only log entries refer to.
    aside: Aside,
    /// The copies contain other entries.
    mixed: AtomicBool,
    /// The log reclaim counter: how often the log freed space for a full pool.
    reclaims: AtomicU64,
}

impl<M: Medium> Deref for TreeLog<M> {
    type Target = Log<M>;

    #[inline(always)]
    fn deref(&self) -> &Log<M> {
        &self.log
    }
}

impl<M: Medium> TreeLog<M> {
    /// Takes over the chunks of a tree's log, with `entries` entries each, or with as many as fit.
    pub fn open(pool: &Arc<PoolFile<M>>, owner: TreeId, entries: u64) -> (Self, Vec<LogChunk>) {
        let (log, logged) = Log::open(pool, owner, (entries > 0).then_some(entries as usize));
        let log = Self {
            log,
            aside: Aside::default(),
            mixed: AtomicBool::default(),
            reclaims: AtomicU64::default(),
        };
        (log, logged)
    }

    /// Saves the state that is not in the log itself, after the last write: the epoch number, and the set-aside keys,
    /// including those of a running compaction pass.
    pub fn save(&self, of_pass: &[u64], manifest: &mut Manifest) {
        if manifest.is_live() {
            // Followers read no log.
            return;
        }
        manifest.push(self.log.epoch());
        let mut all = self.aside.keys();
        all.extend(of_pass);
        manifest.push_all(all.into_iter());
    }

    /// Takes over the log of a closed tree, whose chunks accept no more entries.
    pub fn resume(
        pool: &Arc<PoolFile<M>>,
        owner: TreeId,
        entries: u64,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let (log, logged) = Self::open(pool, owner, entries);
        if manifest.is_live() {
            return Some(log);
        }
        log.log.resume(manifest.read()?, logged);
        manifest.read_all()?.iter().for_each(|&key| _ = log.put_aside(key));
        Some(log)
    }

    /// Keeps the record of a key until no valid log entry refers to it. Returns the number of kept records from time to
    /// time.
    pub fn put_aside(&self, key: u64) -> Option<usize> {
        self.aside.put(key)
    }

    /// Returns the number of keys whose records are kept until no valid log entry refers to them.
    pub fn keys_aside(&self) -> usize {
        self.aside.count()
    }

    /// Begins a compaction pass over all buffered items: returns the number of the new epoch, the existing chunks, and
    /// the keys that only these refer to.
    pub fn begin_pass(&self) -> (u64, Vec<LogChunk>, Vec<u64>) {
        reached("log pass");
        let aside = self.aside.take();
        self.mixed.store(false, Relaxed);
        let (epoch, old) = self.log.rotate();
        (epoch, old, aside)
    }

    /// Frees the records of keys that were set aside before a pass: the chunks that referred to them are empty.
    pub fn retire_aside<K: KeyCodec>(&self, of_tree: &Items<K, M>, keys: Vec<u64>) {
        let guard = K::pin();
        self.aside.forget(keys.len());
        keys.into_iter().for_each(|key| of_tree.retire(key, &guard));
    }

    /// Keeps the keys that a pass could not release.
    pub fn put_back_aside(&self, keys: Vec<u64>) {
        self.aside.put_back(keys);
    }

    /// Returns a counter that changes whenever a full pool may have space.
    pub fn reclaims(&self) -> u64 {
        self.reclaims.load(Acquire)
    }

    /// Counts a reclaim of the log.
    pub fn give(&self) {
        self.reclaims.fetch_add(1, Release);
    }

    /// Returns whether a compaction pass would find anything except copies. If the log has no space, it usually would
    /// not, and each write would scan all leaves in that case.
    #[cold]
    pub fn may_give(&self) -> bool {
        self.mixed.load(Relaxed) || self.keys_aside() > 0 || self.log.has_garbage()
    }

    /// Reserves space for an entry behind the copies, if neither the log nor the pool has any other, and the change of
    /// a buffered key must not need more. `pass` is locked while copies are made.
    pub fn reserve_among_copies<T>(&self, pass: &Mutex<T>) -> Option<LogSpot<'_, M>> {
        // No thread is making copies, so everything before the entry is fenced.
        let _pass = pass.try_lock().ok()?;
        let spot = self.log.reserve_copy(|_| false)?;
        self.mixed.store(true, Relaxed);
        Some(spot)
    }

    /// Returns whether the log has freed something since its reclaim counter was `reclaims`: chunks without entries, or
    /// space from compaction `passes`.
    pub fn reclaim(&self, reclaims: u64, passes: impl FnOnce()) -> bool {
        let release = || {
            if self.log.release_free() > 0 {
                self.give();
            }
        };
        trace_slow("a write waits for its tree's log", || {
            release();
            passes();
            release();
        });
        self.reclaims() != reclaims
    }

    #[cfg(test)]
    pub fn is_mixed(&self) -> bool {
        self.mixed.load(Relaxed)
    }
}

/// State of a write that found no space.
pub struct Backoff {
    attempts: usize,
    /// Number of log reclaims left.
    reclaims: usize,
    /// Whether records that readers had released were freed.
    freed: bool,
}

impl Backoff {
    /// Creates the state of a write that reclaims the log at most `reclaims` times, or until that frees nothing.
    pub fn new(reclaims: usize) -> Self {
        Self { attempts: 0, reclaims, freed: false }
    }

    /// Returns whether there may be space now, after a failure when the log's reclaim counter was `reclaims`. Calls
    /// `recount` once, first, and `reclaim` only if no other thread has reclaimed meanwhile.
    #[cold]
    pub fn make_room<L: LeafLayout, K: KeyCodec, M: Medium>(
        &mut self,
        store: &Store<L, K, M>,
        (log, reclaims): (&TreeLog<M>, u64),
        recount: impl FnOnce() -> bool,
        reclaim: impl FnOnce() -> bool,
    ) -> bool {
        self.attempts += 1;
        if self.attempts > ATTEMPTS {
            return false;
        }
        if self.attempts == 1 && recount() {
            return true;
        }
        // If only the log lacks space, no other thread asks the medium.
        if store.pool.retry_growth() || log.reclaims() != reclaims {
            return true;
        }
        if let Some(rest) = self.reclaims.checked_sub(1) {
            // Other threads may take the space that the log frees. A reclaim that frees nothing is the last one.
            let gave = reclaim();
            self.reclaims = if gave { rest } else { 0 };
            if gave {
                return true;
            }
        }
        !std::mem::replace(&mut self.freed, true)
            && store.epochs.free_retired([&store.keys.records, &store.values.records])
    }
}
