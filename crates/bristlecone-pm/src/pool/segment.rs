//! A pool and its segment: see [`crate::segment`].

use std::sync::Arc;

use super::spec::TreeId;
use super::{Nameless, PoolFile};
use crate::Medium;
use crate::segment::{Identity, KeepIndex, Manifest, ManifestReader, Memory, Segment};

impl<M: Medium> PoolFile<M> {
    /// Makes trees keep their volatile data in shared memory, and restore the index that the last user saved there.
    /// Must be called before any tree is opened. `layout` is a hash of what the state of trees depends on: an index of
    /// another layout is not restored.
    pub fn keep_index(&self, keep: KeepIndex, layout: u64) {
        if self.path.is_some() {
            self.keep_segment(Segment::open(&self.identity(layout), keep, self.is_read_only()));
        }
    }

    /// Does the same for a pool without a name, whose index is in a file that was passed as a descriptor, and is
    /// [of this pool](Nameless::expect_index_of).
    pub fn keep_index_in(&self, index: Nameless, keep: KeepIndex, layout: u64) {
        let identity = self.identity(layout);
        self.keep_segment(Segment::open_in(index.into_parts(), &identity, keep, self.is_read_only()));
    }

    fn identity(&self, layout: u64) -> Identity<'_> {
        let uuid = self.lock_contents().uuid;
        let (seal, was_clean, opening) = (self.seal, self.was_clean, self.opening);
        Identity { uuid, seal, was_clean, opening, layout, pool: self.path.as_deref() }
    }

    fn keep_segment(&self, segment: Option<Arc<Segment>>) {
        segment.into_iter().for_each(|segment| _ = self.segment.set(segment));
    }

    fn segment(&self) -> Option<&Arc<Segment>> {
        self.segment.get()
    }

    /// Returns the memory for the trees' volatile data.
    pub fn memory(&self) -> Memory {
        Memory::of(self.segment())
    }

    /// Marks a tree as open: a thread that opens it next waits for [`tree_closed`](Self::tree_closed).
    pub fn tree_opened(&self, tree: TreeId) {
        self.segment().into_iter().for_each(|segment| segment.enter(tree.0));
    }

    /// Marks a tree as closed.
    pub fn tree_closed(&self, tree: TreeId) {
        self.segment().into_iter().for_each(|segment| segment.withdraw_tree(tree.0));
        self.segment().into_iter().for_each(|segment| segment.leave(tree.0));
    }

    /// Admits followers: the pool is open, and recovery is complete.
    pub fn begin_following(&self) {
        self.segment().into_iter().for_each(|segment| segment.begin());
    }

    /// Stops admitting followers; returns whether none reads the pool any more.
    pub(super) fn end_following(&self) -> bool {
        self.segment().is_none_or(|segment| segment.end())
    }

    /// Shares a tree with followers as described by the manifest of `share`; does nothing if `share` returns `None`.
    pub fn share_tree(&self, tree: TreeId, share: impl FnOnce(&mut Manifest) -> Option<()>) {
        if let Some(segment) = self.segment() {
            segment.share_tree(tree.0, share);
        }
    }

    /// Calls `resume` with the state that a tree saved when it was last closed, if it did; what `resume` does not use
    /// is discarded. Waits for a thread that is closing the tree.
    pub fn resume_tree<T>(
        &self,
        tree: TreeId,
        resume: impl FnOnce(&mut ManifestReader<'_>) -> Option<T>,
    ) -> Option<T> {
        self.segment()?.resume_tree(tree.0, resume)
    }

    /// Calls `recover` with the state of a tree that the last writer had open when it was killed, if there is any;
    /// what `recover` does not use is discarded.
    pub fn recover_tree<T>(
        &self,
        tree: TreeId,
        recover: impl FnOnce(&mut ManifestReader<'_>) -> Option<T>,
    ) -> Option<T> {
        self.segment()?.recover_tree(tree.0, recover)
    }

    /// Saves the state that `save` writes for a tree whose last handle is dropped, unless it returns `None`.
    pub fn save_tree(&self, tree: TreeId, save: impl FnOnce(&mut Manifest) -> Option<()>) {
        self.segment().into_iter().for_each(|segment| segment.withdraw_tree(tree.0));
        // A thread that panicked may have left the tree in any state.
        if let Some(segment) = self.segment()
            && !std::thread::panicking()
            && self.writable().and_then(|()| self.health()).is_ok()
        {
            segment.save_tree(tree.0, save);
        }
    }

    /// Discards the saved state of a tree.
    pub(super) fn forget_kept(&self, tree: TreeId) {
        self.segment().into_iter().for_each(|segment| segment.forget(tree.0));
    }

    /// Seals the segment; returns its number, or 0.
    pub(super) fn seal_segment(&self) -> u64 {
        let (Some(segment), Ok(trees)) = (self.segment(), self.trees()) else { return 0 };
        segment.seal(&trees.iter().map(|tree| tree.id.0).collect::<Vec<_>>())
    }
}
