//! Replay of committed but unfinished records when the pool is opened.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::ops::Bound;

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::{Error, Issue, Result, TreeEntry, TreeId};

use super::any_tree::AnyTree;
use super::record::{self, KeyRange, Step};
use crate::Pool;
use crate::dynamic::Kind;

impl Pool {
    /// Applies changes that were committed before a crash but not finished, before any tree is opened for
    /// users. Replay is idempotent. It skips trees that no longer exist, and records that a later one
    /// invalidates. A damaged tree does not keep a read-only pool from opening: salvage of the tree includes the
    /// committed changes.
    ///
    /// # Errors
    ///
    /// Errors of opening the trees, and of writes.
    pub(crate) fn replay(&self, threads: usize) -> Result<()> {
        let file = &self.0.file;
        let records = file.pending_commits();
        if !records.is_empty() {
            let entries = file.trees()?;
            let mut trees = HashMap::<TreeId, AnyTree>::new();
            let mut refused = HashMap::new();
            let steps: Vec<_> = record::steps_that_count(&records).into_iter().collect::<Result<_>>()?;
            for step in steps.into_iter().flatten() {
                let Some(entry) = entries.iter().find(|entry| entry.id == step.tree()) else { continue };
                let mut apply = || {
                    let tree = match trees.entry(entry.id) {
                        Occupied(tree) => tree.into_mut(),
                        Vacant(place) => place.insert(self.open_any(entry, threads)?),
                    };
                    redo(tree, &step)
                };
                if refused.contains_key(&entry.id) {
                    continue;
                }
                match apply() {
                    Err(Error::Corrupted { what, location }) if file.is_read_only() => {
                        refused.insert(entry.id, Issue::new(location, what));
                    }
                    applied => applied?,
                }
            }
            *lock(&self.0.refused) = refused;
        }
        file.end_commits()
    }

    /// Opens a tree of any codecs.
    pub(crate) fn open_any(&self, entry: &TreeEntry, threads: usize) -> Result<AnyTree> {
        let file = &self.0.file;
        file.expect_whole(entry)?;
        let tree = file.open_index(entry, Kind::are_words(&entry.spec)?, threads)?;
        Ok(AnyTree::new(tree.of_any(), file.opener()))
    }
}

/// Executes a step of a record, of which any part may have been executed before.
fn redo(tree: &AnyTree, step: &Step) -> Result<()> {
    match step {
        Step::Change(change) => tree.put(&change.key, change.value.as_ref()),
        Step::Remove(KeyRange { first, last, .. }) => {
            tree.remove_range((Bound::Included(first), Bound::Included(last)), None).map(drop)
        }
    }
}
