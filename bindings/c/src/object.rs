//! What handles lead to.

use std::sync::Arc;

use bristlecone_rs::{Pool, Tree, dynamic};

use crate::batch::OpenBatch;
use crate::handle::Inside;
use crate::iter::Iter;
use crate::snapshot::OpenSnapshot;
use crate::status::{Failure, Outcome};
use crate::transaction::OpenTransaction;

/// An object behind a handle.
pub enum Object {
    Pool(OpenPool),
    Tree(OpenTree),
    Iter(Box<Iter>),
    Batch(OpenBatch),
    Snapshot(OpenSnapshot),
    Transaction(Box<OpenTransaction>),
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

    /// Returns the tree of `u64` keys and values.
    #[inline(always)]
    pub fn words(&self) -> Outcome<&Tree<u64, u64>> {
        self.words.as_ref().ok_or_else(|| self.no_words())
    }

    #[cold]
    fn no_words(&self) -> Failure {
        let (keys, values) = (self.tree.key_kind(), self.tree.value_kind());
        Failure::usage(format!(
            "the tree {:?} has {keys} keys and {values} values, not u64",
            self.tree.name()
        ))
    }
}

impl Object {
    /// Lets go of what a child inherited: of the pool's file, that is.
    pub fn abandon(&self) {
        if let Self::Pool(open) = self {
            drop(open.pool.clone());
        }
    }

    /// Says that a handle is of another kind.
    #[cold]
    pub fn is_no(&self, what: &str) -> Failure {
        let is = match self {
            Self::Pool(_) => "a pool",
            Self::Tree(_) => "a tree",
            Self::Iter(_) => "an iterator",
            Self::Batch(_) => "a batch",
            Self::Snapshot(_) => "a snapshot",
            Self::Transaction(_) => "a transaction",
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

    /// Returns the tree, which has to be one of the pool that another object is of.
    pub fn tree_of(&self, member: &Arc<()>) -> Outcome<&OpenTree> {
        let open = self.tree()?;
        if !Arc::ptr_eq(&open.member, member) {
            return Err(Failure::usage(format!("the tree {:?} is of another pool", open.tree.name())));
        }
        open.tree.opened_here()?;
        Ok(open)
    }

    /// Returns the tree of `u64` keys and values.
    #[inline(always)]
    pub fn words(&self) -> Outcome<&Tree<u64, u64>> {
        let words = self.tree()?.words()?;
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

    /// Returns the batch.
    pub fn batch(&self) -> Outcome<&OpenBatch> {
        match &**self {
            Object::Batch(open) => {
                open.pool.opened_here()?;
                Ok(open)
            }
            other => Err(other.is_no("a batch")),
        }
    }

    /// Returns the snapshot.
    pub fn snapshot(&self) -> Outcome<&OpenSnapshot> {
        match &**self {
            Object::Snapshot(open) => {
                open.pool.opened_here()?;
                Ok(open)
            }
            other => Err(other.is_no("a snapshot")),
        }
    }

    /// Returns the transaction.
    pub fn transaction(&self) -> Outcome<&OpenTransaction> {
        match &**self {
            Object::Transaction(open) => {
                open.pool.opened_here()?;
                Ok(open)
            }
            other => Err(other.is_no("a transaction")),
        }
    }
}
