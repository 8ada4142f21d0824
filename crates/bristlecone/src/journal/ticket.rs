//! Tickets: whether writes that did not wait are durable.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::task::{Context, Poll};

use bristlecone_pm::{Opener, Result};

use super::Journal;
use crate::api::handle::{Handle, Inherited};

/// A promise that writes will be durable: see [`Pool::with_ticket`](crate::Pool::with_ticket).
///
/// It can be waited for, or awaited as a future by any executor: the first ticket that is polled before it is durable
/// starts a thread of the pool, which syncs for all. A ticket may be waited for again. Dropping it changes nothing: the
/// writes become durable with the next sync. A ticket does not keep its pool open; a clean close makes it durable.
#[derive(Debug)]
#[must_use = "the writes may not be durable yet"]
pub struct Ticket(Option<(Handle<Journal>, u64)>);

impl Inherited for Journal {}

impl Clone for Ticket {
    fn clone(&self) -> Self {
        Self(self.0.as_ref().map(|(journal, lsn)| (journal.clone(), *lsn)))
    }
}

impl Ticket {
    pub(super) fn new(journal: &Arc<Journal>, opener: Opener, lsn: u64) -> Self {
        Self(Some((Handle::new(Arc::clone(journal), opener), lsn)))
    }

    /// Returns the ticket of writes that are durable.
    pub(super) fn durable() -> Self {
        Self(None)
    }

    /// Returns whether the writes are durable, without waiting.
    ///
    /// # Errors
    ///
    /// [`Error::DurabilityLost`](crate::Error) if the journal could not be written: reopen the pool to learn what reached
    /// the disk; [`Error::Forked`](crate::Error).
    pub fn is_durable(&self) -> Result<bool> {
        let Some((journal, lsn)) = &self.0 else { return Ok(true) };
        journal.here()?;
        if journal.durable.load(Acquire) >= *lsn { Ok(true) } else { journal.health().map(|()| false) }
    }

    /// Waits until the writes are durable.
    ///
    /// # Errors
    ///
    /// Same as [`is_durable`](Self::is_durable).
    pub fn wait(&self) -> Result<()> {
        match &self.0 {
            Some((journal, lsn)) if !self.is_durable()? => journal.wait_durable(*lsn),
            _ => Ok(()),
        }
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some((journal, lsn)) = &self.0 else { return Poll::Ready(Ok(())) };
        match self.is_durable() {
            Ok(false) => {}
            done => return Poll::Ready(done.map(drop)),
        }
        match journal.wake_once_durable(*lsn, context.waker()) {
            Ok(()) => Poll::Pending,
            // Without a thread there is no other way.
            Err(_) => Poll::Ready(self.wait()),
        }
    }
}
