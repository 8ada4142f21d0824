//! Group commit: one of the threads that wait writes and syncs for all.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bristlecone_pm::sync::wait::{lock, pause};
use bristlecone_pm::{Error, Result};

use super::log::Log;
use super::mutation::{Mutation, is_mutated};
use super::{Durability, Journal};

/// Bytes behind which a part of a group ends.
const PART_BYTES: u64 = 128 << 10;

/// Whose turn it is to write.
#[derive(Debug, Default)]
pub struct Turn {
    /// Whether a thread leads.
    leads: Mutex<bool>,
    ended: Condvar,
}

impl Turn {
    /// Wakes all threads that wait.
    pub fn wake(&self) {
        drop(lock(&self.leads));
        self.ended.notify_all();
    }

    fn wait<'a>(&self, leads: MutexGuard<'a, bool>) -> MutexGuard<'a, bool> {
        self.ended.wait(leads).unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal {
    /// Waits until entries up to an LSN are durable. They must be complete, or become so without this thread.
    ///
    /// # Errors
    ///
    /// [`Error::DurabilityLost`].
    pub fn wait_durable(&self, lsn: u64) -> Result<()> {
        if is_mutated(Mutation::AcknowledgedBeforeSync) {
            return self.until(|| self.ring.freed() >= lsn, lsn, false);
        }
        self.until(|| self.durable.load(Acquire) >= lsn, lsn, true)
    }

    /// Waits until the ring has room up to an LSN.
    ///
    /// # Errors
    ///
    /// [`Error::DurabilityLost`].
    #[cold]
    pub fn make_room(&self, end: u64) -> Result<()> {
        self.until(|| self.ring.has_room(end), 0, !matches!(self.durability, Durability::Memory))
    }

    /// Leads, or waits for those who lead, until `is_done`. The leader writes up to `need` at least.
    fn until(&self, is_done: impl Fn() -> bool, need: u64, sync: bool) -> Result<()> {
        let mut leads = None;
        loop {
            if is_done() {
                return Ok(());
            }
            self.health()?;
            let mut own = leads.take().unwrap_or_else(|| lock(&self.turn.leads));
            if *own {
                if is_done() {
                    return Ok(());
                }
                leads = Some(self.turn.wait(own));
                continue;
            }
            *own = true;
            drop(own);
            let written = self.write_group(need, sync);
            if written.is_err() {
                // Before another thread leads: what it would write next may follow a hole.
                self.fail();
            }
            *lock(&self.turn.leads) = false;
            self.turn.ended.notify_all();
            written.map_err(|_| Error::DurabilityLost)?;
        }
    }

    /// Writes the complete entries, up to `need` at least, and makes them durable if `sync` is set.
    fn write_group(&self, need: u64, sync: bool) -> Result<()> {
        let mut log = lock(&self.log);
        self.health()?;
        let mut round = 0;
        loop {
            let has_more = self.write_complete(&mut log, sync)?;
            if sync {
                log.sync()?;
            }
            self.durable.store(log.durable(), Release);
            // Not before the sync: if it fails, the next process finds the entries in the ring, and writes them again.
            self.ring.free(log.written());
            if log.written() >= need {
                return Ok(());
            }
            self.health()?;
            if has_more {
                // The writer of an entry before it may wait for the room.
                self.turn.wake();
            }
            // It has yet to complete the entry.
            pause(round);
            round += 1;
        }
    }

    /// Writes the complete entries, part by part, and frees their room unless they `stay`; returns whether there were any.
    /// A part is small enough to stay in the cache of a core while it is copied, checksummed, written and cleared.
    fn write_complete(&self, log: &mut Log, stay: bool) -> Result<bool> {
        let begin = log.written();
        // What is reserved later is left for the next group: this one ends.
        let last = self.ring.reserved();
        while log.written() < last {
            let end = self.ring.complete_up_to(log.written(), log.written() + PART_BYTES);
            if end == log.written() {
                break;
            }
            if is_mutated(Mutation::FreedBeforeWritten) {
                self.ring.free(end);
            }
            let segments = log.manifest().segments.len();
            let mut entries = log.take_entries();
            self.ring.copy(log.written(), end, &mut entries);
            let appended = log.append(&entries);
            log.keep_entries(entries);
            appended?;
            if log.manifest().segments.len() > segments && log.is_over(self.checkpoint_bytes) {
                self.due.fetch_min(log.written(), Relaxed);
            }
            if !stay {
                self.ring.free(log.written());
            }
        }
        Ok(log.written() > begin)
    }
}
