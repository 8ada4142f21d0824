//! The log of a tree that buffers: its entries, the keys that only they name, and what it gives back to a pool that
//! is full.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use bristlecone_pm::sync::wait::{lock, reached};
use bristlecone_pm::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use bristlecone_pm::{
    Log, LogChunk, LogSpot, Medium, Notes, NotesReader, PoolFile, Records, TreeId, told_if_long,
};

use super::{LeafLayout, Store};
use crate::index::parts::codec::{Codec, KeyCodec};

/// How often a write that found no room tries again with what others, or itself, got back from the log: still
/// others may take it first.
const ATTEMPTS: usize = 16;
/// Keys that are put aside before that is worth a compaction pass.
pub const ASIDE_MIN: usize = 1024;
/// Chunks of the pool that a log leaves to others.
pub const RESERVED_CHUNKS: u64 = 2;

/// See the module.
#[derive(Debug)]
pub struct TreeLog<M: Medium> {
    log: Log<M>,
    /// Keys that log entries name, but nothing else.
    aside: Mutex<Vec<u64>>,
    /// Keys put aside, those of a compaction pass included.
    aside_count: AtomicUsize,
    /// Among the copies stand other entries.
    mixed: AtomicBool,
    /// How often the log gave something back that the pool was short of.
    gifts: AtomicU64,
}

impl<M: Medium> Deref for TreeLog<M> {
    type Target = Log<M>;

    #[inline(always)]
    fn deref(&self) -> &Log<M> {
        &self.log
    }
}

impl<M: Medium> TreeLog<M> {
    /// Takes over the chunks of a tree's log, of `entries` entries each, or of as many as they have room for.
    pub fn open(pool: &Arc<PoolFile<M>>, owner: TreeId, entries: u64) -> (Self, Vec<LogChunk>) {
        let (log, logged) = Log::open(pool, owner, (entries > 0).then_some(entries as usize));
        let log = Self {
            log,
            aside: Mutex::default(),
            aside_count: AtomicUsize::default(),
            mixed: AtomicBool::default(),
            gifts: AtomicU64::default(),
        };
        (log, logged)
    }

    /// Notes what is not in the log itself, once no thread writes any more: the number of its epoch, and the keys that
    /// were put aside, those of a compaction pass that is under way included.
    pub fn suspend(&self, of_pass: &[u64], notes: &mut Notes) {
        if notes.are_live() {
            // Followers read no log.
            return;
        }
        notes.push(self.log.epoch());
        let aside = lock(&self.aside);
        let all: Vec<u64> = aside.iter().chain(of_pass).copied().collect();
        notes.push_all(all.into_iter());
    }

    /// Takes over the log of a tree that was closed, whose chunks take no more entries.
    pub fn resume(
        pool: &Arc<PoolFile<M>>,
        owner: TreeId,
        entries: u64,
        notes: &mut NotesReader<'_>,
    ) -> Option<Self> {
        let (log, logged) = Self::open(pool, owner, entries);
        if notes.are_live() {
            return Some(log);
        }
        log.log.resume(notes.read()?, logged);
        notes.read_all()?.iter().for_each(|&key| _ = log.put_aside(key));
        Some(log)
    }

    /// Keeps the record of a key until no log entry that counts names it; returns how many are kept.
    pub fn put_aside(&self, key: u64) -> usize {
        let before = self.aside_count.fetch_add(1, Relaxed);
        lock(&self.aside).push(key);
        before + 1
    }

    /// Returns how many keys' records wait until no log entry that counts names them.
    pub fn keys_aside(&self) -> usize {
        self.aside_count.load(Relaxed)
    }

    /// Begins a compaction pass over everything that is buffered: returns the number of the epoch that begins, the
    /// chunks so far, and the keys that only they name.
    pub fn begin_pass(&self) -> (u64, Vec<LogChunk>, Vec<u64>) {
        reached("log pass");
        let aside = std::mem::take(&mut *lock(&self.aside));
        self.mixed.store(false, Relaxed);
        let (epoch, old) = self.log.rotate();
        (epoch, old, aside)
    }

    /// Frees the records of keys that were put aside before a pass: the chunks that named them are empty.
    pub fn retire_aside<K: KeyCodec>(&self, records: &Records<M>, keys: Vec<u64>) {
        let guard = K::pin();
        self.aside_count.fetch_sub(keys.len(), Relaxed);
        keys.into_iter().for_each(|key| K::retire(records, key, &guard));
    }

    /// Keeps what a pass could not let go of.
    pub fn put_back_aside(&self, mut keys: Vec<u64>) {
        lock(&self.aside).append(&mut keys);
    }

    /// Returns a number that changes whenever there may be room in a pool that was full.
    pub fn gifts(&self) -> u64 {
        self.gifts.load(Acquire)
    }

    /// Counts that the log gave something back.
    pub fn give(&self) {
        self.gifts.fetch_add(1, Release);
    }

    /// Returns whether a compaction pass would find anything but copies. Where there is no room for a log there
    /// mostly is nothing, and each write would look for it at all leaves.
    #[cold]
    pub fn may_give(&self) -> bool {
        self.mixed.load(Relaxed) || self.keys_aside() > 0 || self.log.has_garbage()
    }

    /// Reserves room for an entry behind the copies, where the log and the pool have no other and the change of a
    /// key that is buffered must not need any. `pass` is locked while copies are made.
    pub fn reserve_among_copies<T>(&self, pass: &Mutex<T>) -> Option<LogSpot<'_, M>> {
        // What stands before the entry is fenced, because no thread is making copies.
        let _pass = pass.try_lock().ok()?;
        let spot = self.log.reserve_copy(|_| false)?;
        self.mixed.store(true, Relaxed);
        Some(spot)
    }

    /// Returns whether the log has given something back since it had given `gifts`: chunks without entries, or what
    /// compaction `passes` got out of it.
    pub fn reclaim(&self, gifts: u64, passes: impl FnOnce()) -> bool {
        let release = || {
            if self.log.release_free() > 0 {
                self.give();
            }
        };
        told_if_long("a write waits for its tree's log", || {
            release();
            passes();
            release();
        });
        self.gifts() != gifts
    }

    #[cfg(test)]
    pub fn is_mixed(&self) -> bool {
        self.mixed.load(Relaxed)
    }
}

/// What a write that found no room has done about it.
pub struct Relief {
    attempts: usize,
    /// How often the log may still be reclaimed.
    reclaims: usize,
    /// Records that readers had let go of are free.
    freed: bool,
}

impl Relief {
    /// Begins for a write that reclaims the log until that gives nothing, or so often.
    pub fn new(reclaims: usize) -> Self {
        Self { attempts: 0, reclaims, freed: false }
    }

    /// Returns whether there may be room by now, where there was none when the log had given `gifts`. `recount` is
    /// tried once, first; `reclaim` where others have given nothing back meanwhile.
    #[cold]
    pub fn gain_room<L: LeafLayout, K: KeyCodec, V: Codec, M: Medium>(
        &mut self,
        store: &Store<L, K, V, M>,
        (log, gifts): (&TreeLog<M>, u64),
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
        // Where nothing but the log is short of room, no other thread asks the medium.
        if store.pool.retry_growth() || log.gifts() != gifts {
            return true;
        }
        if let Some(rest) = self.reclaims.checked_sub(1) {
            // Others may take what the log gives; a time that gives nothing is the last.
            let gave = reclaim();
            self.reclaims = if gave { rest } else { 0 };
            if gave {
                return true;
            }
        }
        !std::mem::replace(&mut self.freed, true) && store.epochs.free_retired([&store.keys, &store.values])
    }
}
