//! What a batch or a transaction is to change.

use std::collections::BTreeMap;

use bristlecone_pm::{Error, Result};

use super::any_tree::AnyTree;
use super::handle::{Link, TreeHandle};
use crate::Pool;
use crate::index::parts::encoded::Encoded;

/// A tree of a batch, and its key.
pub type Place = (usize, Encoded);

/// Keys of several trees, and what they get.
#[derive(Default)]
pub struct Changes {
    pub trees: Vec<(Link, Box<dyn AnyTree>)>,
    /// By place, what the key gets; `None`: it is removed.
    pub keys: BTreeMap<Place, Option<Encoded>>,
    /// By place, what the key must have for anything to be changed.
    pub expected: BTreeMap<Place, Option<Encoded>>,
}

impl Changes {
    /// Returns the number of a tree, which is a part from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a tree of another pool, or one of a design that the library does not know.
    pub fn tree<T: TreeHandle>(&mut self, pool: &Pool, tree: &T) -> Result<usize> {
        let link = tree.link();
        if !pool.is_same(tree.pool()) {
            return Err(Error::invalid(
                "the tree is of another pool: what is changed together is in one pool",
            ));
        }
        if !link.is_known {
            return Err(Error::invalid("a tree of a design from outside takes single writes only"));
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
