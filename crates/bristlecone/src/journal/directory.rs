//! Changes of the directory as entries of the journal. The caller holds the lock of the pool's trees.

use bristlecone_pm::{Error, Result, TreeId};

use super::Pending;
use super::entry::{Aside, Directory};
use crate::{Durability, Pool};

impl Pool {
    /// Begins the entry of a change of the directory, if there is a journal. `items` names a file with the items of a
    /// tree that is created.
    ///
    /// # Errors
    ///
    /// Same as [`Journal::begin`](super::Journal::begin).
    pub(crate) fn begin_directory(&self, change: Directory, items: Option<Aside>) -> Result<Recorded<'_>> {
        let Some(journal) = self.0.journal.get() else { return Ok(Recorded(None)) };
        let mut body = change.body();
        if let Some(items) = items {
            body.extend_from_slice(&items.encode());
        }
        Ok(Recorded(Some((journal.begin(change.kind(), &body)?, change))))
    }

    /// Waits for changes up to an LSN as the pool demands.
    pub(crate) fn acknowledge(&self, lsn: Option<u64>) -> Result<()> {
        self.acknowledge_as(lsn, None)
    }

    /// Waits for changes up to an LSN as a durability demands, or the pool.
    #[inline]
    pub(crate) fn acknowledge_as(&self, lsn: Option<u64>, durability: Option<Durability>) -> Result<()> {
        match (self.0.journal.get(), lsn) {
            (Some(journal), Some(lsn)) => journal.acknowledge(lsn, durability),
            _ => Ok(()),
        }
    }
}

/// The entry of a change of the directory.
#[must_use = "a dropped entry ends the journal"]
pub(crate) struct Recorded<'a>(Option<(Pending<'a>, Directory)>);

impl Recorded<'_> {
    /// Completes the entry once the change has succeeded, or failed. `new` is the tree that it created. Returns the LSN
    /// to wait for.
    pub fn end<T>(self, result: &Result<T>, new: impl FnOnce(&T) -> Option<TreeId>) -> Option<u64> {
        let (pending, change) = self.0?;
        match result {
            Ok(done) => {
                if let Some(new) = new(done) {
                    pending.set_first_word(change.first_word(new));
                }
                Some(pending.complete(1))
            }
            // The outcome is unknown: the entry stays an intent.
            Err(Error::DurabilityLost) => None,
            Err(_) => {
                pending.complete(0);
                None
            }
        }
    }
}
