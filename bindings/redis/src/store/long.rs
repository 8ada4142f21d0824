//! Changes of thousands of fields, which a thread makes while the server serves other maps.
//!
//! The server's main thread begins a job and ends it; a thread carries it out in between. Until its end nothing else reads or writes
//! the maps of the job: clients that ask for one wait. So no client sees a part of it.
//!
//! - A **removal** finds its first and its last field, notes them in the pool, and removes what is between them. A crash after the
//!   note leaves the rest to the next start. A removal of all fields notes nothing: the key is removed at its end.
//! - A **copy** is noted when its command is carried out: it is acknowledged then. The next start continues what a crash has
//!   interrupted. The map that is copied cannot change meanwhile, and its items stay, even if its key is removed.
//!
//! A child of the server saves a map without the fields that are being removed, and a copy as the map that it is copied from.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use bristlecone::{Error, Result};

use super::{Bounds, ID_BYTES, Note, Store, all_of, borrowed, damaged, lock, number};

/// Items that a slice removes or copies.
const SLICE: usize = 256;
/// How long a job waits for room in a full pool before it tries again.
const ROOM_AFTER: Duration = Duration::from_millis(50);

/// Jobs that have not ended.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Removes fields of a map.
    Remove(u64),
    /// Copies all fields of a map to a new one.
    Copy {
        /// The map that is copied.
        from: u64,
        /// The new one.
        to: u64,
    },
}

/// A change that a thread makes.
#[derive(Debug)]
pub struct Job {
    task: Task,
    /// What a removal removes, once it is noted.
    bounds: OnceLock<Bounds>,
    is_done: Mutex<bool>,
    done: Condvar,
    /// The pool has no room for the rest.
    is_stuck: AtomicBool,
    /// The map that is copied is damaged: its copy is not served.
    failed: OnceLock<String>,
}

impl Job {
    fn new(task: Task) -> Arc<Self> {
        let (is_done, done, is_stuck) = (Mutex::new(false), Condvar::new(), AtomicBool::new(false));
        Arc::new(Self { task, bounds: OnceLock::new(), is_done, done, is_stuck, failed: OnceLock::new() })
    }

    /// Returns what it does.
    pub fn task(&self) -> Task {
        self.task
    }

    /// Returns whether it reads or writes a map.
    pub fn has(&self, id: u64) -> bool {
        match self.task {
            Task::Remove(of) => of == id,
            Task::Copy { from, to } => to == id || from == id && self.failed.get().is_none(),
        }
    }

    /// Notes that the copied map is damaged. The copy is not served from then on, in place of one without some fields.
    pub fn fail(&self, error: &Error) {
        _ = self.failed.set(error.to_string());
        self.done.notify_all();
    }

    /// Returns whether the thread has done its part.
    pub fn is_done(&self) -> bool {
        *lock(&self.is_done)
    }

    /// Returns whether it waits for room in the pool, or has failed.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed) || self.failed.get().is_some()
    }

    /// Notes that the thread has done its part.
    pub fn set_done(&self) {
        *lock(&self.is_done) = true;
        self.done.notify_all();
    }

    /// Waits until the thread has done its part.
    ///
    /// # Errors
    ///
    /// [`Error::PoolFull`] if it waits for room, [`Error::Corrupted`] if it has failed.
    pub fn wait(&self, store: &Store) -> Result<()> {
        let mut is_done = lock(&self.is_done);
        while !*is_done {
            if let Some(why) = self.failed.get() {
                return Err(damaged(&format!("a copy of a damaged map ({why})")));
            }
            if self.is_stuck() {
                return Err(store.full());
            }
            let waited = self.done.wait_timeout(is_done, ROOM_AFTER);
            is_done = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        Ok(())
    }
}

/// What a child of the server must know of open jobs.
#[derive(Clone, Debug, Default)]
pub struct Unfinished(Vec<(Task, Option<Bounds>)>);

impl Unfinished {
    /// Returns which map has the items of a map.
    pub fn source_of(&self, id: u64) -> u64 {
        let copy = self.0.iter().find_map(|(task, _)| match task {
            Task::Copy { from, to } if *to == id => Some(*from),
            _ => None,
        });
        copy.unwrap_or(id)
    }

    /// Returns whether an item is being removed.
    pub fn removes(&self, key: &[u8]) -> bool {
        self.0.iter().any(|(_, bounds)| bounds.as_ref().is_some_and(|bounds| is_within(key, bounds)))
    }
}

fn is_within(key: &[u8], (from, to): &Bounds) -> bool {
    matches!((from, to), (Bound::Included(from), Bound::Included(to)) if (from.as_slice()..=to).contains(&key))
}

impl Store {
    fn full(&self) -> Error {
        Error::PoolFull { max_bytes: self.max_bytes() }
    }

    /// Returns the job that a map belongs to.
    pub fn job_of(&self, id: u64) -> Option<Arc<Job>> {
        if OPEN.load(Ordering::Relaxed) == 0 {
            return None;
        }
        lock(&self.jobs).iter().find(|job| job.has(id)).cloned()
    }

    /// Returns all jobs whose part of the main thread is left.
    pub fn done_jobs(&self) -> Vec<Arc<Job>> {
        if OPEN.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        lock(&self.jobs).iter().filter(|job| job.is_done()).cloned().collect()
    }

    /// Returns all jobs.
    pub fn open_jobs(&self) -> Vec<Arc<Job>> {
        if OPEN.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        lock(&self.jobs).clone()
    }

    /// Returns what a child that was forked a moment ago must know, whose snapshot is older.
    pub fn unfinished(&self) -> Unfinished {
        Unfinished(lock(&self.jobs).iter().map(|job| (job.task, job.bounds.get().cloned())).collect())
    }

    /// Returns whether a thread reads or writes the items of a map now.
    pub(super) fn is_in_use(&self, id: u64) -> bool {
        self.job_of(id).is_some_and(|job| !job.is_done() && job.failed.get().is_none())
    }

    /// Begins a removal from a map.
    pub fn begin_removal(&self, id: u64) -> Arc<Job> {
        self.open_job(Task::Remove(id))
    }

    /// Begins a copy of a map to one that no key has yet.
    ///
    /// # Errors
    ///
    /// Those of a write.
    pub fn begin_copy(&self, from: u64, to: u64) -> Result<Arc<Job>> {
        self.with_room(|| self.meta.upsert(&Note::Copying(to).key(), &from.to_be_bytes()))?;
        Ok(self.open_job(Task::Copy { from, to }))
    }

    fn open_job(&self, task: Task) -> Arc<Job> {
        let job = Job::new(task);
        lock(&self.jobs).push(Arc::clone(&job));
        OPEN.fetch_add(1, Ordering::Relaxed);
        job
    }

    /// Ends a job that is done, or that has changed nothing: other commands may use its maps again.
    pub fn end_job(&self, job: &Arc<Job>) -> Result<()> {
        let mut jobs = lock(&self.jobs);
        let Some(at) = jobs.iter().position(|open| Arc::ptr_eq(open, job)) else { return Ok(()) };
        jobs.remove(at);
        OPEN.fetch_sub(1, Ordering::Relaxed);
        drop(jobs);
        let note = match job.task {
            Task::Remove(_) if job.bounds.get().is_none() => return Ok(()),
            Task::Remove(id) => Note::Removing(id),
            Task::Copy { to, .. } => Note::Copying(to),
        };
        self.meta.remove(&note.key()).map(drop)
    }

    /// Removes all fields of a map from one to another. For a thread.
    ///
    /// # Errors
    ///
    /// Those of a write. Nothing has changed if there is no room for the note; the next start removes the rest otherwise.
    pub fn remove_between(&self, job: &Job, from: Vec<u8>, to: Vec<u8>) -> Result<()> {
        let Task::Remove(id) = job.task else { return Ok(()) };
        let value = [&(from.len() as u32).to_be_bytes(), from.as_slice(), &to].concat();
        self.with_reserve(|| self.meta.upsert(&Note::Removing(id).key(), &value))?;
        let bounds = job.bounds.get_or_init(|| (Bound::Included(from), Bound::Included(to)));
        self.remove_within(bounds)
    }

    fn remove_within(&self, bounds: &Bounds) -> Result<()> {
        loop {
            let keys = self.items.range(borrowed(bounds)).take(SLICE).map(|item| item.map(|(key, _)| key));
            let keys: Vec<Vec<u8>> = keys.collect::<Result<_>>()?;
            for key in &keys {
                self.items.remove(key)?;
            }
            if keys.len() < SLICE {
                break;
            }
            std::thread::yield_now();
        }
        while self.remove_times(bounds, SLICE)? == SLICE {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Copies what a copy has not copied yet. For a thread. It waits for room.
    ///
    /// # Errors
    ///
    /// Those of a read.
    pub fn copy_rest(&self, job: &Job) -> Result<()> {
        let Task::Copy { from, to } = job.task else { return Ok(()) };
        loop {
            match self.copy_between(from, to) {
                Err(error) if error.is_no_room() => {
                    job.is_stuck.store(true, Ordering::Relaxed);
                    std::thread::sleep(ROOM_AFTER);
                }
                done => {
                    job.is_stuck.store(false, Ordering::Relaxed);
                    return done;
                }
            }
        }
    }

    fn copy_between(&self, from: u64, to: u64) -> Result<()> {
        // No field is there without its time.
        self.copy_times(from, to)?;
        let mut rest = all_of(from);
        // Items are copied in their order.
        if let Some(last) = self.items_of(to).next_back() {
            let field = last?.0.split_off(ID_BYTES);
            rest.0 = Bound::Excluded(super::item_key(from, &field));
        }
        let mut items = self.items.range(borrowed(&rest));
        loop {
            let slice: Vec<_> = items.by_ref().take(SLICE).collect::<Result<_>>()?;
            // One by one: a batch would let the writes of other clients wait for its locks.
            for (key, value) in &slice {
                self.items.upsert(&super::item_key(to, &key[ID_BYTES..]), value)?;
            }
            if slice.len() < SLICE {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    /// Finishes what a crash has interrupted.
    pub(super) fn finish_removal(&self, id: u64, value: &[u8]) -> Result<()> {
        let short = || damaged("a removal");
        let (len, rest) = value.split_first_chunk().ok_or_else(short)?;
        let (from, to) = rest.split_at_checked(u32::from_be_bytes(*len) as usize).ok_or_else(short)?;
        self.remove_within(&(Bound::Included(from.to_vec()), Bound::Included(to.to_vec())))?;
        self.meta.remove(&Note::Removing(id).key()).map(drop)
    }

    /// Does the same for a copy whose key exists: a thread continues it once the server serves.
    pub(super) fn find_copy(&self, to: u64, from: &[u8], is_attached: bool) -> Result<()> {
        let from = number(from)?;
        if !is_attached {
            return self.meta.remove(&Note::Copying(to).key()).map(drop);
        }
        self.open_job(Task::Copy { from, to });
        Ok(())
    }
}
