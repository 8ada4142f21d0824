//! An entry of the change stream, and its changes.

use std::sync::Arc;
use std::time::SystemTime;

use bristlecone_pm::{Error, Result, Storage, StoredFile, TreeEntry, TreeId};

use super::aside;
use super::entry::{Aside, Directory, Kind as EntryKind, broken};
use super::manifest::read_manifest;
use super::trees::Trees;
use crate::dynamic::encode::{self, Role};
use crate::dynamic::{Datum, Kind};
use crate::index::parts::encoded::Encoded;
use crate::transaction::record::{self, Change};

/// Bytes of a file that are read together.
const PIECE_BYTES: usize = 1 << 20;

/// A commit in a stream of changes: one write, a group of up to 16 writes of a multi-key call, a batch or transaction, or
/// a change of the directory of trees. See [`Pool::changes`](crate::Pool::changes).
#[derive(Clone)]
pub struct JournalEntry {
    pub(super) lsn: u64,
    pub(super) next_lsn: u64,
    pub(super) time: SystemTime,
    pub(super) what: What,
    /// The trees behind the entry.
    pub(super) trees: Trees,
    pub(super) storage: Arc<dyn Storage>,
}

/// What an entry changes.
#[derive(Clone)]
pub enum What {
    /// The first `some` changes of a body.
    Keys { body: Body, some: usize },
    /// The directory, with the items of a tree that was created with some.
    Directory { change: JournalChange, items: Option<(TreeId, Aside)> },
}

/// Where changes of keys are.
#[derive(Clone)]
pub enum Body {
    Inline(Arc<[u8]>),
    File(Aside),
}

/// A change in a stream of changes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JournalChange {
    /// The tree, with the name that it had before the change. A tree that is created has its new name.
    pub tree: Arc<TreeEntry>,
    /// What happened to it.
    pub change: Changed,
}

/// What a change did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Changed {
    /// A key got a value.
    Put {
        /// The key.
        key: Datum<'static>,
        /// Its new value.
        value: Datum<'static>,
        /// Whether the key was present before. `None`: the write did not look, as `upsert`; or the commit is longer than a
        /// quarter of the journal's ring (4 MiB); or its process was killed before the commit was complete.
        existed: Option<bool>,
    },
    /// A key was removed.
    Remove {
        /// The key.
        key: Datum<'static>,
        /// Whether it was present before: as for [`Put`](Self::Put).
        existed: Option<bool>,
    },
    /// The tree was created. If it was created with items, they follow in the same entry.
    Create,
    /// The tree was dropped, with all items.
    Drop,
    /// The tree was renamed.
    Rename {
        /// Its new name.
        to: String,
    },
    /// All items of the tree were removed.
    Clear {
        /// The tree's new number.
        id: TreeId,
    },
}

impl std::fmt::Debug for JournalEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lsn, next_lsn, time, .. } = self;
        f.debug_struct("JournalEntry")
            .field("lsn", lsn)
            .field("next_lsn", next_lsn)
            .field("time", time)
            .finish_non_exhaustive()
    }
}

impl JournalEntry {
    /// Returns the LSN of the entry.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Returns the LSN from which on a later stream continues behind this entry.
    pub fn next_lsn(&self) -> u64 {
        self.next_lsn
    }

    /// Returns when the entry was written to the journal, in milliseconds by the clock of the machine. It never is before
    /// that of an earlier entry, even if the clock was set back.
    pub fn time(&self) -> SystemTime {
        self.time
    }

    /// Returns the changes of the entry, at least one, in order. Those of a batch or transaction are in the order of trees
    /// and keys, and were applied together. Changes of a long commit are read from its file while the result is iterated:
    /// all of them need not fit in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`] for damage; [`Error::Pruned`] if the file was removed meanwhile; errors of the system. Items of
    /// the result have the same errors.
    pub fn changes(&self) -> Result<JournalChanges> {
        let (first, source, left, tree) = match &self.what {
            What::Keys { body: Body::Inline(body), some } => {
                (None, Source::Bytes(body.clone(), 0), *some, None)
            }
            What::Keys { body: Body::File(aside), some } => (None, self.file(aside)?, *some, None),
            What::Directory { change, items: None } => {
                (Some(change), Source::Bytes(Arc::default(), 0), 0, None)
            }
            What::Directory { change, items: Some((tree, aside)) } => {
                (Some(change), self.file(aside)?, usize::MAX, Some(*tree))
            }
        };
        Ok(JournalChanges { first: first.cloned(), source, left, tree, trees: self.trees.clone() })
    }

    fn file(&self, aside: &Aside) -> Result<Source> {
        match aside::verify(&*self.storage, aside) {
            Ok(file) => Ok(Source::File { file, bytes: aside.bytes, offset: 0, buffer: Vec::new(), at: 0 }),
            Err(error) => match read_manifest(&*self.storage)?.kept {
                oldest if oldest > self.lsn => Err(Error::Pruned { oldest }),
                _ => Err(error),
            },
        }
    }
}

/// The changes of an entry: see [`JournalEntry::changes`].
pub struct JournalChanges {
    first: Option<JournalChange>,
    source: Source,
    /// Number of changes that are left, if there are as many.
    left: usize,
    /// The tree of all changes, if these do not name it.
    tree: Option<TreeId>,
    trees: Trees,
}

enum Source {
    /// Bytes, and where the next change begins.
    Bytes(Arc<[u8]>, usize),
    File {
        file: Arc<dyn StoredFile>,
        bytes: u64,
        offset: u64,
        buffer: Vec<u8>,
        at: usize,
    },
}

impl std::fmt::Debug for JournalChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalChanges").finish_non_exhaustive()
    }
}

impl Source {
    /// Takes the next change off; returns `None` at the end.
    fn take(&mut self) -> Result<Option<(Change, Option<bool>)>> {
        match self {
            Self::Bytes(bytes, at) if *at == bytes.len() => Ok(None),
            Self::Bytes(bytes, at) => {
                let mut rest = &bytes[*at..];
                let taken = record::take_marked(&mut rest).ok_or_else(broken)?;
                *at = bytes.len() - rest.len();
                Ok(Some(taken))
            }
            Self::File { file, bytes, offset, buffer, at } => loop {
                let mut rest = &buffer[*at..];
                if let Some(taken) = record::take_marked(&mut rest) {
                    *at = buffer.len() - rest.len();
                    return Ok(Some(taken));
                }
                if offset == bytes {
                    return if *at == buffer.len() { Ok(None) } else { Err(broken()) };
                }
                buffer.drain(..*at);
                *at = 0;
                let (kept, more) = (buffer.len(), (*bytes - *offset).min(PIECE_BYTES as u64));
                buffer.resize(kept + more as usize, 0);
                if (file.read(*offset, &mut buffer[kept..])? as u64) < more {
                    return Err(broken());
                }
                *offset += more;
            },
        }
    }
}

impl Iterator for JournalChanges {
    type Item = Result<JournalChange>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        self.left = self.left.checked_sub(1)?;
        let taken = self.source.take().transpose()?;
        Some(taken.and_then(|(change, existed)| self.change(change, existed)))
    }
}

impl JournalChanges {
    fn change(&self, Change { tree, key, value }: Change, existed: Option<bool>) -> Result<JournalChange> {
        // A tree that is created with items was empty.
        let existed = if self.tree.is_some() { Some(false) } else { existed };
        let tree = self.trees.get(self.tree.unwrap_or(tree))?;
        let (key_kind, value_kind) = tree.kinds()?;
        let key = datum(Role::Key, key_kind, key)?;
        let change = match value {
            Some(value) => Changed::Put { key, value: datum(Role::Value, value_kind, value)?, existed },
            None => Changed::Remove { key, existed },
        };
        Ok(JournalChange { tree: Arc::clone(&tree.entry), change })
    }
}

/// Returns a stored key or value of a kind.
fn datum(role: Role, kind: &Kind, stored: Encoded) -> Result<Datum<'static>> {
    encode::take((role, kind), stored).ok_or_else(broken)
}

/// Returns the file of a body that has one.
pub fn aside_of(body: &[u8]) -> Result<Aside> {
    Aside::decode(body).ok_or_else(broken)
}

/// Returns what a change of the directory does, and applies it.
pub fn directory(kind: EntryKind, body: &[u8], trees: &mut Trees) -> Result<What> {
    let (change, rest) = Directory::of(kind, body).ok_or_else(broken)?;
    let (changed, id) = match &change {
        Directory::Create(id, _) => (Changed::Create, *id),
        Directory::Drop(id) => (Changed::Drop, *id),
        Directory::Rename(id, to) => (Changed::Rename { to: to.clone() }, *id),
        Directory::Clear(_, id, _) => (Changed::Clear { id: *id }, *id),
    };
    let items = if rest.is_empty() { None } else { Some((id, aside_of(rest)?)) };
    Ok(What::Directory { change: JournalChange { tree: trees.apply(change)?, change: changed }, items })
}
