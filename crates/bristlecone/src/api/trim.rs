//! Giving space back to the file system.

use bristlecone_pm::{Result, told};

use crate::Pool;

impl Pool {
    /// Gives the space that no tree needs back to the file system; returns how many bytes that were.
    ///
    /// What trees give up, since items were removed or a tree was dropped, is free for other trees of the pool, and the
    /// file keeps it. [`close`](Self::close) gives back what is more than 64 MiB of that; this gives back all of it, and
    /// what [`prefault`](Self::prefault) took. The file gets holes, and if no tree is open it ends behind what is in
    /// use. What is given back has to be asked for again when the pool grows: that costs page faults, and the file
    /// system may have no space then.
    ///
    /// Trees can be used meanwhile. A crash loses nothing, whenever it comes. Where a file system has no holes, nothing
    /// is given back.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`](crate::Error), [`Error::Forked`](crate::Error), and what the system refuses.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-trim-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let logs = pool.tree::<u64, &[u8]>("logs")?;
    /// (0..100).try_for_each(|number| logs.upsert(number, &[7; 100_000]))?;
    /// drop(logs);
    /// pool.drop_tree("logs")?;
    /// assert!(pool.trim()? >= 10_000_000);
    /// assert_eq!(pool.info().chunks, 0);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn trim(&self) -> Result<u64> {
        self.0.file.writable()?;
        // No tree is opened meanwhile, and no other thread trims.
        let open = self.lock_open();
        let is_unused = !open.values().any(crate::index::any::OpenTree::is_open);
        told("a pool is trimmed", (), || self.0.file.trim(is_unused))
    }
}
