//! The entries of a journal, with the keys and values of the trees' kinds.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bristlecone_pm::{Error, Result, Storage, TreeId, TreeSpec};

use super::aside;
use super::checkpoint::trees_of;
use super::entry::{self, Aside, Directory, Entry, Kind as EntryKind, broken};
use super::inspect::{JournalFiles, read_manifest};
use super::manifest::Manifest;
use super::restore::replay_from;
use crate::dynamic::encode::{Records, Role, Stored, Words};
use crate::dynamic::{Datum, Kind};
use crate::index::parts::encoded::Encoded;
use crate::transaction::record::Change;

/// An entry of a journal: see [`JournalFiles::entries`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JournalEntry {
    /// Its LSN.
    pub lsn: u64,
    /// LSN of the next entry.
    pub next_lsn: u64,
    /// When it was written to the file, by the clock of the machine.
    pub time: SystemTime,
    /// Its changes, at least one. Those of a batch or transaction are in the order of their keys, and were applied
    /// together.
    pub changes: Vec<JournalChange>,
}

/// A change in an entry of a journal.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum JournalChange {
    /// A key got a value.
    Put {
        /// The tree.
        tree: String,
        /// The key.
        key: Datum<'static>,
        /// Its new value.
        value: Datum<'static>,
    },
    /// A key was removed. It need not have existed.
    Remove {
        /// The tree.
        tree: String,
        /// The key.
        key: Datum<'static>,
    },
    /// A tree was created. If it was created with items, they follow.
    Create(TreeSpec),
    /// A tree was dropped.
    Drop {
        /// The tree.
        tree: String,
    },
    /// A tree was renamed.
    Rename {
        /// The tree.
        tree: String,
        /// Its new name.
        to: String,
    },
    /// All items of a tree were removed.
    Clear {
        /// The tree.
        tree: String,
    },
}

impl JournalFiles {
    /// Calls `visit` with each entry from an LSN on, until it breaks or there are no more. `None` begins with the first
    /// entry that the journal has; an LSN within an entry begins with the next one.
    ///
    /// The pool may be open in any process. Entries of a writer are found once they are in a file, and then before a sync
    /// has made them durable. The call ends at the last entry that it finds; continue with the `next_lsn` of the last one.
    ///
    /// Entries before the last checkpoint are not kept.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an LSN before the begin of the last checkpoint, also if a checkpoint removes entries before
    /// they are read; [`Error::Corrupted`] for damage; [`Error::Newer`]; errors of the system.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use bristlecone::{Domain, JournalChange, JournalFiles, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-entries-{}.pool", std::process::id());
    ///
    /// let pool = Pool::options().domain(Domain::Journal).create(true).open(&path)?;
    /// pool.tree::<&str, u64>("ages")?.insert("Methuselah", 4857)?;
    /// let mut found = Vec::new();
    /// JournalFiles::open(format!("{path}.journal"))?.entries(None, &mut |entry| {
    ///     found.extend(entry.changes);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert!(matches!(&found[0], JournalChange::Create(spec) if spec.name == "ages"));
    /// assert!(matches!(&found[1], JournalChange::Put { value, .. } if *value == 4857u64.into()));
    /// # pool.close()?;
    /// # std::fs::remove_file(&path).unwrap();
    /// # std::fs::remove_dir_all(format!("{path}.journal")).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn entries(
        &self,
        from: Option<u64>,
        visit: &mut dyn FnMut(JournalEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut reading = Reading { from, next: None, trees: HashMap::new(), is_over: false };
        loop {
            let manifest = read_manifest(&*self.storage)?;
            let read = reading.read(&*self.storage, &manifest, visit);
            match read {
                _ if reading.is_over => return Ok(()),
                // A checkpoint removes files that an older manifest names.
                Err(error) if read_manifest(&*self.storage)? == manifest => return Err(error),
                Err(_) => {}
                // A segment that was being written may have a successor.
                Ok(()) if read_manifest(&*self.storage)?.segments.len() == manifest.segments.len() => {
                    return Ok(());
                }
                Ok(()) => {}
            }
        }
    }
}

/// How far the entries of a journal were read.
struct Reading {
    /// The LSN that was asked for.
    from: Option<u64>,
    /// The LSN that is read next; `None` before the first one.
    next: Option<u64>,
    trees: HashMap<TreeId, TreeSpec>,
    is_over: bool,
}

/// The error that ends a replay at the wish of the visitor.
fn over() -> Error {
    Error::Conflict
}

impl Reading {
    fn read(
        &mut self,
        storage: &dyn Storage,
        manifest: &Manifest,
        visit: &mut dyn FnMut(JournalEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        let begin = manifest.begin();
        let wanted = self.next.or(self.from).unwrap_or(begin);
        if wanted < begin {
            return Err(Error::invalid(format!(
                "the journal in {} begins at LSN {begin}: entries before it are only in the checkpoint",
                storage.describe()
            )));
        }
        if self.next.is_none() {
            let trees = manifest.checkpoint.map(|checkpoint| trees_of(storage, manifest.uuid, &checkpoint));
            self.trees = trees.transpose()?.unwrap_or_default().into_iter().collect();
            self.next = Some(begin);
        }
        let from = self.from.unwrap_or(0);
        let end = replay_from(storage, manifest, self.next.unwrap_or(begin), &mut |block, entry| {
            let next_lsn = entry.lsn + entry.head.bytes();
            let changes = self.changes(storage, entry, entry.lsn >= from)?;
            self.next = Some(next_lsn);
            if changes.is_empty() {
                return Ok(());
            }
            let time = UNIX_EPOCH + Duration::from_millis(block.time);
            match visit(JournalEntry { lsn: entry.lsn, next_lsn, time, changes }) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => {
                    self.is_over = true;
                    Err(over())
                }
            }
        })?;
        self.next = Some(end.lsn.max(begin));
        Ok(())
    }

    /// Returns the changes of an entry that count, or none if they are not wanted.
    fn changes(
        &mut self,
        storage: &dyn Storage,
        Entry { head, body, .. }: &Entry<'_>,
        is_wanted: bool,
    ) -> Result<Vec<JournalChange>> {
        let is_directory = !matches!(head.kind, EntryKind::Each | EntryKind::All);
        if head.counts == 0 || !is_wanted && !is_directory {
            return Ok(Vec::new());
        }
        let long;
        let body = match head.aside {
            true => {
                long = aside::read(storage, &Aside::decode(body).ok_or_else(broken)?)?;
                &long
            }
            false => *body,
        };
        if !is_directory {
            let some = if head.kind == EntryKind::Each { usize::from(head.counts) } else { usize::MAX };
            return entry::changes(body)?
                .iter()
                .take(some)
                .map(|change| self.change(change.tree, change))
                .collect();
        }
        let (change, rest) = Directory::of(head.kind, body).ok_or_else(broken)?;
        let mut changes = Vec::new();
        match change {
            Directory::Create(id, spec) => {
                self.trees.insert(id, spec.clone());
                changes.push(JournalChange::Create(spec));
                if is_wanted && !rest.is_empty() {
                    let items = aside::read(storage, &Aside::decode(rest).ok_or_else(broken)?)?;
                    for item in entry::changes(&items)? {
                        changes.push(self.change(id, &item)?);
                    }
                }
            }
            Directory::Drop(id) => {
                let spec = self.trees.remove(&id).ok_or_else(broken)?;
                changes.push(JournalChange::Drop { tree: spec.name });
            }
            Directory::Rename(id, to) => {
                let spec = self.trees.get_mut(&id).ok_or_else(broken)?;
                let tree = std::mem::replace(&mut spec.name, to.clone());
                changes.push(JournalChange::Rename { tree, to });
            }
            Directory::Clear(old, new, tree) => {
                let spec = self.trees.remove(&old).ok_or_else(broken)?;
                self.trees.insert(new, spec);
                changes.push(JournalChange::Clear { tree });
            }
        }
        if !is_wanted {
            changes.clear();
        }
        Ok(changes)
    }

    fn change(&self, tree: TreeId, Change { key, value, .. }: &Change) -> Result<JournalChange> {
        let TreeSpec { name, key_kind, value_kind, .. } = self.trees.get(&tree).ok_or_else(broken)?;
        let key = datum(Role::Key, key_kind, key)?;
        Ok(match value {
            Some(value) => {
                JournalChange::Put { tree: name.clone(), key, value: datum(Role::Value, value_kind, value)? }
            }
            None => JournalChange::Remove { tree: name.clone(), key },
        })
    }
}

/// Returns a stored key or value of a kind.
fn datum(role: Role, kind: &str, stored: &Encoded) -> Result<Datum<'static>> {
    let kind = Kind::of_directory(kind)?;
    let datum = match stored {
        Encoded::Word(word) if kind.is_word() => Words::take(&kind, role, *word),
        Encoded::Bytes(bytes) if !kind.is_word() => Records::take(&kind, role, bytes.to_vec()),
        _ => None,
    };
    datum.ok_or_else(broken)
}
