//! Type-erased pools and trees: the medium, and the codecs of keys and values, are known only at run time.
//!
//! This is the boundary of the generic code. Opening a pool selects its medium, and each design is compiled once
//! for that medium there. Users of [`Tree`](crate::Tree) compile only the code that encodes their keys and
//! values.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bristlecone_pm::{
    Chunk, Events, Glance, Issue, Medium, Opener, Part, PoolFile, PoolInfo, Result, SlotKind, TreeEntry,
    TreeId, TreeSpec,
};

use super::of_any::of_any;
use super::of_keys::{OfKeys, Shared};
use super::table::{open, part_of};
use super::{Described, Design, Form};
use crate::Error;
use crate::index::parts::codec::{self, Codec, Inline, Record};

/// A tree of any codec.
pub enum AnyIndex {
    /// Its keys are words.
    Words(OfKeys<Inline>),
    /// Its keys are records.
    Records(OfKeys<Record>),
}

impl AnyIndex {
    /// Opens the tree of an entry, with the given codecs for keys and values.
    fn open<M: Medium>(
        pool: &Arc<PoolFile<M>>,
        entry: &TreeEntry,
        (keys, values): (bool, bool),
        threads: usize,
    ) -> Result<Self> {
        let values = if values { Form::Words } else { Form::Records };
        let entry = Described { entry, values };
        Ok(match keys {
            true => Self::Words(open(pool, entry, threads)?),
            false => Self::Records(open(pool, entry, threads)?),
        })
    }

    /// Returns the tree with its codecs as type parameters, or as one of any codec.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if its codecs are different.
    pub fn typed<K: Codec, V: Codec>(&self) -> Result<Shared<K, V>> {
        let own: &dyn Any = match self {
            Self::Words(OfKeys::Words(tree)) => tree,
            Self::Words(OfKeys::Records(tree)) => tree,
            Self::Records(OfKeys::Words(tree)) => tree,
            Self::Records(OfKeys::Records(tree)) => tree,
        };
        if let Some(tree) = own.downcast_ref::<Shared<K, V>>() {
            return Ok(Arc::clone(tree));
        }
        let any: Box<dyn Any> = Box::new(self.of_any());
        match any.downcast::<Shared<K, V>>() {
            Ok(tree) => Ok(*tree),
            Err(_) => Err(Error::invalid("the tree has keys or values of other codecs")),
        }
    }

    /// Returns the tree as one of any codec.
    pub fn of_any(&self) -> Shared<codec::Any, codec::Any> {
        match self {
            Self::Words(OfKeys::Words(tree)) => of_any(tree),
            Self::Words(OfKeys::Records(tree)) => of_any(tree),
            Self::Records(OfKeys::Words(tree)) => of_any(tree),
            Self::Records(OfKeys::Records(tree)) => of_any(tree),
        }
    }
}

/// A tree that may have handles.
pub struct OpenTree(Box<dyn Fn() -> Option<AnyIndex> + Send + Sync>);

impl fmt::Debug for OpenTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTree").finish_non_exhaustive()
    }
}

impl OpenTree {
    pub fn new(tree: &AnyIndex) -> Self {
        match tree {
            AnyIndex::Words(OfKeys::Words(tree)) => {
                Self::of(tree, |tree| AnyIndex::Words(OfKeys::Words(tree)))
            }
            AnyIndex::Words(OfKeys::Records(tree)) => {
                Self::of(tree, |tree| AnyIndex::Words(OfKeys::Records(tree)))
            }
            AnyIndex::Records(OfKeys::Words(tree)) => {
                Self::of(tree, |tree| AnyIndex::Records(OfKeys::Words(tree)))
            }
            AnyIndex::Records(OfKeys::Records(tree)) => {
                Self::of(tree, |tree| AnyIndex::Records(OfKeys::Records(tree)))
            }
        }
    }

    fn of<K: Codec, V: Codec>(tree: &Shared<K, V>, any: fn(Shared<K, V>) -> AnyIndex) -> Self {
        let tree = Arc::downgrade(tree);
        Self(Box::new(move || tree.upgrade().map(any)))
    }

    /// Returns whether the tree has a handle.
    pub fn is_open(&self) -> bool {
        self.get().is_some()
    }

    /// Returns the tree if it is open.
    pub fn get(&self) -> Option<AnyIndex> {
        (self.0)()
    }
}

/// Outcome of applying a commit to its trees.
#[derive(Debug)]
pub enum CommitOutcome {
    /// All changes were applied.
    Applied,
    /// A change failed, and the earlier ones were rolled back.
    RolledBack(Error),
    /// A change failed, and the earlier ones remain applied: the next open replays the log.
    Partial,
}

/// Removals of a batch without a space reservation.
pub struct Removals<'a> {
    /// Size of the record in bytes.
    pub bytes: usize,
    /// Returns the record, which invalidates the one with this number.
    pub record: &'a dyn Fn(u64) -> Vec<u8>,
}

/// A batch without a space reservation.
pub struct Trial<'a> {
    /// The record of the previous values of the keys to be written.
    pub before: &'a [u8],
    /// Writes, and rolls back if the space does not suffice for all writes.
    pub write: &'a mut dyn FnMut() -> CommitOutcome,
    /// `None` if nothing is removed.
    pub removals: Option<Removals<'a>>,
    /// Removes, which needs no space.
    pub remove: &'a mut dyn FnMut() -> CommitOutcome,
}

/// A pool file on any medium. The methods are those of [`PoolFile`].
pub trait AnyPool: Any + Send + Sync {
    fn opener(&self) -> Opener;
    fn here(&self) -> Result<()>;
    fn is_read_only(&self) -> bool;

    /// Returns whether another process writes to the pool, and opens and drops trees.
    fn is_followed(&self) -> bool {
        false
    }

    fn writable(&self) -> Result<()>;
    fn trees(&self) -> Result<Vec<TreeEntry>>;
    fn find_tree(&self, name: &str) -> Result<Option<TreeEntry>>;
    fn drop_tree(&self, id: TreeId) -> Result<()>;
    fn chunks_of(&self, id: TreeId) -> Vec<Chunk>;
    fn chunk_bytes(&self) -> u64;
    fn rename_tree(&self, from: &str, to: &str) -> Result<()>;
    fn info(&self) -> PoolInfo;
    fn huge_bytes(&self) -> u64;
    fn check(&self) -> Vec<Issue>;
    fn handles_faults(&self) -> bool;
    fn events(&self) -> &Events;
    fn medium_counts(&self) -> Option<[u64; 2]>;
    fn prefault(&self, bytes: u64) -> Result<()>;
    /// Limits the growth of the file; a pool that is only read does not grow.
    fn set_limit(&self, _: u64) {}
    fn trim(&self, is_unused: bool) -> Result<u64>;
    fn close(&self) -> Result<()>;

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn glance(&self) -> Result<Glance> {
        Err(Error::ReadOnly)
    }

    fn adopt_journal(&self) {}

    fn abandon(&self);

    /// Returns `Corrupted` if a tree lacks leaves, or owns chunks that its design does not use.
    fn expect_whole(&self, entry: &TreeEntry) -> Result<()>;

    /// Opens a tree of the library's designs; `inline` says whether keys and values are words.
    fn open_index(&self, entry: &TreeEntry, inline: (bool, bool), threads: usize) -> Result<AnyIndex>;

    /// Creates a tree together with its first leaf: after an error or a crash neither exists.
    fn create_index(&self, spec: &TreeSpec, inline: (bool, bool)) -> Result<(TreeEntry, AnyIndex)> {
        self.create_filled(spec, inline, &mut |_| Ok(()))
    }

    /// Creates a tree and fills it with `fill` before any thread can find it.
    fn create_filled(
        &self,
        spec: &TreeSpec,
        inline: (bool, bool),
        fill: &mut dyn FnMut(&AnyIndex) -> Result<()>,
    ) -> Result<(TreeEntry, AnyIndex)>;

    /// Replaces a tree without handles by an empty one: after a crash exactly one of them exists.
    fn clear_index(&self, entry: &TreeEntry, inline: (bool, bool)) -> Result<TreeEntry>;

    /// Reserves chunks, commits a record, calls `change` to apply it, and marks it done.
    fn commit(&self, record: &[u8], chunks: usize, change: &mut dyn FnMut() -> CommitOutcome) -> Result<()>;

    /// Applies changes without a reservation of space. A crash before all are written rolls them back.
    fn attempt(&self, trial: Trial<'_>) -> Result<()>;

    /// Returns the committed but unfinished records with their numbers.
    fn pending_commits(&self) -> Vec<(u64, Vec<u8>)>;

    /// Discards these records.
    fn end_commits(&self) -> Result<()>;
}

impl fmt::Debug for dyn AnyPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pool file")
    }
}

/// A pool file on a medium.
pub struct PoolOn<M: Medium>(pub Arc<PoolFile<M>>);

impl<M: Medium> PoolOn<M> {
    /// Stops acknowledging writes: the log has a record that the next open replays over any later write.
    #[cold]
    fn left_partial(&self) -> Error {
        self.0.medium().fail();
        Error::DurabilityLost
    }
}

impl<M: Medium> AnyPool for PoolOn<M> {
    fn opener(&self) -> Opener {
        *self.0.opener()
    }
    fn here(&self) -> Result<()> {
        self.0.here()
    }
    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }
    fn writable(&self) -> Result<()> {
        self.0.writable()
    }
    fn trees(&self) -> Result<Vec<TreeEntry>> {
        self.0.trees()
    }
    fn find_tree(&self, name: &str) -> Result<Option<TreeEntry>> {
        self.0.find_tree(name)
    }
    fn drop_tree(&self, id: TreeId) -> Result<()> {
        self.0.drop_tree(id)
    }
    fn chunks_of(&self, id: TreeId) -> Vec<Chunk> {
        self.0.chunks_of(id)
    }
    fn chunk_bytes(&self) -> u64 {
        self.0.chunk_bytes()
    }
    fn rename_tree(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename_tree(from, to)
    }
    fn info(&self) -> PoolInfo {
        self.0.info()
    }
    fn huge_bytes(&self) -> u64 {
        self.0.huge_bytes()
    }
    fn check(&self) -> Vec<Issue> {
        self.0.check()
    }
    fn handles_faults(&self) -> bool {
        self.0.handles_faults()
    }
    fn events(&self) -> &Events {
        self.0.events()
    }
    fn medium_counts(&self) -> Option<[u64; 2]> {
        self.0.medium().counts()
    }
    fn prefault(&self, bytes: u64) -> Result<()> {
        self.0.prefault(bytes)
    }
    fn set_limit(&self, bytes: u64) {
        self.0.set_limit(bytes);
    }
    fn trim(&self, is_unused: bool) -> Result<u64> {
        self.0.trim(is_unused)
    }
    fn close(&self) -> Result<()> {
        self.0.close()
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
    fn glance(&self) -> Result<Glance> {
        self.0.glance()
    }
    fn adopt_journal(&self) {
        self.0.adopt_journal();
    }
    fn abandon(&self) {
        self.0.abandon();
    }

    fn expect_whole(&self, entry: &TreeEntry) -> Result<()> {
        if Design::of(&entry.spec).is_err() {
            // External designs have leaves of kinds that only they know.
            return self.0.expect_leaves(entry, |_| Some(Part::Leaf));
        }
        self.0.expect_leaves(entry, part_of)?;
        expect_kinds(&self.0, entry)
    }

    fn open_index(&self, entry: &TreeEntry, inline: (bool, bool), threads: usize) -> Result<AnyIndex> {
        AnyIndex::open(&self.0, entry, inline, threads)
    }

    fn create_filled(
        &self,
        spec: &TreeSpec,
        inline: (bool, bool),
        fill: &mut dyn FnMut(&AnyIndex) -> Result<()>,
    ) -> Result<(TreeEntry, AnyIndex)> {
        self.0.create_tree_with(spec, |entry| {
            let tree = AnyIndex::open(&self.0, entry, inline, 1)?;
            fill(&tree)?;
            Ok(tree)
        })
    }

    fn clear_index(&self, entry: &TreeEntry, inline: (bool, bool)) -> Result<TreeEntry> {
        let emptied = |entry: &TreeEntry| AnyIndex::open(&self.0, entry, inline, 1).map(drop);
        self.0.replace_tree_with(entry.id, emptied).map(|(entry, ())| entry)
    }

    fn commit(&self, record: &[u8], chunks: usize, change: &mut dyn FnMut() -> CommitOutcome) -> Result<()> {
        let _set_aside = self.0.set_aside(chunks)?;
        let mut space = self.0.commit_space(record.len())?;
        space.commit(record)?;
        match change() {
            CommitOutcome::Applied => space.done(),
            CommitOutcome::RolledBack(error) => space.done().and(Err(error)),
            CommitOutcome::Partial => Err(self.left_partial()),
        }
    }

    fn attempt(&self, Trial { before, write, removals, remove }: Trial<'_>) -> Result<()> {
        // Space for both is reserved before anything is written.
        let mut space = self.0.commit_space(before.len())?;
        let find_space = |Removals { bytes, record }| Ok::<_, Error>((self.0.commit_space(bytes)?, record));
        let rest = removals.map(find_space).transpose()?;
        space.commit(before)?;
        match write() {
            CommitOutcome::Applied => {}
            CommitOutcome::RolledBack(error) => return space.done().and(Err(error)),
            CommitOutcome::Partial => return Err(self.left_partial()),
        }
        let Some((mut rest, record)) = rest else { return space.done() };
        rest.commit(&record(space.sequence()))?;
        space.done()?;
        match remove() {
            CommitOutcome::Applied => rest.done(),
            CommitOutcome::RolledBack(_) | CommitOutcome::Partial => Err(self.left_partial()),
        }
    }

    fn pending_commits(&self) -> Vec<(u64, Vec<u8>)> {
        self.0.pending_commits()
    }

    fn end_commits(&self) -> Result<()> {
        self.0.end_commits()
    }
}

/// Returns `Corrupted` if a tree owns chunks that its design does not use: otherwise their contents would be
/// missing silently.
pub fn expect_kinds<M: Medium>(file: &PoolFile<M>, entry: &TreeEntry) -> Result<()> {
    // External designs verify their own chunks.
    let Ok(design) = Design::of(&entry.spec) else { return Ok(()) };
    let kinds = Design::slots(&entry.spec)?;
    for chunk in file.chunks_of(entry.id) {
        let known = |&(kind, bytes): &(SlotKind, Option<u64>)| {
            kind == chunk.kind && bytes.is_none_or(|bytes| bytes == u64::from(chunk.slot_bytes))
        };
        if !kinds.iter().any(known) {
            let what = format!("{design} has no slots of {} and {} bytes", chunk.kind, chunk.slot_bytes);
            return Err(Error::corrupted(what, format!("descriptor of chunk {}", chunk.id)));
        }
    }
    Ok(())
}
