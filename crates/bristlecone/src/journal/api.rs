//! The journal in the public interface.

use bristlecone_pm::{Domain, Error, Result};

use crate::Pool;

impl Pool {
    /// Makes everything durable that has been acknowledged so far. Only pools with the domain [`Domain::Journal`] and
    /// another durability than [`Durability::Commit`](crate::Durability::Commit) need this: in other pools each write is
    /// durable when it returns.
    ///
    /// # Errors
    ///
    /// [`Error::DurabilityLost`] if the journal could not be written, now or before: reopen the pool;
    /// [`Error::Forked`].
    pub fn sync(&self) -> Result<()> {
        self.0.file.here()?;
        self.0.journal.get().map_or(Ok(()), |journal| journal.sync())
    }

    /// Writes all items to a new checkpoint in the journal, and frees the space of the entries before it. Readers and
    /// writers go on.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a pool without a journal; [`Error::DurabilityLost`]; [`Error::MediumFull`], and errors of
    /// the system: the journal then keeps its last checkpoint and all entries behind it.
    pub fn checkpoint(&self) -> Result<()> {
        self.0.file.writable()?;
        match self.0.journal.get() {
            Some(journal) => journal.checkpoint(self),
            None => {
                Err(Error::invalid(format!("only pools of the domain {} have checkpoints", Domain::Journal)))
            }
        }
    }
}
