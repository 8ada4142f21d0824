//! Replay of committed but unfinished records when the pool is opened.

use std::collections::HashMap;

use bristlecone_pm::{Result, TreeEntry, TreeId};

use super::any_tree::AnyTree;
use super::record;
use crate::Pool;
use crate::api::handle::Handle;
use crate::dynamic::Kind;
use crate::index::any::AnyIndex;

impl Pool {
    /// Applies changes that were committed before a crash but not finished, before any tree is opened for
    /// users. Replay is idempotent. It skips trees that no longer exist, and records that a later one
    /// invalidates.
    ///
    /// # Errors
    ///
    /// Errors of opening the trees, and of writes.
    pub(crate) fn replay(&self, threads: usize) -> Result<()> {
        let file = &self.0.file;
        let records = file.pending_commits();
        if !records.is_empty() {
            let entries = file.trees()?;
            let mut trees = HashMap::<TreeId, Box<dyn AnyTree>>::new();
            let changes: Vec<_> = record::changes_that_count(&records).into_iter().collect::<Result<_>>()?;
            for change in changes.into_iter().flatten() {
                let Some(entry) = entries.iter().find(|entry| entry.id == change.tree) else { continue };
                if let std::collections::hash_map::Entry::Vacant(e) = trees.entry(change.tree) {
                    e.insert(self.open_any(entry, threads)?);
                }
                trees[&change.tree].put(&change.key, change.value.as_ref())?;
            }
        }
        file.end_commits()
    }

    /// Opens a tree of any codecs.
    fn open_any(&self, entry: &TreeEntry, threads: usize) -> Result<Box<dyn AnyTree>> {
        let file = &self.0.file;
        file.expect_whole(entry)?;
        let is_word = |kind: &str| Kind::of_directory(kind).map(|kind| kind.is_word());
        let inline = (is_word(&entry.spec.key_kind)?, is_word(&entry.spec.value_kind)?);
        let opener = file.opener();
        Ok(match file.open_index(entry, inline, threads)? {
            AnyIndex::InlineInline(tree) => Box::new(Handle::new(tree, opener)),
            AnyIndex::InlineRecord(tree) => Box::new(Handle::new(tree, opener)),
            AnyIndex::RecordInline(tree) => Box::new(Handle::new(tree, opener)),
            AnyIndex::RecordRecord(tree) => Box::new(Handle::new(tree, opener)),
        })
    }
}

/// Commits a value of a key without applying it, to simulate a batch whose writes fail halfway and cannot
/// be rolled back.
///
/// # Errors
///
/// [`Error::DurabilityLost`](crate::Error) on success; another error if the log has no space.
#[cfg(feature = "lab")]
pub fn leave_in_part(pool: &Pool, tree: &crate::Tree<u64, u64>, key: u64, value: u64) -> Result<()> {
    use crate::index::any::CommitOutcome;
    use crate::index::parts::encoded::Encoded;

    let mut wanted = record::begin(0, 1);
    record::append(&mut wanted, tree.link.id, &Encoded::Word(key), Some(&Encoded::Word(value)));
    pool.0.file.commit(&wanted, 0, &mut || CommitOutcome::Partial)
}
