//! Closing a pool cleanly, or as after a crash.

use std::error::Error as StdError;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use bristlecone_pm::{Error, Result, trace_span};

use crate::Pool;
use crate::api::pool::Shared;

impl Pool {
    /// Closes the pool cleanly.
    ///
    /// After `Ok` the pool is marked as closed and its file is closed. No handle of this process can access it any
    /// more, and any process may open it immediately. This requires the last handle. Clones,
    /// [`TreeOptions`](crate::TreeOptions), trees, batches, transactions and snapshots are also handles: while
    /// another one exists, the pool stays open and the error returns this handle.
    ///
    /// # Errors
    ///
    /// [`CloseError`] contains the pool, still open, and the reason: [`Error::TreeInUse`] while a tree of it is
    /// open, [`Error::PoolInUse`] while another handle exists, otherwise the error of the system.
    ///
    /// ```
    /// use bristlecone::{Error, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-close-{}.pool", std::process::id());
    ///
    /// let pool = Pool::options().max_bytes(64 << 20).create_new(true).open(&path)?;
    /// let tree = pool.tree::<u64, u64>("t")?;
    /// let refused = pool.close().unwrap_err();
    /// assert!(matches!(refused.error(), Error::TreeInUse { name } if name == "t"));
    /// let pool = refused.into_pool();
    /// tree.insert(1, 2)?;
    /// drop(tree);
    /// pool.close()?;
    /// assert!(Pool::options().open(&path)?.info().was_clean);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(mut self) -> std::result::Result<(), CloseError> {
        self.try_close().map_err(|error| CloseError { pool: self, error })
    }

    /// Closes the file of the pool, with its journal. After an error it stays in use.
    ///
    /// 1. All entries are made durable, then all pages of the pool.
    /// 2. The manifest says which change of the superblock will close the pool. *A crash before that change: the pool is
    ///    restored from the journal, or taken over.*
    /// 3. The superblock is changed.
    pub(crate) fn close_file(shared: &Shared) -> Result<()> {
        if let Some(journal) = shared.journal.get() {
            journal.end_checkpoints();
            journal.sync()?;
            shared.file.sync().inspect_err(|_| journal.distrust_pages())?;
            journal.note_close(shared.file.glance()?.sequence + 1)?;
        }
        shared
            .file
            .close()
            .inspect_err(|_| shared.journal.get().into_iter().for_each(|journal| journal.reopen()))
    }

    fn try_close(&mut self) -> Result<()> {
        self.0.file.here()?;
        let in_use = self.lock_open().iter().find(|(_, tree)| tree.is_open()).map(|(id, _)| *id);
        if let Some(id) = in_use {
            let name = self.trees()?.into_iter().find(|tree| tree.id == id).map(|tree| tree.spec.name);
            return Err(Error::TreeInUse { name: name.unwrap_or_default() });
        }
        let handles = self.0.others();
        if handles > 0 {
            return Err(Error::PoolInUse { handles });
        }
        trace_span("a pool is closed", (), || Self::close_file(&self.0))?;
        self.0.done.store(true, Relaxed);
        Ok(())
    }

    /// Releases the pool as a crash would, without marking it cleanly closed.
    ///
    /// ```
    /// use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-simulate-crash-{}.pool", std::process::id());
    /// let pool = Pool::options().max_bytes(64 << 20).create_new(true).open(&path)?;
    /// pool.tree::<u64, u64>("t")?.insert(1, 2)?;
    /// pool.simulate_crash();
    /// let pool = Pool::open(&path)?;
    /// assert!(!pool.info().was_clean);
    /// assert_eq!(pool.tree::<u64, u64>("t")?.get(1)?, Some(2));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn simulate_crash(self) {
        self.0.done.store(true, Relaxed);
    }
}

/// Error of [`Pool::close`]: the reason, and the pool, which is still open.
///
/// Dropping this drops the handle. In a function that returns [`bristlecone::Result`](crate::Result), `?` drops the
/// handle and keeps the error.
pub struct CloseError {
    pool: Pool,
    error: Error,
}

impl CloseError {
    /// Returns the reason why the pool was not closed.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the pool, which can be used and closed later.
    pub fn into_pool(self) -> Pool {
        self.pool
    }

    /// Returns the pool and the error.
    pub fn into_parts(self) -> (Pool, Error) {
        (self.pool, self.error)
    }
}

impl From<CloseError> for Error {
    fn from(error: CloseError) -> Self {
        error.error
    }
}

impl fmt::Debug for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloseError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl StdError for CloseError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}
