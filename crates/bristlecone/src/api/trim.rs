//! Returning space to the file system.

use bristlecone_pm::{Result, trace_span};

use crate::Pool;

impl Pool {
    /// Releases unused space to the file system; returns the number of bytes released.
    ///
    /// Space that trees free, because items were removed or a tree was dropped, is available to other trees of the pool
    /// and stays in the file. [`close`](Self::close) releases what exceeds 64 MiB of it. This function releases all of
    /// it, and the space allocated by [`prefault`](Self::prefault). The file gets holes; if no tree is open, it is
    /// truncated behind the last used chunk. Released space must be allocated again when the pool grows: that causes
    /// page faults, and the file system may be full then.
    ///
    /// Trees can be used during the call. A crash at any point loses nothing. On a file system without support for
    /// holes, nothing is released.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`](crate::Error), [`Error::Forked`](crate::Error), and errors of the system.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let logs = pool.tree::<u64, &[u8]>("logs")?;
    /// (0..100).try_for_each(|number| logs.upsert(number, &[7; 100_000]))?;
    /// drop(logs);
    /// pool.drop_tree("logs")?;
    /// assert!(pool.trim()? >= 10_000_000);
    /// assert_eq!(pool.info().chunks, 0);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn trim(&self) -> Result<u64> {
        self.0.file.writable()?;
        // Prevents other threads from opening trees or trimming during the call.
        let open = self.lock_open();
        let is_unused = !open.values().any(crate::index::any::OpenTree::is_open);
        trace_span("a pool is trimmed", (), || self.0.file.trim(is_unused))
    }
}
