//! Commit 4 to 6: changes that are applied or rolled back. Step numbers are those of the protocol in `mod.rs`.

use std::collections::BTreeSet;

use bristlecone_pm::{Error, Result, record_bytes_max, record_slot_bytes};
use smallvec::SmallVec;

use super::any_tree::AnyTree;
use super::changes::{Changes, Write};
use super::record;
use crate::index::any::{AnyPool, CommitOutcome, Removals, Trial};
use crate::index::parts::codec::GROUP;
use crate::index::parts::encoded::Encoded;

/// Number of chunks that a tree may allocate for changes: for leaves, for inner nodes, and for its log.
pub(super) const TREE_CHUNKS: usize = 3;
/// Bytes of a tree's log that an item may need.
const LOG_BYTES: u64 = 64;

/// The previous values of changed keys: first of those that are written, then of those that are removed.
#[derive(Default)]
pub(super) struct Before {
    pub values: Vec<Option<Encoded>>,
    /// Some are missing: keys were written without being searched.
    is_partial: bool,
}

impl Before {
    fn with_capacity(keys: usize) -> Self {
        Self { values: Vec::with_capacity(keys), is_partial: false }
    }
}

impl Changes {
    /// Applies all changes or none. `record` is the [record](Self::record_of_all) of all of them. The result is complete
    /// if it `is_needed`.
    pub(super) fn carry_out(&self, file: &dyn AnyPool, record: &[u8], is_needed: bool) -> Result<Before> {
        self.expect_fit(file.chunk_bytes())?;
        let chunks = self.chunks(file.chunk_bytes());
        let mut before = Before::with_capacity(self.writes.len());
        let mut change = || match self.write(&mut before, is_needed).and_then(|()| self.remove(&mut before)) {
            Ok(()) => CommitOutcome::Applied,
            Err(error) => self.take_back(&before, error),
        };
        match file.commit(record, chunks, &mut change) {
            Err(error) if error.is_no_room() => self.attempt(file, error),
            done => done.map(|()| before),
        }
    }

    /// Verifies that each key and value fits a chunk: a tree must not refuse a committed item.
    fn expect_fit(&self, chunk_bytes: u64) -> Result<()> {
        let max_bytes = record_bytes_max(chunk_bytes);
        let too_long = |what, item: &Encoded| match item {
            Encoded::Bytes(item) if item.len() > max_bytes => {
                Err(Error::TooLong { what, bytes: item.len(), max_bytes })
            }
            _ => Ok(()),
        };
        let written = self.writes.iter().filter_map(|((_, key), value)| Some((key, value.as_ref()?)));
        written.into_iter().try_for_each(|(key, value)| too_long("key", key).and(too_long("value", value)))
    }

    /// Attempts a commit without a reservation: a tree may have free space of its own. Until all is written, a crash
    /// restores the previous values of the keys.
    #[cold]
    fn attempt(&self, file: &dyn AnyPool, full: Error) -> Result<Before> {
        let Some(undo) = self.record_of_before()? else { return Err(full) };
        let (mut of_written, mut of_removed) = (Before::with_capacity(self.writes.len()), Before::default());
        let mut write = || match self.write(&mut of_written, true) {
            Ok(()) => CommitOutcome::Applied,
            Err(error) => self.take_back(&of_written, error),
        };
        let mut remove = || match self.remove(&mut of_removed) {
            Ok(()) => CommitOutcome::Applied,
            Err(_) => CommitOutcome::Partial,
        };
        let removals = |ends: u64| self.record(ends, Option::is_none);
        let removes = self.writes.iter().any(|(_, value)| value.is_none());
        let removals = removes.then_some(Removals { bytes: removals(0).len(), record: &removals });
        file.attempt(Trial { before: &undo, write: &mut write, removals, remove: &mut remove })?;
        of_written.values.append(&mut of_removed.values);
        Ok(of_written)
    }

    /// Returns the record of the commit log with all changes.
    pub(super) fn record_of_all(&self) -> Vec<u8> {
        self.record(0, |_| true)
    }

    /// Returns a record of the commit log with the changes whose new value is `wanted`.
    fn record(&self, ends: u64, wanted: impl Fn(&Option<Encoded>) -> bool) -> Vec<u8> {
        let mut record = record::begin(ends, self.writes.len());
        for ((tree, key), value) in self.writes.iter().filter(|(_, value)| wanted(value)) {
            record::append(&mut record, self.trees[*tree].0.id, key, value.as_ref());
        }
        record
    }

    /// Returns a record of the current values of the keys to be written. Returns `None` if rolling back might need
    /// space: absent keys are removed and words are replaced in place, but a record would have to be written again.
    fn record_of_before(&self) -> Result<Option<Vec<u8>>> {
        let mut record = record::begin(0, self.writes.len());
        for (tree, key) in self.writes.iter().filter(|(_, value)| value.is_some()).map(|(place, _)| place) {
            let (link, of_key) = &self.trees[*tree];
            let held = of_key.get(key)?;
            if matches!(held, Some(Encoded::Bytes(_))) {
                return Ok(None);
            }
            record::append(&mut record, link.id, key, held.as_ref());
        }
        Ok(Some(record))
    }

    /// Returns the maximum number of chunks needed, also by recovery after a crash; removals need none.
    fn chunks(&self, chunk_bytes: u64) -> usize {
        let (mut trees, mut last, mut classes, mut bytes) = (0, None, BTreeSet::new(), 0);
        for ((tree, key), value) in &self.writes {
            let Some(value) = value else { continue };
            trees += usize::from(last.replace(*tree) != Some(*tree));
            bytes += self.trees[*tree].0.split_bytes + LOG_BYTES;
            // A separator may be as long as the key.
            for (item, slots, is_key) in [(key, 2, true), (value, 1, false)] {
                if let Encoded::Bytes(item) = item {
                    let slot_bytes = record_slot_bytes(item.len());
                    bytes += slots * slot_bytes;
                    // Slots of each size have their own chunks.
                    classes.insert((*tree, slot_bytes, is_key));
                }
            }
        }
        trees * TREE_CHUNKS + classes.len() + bytes.div_ceil(chunk_bytes) as usize
    }

    /// Returns the changes that write, or those that remove, in order.
    fn changes(&self, write: bool) -> impl Iterator<Item = &Write> {
        self.writes.iter().filter(move |(_, value)| value.is_some() == write)
    }

    /// Commit 5: writes keys, and adds their previous values to `before`. Omits those that a tree is slower with, unless
    /// it `is_needed`: a rollback is not expected in reserved space. If a tree fails nevertheless, the next open redoes
    /// the commit.
    fn write(&self, before: &mut Before, is_needed: bool) -> Result<()> {
        self.change(
            |key, value| Some((key.item(), value?.item())),
            |tree, items| match !is_needed && tree.has_fast_upserts() {
                true => tree.upsert_many(items, &mut |_| before.is_partial = true),
                false => tree.write_many(items, &mut |held| before.values.push(held)),
            },
        )
    }

    /// Commit 5: removes keys in the same way.
    fn remove(&self, before: &mut Before) -> Result<()> {
        self.change(
            |key, value| value.is_none().then(|| key.item()),
            |tree, keys| tree.remove_many(keys, &mut |held| before.values.push(held)),
        )
    }

    /// Changes what `wanted` returns of the changes: one tree after the other, in groups.
    fn change<'a, T>(
        &'a self,
        wanted: impl Fn(&'a Encoded, Option<&'a Encoded>) -> Option<T>,
        mut change: impl FnMut(&AnyTree, &[T]) -> Result<()>,
    ) -> Result<()> {
        let (mut group, mut of) = (SmallVec::<[T; GROUP]>::new(), 0);
        for ((tree, key), value) in &self.writes {
            let Some(item) = wanted(key, value.as_ref()) else { continue };
            if group.len() == GROUP || of != *tree && !group.is_empty() {
                change(&self.trees[of].1, &group)?;
                group.clear();
            }
            of = *tree;
            group.push(item);
        }
        if group.is_empty() { Ok(()) } else { change(&self.trees[of].1, &group) }
    }

    /// Rolls back the changes made before a tree returned an error, if the previous values are known.
    #[cold]
    fn take_back(&self, before: &Before, error: Error) -> CommitOutcome {
        if before.is_partial {
            return CommitOutcome::Partial;
        }
        let changed: Vec<_> = self.changes(true).chain(self.changes(false)).zip(&before.values).collect();
        let mut changed = changed.into_iter().rev();
        let is_back =
            changed.all(|(((tree, key), _), held)| self.trees[*tree].1.put(key, held.as_ref()).is_ok());
        let is_whole = is_back && !matches!(error, Error::DurabilityLost);
        if is_whole { CommitOutcome::RolledBack(error) } else { CommitOutcome::Partial }
    }
}
