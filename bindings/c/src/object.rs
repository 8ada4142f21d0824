//! What handles lead to.

use std::sync::Arc;

use bristlecone_rs::{Pool, Tree, dynamic};

use crate::handle::Inside;
use crate::iter::Iter;
use crate::status::{Failure, Outcome};

/// An object behind a handle.
pub enum Object {
    Pool(OpenPool),
    Tree(OpenTree),
    Iter(Box<Iter>),
}

/// A pool that is open.
pub struct OpenPool {
    pub pool: Pool,
    /// Shared with everything that was opened in the pool.
    pub members: Arc<()>,
}

/// A tree that is open.
pub struct OpenTree {
    /// The tree, if its keys and values are `u64`.
    pub words: Option<Tree<u64, u64>>,
    pub tree: dynamic::Tree,
    pub member: Arc<()>,
}

impl OpenTree {
    pub fn new(tree: dynamic::Tree, member: Arc<()>) -> Self {
        Self { words: tree.as_u64().cloned(), tree, member }
    }
}

impl Object {
    /// Lets go of what a child inherited: of the pool's file, that is.
    pub fn abandon(&self) {
        if let Self::Pool(open) = self {
            drop(open.pool.clone());
        }
    }

    #[cold]
    fn is_no(&self, what: &str) -> Failure {
        let is = match self {
            Self::Pool(_) => "a pool",
            Self::Tree(_) => "a tree",
            Self::Iter(_) => "an iterator",
        };
        Failure::usage(format!("the handle is {is}, not {what}"))
    }
}

impl Inside {
    /// Returns the pool.
    pub fn pool(&self) -> Outcome<&OpenPool> {
        match &**self {
            Object::Pool(open) => {
                open.pool.opened_here()?;
                Ok(open)
            }
            other => Err(other.is_no("a pool")),
        }
    }

    /// Returns the tree.
    #[inline(always)]
    pub fn tree(&self) -> Outcome<&OpenTree> {
        match &**self {
            Object::Tree(open) => Ok(open),
            other => Err(other.is_no("a tree")),
        }
    }

    /// Returns the tree of `u64` keys and values.
    #[inline(always)]
    pub fn words(&self) -> Outcome<&Tree<u64, u64>> {
        let open = self.tree()?;
        let Some(words) = &open.words else { return Err(no_words(open)) };
        words.opened_here()?;
        Ok(words)
    }

    /// Returns the iterator.
    pub fn iter(&self) -> Outcome<&Iter> {
        match &**self {
            Object::Iter(iter) => {
                iter.opened_here()?;
                Ok(iter)
            }
            other => Err(other.is_no("an iterator")),
        }
    }
}

#[cold]
fn no_words(open: &OpenTree) -> Failure {
    let (keys, values) = (open.tree.key_kind(), open.tree.value_kind());
    Failure::usage(format!("the tree {:?} has {keys} keys and {values} values, not u64", open.tree.name()))
}
