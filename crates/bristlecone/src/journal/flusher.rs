//! The thread that makes entries durable for those that do not wait: at intervals, and for tickets that are awaited.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::{Error, Result};

use super::{Durability, Journal};

/// The thread, and what it is asked for. It starts with the first request.
#[derive(Debug, Default)]
pub struct Flusher {
    asked: Arc<(Mutex<Asked>, Condvar)>,
    /// Set while a sync is due of which the writes of a pool need no other one.
    is_due: AtomicBool,
}

#[derive(Debug, Default)]
struct Asked {
    /// When the entries must be synced at the latest.
    due: Option<Instant>,
    /// Tasks that wait for an LSN.
    tasks: Vec<(u64, Waker)>,
    is_started: bool,
    is_ended: bool,
}

impl Journal {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn start_flusher(&self) -> Result<()> {
        self.ask(|_| false)
    }

    /// Has entries up to an LSN synced after a time, by the thread.
    ///
    /// # Errors
    ///
    /// [`Error::DurabilityLost`] if there is no thread, and this one could not sync them.
    #[inline]
    pub fn sync_within(&self, time: Duration, lsn: u64) -> Result<()> {
        // SeqCst, as the reservation of the entry: a thread that clears the flag sees the reservation, or this thread
        // sees the cleared flag.
        let is_usual = Durability::Interval(time) == self.durability;
        if is_usual && (self.flusher.is_due.load(SeqCst) || self.flusher.is_due.swap(true, SeqCst)) {
            return Ok(());
        }
        self.ask_within(time, lsn)
    }

    #[cold]
    fn ask_within(&self, time: Duration, lsn: u64) -> Result<()> {
        // A time that is no instant never comes.
        let Some(due) = Instant::now().checked_add(time) else { return Ok(()) };
        let asked = self.ask(|asked| {
            let is_earlier = asked.due.is_none_or(|earlier| due < earlier);
            if is_earlier {
                asked.due = Some(due);
            }
            is_earlier
        });
        asked.or_else(|_| self.wait_durable(lsn))
    }

    /// Has entries up to an LSN synced now, and then wakes a task.
    ///
    /// # Errors
    ///
    /// Errors of the system if the thread cannot be started.
    pub fn wake_once_durable(&self, lsn: u64, task: &Waker) -> Result<()> {
        self.ask(|asked| {
            match asked.tasks.iter_mut().find(|(_, known)| known.will_wake(task)) {
                Some((last, _)) => *last = lsn.max(*last),
                None => asked.tasks.push((lsn, task.clone())),
            }
            true
        })
    }

    /// `change` returns whether the thread must look at what it is asked for.
    fn ask(&self, change: impl FnOnce(&mut Asked) -> bool) -> Result<()> {
        let mut asked = lock(&self.flusher.asked.0);
        if !asked.is_started {
            let (journal, own) = (self.own.clone(), Arc::clone(&self.flusher.asked));
            let thread = std::thread::Builder::new().name("bristlecone-journal".to_owned());
            thread
                .spawn(move || run(&journal, &own))
                .map_err(|error| Error::io("starting the thread that syncs the journal", error))?;
            asked.is_started = true;
        }
        if change(&mut asked) {
            self.flusher.asked.1.notify_one();
        }
        Ok(())
    }
}

impl Drop for Flusher {
    /// Ends the thread.
    fn drop(&mut self) {
        lock(&self.asked.0).is_ended = true;
        self.asked.1.notify_one();
    }
}

fn run(journal: &Weak<Journal>, (asked, changed): &(Mutex<Asked>, Condvar)) {
    while let Some(tasks) = next(asked, changed) {
        // Without the lock: writers and tasks ask for more meanwhile.
        let Some(journal) = journal.upgrade() else { return };
        // The tasks see a failure themselves.
        let _ = match tasks.iter().map(|(lsn, _)| *lsn).max() {
            Some(lsn) => journal.wait_durable(lsn),
            None => {
                journal.flusher.is_due.store(false, SeqCst);
                journal.sync()
            }
        };
        tasks.into_iter().for_each(|(_, task)| task.wake());
    }
}

/// Waits until a sync is due; returns the tasks that wait for it, and `None` at the end.
fn next(asked: &Mutex<Asked>, changed: &Condvar) -> Option<Vec<(u64, Waker)>> {
    let mut asked = lock(asked);
    loop {
        if asked.is_ended {
            return None;
        }
        let left = asked.due.map(|due| due.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            asked.due = None;
            // The tasks' entries come before what is synced now.
            return Some(Vec::new());
        }
        if !asked.tasks.is_empty() {
            return Some(std::mem::take(&mut asked.tasks));
        }
        asked = match left {
            Some(left) => changed
                .wait_timeout(asked, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(asked, _)| asked),
            None => changed.wait(asked).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
