//! Operations on the trees of a pool: open, create, list, rename, clear, drop.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::{Error, Issue, Result, TreeEntry, TreeId, trace_span};

use crate::api::pool::LOOKS;
use crate::api::salvage::open_damaged;
use crate::dynamic::Kind;
use crate::index::any::{AnyIndex, OpenTree};
use crate::journal::entry::Directory;
use crate::transaction::Link;
use crate::{Design, Key, Pool, Tree, TreeOptions, Value};

impl Pool {
    /// Opens the tree with this name, or creates it with default options.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for a tree of other types; otherwise same as [`TreeOptions::open`] and
    /// [`TreeOptions::create`].
    ///
    /// ```
    /// # use bristlecone::{Error, Pool};
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let places = pool.tree::<(&str, u32), u64>("places")?;
    /// places.insert(("Ulm", 89073), 1)?;
    /// // Handles to one tree, from all threads.
    /// let again = pool.tree::<(&str, u32), u64>("places")?;
    /// assert_eq!(again.get(("Ulm", 89073))?, Some(1));
    /// assert!(matches!(pool.tree::<u64, u64>("places"), Err(Error::Mismatch { .. })));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn tree<K: Key, V: Value>(&self, name: &str) -> Result<Tree<K, V>> {
        let options = self.tree_options(name);
        for _ in 1..LOOKS {
            match options.open() {
                Err(Error::NoSuchTree { .. }) if !self.0.file.is_read_only() => {}
                opened => return opened,
            }
            match options.create() {
                // Another thread created the tree first: open that one.
                Err(Error::TreeExists { .. }) => {}
                created => return created,
            }
        }
        options.open()
    }

    /// Returns options for creating a tree, or for opening one that must have them.
    pub fn tree_options(&self, name: &str) -> TreeOptions {
        TreeOptions::new(self.clone(), name)
    }

    /// Returns the trees in the pool, in directory order.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`] if an entry of the directory cannot be read; [`Error::Forked`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// pool.tree::<(&str, u32), u64>("visits")?;
    /// for tree in pool.trees()? {
    ///     println!("{}: {} to {}", tree.spec.name, tree.spec.key_kind, tree.spec.value_kind);
    ///     assert_eq!(tree.spec.key_kind, "(str, u32)");
    /// }
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn trees(&self) -> Result<Vec<TreeEntry>> {
        self.0.file.here()?;
        self.0.file.trees()
    }

    /// Drops a tree and its contents. After `Ok` it is gone and its space is free. The drop is atomic: after `Err` or
    /// a crash the tree is complete or gone.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTree`]; [`Error::TreeInUse`] while a handle to it exists; [`Error::ReadOnly`].
    ///
    /// ```
    /// # use bristlecone::{Error, Pool};
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let tree = pool.tree::<u64, u64>("t")?;
    /// assert!(matches!(pool.drop_tree("t"), Err(Error::TreeInUse { .. })));
    /// drop(tree);
    /// pool.drop_tree("t")?;
    /// assert!(pool.trees()?.is_empty());
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn drop_tree(&self, name: &str) -> Result<()> {
        self.0.file.writable()?;
        let mut open = self.lock_open();
        let entry = self.find_closed(name, &open)?;
        open.remove(&entry.id);
        let recorded = self.begin_directory(Directory::Drop(entry.id), None)?;
        let dropped = trace_span("a tree is dropped", name, || self.0.file.drop_tree(entry.id));
        let lsn = recorded.end(&dropped, |()| None);
        dropped?;
        self.0.epochs.forget(entry.id);
        // Not under the lock: others share the sync.
        drop(open);
        self.acknowledge(lsn)
    }

    /// Renames a tree atomically, whether it is open or not. Handles to the tree remain valid.
    ///
    /// After `Ok` the new name is durable. After `Err` the tree keeps the old name. After a crash it has exactly one
    /// of the two names.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTree`] if there is no tree `from`; [`Error::TreeExists`] if another tree is named `to`;
    /// [`Error::Invalid`] or [`Error::TooLong`] for an invalid name; [`Error::ReadOnly`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let draft = pool.tree::<u64, u64>("draft")?;
    /// pool.rename_tree("draft", "final")?;
    /// draft.insert(1, 2)?;
    /// assert_eq!(pool.tree::<u64, u64>("final")?.get(1)?, Some(2));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn rename_tree(&self, from: &str, to: &str) -> Result<()> {
        self.0.file.writable()?;
        let open = self.lock_open();
        let entry = self.find(from)?;
        let recorded = self.begin_directory(Directory::Rename(entry.id, to.to_owned()), None)?;
        let renamed = self.0.file.rename_tree(from, to);
        let lsn = recorded.end(&renamed, |()| None);
        drop(open);
        renamed.and(self.acknowledge(lsn))
    }

    /// Removes all items of a tree atomically. An empty tree with the same name, types, design and options replaces
    /// it, and its space becomes free.
    ///
    /// After `Ok` the change is durable. After `Err` nothing has changed. After a crash the tree has all of its items
    /// or none. The empty tree is created before the old one is dropped: in a full pool there may be no space for it,
    /// and with 65,536 trees no directory entry. [`drop_tree`](Self::drop_tree) needs neither.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTree`]; [`Error::TreeInUse`] while a handle to it exists, so that no reader sees the change;
    /// [`Error::PoolFull`] or [`Error::MediumFull`]; [`Error::ReadOnly`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// pool.tree::<u64, u64>("t")?.insert(1, 2)?;
    /// pool.clear_tree("t")?;
    /// assert!(pool.tree::<u64, u64>("t")?.is_empty()?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn clear_tree(&self, name: &str) -> Result<()> {
        self.0.file.writable()?;
        let mut open = self.lock_open();
        let entry = self.find_closed(name, &open)?;
        let inline = Kind::are_words(&entry.spec)?;
        let change = Directory::Clear(entry.id, TreeId(0), name.to_owned());
        let recorded = self.begin_directory(change, None)?;
        let emptied = trace_span("a tree is cleared", name, || self.0.file.clear_index(&entry, inline));
        let lsn = recorded.end(&emptied, |emptied| Some(emptied.id));
        self.0.epochs.note_cleared(entry.id, emptied?.id);
        open.remove(&entry.id);
        drop(open);
        self.acknowledge(lsn)
    }

    /// Verifies a tree of any key and value types; returns its number of items and the issues.
    ///
    /// # Errors
    ///
    /// Same as [`dynamic_tree`](Self::dynamic_tree) if the tree cannot be opened; it is not verified then.
    pub fn check_tree(&self, name: &str) -> Result<(u64, Vec<Issue>)> {
        let tree = self.dynamic_tree(name)?;
        let issues = tree.check();
        // Of a tree that recovery refused, these are the items that are readable.
        Ok((tree.stats()?.items, issues))
    }

    /// Returns the tree with this name, which must have no open handle and not be part of a backup in progress.
    fn find_closed(&self, name: &str, open: &HashMap<TreeId, OpenTree>) -> Result<TreeEntry> {
        let entry = self.find(name)?;
        if let Some(journal) = self.0.journal.get() {
            journal.release_tree(entry.id);
            journal.wait_released(|| open.get(&entry.id).is_some_and(OpenTree::is_open));
        }
        if self.0.holds.load(Relaxed) > 0 || open.get(&entry.id).is_some_and(OpenTree::is_open) {
            return Err(Error::TreeInUse { name: name.to_owned() });
        }
        Ok(entry)
    }

    /// Returns the tree with this name, recovered by `recover` if it is not open yet.
    pub(crate) fn open_index(
        &self,
        name: &str,
        are_words: (bool, bool),
        verify: impl FnOnce(&TreeEntry) -> Result<()>,
        recover: impl FnOnce(&TreeEntry) -> Result<AnyIndex>,
    ) -> Result<(TreeEntry, AnyIndex)> {
        self.0.file.here()?;
        let mut open = self.lock_open();
        let entry = self.find(name)?;
        verify(&entry)?;
        // If another process writes, the number may belong to another tree by now.
        let is_own = !self.0.file.is_followed();
        if let Some(tree) = open.get(&entry.id).filter(|_| is_own).and_then(OpenTree::get) {
            return Ok((entry, tree));
        }
        let refused =
            lock(&self.0.refused).get(&entry.id).map(|issue| (issue.what.clone(), issue.location.clone()));
        let recovered = match refused {
            Some((what, location)) => Err(Error::corrupted(what, location)),
            None => self.0.file.expect_whole(&entry).and_then(|()| recover(&entry)),
        };
        let tree = match recovered {
            Err(error @ Error::Corrupted { .. }) if is_own && self.0.file.is_read_only() => {
                self.read_damaged(&entry, are_words, error)?
            }
            recovered => recovered?,
        };
        open.insert(entry.id, OpenTree::new(&tree));
        Ok((entry, tree))
    }

    /// Creates a tree with `create`, which also returns the LSN up to which the journal must be durable, and returns it.
    pub(crate) fn create_index(
        &self,
        create: impl FnOnce() -> Result<(TreeEntry, AnyIndex, Option<u64>)>,
    ) -> Result<(TreeEntry, AnyIndex)> {
        let mut open = self.lock_open();
        let (entry, tree, lsn) = create()?;
        open.insert(entry.id, OpenTree::new(&tree));
        drop(open);
        self.acknowledge(lsn)?;
        Ok((entry, tree))
    }

    /// Returns a handle to an open tree.
    pub(crate) fn handle<K: Key, V: Value>(
        &self,
        (entry, tree): &(TreeEntry, AnyIndex),
        schema: (K::Schema, V::Schema),
    ) -> Result<Tree<K, V>> {
        Ok(Tree::new(tree.typed()?, self.clone(), self.link(entry), schema))
    }

    /// Returns the link of a tree to batches and snapshots.
    fn link(&self, entry: &TreeEntry) -> Link {
        let (identity, cleared) = self.0.epochs.identity(entry.id);
        let split_bytes = Design::split_bytes(&entry.spec);
        let (is_known, expire_after) = (split_bytes.is_ok(), entry.spec.expire_after_ms);
        Link {
            id: entry.id,
            identity,
            cleared,
            split_bytes: split_bytes.unwrap_or(0),
            is_known,
            expire_after,
        }
    }

    /// Opens the tree of an entry.
    pub(crate) fn recover(&self, entry: &TreeEntry, are_words: (bool, bool)) -> Result<AnyIndex> {
        let recover = || self.0.file.open_index(entry, are_words, self.0.recovery_threads);
        trace_span("a tree is recovered", &entry.spec.name, || self.0.meters.recovery(recover))
    }

    /// Reads what is readable of a tree that recovery refused with this error.
    fn read_damaged(&self, entry: &TreeEntry, are_words: (bool, bool), error: Error) -> Result<AnyIndex> {
        let info = self.0.file.info();
        let Some(path) = info.path.filter(|_| Design::of(&entry.spec).is_ok()) else { return Err(error) };
        let read = || open_damaged((&path, &info.uuid), entry, are_words, &error);
        trace_span("a damaged tree is read", &entry.spec.name, read)
    }

    pub(crate) fn find(&self, name: &str) -> Result<TreeEntry> {
        self.0.file.find_tree(name)?.ok_or_else(|| no_such_tree(name))
    }
}

fn no_such_tree(name: &str) -> Error {
    Error::NoSuchTree { name: name.to_owned() }
}
