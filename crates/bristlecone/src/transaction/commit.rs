//! Commits. Step numbers are those of the protocol in `mod.rs`.

use std::cell::RefCell;

use bristlecone_pm::{Error, Result};

use super::any_tree::hash;
use super::changes::Changes;
use super::epoch::{Damage, Epoch};
use super::reads::Reads;
use super::record;
use super::stripes::Stripes;
use crate::journal::entry::Kind;
use crate::{Durability, Pool};

/// Carries out a commit as an entry of the pool's journal if it has one. Sets the LSN up to which it must be durable.
/// `existed` returns whether each key was present before, for the first changes of which that is not yet in `body`.
pub(super) fn recorded(
    pool: &Pool,
    body: &[u8],
    lsn: &mut Option<u64>,
    carry_out: impl FnOnce() -> Result<()>,
    existed: impl FnOnce() -> Vec<Option<bool>>,
) -> Result<()> {
    let Some(journal) = pool.0.journal.get() else { return carry_out() };
    let pending = journal.begin(Kind::All, body)?;
    let done = carry_out();
    match &done {
        Ok(()) => {
            pending.mark(body, existed().into_iter());
            *lsn = Some(pending.complete(1));
        }
        // The next opening applies all or nothing: the entry stays an intent.
        Err(Error::DurabilityLost) => {}
        Err(_) => _ = pending.complete(0),
    }
    done
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
            let places = self.places_of_writes().chain(self.expected.keys());
            let stripes = places.map(|(tree, key)| Stripes::of(self.identity(*tree), hash(key)));
            // Commit 1.
            let locked = epochs.stripes.lock_all(stripes.collect());
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

    /// Commit 4 to 6, as an entry of the pool's journal if it has one. Sets the LSN up to which it must be durable.
    fn carry_out_recorded(&self, pool: &Pool, lsn: &mut Option<u64>) -> Result<()> {
        let file = &*pool.0.file;
        let (record, existed) = (self.record_of_all(), RefCell::default());
        let body = record::changes_of(&record);
        let carry_out = || self.carry_out(file, &record, &existed);
        recorded(pool, body, lsn, carry_out, || self.in_order(&existed.borrow()))
    }

    /// Returns in the order of the keys whether each was present before, from a list that has the removed keys last.
    fn in_order(&self, existed: &[bool]) -> Vec<Option<bool>> {
        let written = self.writes.iter().filter(|(_, value)| value.is_some()).count();
        let (mut of_written, mut of_removed) = match existed.len() == self.writes.len() {
            true => (existed[..written].iter(), existed[written..].iter()),
            false => Default::default(),
        };
        let mut next = |value: &Option<_>| match value {
            Some(_) => of_written.next().copied(),
            None => of_removed.next().copied(),
        };
        self.writes.iter().map(|(_, value)| next(value)).collect()
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
