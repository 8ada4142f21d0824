//! Atomic removal of a range of keys.
//!
//! # Remove a range
//! 1. The write barrier is in tracking mode. The thread takes the lock of the tree (`stripes.rs`). *No other thread
//!    writes to the tree until step 6.*
//! 2. It reads the keys of the range. Without any it is done; with one, the removal of that key is atomic, and replaces
//!    steps 4 to 6. *Damage is found here, before anything has changed: it would keep the range from being removed.*
//! 3. The current values of the keys are saved for snapshots, as in step 2 of a commit. *If a snapshot exceeds its bound
//!    by that, the thread releases the lock, ends the snapshot and begins again.*
//! 4. Space is reserved for the record and for the trees' worst case. The record, with the first and the last key, is
//!    appended to the commit log: one fence. *From here on the removal is committed: after a crash, opening the pool
//!    removes what is left of the range. Nothing else was written to it.*
//! 5. The items are removed, up to sixteen at a time. *Lookups may see a part. Snapshots and transactions do not.*
//! 6. The record is marked done, durably. The lock is released.
//!
//! A full pool has no space to reserve for the trees. Then the removed items are kept in memory until step 6, to be put
//! back if a tree refuses a removal.

use std::ops::Bound;

use bristlecone_pm::{Error, Result};

use super::any_tree::AnyTree;
use super::apply::TREE_CHUNKS;
use super::commit::recorded;
use super::epoch::{Damage, Epoch};
use super::link::Link;
use super::record::{self, KeyRange};
use crate::Pool;
use crate::index::any::CommitOutcome;
use crate::index::parts::encoded::Encoded;

/// A range of keys of a tree that is to be removed.
pub(crate) struct RangeRemoval<'a> {
    pub pool: &'a Pool,
    pub link: Link,
    pub tree: &'a AnyTree,
    pub bounds: (Bound<Encoded>, Bound<Encoded>),
}

/// The keys that a range has.
struct Found {
    count: u64,
    keys: KeyRange,
    /// The entry of the journal, if the pool has one.
    entry: Vec<u8>,
}

impl RangeRemoval<'_> {
    /// Removes all items or none; returns their number.
    ///
    /// # Errors
    ///
    /// Same as those of a commit; [`Error::Corrupted`] for damage in the range.
    pub fn run(&self) -> Result<u64> {
        self.pool.0.file.writable()?;
        let epochs = &self.pool.0.epochs;
        let _tracking = epochs.barrier.watch();
        let mut lsn = None;
        let removed = loop {
            let removed = self.try_remove(&mut lsn);
            epochs.shed_if_over();
            if let Some(removed) = removed.transpose() {
                break removed;
            }
        };
        // Outside of the lock: others may change the keys, and wait for the same sync.
        let acknowledged = match lsn {
            None => self.pool.settle_reads(),
            lsn => self.pool.acknowledge_as(lsn, None),
        };
        self.pool.0.journal.get().into_iter().for_each(|journal| journal.checkpoint_if_due(self.pool));
        acknowledged.and(removed)
    }

    /// Returns `None` if snapshots have exceeded their bounds.
    fn try_remove(&self, lsn: &mut Option<u64>) -> Result<Option<u64>> {
        let epochs = &self.pool.0.epochs;
        let entered = epochs.barrier.enter();
        let _locked = epochs.stripes.lock_tree(self.link.identity);
        let Some(found) = self.find()? else { return Ok(Some(0)) };
        let mut saved = Ok(true);
        epochs.announce(&entered, |epoch| saved = self.save(epoch));
        if !saved? {
            return Ok(None);
        }
        let carry_out = || if found.count == 1 { self.remove_one(&found) } else { self.carry_out(&found) };
        recorded(self.pool, &found.entry, lsn, carry_out, |()| Vec::new())?;
        Ok(Some(found.count))
    }

    fn bounds(&self) -> (Bound<&Encoded>, Bound<&Encoded>) {
        (self.bounds.0.as_ref(), self.bounds.1.as_ref())
    }

    /// Step 2: returns `None` for a range without keys.
    fn find(&self) -> Result<Option<Found>> {
        let is_recorded = self.pool.0.journal.get().is_some();
        let (mut count, mut entry, mut ends) = (0, Vec::new(), None);
        self.tree.visit_keys(self.bounds(), &mut |key| {
            count += 1;
            if is_recorded {
                record::append_removed(&mut entry, self.link.id, key.item());
            }
            match &mut ends {
                None => ends = Some((key.clone(), key.clone())),
                Some((_, last)) => last.clone_from(key),
            }
            Ok(())
        })?;
        Ok(ends.map(|(first, last)| Found {
            count,
            keys: KeyRange { tree: self.link.id, first, last },
            entry,
        }))
    }

    /// Step 3: returns whether all values were saved, so that no snapshot has exceeded its bound.
    fn save(&self, epoch: &Epoch) -> Result<bool> {
        let mut is_within = true;
        self.tree.visit_keys(self.bounds(), &mut |key| {
            is_within = is_within && !self.pool.0.epochs.is_over();
            if !is_within {
                return Ok(());
            }
            let held = match self.tree.get(key) {
                Err(Error::Corrupted { .. }) => Err(Damage),
                held => Ok(held?),
            };
            epoch.save(self.link.identity, key.clone(), || held);
            Ok(())
        })?;
        Ok(is_within)
    }

    fn remove_one(&self, found: &Found) -> Result<()> {
        self.tree.put(&found.keys.first, None)
    }

    /// Steps 4 to 6.
    fn carry_out(&self, found: &Found) -> Result<()> {
        let (file, record) = (&*self.pool.0.file, record::removal(&found.keys));
        let mut remove = || match self.remove(found, None) {
            Ok(()) => CommitOutcome::Applied,
            Err(_) => CommitOutcome::Partial,
        };
        match file.commit(&record, TREE_CHUNKS, &mut remove) {
            // Nothing was committed.
            Err(error) if error.is_no_room() => {
                file.commit(&record, 0, &mut || self.remove_reversibly(found))
            }
            done => done,
        }
    }

    fn remove(&self, found: &Found, removed: Option<&mut Vec<(Encoded, Encoded)>>) -> Result<()> {
        let KeyRange { first, last, .. } = &found.keys;
        self.tree.remove_range((Bound::Included(first), Bound::Included(last)), removed).map(drop)
    }

    /// Step 5 in a full pool.
    fn remove_reversibly(&self, found: &Found) -> CommitOutcome {
        let mut removed = Vec::new();
        let Err(error) = self.remove(found, Some(&mut removed)) else { return CommitOutcome::Applied };
        let is_back = removed.iter().rev().all(|(key, value)| self.tree.put(key, Some(value)).is_ok());
        match error {
            error if is_back && error.is_no_room() => CommitOutcome::RolledBack(error),
            _ => CommitOutcome::Partial,
        }
    }
}
