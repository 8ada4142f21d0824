//! Returning the space of files that no entry needs.

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::{Issue, Result};

use super::log::Log;
use super::manifest::Checkpoint;
use super::mutation::{Mutation, is_mutated};
use super::{Journal, cursor};
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
    /// Names a new checkpoint in the manifest, and drops the segments that neither it nor a cursor needs: see
    /// [`cursor`]. Returns the LSN from which on entries are kept.
    pub(super) fn replace_checkpoint(&self, log: &mut Log, checkpoint: Checkpoint) -> Result<u64> {
        let (storage, uuid) = (&*self.storage, log.manifest().uuid);
        let mut manifest = log.manifest().clone();
        manifest.checkpoint = Some(checkpoint);
        let most = self.cursor_limit_bytes / log.segment_bytes();
        cursor::drop_before(storage, uuid, manifest.pinned_from(most))?;
        let mut kept = cursor::needed(storage, uuid, checkpoint.begin)?;
        log.change(|manifest| (manifest.checkpoint, manifest.kept) = (Some(checkpoint), kept))
            // The manifest may be either one.
            .inspect_err(|_| self.fail())?;
        if !is_mutated(Mutation::CursorsListedOnce) {
            kept = cursor::needed(storage, uuid, kept)?;
        }
        if log.manifest().kept != kept || log.manifest().has_before(kept) {
            let drop_segments = |manifest: &mut _| {
                Log::keep_from(manifest, kept);
            };
            log.change(drop_segments).inspect_err(|_| self.fail())?;
        }
        self.warn_of_cursors(log)?;
        Ok(kept)
    }

    /// Records which cursors hold back more than half of what they may.
    fn warn_of_cursors(&self, log: &Log) -> Result<()> {
        let limit = self.cursor_limit_bytes;
        let cursors = cursor::list(&*self.storage, log.segment_bytes())?;
        let warnings = cursors.into_iter().filter(|cursor| cursor.pinned_bytes > limit / 2).map(|cursor| {
            let what = format!(
                "a consumer holds back {} bytes of the journal; at more than {limit} its cursor is dropped",
                cursor.pinned_bytes
            );
            Issue::new(format!("the cursor {:?}, at LSN {}", cursor.name, cursor.lsn), what)
        });
        *lock(&self.warnings) = warnings.collect();
        Ok(())
    }

    /// Returns what [`Pool::info`](crate::Pool::info) says about cursors.
    pub fn warnings(&self) -> Vec<Issue> {
        lock(&self.warnings).clone()
    }

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
