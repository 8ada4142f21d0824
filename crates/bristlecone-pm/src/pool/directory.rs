//! The tree directory: names, designs and types of the trees in a pool.

use std::mem::offset_of;

use super::PoolFile;
use super::layout::{
    DIRECTORY_OFFSET, ENTRY_BYTES, ENTRY_DROPPING, ENTRY_FREE, ENTRY_LIVE, Entry, INITIALIZED,
    KIND_BYTES_MAX, NAME_BYTES_MAX, Part, PartOf,
};
use super::names::Names;
use super::spec::{TreeEntry, TreeId, TreeSpec};
use crate::word::{le_bytes, load_words};
use crate::{Durable, Error, Flushed, Medium, Persist, Result, Word, write_bytes};

/// Returns the names of trees, with their indices.
fn named(trees: Vec<TreeEntry>) -> impl Iterator<Item = (String, u32)> {
    trees.into_iter().map(|TreeEntry { id, spec }| (spec.name, id.0))
}

impl<M: Medium> PoolFile<M> {
    pub(super) fn entry(&self, id: TreeId) -> &Entry {
        if u64::from(id.0) < self.geometry.trees_max {
            return self.at(DIRECTORY_OFFSET + u64::from(id.0) * ENTRY_BYTES);
        }
        self.at(self.entry_in_pages(id).expect("an entry beyond the directory"))
    }

    /// Returns every tree, in directory order.
    ///
    /// # Errors
    ///
    /// [`Corrupted`](Error::Corrupted) if an entry cannot be read; [`Forked`](Error::Forked).
    pub fn trees(&self) -> Result<Vec<TreeEntry>> {
        self.here()?;
        // A rename changes several words of an entry.
        let _only = self.lock_directory();
        if self.is_followed() {
            // The writer may have added pages.
            self.find_pages(self.geometry.chunks_within(self.region.len_now()), |_, _| Ok(()))?;
        }
        self.read_trees()
    }

    /// Returns every tree. The caller must hold the lock of the directory.
    pub(super) fn read_trees(&self) -> Result<Vec<TreeEntry>> {
        self.live_trees().map(|id| Ok(TreeEntry { id, spec: self.read_entry(id)? })).collect()
    }

    /// Returns the indices of live trees.
    pub fn live_trees(&self) -> impl Iterator<Item = TreeId> {
        self.entry_ids(0).filter(|&id| self.is_live(id))
    }

    /// Returns whether an entry is live.
    pub(super) fn is_live(&self, id: TreeId) -> bool {
        self.entry(id).state.load(self.medium()) == ENTRY_LIVE
    }

    /// Returns the tree with a name. The time does not depend on the number of trees, except in a followed pool.
    ///
    /// # Errors
    ///
    /// As [`trees`](Self::trees).
    pub fn find_tree(&self, name: &str) -> Result<Option<TreeEntry>> {
        if self.is_followed() {
            return Ok(self.trees()?.into_iter().find(|tree| tree.spec.name == name));
        }
        self.here()?;
        self.find_named(&mut self.lock_directory(), name)
    }

    /// Returns the tree with a name. The caller must hold the lock of the directory.
    pub(super) fn find_named(&self, names: &mut Names, name: &str) -> Result<Option<TreeEntry>> {
        if !names.is_known() {
            names.learn(named(self.read_trees()?))?;
        }
        let Some(id) = names.get(name).map(TreeId).filter(|&id| self.is_live(id)) else { return Ok(None) };
        let spec = self.read_entry(id)?;
        Ok((spec.name == name).then_some(TreeEntry { id, spec }))
    }

    /// Returns the directory word in which a design may keep its root; zero in a new tree.
    pub fn anchor(&self, id: TreeId) -> &Word {
        &self.entry(id).root
    }

    /// Returns the root that a design keeps in its [`anchor`](Self::anchor); `None` for a tree that is being created.
    ///
    /// # Errors
    ///
    /// `Corrupted` for a tree that had leaves when it became live but has no root now.
    pub fn root(&self, id: TreeId) -> Result<Option<u64>> {
        let root = self.anchor(id).load(self.medium());
        if root == 0 && self.is_live(id) && self.is_initialized(id) {
            return Err(Error::corrupted("a tree without its root", format!("directory entry {}", id.0)));
        }
        Ok((root != 0).then_some(root))
    }

    /// Returns whether a tree had its first leaf before it became live.
    fn is_initialized(&self, id: TreeId) -> bool {
        self.entry(id).lengths.load(self.medium()) & INITIALIZED != 0
    }

    /// Creates a tree without chunks. On `Ok` it is durable. On `Err`, or after a crash before `Ok`, the tree exists
    /// completely or not at all.
    ///
    /// # Errors
    ///
    /// [`TreeExists`](Error::TreeExists), [`Invalid`](Error::Invalid), [`TooLong`](Error::TooLong),
    /// [`ReadOnly`](Error::ReadOnly), [`Forked`](Error::Forked).
    pub fn create_tree(&self, spec: &TreeSpec) -> Result<TreeEntry> {
        self.create_as(spec, 0, |_| Ok(())).map(|(entry, ())| entry)
    }

    /// Makes the next tree get the first free entry from `id` on. A pool that is restored gives its trees the numbers
    /// that they had.
    pub fn number_trees_from(&self, id: TreeId) {
        self.lock_directory().first_free = id.0;
    }

    /// Creates a tree together with the chunks and first leaf that `init` allocates.
    ///
    /// 1. The entry is stored in the dropping state; flush, fence. *A crash from here on: open frees the chunks of the
    ///    tree, and the entry.*
    /// 2. `init` allocates chunks and fills them. *If it fails, they and the entry are freed immediately.*
    /// 3. The entry becomes live; flush, fence.
    ///
    /// # Errors
    ///
    /// Those of `init`, a name that is taken or too long, a full directory. The tree then does not exist.
    pub fn create_tree_with<T>(
        &self,
        spec: &TreeSpec,
        init: impl FnOnce(&TreeEntry) -> Result<T>,
    ) -> Result<(TreeEntry, T)> {
        self.create_as(spec, INITIALIZED, init)
    }

    fn create_as<T>(
        &self,
        spec: &TreeSpec,
        flags: u64,
        init: impl FnOnce(&TreeEntry) -> Result<T>,
    ) -> Result<(TreeEntry, T)> {
        self.writable()?;
        check_spec(spec)?;
        let mut names = self.lock_directory();
        if self.find_named(&mut names, &spec.name)?.is_some() {
            return Err(Error::TreeExists { name: spec.name.clone() });
        }
        let (entry, made, durable) = self.prepare_tree(&mut names, spec, flags, init)?;
        let (state, medium) = (&self.entry(entry.id).state, self.medium());
        state.publish(medium, ENTRY_LIVE, &durable, "pool create_tree.2");
        medium.persist(state, "pool create_tree.2");
        names.insert(spec.name.clone(), entry.id.0);
        self.health()?;
        Ok((entry, made))
    }

    /// Steps 1 and 2 of a creation. The caller must hold the lock of the directory.
    pub(super) fn prepare_tree<T>(
        &self,
        names: &mut Names,
        spec: &TreeSpec,
        flags: u64,
        init: impl FnOnce(&TreeEntry) -> Result<T>,
    ) -> Result<(TreeEntry, T, Durable)> {
        let id = self.free_entry(names)?;
        // Saved by a previous tree with this number, whose creation was interrupted.
        self.forget_kept(id);
        let durable = self.write_entry(id, spec, flags);
        let entry = TreeEntry { id, spec: spec.clone() };
        match self.health().and_then(|()| init(&entry)) {
            Ok(made) => Ok((entry, made, durable)),
            Err(error) => {
                self.finish_drop(names, id);
                Err(error)
            }
        }
    }

    /// Returns the first free entry of the directory. Adds a page if none is free.
    fn free_entry(&self, names: &mut Names) -> Result<TreeId> {
        loop {
            let is_free = |id: &TreeId| self.entry(*id).state.load(self.medium()) == ENTRY_FREE;
            if let Some(id) = self.entry_ids(names.first_free).find(is_free) {
                names.first_free = id.0;
                return Ok(id);
            }
            self.add_page()?;
        }
    }

    fn write_entry(&self, id: TreeId, spec: &TreeSpec, flags: u64) -> Durable {
        let (entry, medium) = (self.entry(id), self.medium());
        for (cell, param) in entry.params.iter().zip(spec.params) {
            cell.store(medium, param);
        }
        let value_kind = spec.stored_value_kind();
        let lengths = [&spec.name, &spec.key_kind, &value_kind].map(|text| text.len() as u64);
        entry.lengths.store(medium, lengths[0] | lengths[1] << 8 | lengths[2] << 16 | flags);
        write_padded(medium, &entry.name, &spec.name);
        write_padded(medium, &entry.key_kind, &spec.key_kind);
        write_padded(medium, &entry.value_kind, &value_kind);
        entry.root.store(medium, 0);
        entry.design.store(
            medium,
            u64::from(spec.design) | u64::from(checksum(&self.entry_bytes(entry), spec.design)) << 32,
        );
        entry.state.store(medium, ENTRY_DROPPING);
        medium.persist_proof(entry, "pool create_tree.1")
    }

    /// Checks that a tree that had leaves when it became live still owns a chunk of them: without one it would open as
    /// an empty tree. `part_of` decides which chunks hold leaves.
    ///
    /// # Errors
    ///
    /// [`Corrupted`](Error::Corrupted) if it owns none.
    pub fn expect_leaves(&self, tree: &TreeEntry, part_of: PartOf) -> Result<()> {
        if self.is_initialized(tree.id)
            && !self.chunks_of(tree.id).iter().any(|chunk| part_of(chunk.kind) == Some(Part::Leaf))
        {
            let name = format!("tree {:?}", tree.spec.name);
            return Err(Error::corrupted("all of its leaf chunks are missing", name));
        }
        Ok(())
    }

    /// Returns whether a live tree never had a chunk: an earlier version began to create it and was interrupted.
    pub fn is_unfinished(&self, id: TreeId) -> bool {
        !self.is_initialized(id) && self.chunks_of(id).is_empty()
    }

    /// Drops trees of earlier versions whose creation was interrupted before they had a chunk.
    pub fn drop_unfinished_trees(&self) {
        let mut names = self.lock_directory();
        let live: Vec<_> = self.live_trees().collect();
        live.into_iter().filter(|&id| self.is_unfinished(id)).for_each(|id| self.finish_drop(&mut names, id));
    }

    pub(super) fn read_entry(&self, id: TreeId) -> Result<TreeSpec> {
        let bytes = self.entry_bytes(self.entry(id));
        let broken = |what: &str| Error::corrupted(what, format!("directory entry {}", id.0));
        let design = word(&bytes, offset_of!(Entry, design));
        if (design >> 32) as u32 != checksum(&bytes, design as u32) {
            return Err(broken("checksum differs"));
        }
        let lengths = word(&bytes, offset_of!(Entry, lengths)).to_le_bytes();
        let text = |at: usize, len: u8, max: usize| {
            let text = bytes[at..at + max].get(..len.into());
            let text = text.ok_or_else(|| broken("a name longer than its field"))?;
            str::from_utf8(text).map(str::to_owned).map_err(|_| broken("a name that is no UTF-8"))
        };
        let spec = TreeSpec::new(
            text(offset_of!(Entry, name), lengths[0], NAME_BYTES_MAX)?,
            design as u32,
            text(offset_of!(Entry, key_kind), lengths[1], KIND_BYTES_MAX)?,
            "",
        );
        let params = std::array::from_fn(|at| word(&bytes, offset_of!(Entry, params) + 8 * at));
        let value_kind = text(offset_of!(Entry, value_kind), lengths[2], KIND_BYTES_MAX)?;
        Ok(spec.with_stored_value_kind(value_kind).with_params(params))
    }

    pub(super) fn entry_bytes(&self, entry: &Entry) -> [u8; size_of::<Entry>()] {
        // SAFETY: an entry consists of words and nothing else.
        let cells = unsafe { &*std::ptr::from_ref(entry).cast::<[Word; size_of::<Entry>() / 8]>() };
        le_bytes(&load_words(self.medium(), cells))
    }

    /// Drops a tree and frees its chunks. On `Ok` it no longer exists. After a crash before `Ok` it exists completely,
    /// or the next open finishes the drop. No handle may have the tree open.
    ///
    /// # Errors
    ///
    /// [`NoSuchTree`](Error::NoSuchTree), [`ReadOnly`](Error::ReadOnly), [`Forked`](Error::Forked).
    pub fn drop_tree(&self, id: TreeId) -> Result<()> {
        self.writable()?;
        let mut names = self.lock_directory();
        let (entry, medium) = (self.entry(id), self.medium());
        if !self.is_live(id) {
            return Err(Error::NoSuchTree { name: format!("#{}", id.0) });
        }
        entry.state.store(medium, ENTRY_DROPPING);
        medium.persist(&entry.state, "pool drop_tree.1");
        if let Ok(spec) = self.read_entry(id) {
            names.forget(&spec.name);
        }
        self.finish_drop(&mut names, id);
        self.health()
    }

    /// Steps 2 and 3 of a drop. Open also runs them for an interrupted drop or creation.
    pub(super) fn finish_drop(&self, names: &mut Names, id: TreeId) {
        let (entry, medium) = (self.entry(id), self.medium());
        self.forget_kept(id);
        for chunk in self.chunks_of(id) {
            self.chunk_free(chunk.id);
        }
        // No flush: if a crash undoes this store, open drops a tree without chunks once more. A thread that creates a
        // tree here flushes the whole entry before it commits.
        entry.state.store_derived(medium, ENTRY_FREE);
        names.first_free = names.first_free.min(id.0);
    }

    /// Validates the directory after open, and finishes interrupted operations. The returned flushes must be fenced
    /// before a superblock is durable that says that nothing is in progress.
    pub(super) fn recover_directory(&self) -> Result<Flushed> {
        let flushed = self.finish_intent()?;
        let mut names = self.lock_directory();
        for id in self.entry_ids(0) {
            match self.entry(id).state.load(self.medium()) {
                ENTRY_FREE | ENTRY_LIVE => {}
                ENTRY_DROPPING => self.finish_drop(&mut names, id),
                _ => return Err(Error::corrupted("unknown state", format!("directory entry {}", id.0))),
            }
        }
        names.learn(named(self.read_trees()?))?;
        Ok(flushed)
    }
}

fn check_spec(spec: &TreeSpec) -> Result<()> {
    check_name(&spec.name)?;
    let lengths = [
        ("key type", spec.key_kind.len(), KIND_BYTES_MAX),
        ("value type", spec.stored_value_kind().len(), KIND_BYTES_MAX),
    ];
    if let Some((what, bytes, max_bytes)) = lengths.into_iter().find(|(_, bytes, max)| bytes > max) {
        return Err(Error::TooLong { what, bytes, max_bytes });
    }
    Ok(())
}

/// Rejects invalid names of trees that are created or renamed. Earlier versions allowed control characters; existing
/// trees with such names still open.
pub(super) fn check_name(name: &str) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::TooLong { what: "tree name", bytes: name.len(), max_bytes: NAME_BYTES_MAX });
    }
    if name.is_empty() {
        return Err(Error::invalid("a tree needs a name of 1 to 64 bytes"));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "invalid tree name {name:?}: control characters are not allowed"
        )));
    }
    Ok(())
}

/// Covers the design and everything from the parameters up to the root.
pub(super) fn checksum(bytes: &[u8; size_of::<Entry>()], design: u32) -> u32 {
    let named = &bytes[offset_of!(Entry, params)..offset_of!(Entry, root)];
    crc32c::crc32c_append(crc32c::crc32c(&design.to_le_bytes()), named)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

fn write_padded<M: Medium>(medium: &M, cells: &[Word], text: &str) {
    for cell in cells {
        cell.store(medium, 0);
    }
    write_bytes(medium, cells, text.as_bytes());
}
