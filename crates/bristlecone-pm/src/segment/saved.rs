//! The state that trees save at a clean close, and its encoding.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use super::{EXTENTS_MAX, KeepIndex, Manifest, ManifestReader, Mode, Segment, checksums};

/// Minimum size of a segment that is saved, unless requested otherwise: rebuilding less takes a few milliseconds.
const WORTHWHILE_BYTES: u64 = 1 << 20;

/// Saved state of a tree.
#[derive(Clone, Debug)]
pub(super) struct SavedTree {
    pub extents: Vec<u32>,
    pub words: Vec<u64>,
    /// Checksums of the extents: see [`checksums`]. `None`: saved by this process, which has not closed the pool.
    pub sums: Option<Vec<u64>>,
}

/// Maximum number of trees whose state is saved, unless all are to be saved.
const SAVED_TREES_MAX: usize = 256;

/// Encodes the number of extents begun and the saved state of trees.
pub(super) fn write(begun: u32, trees: &BTreeMap<u32, SavedTree>) -> Vec<u64> {
    let mut words = vec![u64::from(begun), trees.len() as u64];
    for (&tree, kept) in trees {
        let sums = kept.sums.as_deref().unwrap_or_default();
        words.extend([
            u64::from(tree),
            kept.extents.len() as u64,
            sums.len() as u64,
            kept.words.len() as u64,
        ]);
        words.extend(kept.extents.iter().map(|&extent| u64::from(extent)));
        words.extend(sums);
        words.extend(&kept.words);
    }
    words
}

/// Decodes the output of [`write`].
pub(super) fn read(words: &[u64]) -> Option<(u32, BTreeMap<u32, SavedTree>)> {
    let mut rest = words.iter().copied();
    let mut next = || rest.next();
    let begun = u32::try_from(next()?).ok().filter(|begun| (1..=EXTENTS_MAX).contains(begun))?;
    let mut trees = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for _ in 0..next()? {
        let tree = u32::try_from(next()?).ok()?;
        let (extents, sums, words) = (next()?, next()?, next()?);
        let extents = (0..extents).map(|_| u32::try_from(next()?).ok()).collect::<Option<Vec<u32>>>()?;
        let mut list = |len| (0..len).map(|_| next()).collect::<Option<Vec<u64>>>();
        let (sums, words) = (list(sums)?, list(words)?);
        for &extent in &extents {
            ((1..begun).contains(&extent) && taken.insert(extent)).then_some(())?;
        }
        trees.insert(tree, SavedTree { extents, words, sums: Some(sums) }).is_none().then_some(())?;
    }
    rest.next().is_none().then_some((begun, trees))
}

impl Segment {
    /// Marks a tree as open.
    pub(crate) fn enter(&self, tree: u32) {
        self.state().open.insert(tree);
    }

    /// Marks a tree as closed, after it has saved its state.
    pub(crate) fn leave(&self, tree: u32) {
        self.state().open.remove(&tree);
        self.closed.notify_all();
    }

    /// Waits for a tree whose last handle was dropped but which is not yet closed: its saved state is for the next
    /// open.
    fn wait_for(&self, tree: u32) {
        let mut state = self.state();
        while state.open.contains(&tree) {
            state = self.closed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the manifest that a tree saved, together with its extents; extents that `resume` does not use become free.
    /// State that changed since the close is not restored.
    pub(crate) fn resume_tree<T>(
        self: &Arc<Self>,
        tree: u32,
        resume: impl FnOnce(&mut ManifestReader<'_>) -> Option<T>,
    ) -> Option<T> {
        self.wait_for(tree);
        let kept = match self.mode {
            Mode::Write => self.state().trees.remove(&tree),
            // Each handle of a reader restores them again.
            Mode::Read | Mode::Follow => self.state().trees.get(&tree).cloned(),
        }?;
        let mut reader = ManifestReader::new(self, &kept.words);
        let resumed = if self.is_unchanged(&kept) { resume(&mut reader) } else { None };
        let resumed = resumed.filter(|_| reader.is_at_end());
        let taken = reader.into_taken();
        for extent in kept.extents.into_iter().filter(|extent| !taken.contains(extent)) {
            self.give_back(extent);
        }
        resumed
    }

    /// Returns whether the extents of a tree are unchanged since the close.
    fn is_unchanged(&self, kept: &SavedTree) -> bool {
        let is_unchanged = kept.sums.is_none() || checksums::of(&self.file, &kept.extents) == kept.sums;
        if !is_unchanged {
            self.found.store(false, Relaxed);
        }
        is_unchanged
    }

    /// Stores the state that `save` writes for a tree; nothing if it returns `None`.
    pub(crate) fn save_tree(&self, tree: u32, save: impl FnOnce(&mut Manifest) -> Option<()>) {
        self.forget(tree);
        if self.mode != Mode::Write || !self.is_whole() || !self.opener.is_here() {
            return;
        }
        // A small tree's part takes hundreds of kilobytes, and less than a millisecond to build.
        if self.keep != KeepIndex::Always && self.state().trees.len() >= SAVED_TREES_MAX {
            return;
        }
        let mut manifest = Manifest::default();
        let suspended = save(&mut manifest);
        let (extents, words) = manifest.into_parts();
        if suspended.is_none() {
            // Their holders are dropped without freeing them.
            return extents.into_iter().for_each(|extent| self.give_back(extent));
        }
        self.state().trees.insert(tree, SavedTree { extents, words, sums: None });
    }

    /// Discards the saved state of a tree.
    pub(crate) fn forget(&self, tree: u32) {
        if self.mode == Mode::Write {
            let kept = self.state().trees.remove(&tree).map(|kept| kept.extents);
            let left = self.take_left(tree).map(|left| left.extents);
            kept.into_iter().chain(left).flatten().for_each(|extent| self.give_back(extent));
        }
    }

    /// Saves everything for the next open, sealed with the returned number; 0 if nothing is saved. Trees that are not
    /// in `live` are discarded.
    pub(crate) fn seal(&self, live: &[u32]) -> u64 {
        if self.mode != Mode::Write || !self.opener.is_here() || !self.is_whole() {
            return 0;
        }
        let gone: Vec<u32> = self.state().trees.keys().filter(|tree| !live.contains(tree)).copied().collect();
        gone.into_iter().for_each(|tree| self.forget(tree));
        let is_worthwhile = || match self.keep {
            KeepIndex::Always => true,
            KeepIndex::Auto | KeepIndex::AfterKill => self.bytes() >= WORTHWHILE_BYTES,
            KeepIndex::Never => false,
        };
        if self.state().trees.is_empty() || !is_worthwhile() {
            return 0;
        }
        let Some(words) = self.summed() else { return 0 };
        let Some(header) = self.header.seal(&words) else { return 0 };
        if header.write(&self.file, &words).is_err() {
            return 0;
        }
        self.sealed.store(true, Relaxed);
        header.number()
    }

    /// Encodes the saved state of trees, with the checksums of their extents. Trees that were not opened keep theirs:
    /// the open that needs them detects changes since the last close.
    fn summed(&self) -> Option<Vec<u64>> {
        let mut state = self.state();
        for kept in state.trees.values_mut().filter(|kept| kept.sums.is_none()) {
            kept.sums = Some(checksums::of(&self.file, &kept.extents)?);
        }
        Some(write(state.begun, &state.trees))
    }

    /// Removes the seal: the pool was not closed.
    pub(crate) fn unseal(&self) {
        if self.sealed.swap(false, Relaxed) {
            // If this fails, the remaining number is in no superblock.
            let _ = self.header.unseal().write(&self.file, &[]);
        }
    }

    /// Returns the bytes of memory that the file uses.
    fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |file| file.blocks() * 512)
    }
}
