//! What is done to a pool of trees.

use bristlecone_pm::Step;
use bristlecone_sim::Access;

/// What is done to a pool of trees. Operations on a tree that is not there do nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeOp {
    /// Creates a tree, unless it is there.
    Create(&'static str),
    /// Creates a tree like another one as earlier versions did: it is live before it has a leaf, which the first
    /// opening makes.
    CreateBare(&'static str),
    /// Creates a tree of a library design with so many keys in it, each of which is its own value, unless it is there.
    Load(&'static str, u64),
    /// Runs an operation on a thread of its own, whose fences are no other thread's.
    Elsewhere(Box<TreeOp>),
    /// Begins an operation on one key on a thread of its own, which stops at a step or before a fence, before
    /// anything comes of it.
    Begin(Box<TreeOp>, Step),
    /// Lets it go on to another one, before anything comes of it.
    Proceed(Step),
    /// Lets it go on.
    Finish(Box<TreeOp>),
    /// Drops a tree.
    Drop(&'static str),
    /// Writes a key.
    Insert(&'static str, u64, u64),
    /// Writes a key without asking what was there.
    Upsert(&'static str, u64, u64),
    /// Writes a key that is not there.
    InsertNew(&'static str, u64, u64),
    /// Writes a key that is there.
    Update(&'static str, u64, u64),
    /// Writes a key (first number) that has a value (second) and gives it another (third).
    Swap(&'static str, u64, u64, u64),
    /// Removes a key.
    Remove(&'static str, u64),
    /// Removes a key (first number) that has a value (second).
    RemoveIf(&'static str, u64, u64),
    /// Does something to several keys in one call: the same kind of access to each.
    Many(&'static str, Vec<(u64, Access)>),
    /// Does something while the medium has no room: it grants so many requests, and refuses so many more.
    Short(Box<TreeOp>, u64, u64),
    /// Closes the pool in good order and opens it again.
    Close,
    /// Waits until no thread reads any more what was removed or replaced so far.
    Rest,
}

impl TreeOp {
    /// Returns the tree, the key, and what is done to it.
    pub(super) fn access(&self) -> Option<(&'static str, u64, Access)> {
        Some(match *self {
            Self::Insert(tree, key, value) => (tree, key, Access::Insert(value)),
            Self::Upsert(tree, key, value) => (tree, key, Access::Upsert(value)),
            Self::InsertNew(tree, key, value) => (tree, key, Access::InsertNew(value)),
            Self::Update(tree, key, value) => (tree, key, Access::Update(value)),
            Self::Swap(tree, key, expected, new) => (tree, key, Access::Swap(expected, new)),
            Self::Remove(tree, key) => (tree, key, Access::Remove),
            Self::RemoveIf(tree, key, expected) => (tree, key, Access::RemoveIf(expected)),
            Self::Create(_)
            | Self::CreateBare(_)
            | Self::Load(..)
            | Self::Drop(_)
            | Self::Proceed(_)
            | Self::Close
            | Self::Rest => return None,
            Self::Elsewhere(_) | Self::Begin(..) | Self::Finish(_) | Self::Short(..) | Self::Many(..) => {
                return None;
            }
        })
    }
}
