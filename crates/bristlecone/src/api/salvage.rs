//! Salvage: copying the readable contents of a damaged pool into a new one.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bristlecone_pm::{Damaged, Error, Issue, Native, PoolFile, Result, TreeEntry};

use crate::dynamic::Kind;
use crate::index::any::{AnyIndex, expect_kinds};
use crate::index::of_keys::OfKeys;
use crate::index::part_of;
use crate::index::parts::codec::{Inline, KeyCodec, Record, Storage};
use crate::index::parts::encoded::Encoded;
use crate::index::{DamagedTree, Described, Form, SalvageSink, SaveTo, Saved, Span, salvage};
use crate::transaction::record::{Change, KeyRange, Step, steps_that_count};
use crate::{Pool, PoolOptions};

/// Result of a salvage: saved and lost data.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Salvage {
    /// The trees of the new pool.
    pub trees: Vec<SalvagedTree>,
    /// Problems of the old pool outside its trees. Unreadable directory entries are reported here.
    pub issues: Vec<Issue>,
}

/// Result of salvaging one tree.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SalvagedTree {
    /// Name of the tree.
    pub name: String,
    /// Number of items in the new pool.
    pub kept: u64,
    /// Maximum number of unreadable items. A damaged log entry counts as one; its key may have an older value, be
    /// missing, or have reappeared. Items in lost chunks are not counted, because their number is unknown.
    pub lost: u64,
    /// Number of its chunks that are lost, completely or partly. The number of items in them is unknown.
    pub chunks_lost: u64,
    /// Problems found in the tree.
    pub issues: Vec<Issue>,
}

impl Salvage {
    /// Returns whether the old pool was undamaged, so that the new one is complete.
    pub fn is_whole(&self) -> bool {
        self.issues.is_empty()
            && self.trees.iter().all(|tree| tree.lost == 0 && tree.chunks_lost == 0 && tree.issues.is_empty())
    }

    /// Returns the number of items saved, and of items known to be lost.
    pub fn items(&self) -> (u64, u64) {
        self.trees.iter().fold((0, 0), |sum, tree| (sum.0 + tree.kept, sum.1 + tree.lost))
    }
}

impl PoolOptions {
    /// Copies the readable contents of the pool at `from` into a new pool at `to`, with trees of the same names,
    /// designs and types. `from` is not changed. The new pool takes its domain from these options. Its maximum is
    /// the larger of theirs and the old pool's.
    ///
    /// An item is kept if the checksums of its records are correct and its key lies within the range of its leaf.
    /// Words and leaves have no checksum. A damaged word is therefore copied unchanged. If the presence bit of an
    /// item was flipped, the item may be missing or reappear after its removal, without an issue.
    ///
    /// # Errors
    ///
    /// Same as [`open`](Self::open), for either pool. Damage is an error only if nothing is readable. A tree of an
    /// unknown design or of unknown kinds is skipped with an issue. After an error there is no new pool.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # let old = format!("/dev/shm/bristlecone-doc-salvage-{}.pool", std::process::id());
    /// # let new = format!("{old}.saved");
    /// let pool = Pool::options().max_bytes(64 << 20).create(true).open(&old)?;
    /// pool.tree::<u64, u64>("numbers")?.insert(1, 2)?;
    /// drop(pool);
    /// let salvage = Pool::options().salvage(&old, &new)?;
    /// assert!(salvage.is_whole());
    /// assert_eq!(salvage.items(), (1, 0)); // none is lost
    /// let saved = Pool::open(&new)?;
    /// assert_eq!(saved.tree::<u64, u64>("numbers")?.get(1)?, Some(2));
    /// # drop(saved);
    /// # std::fs::remove_file(&old).unwrap();
    /// # std::fs::remove_file(&new).unwrap();
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn salvage(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Salvage> {
        self.salvage_native(from.as_ref(), to.as_ref())
    }

    fn salvage_native(&self, from: &Path, to: &Path) -> Result<Salvage> {
        if self.asks_for_journal() {
            return Err(Error::invalid(
                "readable items cannot be saved to a pool with a journal: choose another domain",
            ));
        }
        let Damaged { pool: old, issues, chunks_lost } = PoolFile::open_damaged(from, part_of, Native::new)?;
        let max_bytes = old.info().max_bytes.max(self.asked_bytes().unwrap_or(0));
        let chunk_bytes = self.asked_chunk_bytes().unwrap_or(old.info().chunk_bytes);
        let mut options = self.clone().max_bytes(max_bytes).chunk_bytes(chunk_bytes);
        options.journal.never = true;
        let pool = options.read_only(false).create_new(true).open(to)?;
        let save = |entry: &TreeEntry| {
            let mut saved = save_tree(&old, entry, &pool)?;
            saved.chunks_lost = chunks_lost.iter().filter(|owner| **owner == entry.id).count() as u64;
            Ok(saved)
        };
        let mut trees = old.trees()?;
        // A tree that never existed completely is not a loss.
        trees.retain(|entry| !old.is_unfinished(entry.id) || chunks_lost.contains(&entry.id));
        let trees = trees.iter().map(save).collect::<Result<_>>();
        let saved = trees.and_then(|trees| Ok(pool.close().map(|()| trees)?));
        if saved.is_err() {
            // A partial result would be mistaken for a complete one.
            let _ = std::fs::remove_file(to);
        }
        Ok(Salvage { trees: saved?, issues })
    }
}

/// Returns the readable steps of committed but unfinished commits for a tree.
fn steps_of(old: &PoolFile<Native>, entry: &TreeEntry) -> Vec<Step> {
    let records = old.pending_commits();
    let steps = steps_that_count(&records).into_iter().flatten().flatten();
    steps.filter(|step| step.tree() == entry.id).collect()
}

/// Executes a step in the new tree; returns how many items it adds. Leaves out one with keys or values of another form.
fn redo<K: KeyCodec>(to: &dyn SaveTo<K>, step: &Step, values: Form) -> Result<i64> {
    match step {
        Step::Change(Change { key, value, .. }) => {
            let value = value.as_ref().map(Encoded::item);
            let is_of_tree = value.is_none_or(|value| Form::of_item(value) == values);
            let Some(key) = K::lend(key).filter(|_| is_of_tree) else { return Ok(0) };
            Ok(i64::from(value.is_some()) - i64::from(to.set(key, value)?))
        }
        Step::Remove(KeyRange { first, last, .. }) => match K::lend(first).zip(K::lend(last)) {
            Some((first, last)) => Ok(-(to.remove_range(first, last)? as i64)),
            None => Ok(0),
        },
    }
}

/// Salvages one tree; reports a tree of unknown kinds, or of a design or an option that this build does not have.
fn save_tree(old: &Arc<PoolFile<Native>>, entry: &TreeEntry, pool: &Pool) -> Result<SalvagedTree> {
    match save_known(old, entry, pool) {
        Err(error @ (Error::Newer { .. } | Error::Invalid { .. })) => {
            let issues = vec![Issue::new("tree", format!("not saved: {error}"))];
            Ok(SalvagedTree { name: entry.spec.name.clone(), kept: 0, lost: 0, chunks_lost: 0, issues })
        }
        saved => saved,
    }
}

fn save_known(old: &Arc<PoolFile<Native>>, entry: &TreeEntry, pool: &Pool) -> Result<SalvagedTree> {
    // The stored form of a tree depends only on the codecs of its types.
    match Kind::are_words(&entry.spec)? {
        (true, true) => save::<Inline, Inline>(old, entry, pool),
        (true, false) => save::<Inline, Record>(old, entry, pool),
        (false, true) => save::<Record, Inline>(old, entry, pool),
        (false, false) => save::<Record, Record>(old, entry, pool),
    }
}

fn save<K: KeyCodec, V: Storage>(
    old: &Arc<PoolFile<Native>>,
    entry: &TreeEntry,
    pool: &Pool,
) -> Result<SalvagedTree> {
    let (_, to) = pool.0.file.create_index(&entry.spec, (K::INLINE, V::INLINE))?;
    let entry = Described { entry, values: Form::of::<V>() };
    let Gathered { kept, lost, issues, .. } = gather(old, entry, &to.typed::<K, V>()?)?;
    Ok(SalvagedTree { name: entry.spec.name.clone(), kept, lost, chunks_lost: 0, issues })
}

/// The result of reading a damaged tree: see [`SalvageSink`].
struct Gathered<K: KeyCodec> {
    kept: u64,
    lost: u64,
    issues: Vec<Issue>,
    doubts: Vec<Span<K>>,
}

/// Copies the readable items of a tree, and applies the changes that were committed for it.
fn gather<K: KeyCodec>(
    old: &Arc<PoolFile<Native>>,
    entry: Described<'_>,
    to: &dyn SaveTo<K>,
) -> Result<Gathered<K>> {
    let mut sink = SalvageSink::new(to);
    if let Err(error) = expect_kinds(old, &entry) {
        sink.find("tree".to_owned(), format!("{error}"));
    }
    let salvaged =
        old.expect_leaves(&entry, part_of).and_then(|()| salvage::<K, Native>(old, entry, &mut sink));
    match salvaged {
        Ok(()) => {}
        // The old pool may lack the space that recovery needs; the new one is as large.
        Err(error @ (Error::Corrupted { .. } | Error::PoolFull { .. })) => {
            sink.find("tree".to_owned(), format!("{error}"));
        }
        Err(error) => return Err(error),
    }
    let SalvageSink { mut kept, lost, issues, doubts, .. } = sink;
    // Its changes may or may not have been applied.
    for step in steps_of(old, &entry) {
        kept = kept.saturating_add_signed(redo(to, &step, entry.values)?);
    }
    Ok(Gathered { kept, lost, issues, doubts })
}

/// Returns whether salvage found the damage for which recovery refused a tree.
fn explains(issues: &[Issue], error: &Error) -> bool {
    let Error::Corrupted { what, location } = error else { return false };
    let offset = |location: &str| location.rsplit_once("at ").map(|(_, offset)| offset.to_owned());
    let is_same = |issue: &Issue| offset(&issue.location) == offset(location);
    // Salvage verifies each record that recovery marks, and reports some of them without their offsets.
    let is_record =
        |issue: &Issue| issue.what.contains(location.as_str()) || issue.what == "a key that cannot be read";
    what == "a dangling record reference" && issues.iter().any(is_record)
        || offset(location).is_some() && issues.iter().any(is_same)
}

/// Opens a tree that recovery refused with `error` for reading: see [`DamagedTree`]. Recovery may have changed the
/// pool in memory, so the file at `path` is read again. `uuid` is the pool's.
pub(crate) fn open_damaged(
    at: (&Path, &str),
    entry: &TreeEntry,
    (keys, values): (bool, bool),
    error: &Error,
) -> Result<AnyIndex> {
    let values = if values { Form::Words } else { Form::Records };
    Ok(match keys {
        true => AnyIndex::Words(OfKeys::new(read_damaged::<Inline>(at, entry, error, values)?, values)),
        false => AnyIndex::Records(OfKeys::new(read_damaged::<Record>(at, entry, error, values)?, values)),
    })
}

fn read_damaged<K: KeyCodec>(
    (path, uuid): (&Path, &str),
    entry: &TreeEntry,
    error: &Error,
    values: Form,
) -> Result<DamagedTree<K>> {
    let Damaged { pool: old, issues: of_pool, chunks_lost } =
        PoolFile::open_damaged(path, part_of, Native::new)?;
    if old.info().uuid != uuid {
        return Err(Error::corrupted("another pool has replaced the file", "pool"));
    }
    let saved = Saved::<K>::default();
    let described = Described { entry, values };
    let Gathered { mut issues, mut doubts, .. } = gather(&old, described, &saved)?;
    // Lost chunks may have belonged to this tree. One of two superblocks is enough.
    let of_tree = issues.len();
    issues.extend(of_pool.into_iter().filter(|issue| issue.location != "superblock"));
    let is_in_leaves = issues.len() == of_tree && !chunks_lost.contains(&entry.id);
    if !is_in_leaves || !explains(&issues, error) {
        doubts.push((Bound::Unbounded, Bound::Unbounded));
    }
    // The reason of the refusal comes first.
    let first = match error {
        Error::Corrupted { what, location } => Issue::new(location, what),
        error => Issue::new("tree", error.to_string()),
    };
    issues.insert(0, first);
    let pm_bytes = old.chunks_of(entry.id).len() as u64 * old.chunk_bytes();
    Ok(DamagedTree::new(saved, doubts, issues, pm_bytes))
}
