//! Commits. Step numbers are those of the protocol in `mod.rs`.

use bristlecone_pm::{Error, Result};

use super::apply::Before;
use super::changes::Changes;
use super::epoch::{Damage, Epoch};
use super::reads::Reads;
use super::record;
use super::stripes::StripeSet;
use crate::journal::entry::Kind;
use crate::{Durability, Pool};

/// Carries out a commit as an entry of the pool's journal if it has one. Sets the LSN up to which it must be durable.
/// `existed` returns from its result whether each key was present before, for the first changes of which that is not yet
/// in `body`.
pub(super) fn recorded<T>(
    pool: &Pool,
    body: &[u8],
    lsn: &mut Option<u64>,
    carry_out: impl FnOnce() -> Result<T>,
    existed: impl FnOnce(T) -> Vec<Option<bool>>,
) -> Result<()> {
    let Some(journal) = pool.0.journal.get() else { return carry_out().map(drop) };
    let pending = journal.begin(Kind::All, body)?;
    let done = carry_out();
    match done {
        Ok(done) => {
            pending.mark(body, existed(done).into_iter());
            *lsn = Some(pending.complete(1));
            Ok(())
        }
        // The next opening applies all or nothing: the entry stays an intent.
        Err(Error::DurabilityLost) => Err(Error::DurabilityLost),
        Err(error) => {
            pending.complete(0);
            Err(error)
        }
    }
}

impl Changes {
    /// Applies all changes or none, and waits as a durability demands, or that of the pool.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`], and the errors of writes.
    pub fn commit(&self, pool: &Pool, reads: Option<&Reads>, durability: Option<Durability>) -> Result<()> {
        pool.0.file.writable()?;
        if self.writes.is_empty() && self.expected.is_empty() {
            return Ok(());
        }
        let ended = self.try_commit(pool, reads, durability);
        pool.0.meters.note_commit(&ended);
        ended
    }

    fn try_commit(&self, pool: &Pool, reads: Option<&Reads>, durability: Option<Durability>) -> Result<()> {
        let epochs = &pool.0.epochs;
        let _watched = epochs.barrier.watch();
        let mut lsn = None;
        let committed = {
            let entered = epochs.barrier.enter();
            // Commit 1.
            let locked = epochs.stripes.lock_all(self.stripes());
            self.verify_conditions()?;
            reads.map_or(Ok(()), |reads| reads.verify_own(pool, self, locked.as_ref()))?;
            // Commit 2.
            let mut refused = Ok(());
            epochs.announce(&entered, |epoch| refused = self.save(epoch));
            refused?;
            // Commit 3.
            reads.map_or(Ok(()), |reads| reads.verify_others(pool, self, locked.as_ref()))?;
            if self.writes.is_empty() { Ok(()) } else { self.carry_out_recorded(pool, &mut lsn) }
        };
        epochs.shed_if_over();
        // Outside of the locks: others may change the keys, and wait for the same sync.
        let acknowledged = pool.acknowledge_as(lsn, durability);
        pool.0.journal.get().into_iter().for_each(|journal| journal.checkpoint_if_due(pool));
        acknowledged.and(committed)
    }

    /// Returns the locks of all keys that are written, or are part of a condition.
    fn stripes(&self) -> StripeSet {
        let mut stripes = self.stripes;
        self.expected.keys().for_each(|place| _ = stripes.insert(self.stripe(place)));
        stripes
    }

    /// Commit 4 to 6, as an entry of the pool's journal if it has one. Sets the LSN up to which it must be durable.
    fn carry_out_recorded(&self, pool: &Pool, lsn: &mut Option<u64>) -> Result<()> {
        let record = self.record_of_all();
        let is_needed = pool.0.journal.get().is_some();
        let carry_out = || self.carry_out(&*pool.0.file, &record, is_needed);
        recorded(pool, record::changes_of(&record), lsn, carry_out, |before| self.in_order(&before))
    }

    /// Returns in the order of the keys whether each was present before.
    fn in_order(&self, before: &Before) -> Vec<Option<bool>> {
        let written = self.writes.iter().filter(|(_, value)| value.is_some()).count();
        let (of_written, of_removed) = before.values.split_at(written);
        let (mut of_written, mut of_removed) = (of_written.iter(), of_removed.iter());
        let mut next =
            |value: &Option<_>| if value.is_some() { of_written.next() } else { of_removed.next() };
        self.writes.iter().map(|(_, value)| next(value).map(Option::is_some)).collect()
    }

    /// Commit 1: verifies the conditions. The locks keep them valid.
    fn verify_conditions(&self) -> Result<()> {
        for ((tree, key), expected) in &self.expected {
            if self.trees[*tree].1.get(key)? != *expected {
                return Err(Error::Conflict);
            }
        }
        Ok(())
    }

    /// Commit 2: saves the old values that snapshots need.
    fn save(&self, epoch: &Epoch) -> Result<()> {
        for (tree, key) in self.places_of_writes() {
            // Nothing is cached between two epochs: on a retry, the entry of the first epoch is not
            // valid.
            let held = match self.trees[*tree].1.get(key) {
                Err(Error::Corrupted { .. }) => Err(Damage),
                held => Ok(held?),
            };
            epoch.save(self.identity(*tree), key.clone(), || held);
        }
        Ok(())
    }
}
