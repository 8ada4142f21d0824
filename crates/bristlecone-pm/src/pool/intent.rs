//! Changes of the directory that a single word cannot commit: renaming a tree, or replacing it by another.
//!
//! The change is stored beside the superblock before it begins, and a bit of the superblock says that it is in
//! progress:
//!
//! 1. The intent is stored, with its checksum; flush. *It has no effect yet.* The superblock's first fence also covers
//!    it.
//! 2. The superblock is written with the bit; flush, fence. *This commits: after a crash before it the directory is
//!    unchanged; from here on open does steps 3 and 4. A version that does not know the bit refuses the pool.*
//! 3. The entries are changed; flush, and the next superblock's first fence. *This step is idempotent.*
//! 4. The superblock is written without the bit; flush, fence. *From here on the next intent may be stored, and
//!    the entries may change again.*
//! 5. So is its other copy: if the medium damages the newer one, the older one must not revive an old change.

use std::mem::offset_of;

use super::PoolFile;
use super::directory::{check_name, checksum};
use super::layout::{
    ENTRY_DROPPING, ENTRY_LIVE, Entry, INITIALIZED, INTENT_OFFSET, INTENT_WORDS, NAME_BYTES_MAX,
};
use super::spec::{TreeEntry, TreeId};
use crate::word::{le_bytes, load_words};
use crate::{Durable, Error, Flushed, Medium, Persist, Result, Word};

/// Used instead of a replacing entry when the entry is renamed.
const RENAMED: u32 = u32::MAX;

/// The words of an intent.
type Words = [u64; INTENT_WORDS];

impl<M: Medium> PoolFile<M> {
    /// Renames a tree. On `Ok` the new name is durable. On `Err` it has the old name. After a crash before `Ok` it has
    /// either name.
    ///
    /// # Errors
    ///
    /// No tree has the old name, one has the new name, or the new name is invalid.
    pub fn rename_tree(&self, from: &str, to: &str) -> Result<()> {
        self.writable()?;
        check_name(to)?;
        let mut names = self.lock_directory();
        let tree = self.find_named(&mut names, from)?;
        let tree = tree.ok_or_else(|| Error::NoSuchTree { name: from.to_owned() })?;
        if from == to {
            return Ok(());
        }
        if self.find_named(&mut names, to)?.is_some() {
            return Err(Error::TreeExists { name: to.to_owned() });
        }
        self.carry_out(self.renaming(tree.id, to)).inspect_err(|_| names.unlearn())?;
        names.forget(from);
        names.insert(to.to_owned(), tree.id.0);
        Ok(())
    }

    /// Replaces a tree by a new one of the same name and properties, together with the chunks that `init` allocates for
    /// it, and drops the old one. On `Ok` this is durable. On `Err` the old tree remains. After a crash before `Ok`
    /// either the old tree or the new one exists completely.
    ///
    /// # Errors
    ///
    /// Those of `init`, and a directory without a free entry.
    pub fn replace_tree_with<T>(
        &self,
        id: TreeId,
        init: impl FnOnce(&TreeEntry) -> Result<T>,
    ) -> Result<(TreeEntry, T)> {
        self.writable()?;
        let mut names = self.lock_directory();
        if !self.is_live(id) {
            return Err(Error::NoSuchTree { name: format!("#{}", id.0) });
        }
        let spec = self.read_entry(id)?;
        let (entry, made, Durable { .. }) = self.prepare_tree(&mut names, &spec, INITIALIZED, init)?;
        let mut intent = [0; INTENT_WORDS];
        intent[0] = u64::from(id.0) | u64::from(entry.id.0) << 32;
        self.carry_out(intent).inspect_err(|_| names.unlearn())?;
        self.finish_drop(&mut names, id);
        self.health()?;
        names.insert(spec.name, entry.id.0);
        Ok((entry, made))
    }

    /// Returns the intent to rename the tree of an entry.
    fn renaming(&self, id: TreeId, name: &str) -> Words {
        let mut bytes = self.entry_bytes(self.entry(id));
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(offset_of!(Entry, name), &[0; NAME_BYTES_MAX]);
        put(offset_of!(Entry, name), name.as_bytes());
        put(offset_of!(Entry, lengths), &[name.len() as u8]);
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let design = word(offset_of!(Entry, design)) as u32;
        let mut intent = [0; INTENT_WORDS];
        intent[0] = u64::from(id.0) | u64::from(RENAMED) << 32;
        intent[1] = u64::from(design) | u64::from(checksum(&bytes, design)) << 32;
        intent[2] = word(offset_of!(Entry, lengths));
        for (at, to) in intent[3..INTENT_WORDS - 1].iter_mut().enumerate() {
            *to = word(offset_of!(Entry, name) + at * 8);
        }
        intent
    }

    fn intent(&self) -> &[Word; INTENT_WORDS] {
        const { assert!(INTENT_WORDS == 12) };
        let words = self.words(INTENT_OFFSET, INTENT_WORDS);
        words.first_chunk().expect("as many as were asked for")
    }

    /// Does all steps. The caller must hold the lock of the directory.
    fn carry_out(&self, mut intent: Words) -> Result<()> {
        intent[INTENT_WORDS - 1] = crc(&intent);
        let (cells, medium) = (self.intent(), self.medium());
        for (cell, word) in cells.iter().zip(intent) {
            cell.store(medium, word);
        }
        let flushed = medium.flush(cells, "pool intent.1");
        self.write_contents_after(flushed, |contents| contents.intent = true)?;
        let flushed = self.change_entries(&intent);
        self.write_contents_after(flushed, |contents| contents.intent = false)?;
        self.write_contents(|_| {})
    }

    /// Executes step 3, except for the fence.
    fn change_entries(&self, intent: &Words) -> Flushed {
        let medium = self.medium();
        let (id, heir) = entries_of(intent);
        let entry = self.entry(id);
        if let Some(heir) = heir {
            let other = self.entry(heir);
            entry.state.store(medium, ENTRY_DROPPING);
            other.state.store(medium, ENTRY_LIVE);
            medium.flush(&entry.state, "pool intent.3").and(medium.flush(&other.state, "pool intent.3"))
        } else {
            entry.design.store(medium, intent[1]);
            entry.lengths.store(medium, intent[2]);
            for (cell, &word) in entry.name.iter().zip(&intent[3..]) {
                cell.store(medium, word);
            }
            medium.flush(entry, "pool intent.3")
        }
    }

    /// Does step 3 of an interrupted change, except for the fence; steps 4 and 5 are the superblocks that open writes.
    ///
    /// # Errors
    ///
    /// `Corrupted` if the superblock says that a change is in progress and its intent is unreadable.
    pub(super) fn finish_intent(&self) -> Result<Flushed> {
        if !self.lock_contents().intent {
            return Ok(Flushed::none());
        }
        let intent = load_words(self.medium(), self.intent());
        let (id, heir) = entries_of(&intent);
        let exists = |id: TreeId| self.has_entry(id);
        if intent[INTENT_WORDS - 1] != crc(&intent) || !exists(id) || !heir.is_none_or(exists) {
            return Err(Error::corrupted("a change of the directory that cannot be read", "intent"));
        }
        let flushed = self.change_entries(&intent);
        self.lock_contents().intent = false;
        Ok(flushed)
    }
}

/// Returns the entry that an intent changes, and the one that replaces it.
fn entries_of(intent: &Words) -> (TreeId, Option<TreeId>) {
    let heir = (intent[0] >> 32) as u32;
    (TreeId(intent[0] as u32), (heir != RENAMED).then_some(TreeId(heir)))
}

/// Covers all words but the last.
fn crc(intent: &Words) -> u64 {
    crc32c::crc32c(&le_bytes::<INTENT_WORDS, { (INTENT_WORDS - 1) * 8 }>(intent)).into()
}
