//! Writes of a thread that wait for the disk together.

use std::cell::Cell;

use bristlecone_pm::Result;

use super::{Journal, Ticket};
use crate::Pool;

thread_local! {
    /// The journal whose writes on this thread do not wait, and the LSN to wait for in the end.
    static DEFERRED: Cell<Option<(*const Journal, u64)>> = const { Cell::new(None) };
}

/// Ends the deferral of a thread, also if it panics.
struct Deferred {
    outer: Option<(*const Journal, u64)>,
}

impl Drop for Deferred {
    fn drop(&mut self) {
        DEFERRED.set(self.outer);
    }
}

impl Pool {
    /// Runs writes whose durability this thread awaits once, at the end: many writes share one sync, as in a batch, but
    /// each is an operation of its own.
    ///
    /// In a pool with the domain [`Domain::Journal`](crate::Domain) and
    /// [`Durability::Commit`](crate::Durability::Commit), each write of the closure on this thread returns before it is
    /// durable. After `Ok` all of them are. A power failure before leaves the first ones, up to any of them. In other
    /// pools the closure runs as it would outside.
    ///
    /// # Errors
    ///
    /// Errors of the closure, once its earlier writes are durable;
    /// [`Error::DurabilityLost`](crate::Error::DurabilityLost) if they cannot be made so.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let squares = pool.tree::<u64, u64>("squares")?;
    /// pool.deferred(|| (0..1000).try_for_each(|number| squares.upsert(number, number * number)))?;
    /// assert_eq!(squares.len()?, 1000); // durable
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn deferred<R>(&self, run: impl FnOnce() -> Result<R>) -> Result<R> {
        let (ended, waited) = self.defer(run);
        waited.and(ended)
    }

    /// Runs writes as [`deferred`](Self::deferred) does; returns the result of the closure, and that of waiting.
    pub(crate) fn defer<R>(&self, run: impl FnOnce() -> R) -> (R, Result<()>) {
        let Some(journal) = self.0.journal.get() else { return (run(), Ok(())) };
        if journal.is_deferring() {
            // The outer one waits.
            return (run(), Ok(()));
        }
        let (ended, lsn) = journal.collect(run);
        let waited = journal.acknowledge(lsn, None);
        journal.checkpoint_if_due(self);
        (ended, waited)
    }

    /// Runs writes without waiting for their durability, in a pool with the domain [`Domain::Journal`](crate::Domain)
    /// and any durability; returns a [`Ticket`] that tells when they are durable. In other pools the writes are durable
    /// when they return, as everywhere.
    ///
    /// A power failure before leaves the first writes, up to any of them. A kill of the process undoes none.
    ///
    /// # Errors
    ///
    /// Errors of the closure, once its earlier writes are acknowledged;
    /// [`Error::DurabilityLost`](crate::Error::DurabilityLost) if they cannot be.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let orders = pool.tree::<u64, &str>("orders")?;
    /// let (_, first) = pool.with_ticket(|| orders.insert(1, "larch"))?;
    /// let (_, second) = pool.with_ticket(|| orders.insert(2, "pine"))?;
    /// first.wait()?; // in asynchronous code: first.await?
    /// second.wait()?;
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn with_ticket<R>(&self, run: impl FnOnce() -> Result<R>) -> Result<(R, Ticket)> {
        let Some(journal) = self.0.journal.get() else { return Ok((run()?, Ticket::durable())) };
        let (ended, lsn) = journal.collect(run);
        match ended {
            Ok(done) => {
                journal.checkpoint_if_due(self);
                Ok((done, Ticket::new(journal, self.0.file.opener(), lsn)))
            }
            Err(error) => Err(journal.acknowledge(lsn, None).err().unwrap_or(error)),
        }
    }
}

impl Journal {
    /// Runs writes of this thread that do not wait; returns the LSN up to which they are, or 0 without a write.
    fn collect<R>(&self, run: impl FnOnce() -> R) -> (R, u64) {
        let deferred = Deferred { outer: DEFERRED.replace(Some((std::ptr::from_ref(self), 0))) };
        let ended = run();
        let lsn = DEFERRED.get().map_or(0, |(_, lsn)| lsn);
        drop(deferred);
        // An outer closure of this journal includes it.
        let _ = self.is_deferred(lsn);
        (ended, lsn)
    }

    /// Returns whether this thread's writes do not wait.
    fn is_deferring(&self) -> bool {
        DEFERRED.get().is_some_and(|(journal, _)| std::ptr::eq(journal, self))
    }

    /// Returns whether a write need not wait, because its thread waits later; it then notes the LSN.
    #[inline]
    pub(super) fn is_deferred(&self, lsn: u64) -> bool {
        match DEFERRED.get() {
            Some((journal, last)) if std::ptr::eq(journal, self) => {
                DEFERRED.set(Some((journal, last.max(lsn))));
                true
            }
            _ => false,
        }
    }
}
