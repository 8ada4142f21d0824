//! Operations on a pool of trees.

use bristlecone_pm::Step;
use bristlecone_sim::Access;

/// An operation on a pool of trees. Operations on a missing tree do nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeOp {
    /// Creates a tree, unless it exists.
    Create(&'static str),
    /// Creates a tree in the manner of earlier versions: it is live before it has a leaf, which the first open
    /// creates.
    CreateBare(&'static str),
    /// Creates a tree of a library design with this many keys in it, whose values equal the keys, unless it
    /// exists.
    Load(&'static str, u64),
    /// Runs an operation on a separate thread, whose fences apply to no other thread.
    Elsewhere(Box<TreeOp>),
    /// Begins an operation on one key on a separate thread, which stops at a step before it has an effect.
    Begin(Box<TreeOp>, Step),
    /// Lets it continue.
    Finish(Box<TreeOp>),
    /// Drops a tree.
    Drop(&'static str),
    /// Writes a key.
    Insert(&'static str, u64, u64),
    /// Writes a key without reading the previous value.
    Upsert(&'static str, u64, u64),
    /// Writes an absent key.
    InsertNew(&'static str, u64, u64),
    /// Writes an existing key.
    Update(&'static str, u64, u64),
    /// Replaces the value of a key (first number) from one (second) to another (third).
    Swap(&'static str, u64, u64, u64),
    /// Removes a key.
    Remove(&'static str, u64),
    /// Removes a key (first number) that has a value (second).
    RemoveIf(&'static str, u64, u64),
    /// Applies the same kind of access to several keys in one call.
    Many(&'static str, Vec<(u64, Access)>),
    /// Runs an operation while the medium has no space: it grants some requests, and then refuses some.
    Short(Box<TreeOp>, u64, u64),
    /// Closes the pool cleanly and reopens it.
    Close,
    /// Waits until no thread reads what was removed or replaced so far.
    Rest,
}

impl TreeOp {
    /// Returns the tree, the key, and the access.
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
            | Self::Close
            | Self::Rest => return None,
            Self::Elsewhere(_) | Self::Begin(..) | Self::Finish(_) | Self::Short(..) | Self::Many(..) => {
                return None;
            }
        })
    }
}
