//! Index saver: the state that a tree saves in the pool's shared index file when its last handle is
//! dropped, for the next open.

use std::sync::Arc;

use bristlecone_pm::{Manifest, Medium, PoolFile, TreeEntry, TreeId};

/// Saves the volatile part of a tree.
#[derive(Debug)]
pub struct IndexSaver<M: Medium> {
    pool: Arc<PoolFile<M>>,
    tree: TreeId,
    is_open: bool,
}

impl<M: Medium> IndexSaver<M> {
    /// Returns the saver of a tree that is being opened, which saves nothing until then.
    pub fn new(pool: &Arc<PoolFile<M>>, entry: &TreeEntry) -> Self {
        Self { pool: Arc::clone(pool), tree: entry.id, is_open: false }
    }

    /// Records that the tree is complete: opened, or resumed.
    pub fn opened(&mut self) {
        self.is_open = true;
        self.pool.tree_opened(self.tree);
    }

    /// Saves the state that `save` records, unless that returns `None`. No other thread has access to
    /// the tree any more.
    pub fn leave(&self, save: impl FnOnce(&mut Manifest) -> Option<()>) {
        if self.is_open {
            self.pool.save_tree(self.tree, save);
        }
    }
}

impl<M: Medium> Drop for IndexSaver<M> {
    fn drop(&mut self) {
        if self.is_open {
            self.pool.tree_closed(self.tree);
        }
    }
}
