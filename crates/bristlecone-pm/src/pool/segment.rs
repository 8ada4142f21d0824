//! A pool and its segment: see [`crate::segment`].

use std::sync::Arc;

use super::PoolFile;
use super::directory::TreeId;
use crate::Medium;
use crate::segment::{Identity, KeepIndex, Memory, Notes, NotesReader, Segment};

impl<M: Medium> PoolFile<M> {
    /// Has trees keep what they have in DRAM in shared memory, and take over what the last user left of it. To be called
    /// before any tree is opened. `build` is a number of the library: another one's index is not taken over.
    pub fn keep_index(&self, keep: KeepIndex, build: u64) {
        let Some(path) = &self.path else { return };
        let uuid = self.lock_contents().uuid;
        let identity = Identity { uuid, seal: self.seal, build, pool: path };
        if let Some(segment) = Segment::open(&identity, keep, self.is_read_only()) {
            let _ = self.segment.set(segment);
        }
    }

    fn segment(&self) -> Option<&Arc<Segment>> {
        self.segment.get()
    }

    /// Returns where trees have what is not persistent.
    pub fn memory(&self) -> Memory {
        Memory::of(self.segment())
    }

    /// Notes that a tree is open: a thread that opens it next waits for [`tree_closed`](Self::tree_closed).
    pub fn tree_opened(&self, tree: TreeId) {
        self.segment().into_iter().for_each(|segment| segment.enter(tree.0));
    }

    /// Notes that a tree is closed.
    pub fn tree_closed(&self, tree: TreeId) {
        self.segment().into_iter().for_each(|segment| segment.withdraw_tree(tree.0));
        self.segment().into_iter().for_each(|segment| segment.leave(tree.0));
    }

    /// Lets other processes follow: the pool is open, and what a crash left is done with.
    pub fn begin_following(&self) {
        self.segment().into_iter().for_each(|segment| segment.begin());
    }

    /// Keeps followers out; whether none looks at the pool any more.
    pub(super) fn end_following(&self) -> bool {
        self.segment().is_none_or(|segment| segment.end())
    }

    /// Shows followers a tree by what `share` notes of it; not if that says `None`.
    pub fn share_tree(&self, tree: TreeId, share: impl FnOnce(&mut Notes) -> Option<()>) {
        if let Some(segment) = self.segment() {
            segment.share_tree(tree.0, share);
        }
    }

    /// Calls `resume` with what a tree left behind when it was last closed, if it did; what that does not take up is
    /// gone. Waits for a thread that is just closing the tree.
    pub fn resume_tree<T>(
        &self,
        tree: TreeId,
        resume: impl FnOnce(&mut NotesReader<'_>) -> Option<T>,
    ) -> Option<T> {
        self.segment()?.resume_tree(tree.0, resume)
    }

    /// Leaves behind what `suspend` notes of a tree whose last handle goes, unless that says `None`.
    pub fn suspend_tree(&self, tree: TreeId, suspend: impl FnOnce(&mut Notes) -> Option<()>) {
        self.segment().into_iter().for_each(|segment| segment.withdraw_tree(tree.0));
        // A thread that panics may have left anything halfway.
        if let Some(segment) = self.segment()
            && !std::thread::panicking()
            && self.writable().and_then(|()| self.health()).is_ok()
        {
            segment.suspend_tree(tree.0, suspend);
        }
    }

    /// Forgets what a tree left behind.
    pub(super) fn forget_kept(&self, tree: TreeId) {
        self.segment().into_iter().for_each(|segment| segment.forget(tree.0));
    }

    /// Seals the segment; returns its number, or 0.
    pub(super) fn seal_segment(&self) -> u64 {
        let (Some(segment), Ok(trees)) = (self.segment(), self.trees()) else { return 0 };
        segment.seal(&trees.iter().map(|tree| tree.id.0).collect::<Vec<_>>())
    }
}
