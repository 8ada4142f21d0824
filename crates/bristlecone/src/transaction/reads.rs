//! Read set of a transaction, and its validation against concurrent changes. Step numbers are those of the
//! protocol in `mod.rs`.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bristlecone_pm::{Error, Result};
use smallvec::SmallVec;

use super::any_tree::hash;
use super::changes::{Changes, Place};
use super::epoch::Epoch;
use super::snapshot::Snapshot;
use super::stripe::Count;
use super::stripes::{self, Locked, Stripes};
use crate::Pool;
use crate::index::parts::encoded::Encoded;

/// Number of keys read by counts: each read validates the counts of those before it, which a snapshot avoids.
const COUNTED: usize = 16;

/// The read set of a transaction.
#[derive(Default)]
pub struct Reads {
    /// The stripes of the first keys, and their counts at the time of the read.
    counted: SmallVec<[(stripes::Place, Count); COUNTED]>,
    /// The snapshot that serves all later reads.
    snapshot: Option<Snapshot>,
    keys: Vec<Place>,
    ranges: Vec<(usize, Bound<Encoded>, Bound<Encoded>)>,
}

impl Reads {
    /// Begins with reads in a snapshot.
    pub fn in_snapshot(pool: &Pool) -> Result<Self> {
        let mut reads = Self::default();
        reads.snapshot(pool)?;
        Ok(reads)
    }

    /// Reads a key of one of the trees.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the earlier reads are no longer valid.
    pub fn get(&mut self, pool: &Pool, changes: &Changes, place: Place) -> Result<Option<Encoded>> {
        if self.snapshot.is_none() && self.counted.len() < COUNTED {
            return self.get_counted(pool, changes, &place);
        }
        let (link, tree) = &changes.trees[place.0];
        let held = self.snapshot(pool)?.get(tree, link, &place.1)?;
        self.keys.push(place);
        Ok(held)
    }

    /// Lookup: while the stripes of all keys read still have their counts, all values are valid at the same
    /// time.
    fn get_counted(
        &mut self,
        pool: &Pool,
        changes: &Changes,
        (tree, key): &Place,
    ) -> Result<Option<Encoded>> {
        // In a forked child a lock may be held forever.
        pool.0.file.here()?;
        let stripes = &pool.0.epochs.stripes;
        let (link, tree) = &changes.trees[*tree];
        let stripe = Stripes::of(link.identity, hash(key));
        // Lookup 1.
        self.counted.push((stripe, stripes.count(stripe)));
        // Lookup 2.
        let held = tree.get(key)?;
        // Lookup 3.
        self.verify_counts(stripes, None, false)?;
        Ok(held)
    }

    /// Returns the snapshot. The first call takes it and validates that it includes the earlier reads.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if it does not include them.
    pub fn snapshot(&mut self, pool: &Pool) -> Result<&Snapshot> {
        if self.snapshot.is_none() {
            let snapshot = Snapshot::take(pool, usize::MAX, false)?;
            self.verify_counts(&pool.0.epochs.stripes, None, false)?;
            self.snapshot = Some(snapshot);
        }
        self.snapshot.as_ref().ok_or(Error::SnapshotTooOld)
    }

    /// Records that all keys of a tree within bounds were read in the snapshot.
    pub fn note_range(&mut self, tree: usize, from: Bound<Encoded>, to: Bound<Encoded>) {
        self.ranges.push((tree, from, to));
    }

    /// Ends reading.
    pub fn end(&mut self) {
        self.keys.sort_unstable();
        self.keys.dedup();
    }

    fn has(&self, place: &Place) -> bool {
        let within = |(tree, from, to): &(usize, Bound<Encoded>, Bound<Encoded>)| {
            *tree == place.0 && (from.as_ref(), to.as_ref()).contains(&place.1)
        };
        self.keys.binary_search(place).is_ok() || self.ranges.iter().any(within)
    }

    /// Commit 1: validates the part of the read set whose locks the thread holds. The locks keep it valid.
    pub fn verify_own(&self, pool: &Pool, changes: &Changes, own: Option<&Locked<'_>>) -> Result<()> {
        self.verify_counts(&pool.0.epochs.stripes, own, true)?;
        changes
            .places_of_writes()
            .filter(|place| self.has(place))
            .try_for_each(|place| self.verify(changes, place))
    }

    /// Commit 3: validates the rest of the read set.
    pub fn verify_others(&self, pool: &Pool, changes: &Changes, own: Option<&Locked<'_>>) -> Result<()> {
        self.verify_counts(&pool.0.epochs.stripes, own, false)?;
        let mut others = self.keys.iter().filter(|place| !changes.has(place.0, &place.1));
        others.try_for_each(|place| self.verify(changes, place))?;
        for (tree, from, to) in &self.ranges {
            let (link, bounds) = (&changes.trees[*tree].0, (from.as_ref(), to.as_ref()));
            let by_others =
                |epoch: &Arc<Epoch>| epoch.has_within(link.identity, bounds, |key| changes.has(*tree, key));
            self.verify_in_snapshot(|snapshot| snapshot.with_epoch(link, by_others))?;
        }
        Ok(())
    }

    /// Verifies that stripes still have their counts: those that the thread has locked, or the others.
    fn verify_counts(&self, stripes: &Stripes, own: Option<&Locked<'_>>, locked: bool) -> Result<()> {
        let is_as_was = |(stripe, count): &(stripes::Place, Count)| {
            own.is_some_and(|own| own.has(*stripe)) != locked || stripes.is_unchanged(*stripe, *count, locked)
        };
        if self.counted.iter().all(is_as_was) { Ok(()) } else { Err(Error::Conflict) }
    }

    /// Verifies that a key has no entry since the snapshot.
    fn verify(&self, changes: &Changes, place: &Place) -> Result<()> {
        let link = &changes.trees[place.0].0;
        self.verify_in_snapshot(|snapshot| {
            snapshot.with_epoch(link, |epoch| epoch.has(&changes.saved_key(place)))
        })
    }

    fn verify_in_snapshot(&self, is_changed: impl FnOnce(&Snapshot) -> Result<bool>) -> Result<()> {
        match &self.snapshot {
            Some(snapshot) if is_changed(snapshot)? => Err(Error::Conflict),
            _ => Ok(()),
        }
    }
}
