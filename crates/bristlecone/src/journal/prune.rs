//! Returning the space of files that no entry needs.

use bristlecone_pm::Result;
use bristlecone_pm::sync::wait::lock;

use super::Journal;
use crate::Pool;

impl Pool {
    /// Writes a checkpoint as [`checkpoint`](Self::checkpoint) does, and removes all files that are not needed any more,
    /// including those that are kept for the next segments. Readers and writers go on.
    ///
    /// # Errors
    ///
    /// Same as [`checkpoint`](Self::checkpoint).
    pub fn prune_journal(&self) -> Result<()> {
        self.checkpoint()?;
        self.0.journal.get().map_or(Ok(()), |journal| journal.drop_spare_files())
    }
}

impl Journal {
    /// Removes the files that are kept for the next segments.
    ///
    /// 1. A manifest without them replaces the last one.
    /// 2. They are removed. *A crash before: the next opening removes them.*
    fn drop_spare_files(&self) -> Result<()> {
        // Its file is not in the manifest.
        let mut checkpointing = lock(&self.checkpointing);
        self.discard(checkpointing.take());
        let mut log = lock(&self.log);
        // The manifest may be either one after an error: see `checkpoint`.
        log.change(|manifest| manifest.spare.clear()).inspect_err(|_| self.fail())?;
        for name in self.storage.list()?.iter().filter(|name| !log.manifest().has(name)) {
            self.storage.remove(name)?;
        }
        Ok(())
    }
}
