//! Restoring a pool whose pages are worthless, from the checkpoint and the entries behind it.
//!
//! The file of the pool is locked meanwhile.
//! 1. A new file without a name gets the items of the checkpoint and all entries from its begin on, is closed, and synced.
//! 2. The manifest says which change of the new file's superblock closed it, and where the entries end. *A crash before
//!    or after: the old file is still the pool, and is restored again, to the same state.*
//! 3. The new file gets the name of the old one. *It is a pool that was closed cleanly.*

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use bristlecone_pm::{
    At, Error, Geometry, Glance, Native, PoolFile, Result, Storage, TreeEntry, TreeId, TreeSpec,
};

use super::aside;
use super::checkpoint;
use super::entry::{self, Aside, Directory, Entry, Kind, broken, changes, take_spec};
use super::manifest::{Checkpoint, Manifest, checkpoint_name, segment_name};
use super::mutation::{Mutation, is_mutated};
use super::segment::{Block, End, Read};
use crate::Pool;
use crate::dynamic::Kind as KeyKind;
use crate::index::parts::codec::GROUP;
use crate::index::parts::recovery::each;
use crate::transaction::record::Change;
use crate::transaction::{AnyTree, hash};

/// Number of changes that are applied together.
const TOGETHER: usize = 1 << 18;
/// Number of changes that are worth another thread.
const LEAST: usize = 1 << 12;

/// Calls `fill` with the sizes of a pool, and with more chunks as long as these do not suffice: items that are written in
/// another order than before may need more space than they had.
pub fn with_room<T>(mut sizes: Geometry, mut fill: impl FnMut(Geometry) -> Result<T>) -> Result<T> {
    loop {
        let filled = fill(sizes);
        match sizes.roomier().filter(|_| matches!(filled, Err(Error::PoolFull { .. }))) {
            Some(roomier) => sizes = roomier,
            None => return filled,
        }
    }
}

/// Replaces the file of a pool by one with the state that the journal has.
pub fn restore(
    storage: &Arc<dyn Storage>,
    manifest: &Manifest,
    found: &Glance,
    (path, handled): (&Path, bool),
    threads: usize,
) -> Result<()> {
    let at = if handled { At::from(path) } else { At::unhandled(path) };
    let (unnamed, end) = with_room(found.geometry, |geometry| {
        let like = Glance { geometry, ..*found };
        let unnamed = PoolFile::<Native>::create_again(at, &like, Native::new)?;
        let to = Pool::over(Arc::clone(unnamed.pool()), threads)?;
        let rebuilt = Rebuilt::new(unnamed.pool(), &to, storage, threads);
        let end = rebuilt.fill_from(manifest, &mut |_, _| true)?;
        to.close()?;
        Ok((unnamed, end))
    })?;
    let mut manifest = manifest.clone();
    manifest.closed = unnamed.pool().glance()?.sequence;
    if let Some(last) = manifest.segments.last_mut()
        && !is_mutated(Mutation::SegmentContinued)
    {
        if let Some(file) = storage.open(&segment_name(last.file))? {
            file.sync()?;
        }
        // What a power failure left behind it must not follow what comes next.
        last.end = Some(end);
    }
    manifest.write(&**storage)?;
    unnamed.replace()
}

/// Reads a checkpoint into a pool that is being restored.
///
/// # Errors
///
/// [`Error::Corrupted`] for any damage: a checkpoint that the manifest names is complete.
fn read_checkpoint(storage: &dyn Storage, uuid: u128, from: &Checkpoint, into: &mut Rebuilt) -> Result<()> {
    let mut tree = None;
    checkpoint::frames(storage, uuid, from, &mut |kind, mut body| {
        let broken = || Error::corrupted("a frame that cannot be read", checkpoint_name(from.file));
        if kind == checkpoint::TREE {
            let (id, rest) = body.split_first_chunk().ok_or_else(broken)?;
            body = rest;
            let id = TreeId(u32::from_le_bytes(*id));
            into.filled()?;
            into.create(id, &take_spec(&mut body).ok_or_else(broken)?)?;
            tree = Some(id);
        } else {
            into.fill(tree.ok_or_else(broken)?, changes(body)?)?;
        }
        Ok(())
    })?;
    into.filled()
}

/// Calls `visit` with every entry from the begin of the checkpoint on; returns where the last segment ends.
pub fn replay(
    storage: &dyn Storage,
    manifest: &Manifest,
    visit: &mut dyn FnMut(&Entry<'_>) -> Result<()>,
) -> Result<End> {
    replay_from(storage, manifest, manifest.begin(), &mut |_, entry| visit(entry))
}

/// Calls `visit` with every entry from an LSN on, and the block that it is in.
pub fn replay_from(
    storage: &dyn Storage,
    manifest: &Manifest,
    begin: u64,
    visit: &mut dyn FnMut(&Block, &Entry<'_>) -> Result<()>,
) -> Result<End> {
    let mut end = End { offset: 0, lsn: begin };
    let mut is_first = true;
    for segment in manifest.segments.iter().filter(|segment| segment.end.is_none_or(|end| end > begin)) {
        let name = segment_name(segment.file);
        let broken_at = |what: &str| Error::corrupted(what, format!("{name} in {}", storage.describe()));
        let follows = if is_first { segment.first <= begin } else { segment.first == end.lsn };
        if !follows {
            return Err(broken_at("entries before it are missing"));
        }
        is_first = false;
        let file = storage.open(&name)?.ok_or_else(|| broken_at("a missing file"))?;
        end = Read::new(&*file, *segment, manifest.uuid, name.clone())?.blocks(|block, mut entries| {
            let mut lsn = block.lsn;
            while !entries.is_empty() {
                let entry = entry::take(&mut entries).filter(|entry| entry.lsn == lsn).ok_or_else(broken)?;
                if lsn >= begin {
                    visit(block, &entry)?;
                }
                lsn += entry.head.bytes();
            }
            Ok(())
        })?;
    }
    Ok(End { lsn: end.lsn.max(begin), ..end })
}

/// Returns where the last segment ends, without reading the others.
pub fn end_of(storage: &dyn Storage, manifest: &Manifest) -> Result<End> {
    let last = manifest.segments.last().copied().into_iter().collect();
    let only = Manifest { checkpoint: None, segments: last, ..manifest.clone() };
    replay_from(storage, &only, only.segments.first().map_or(0, |segment| segment.first), &mut |_, _| Ok(()))
}

/// Applies the last change of each key, in the order of the keys: those of a leaf follow each other.
fn apply_last(trees: &HashMap<TreeId, AnyTree>, mut changes: Vec<&Change>) -> Result<()> {
    // Changes of one key keep their order.
    changes.sort_by(|one, other| (one.tree.0, &one.key).cmp(&(other.tree.0, &other.key)));
    let of_key = changes.chunk_by(|one, other| (one.tree, &one.key) == (other.tree, &other.key));
    let last: Vec<&Change> = of_key.filter_map(|changes| changes.last().copied()).collect();
    let is_alike = |one: &&Change, other: &&Change| {
        one.tree == other.tree && one.value.is_some() == other.value.is_some()
    };
    for group in last.chunk_by(is_alike).flat_map(|alike| alike.chunks(GROUP)) {
        // A tree that is dropped later need not be in the checkpoint.
        let Some(tree) = trees.get(&group[0].tree) else { continue };
        tree.put_many(group.iter().map(|change| (&change.key, change.value.as_ref())))?;
    }
    Ok(())
}

/// A pool that gets the items and entries of a journal.
pub struct Rebuilt {
    file: Arc<PoolFile<Native>>,
    pool: Pool,
    storage: Arc<dyn Storage>,
    trees: HashMap<TreeId, AnyTree>,
    /// Items of a tree that do not fill a leaf yet.
    waiting: Option<(TreeId, Vec<Change>)>,
    /// Changes that were read and not applied.
    changes: Vec<Change>,
    threads: usize,
}

impl Rebuilt {
    pub fn new(
        file: &Arc<PoolFile<Native>>,
        pool: &Pool,
        storage: &Arc<dyn Storage>,
        threads: usize,
    ) -> Self {
        let (file, pool, storage) = (Arc::clone(file), pool.clone(), Arc::clone(storage));
        let (trees, waiting, changes) = Default::default();
        Self { file, pool, storage, trees, waiting, changes, threads }
    }

    /// Opens the trees that the pool has.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`], and errors of the system.
    pub fn open_trees(&mut self) -> Result<()> {
        for entry in self.pool.trees()? {
            let tree = self.pool.open_any(&entry, self.threads)?;
            self.trees.insert(entry.id, tree);
        }
        Ok(())
    }

    /// Fills the pool, which is empty, with the items of the checkpoint and the entries behind it that are wanted, up to the
    /// first one that is not. Returns the LSN behind the last one.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`], also if the journal ends before its checkpoint; errors of the system.
    pub fn fill_from(
        mut self,
        manifest: &Manifest,
        is_wanted: &mut dyn FnMut(&Block, &Entry<'_>) -> bool,
    ) -> Result<u64> {
        let storage = Arc::clone(&self.storage);
        if let Some(checkpoint) = manifest.checkpoint {
            read_checkpoint(&*storage, manifest.uuid, &checkpoint, &mut self)?;
        }
        let end = self.replay_while(manifest, manifest.begin(), is_wanted)?;
        let needed = manifest.checkpoint.map_or(0, |checkpoint| checkpoint.end);
        if end < needed && !is_mutated(Mutation::CheckpointEndUnchecked) {
            let what = format!("it ends at LSN {end}, before the end of its checkpoint at LSN {needed}");
            return Err(Error::corrupted(what, format!("the journal in {}", storage.describe())));
        }
        Ok(end)
    }

    /// Applies the entries from an LSN on that are wanted, up to the first one that is not; returns the LSN behind the last
    /// one.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`], and errors of the system.
    pub fn replay_while(
        &mut self,
        manifest: &Manifest,
        from: u64,
        is_wanted: &mut dyn FnMut(&Block, &Entry<'_>) -> bool,
    ) -> Result<u64> {
        let (storage, mut end, mut is_over) = (Arc::clone(&self.storage), from, false);
        let replayed = replay_from(&*storage, manifest, from, &mut |block, entry| {
            if !is_wanted(block, entry) {
                is_over = true;
                // Ends the replay.
                return Err(Error::Conflict);
            }
            self.apply(entry)?;
            end = entry.lsn + entry.head.bytes();
            Ok(())
        });
        match replayed {
            Err(_) if is_over => {}
            Err(error) => return Err(error),
            Ok(last) => end = last.lsn,
        }
        self.apply_waiting().map(|()| end)
    }

    /// Applies an entry.
    pub fn apply(&mut self, Entry { head, body, .. }: &Entry<'_>) -> Result<()> {
        if head.counts == 0 {
            return Ok(());
        }
        let long;
        let body = if head.aside {
            long = aside::read(&*self.storage, &Aside::decode(body).ok_or_else(broken)?)?;
            &long
        } else {
            *body
        };
        let counts = match head.kind {
            Kind::Each => usize::from(head.counts),
            Kind::All => usize::MAX,
            kind => {
                let (change, rest) = Directory::of(kind, body).ok_or_else(broken)?;
                self.apply_waiting()?;
                return self.change_directory(change, rest);
            }
        };
        self.changes.extend(changes(body)?.into_iter().take(counts));
        if self.changes.len() >= TOGETHER { self.apply_waiting() } else { Ok(()) }
    }

    /// Creates a tree with its number.
    pub fn create(&mut self, id: TreeId, spec: &TreeSpec) -> Result<&AnyTree> {
        self.file.number_trees_from(id);
        let (entry, tree) = self.pool.0.file.create_index(spec, KeyKind::are_words(spec)?)?;
        if entry.id != id {
            return Err(Error::corrupted("two trees with one number", format!("tree {:?}", spec.name)));
        }
        let tree = AnyTree::new(tree.of_any(), self.pool.0.file.opener());
        Ok(&*self.trees.entry(id).insert_entry(tree).into_mut())
    }

    /// Inserts items of the checkpoint, which has them in order.
    pub fn fill(&mut self, id: TreeId, items: Vec<Change>) -> Result<()> {
        let waits = self.waiting.as_ref().map(|(waits, _)| *waits);
        if waits != Some(id) {
            self.filled()?;
            self.waiting = Some((id, Vec::new()));
        }
        if let Some((_, waiting)) = &mut self.waiting {
            waiting.extend(items);
        }
        self.append(false)
    }

    /// Inserts the last items of the checkpoint for a tree.
    pub fn filled(&mut self) -> Result<()> {
        self.append(true)?;
        self.waiting = None;
        Ok(())
    }

    /// Inserts the items that fill leaves, or all.
    fn append(&mut self, last: bool) -> Result<()> {
        let Some((id, waiting)) = &mut self.waiting else { return Ok(()) };
        let tree = self.trees.get(id).ok_or_else(broken)?;
        let items = waiting.iter().map(|item| Ok((&item.key, item.value.as_ref().ok_or_else(broken)?)));
        let done = tree.append(&items.collect::<Result<Vec<_>>>()?, last)?;
        waiting.drain(..done);
        Ok(())
    }

    /// Applies the changes that wait, on several threads: each one takes the keys of some hashes.
    pub fn apply_waiting(&mut self) -> Result<()> {
        let changes = std::mem::take(&mut self.changes);
        let (trees, threads) = (&self.trees, if changes.len() < LEAST { 1 } else { self.threads });
        let apply = |thread: usize| {
            let is_own = |change: &&Change| {
                threads == 1 || (hash(&change.key) >> 32) % threads as u64 == thread as u64
            };
            apply_last(trees, changes.iter().filter(is_own).collect())
        };
        each(threads, threads, apply)?;
        self.changes = changes;
        self.changes.clear();
        Ok(())
    }

    fn spec_of(&self, id: TreeId) -> Result<Option<TreeEntry>> {
        Ok(self.pool.trees()?.into_iter().find(|entry| entry.id == id))
    }

    fn drop_tree(&mut self, id: TreeId) -> Result<()> {
        self.trees.remove(&id);
        match self.spec_of(id)? {
            Some(_) => self.pool.0.file.drop_tree(id),
            None => Ok(()),
        }
    }

    /// Changes the directory. The checkpoint may have the state from after some of these changes.
    fn change_directory(&mut self, change: Directory, rest: &[u8]) -> Result<()> {
        match change {
            Directory::Create(id, spec) => {
                self.drop_tree(id)?;
                let storage = Arc::clone(&self.storage);
                let tree = self.create(id, &spec)?;
                if !rest.is_empty() {
                    let items = aside::read(&*storage, &Aside::decode(rest).ok_or_else(broken)?)?;
                    for item in changes(&items)? {
                        tree.put(&item.key, item.value.as_ref())?;
                    }
                }
                Ok(())
            }
            Directory::Drop(id) => self.drop_tree(id),
            Directory::Rename(id, name) => match self.spec_of(id)? {
                Some(entry) if entry.spec.name != name => {
                    self.pool.0.file.rename_tree(&entry.spec.name, &name)
                }
                _ => Ok(()),
            },
            Directory::Clear(old, new, _) => {
                let Some(entry) = self.spec_of(old)? else { return Ok(()) };
                self.drop_tree(old)?;
                self.create(new, &entry.spec).map(drop)
            }
        }
    }
}
