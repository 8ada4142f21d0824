//! The changes of a batch or a transaction.

use std::collections::BTreeMap;

use bristlecone_pm::{Error, Result};

use super::any_tree::AnyTree;
use super::handle::{Link, TreeHandle};
use crate::Pool;
use crate::index::parts::encoded::Encoded;

/// The index of a tree within the batch, and its key.
pub type Place = (usize, Encoded);

/// Keys of several trees, and their new values.
#[derive(Default)]
pub struct Changes {
    pub trees: Vec<(Link, Box<dyn AnyTree>)>,
    /// New values by place; `None` removes the key.
    pub keys: BTreeMap<Place, Option<Encoded>>,
    /// Expected values by place, the conditions for the change.
    pub expected: BTreeMap<Place, Option<Encoded>>,
}

impl Changes {
    /// Returns the index of a tree, and adds the tree if it is new.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a tree of another pool, or of a design that the library does not know.
    pub fn tree<T: TreeHandle>(&mut self, pool: &Pool, tree: &T) -> Result<usize> {
        let link = tree.link();
        if !pool.is_same(tree.pool()) {
            return Err(Error::invalid("the tree belongs to another pool: a commit covers one pool"));
        }
        if !link.is_known {
            return Err(Error::invalid("a tree of an external design supports single-key writes only"));
        }
        let known = self.trees.iter().position(|(known, _)| known.identity == link.identity);
        Ok(known.unwrap_or_else(|| {
            self.trees.push((link, tree.any()));
            self.trees.len() - 1
        }))
    }

    pub fn identity(&self, tree: usize) -> u64 {
        self.trees[tree].0.identity
    }

    pub fn saved_key(&self, (tree, key): &Place) -> (u64, Encoded) {
        (self.identity(*tree), key.clone())
    }
}
