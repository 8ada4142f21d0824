//! What a tree leaves in the pool's segment when its last handle goes, for the next open to go on with.

use std::sync::Arc;

use bristlecone_pm::{Medium, Notes, PoolFile, TreeEntry, TreeId};

/// Leaves a tree's volatile half behind.
#[derive(Debug)]
pub struct Keeper<M: Medium> {
    pool: Arc<PoolFile<M>>,
    tree: TreeId,
    is_open: bool,
}

impl<M: Medium> Keeper<M> {
    /// Returns the keeper of a tree that is being opened, which leaves nothing behind before it is.
    pub fn new(pool: &Arc<PoolFile<M>>, entry: &TreeEntry) -> Self {
        Self { pool: Arc::clone(pool), tree: entry.id, is_open: false }
    }

    /// Notes that the tree is whole: opened, or taken over.
    pub fn opened(&mut self) {
        self.is_open = true;
        self.pool.tree_opened(self.tree);
    }

    /// Leaves behind what `suspend` notes, unless that says `None`. No other thread has the tree any more.
    pub fn leave(&self, suspend: impl FnOnce(&mut Notes) -> Option<()>) {
        if self.is_open {
            self.pool.suspend_tree(self.tree, suspend);
        }
    }
}

impl<M: Medium> Drop for Keeper<M> {
    fn drop(&mut self) {
        if self.is_open {
            self.pool.tree_closed(self.tree);
        }
    }
}
