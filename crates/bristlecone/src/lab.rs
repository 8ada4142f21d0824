//! Where designs from outside plug in, to be measured and explored as the library's own are: what a
//! crate needs to write one, and trees of it behind the common face. Not part of the product.

use std::sync::Arc;

use bristlecone_pm::{Medium, PoolFile, Result, TreeEntry, TreeSpec};

pub use crate::shared::form::{Inline, KeyForm, ValueForm};
use crate::trees::AnyTree;
pub use crate::trees::parameters::{PARAMS, Parameters, broken_rule};
pub use crate::trees::{Batch, Guest, Index, WriteMode};
use crate::{Key, Pool, Tree, Value};

/// A design from outside.
pub trait GuestDesign: Copy {
    /// As in the directory; no code of the library's own designs.
    fn code(self) -> u32;

    /// Whether its trees can hold such keys and values.
    fn admit<K: KeyForm, V: ValueForm>(self) -> Result<()>;

    /// The parameters as words: defaults, but for what is given by name.
    fn parse(self, given: &[(String, u64)]) -> Result<[u64; PARAMS]>;

    /// Opens a tree, recovering whatever a crash left.
    fn open<K: KeyForm, V: ValueForm, M: Medium>(
        self,
        pool: &Arc<PoolFile<M>>,
        entry: &TreeEntry,
    ) -> Result<Guest<K, V, M>>;
}

/// Creates a tree of a design from outside: see [`TreeOptions::create`](crate::TreeOptions::create).
pub fn create<K: Key, V: Value, M: Medium>(
    pool: &Pool<M>,
    name: &str,
    design: impl GuestDesign,
    given: &[(String, u64)],
) -> Result<Tree<K, V, M>> {
    design.admit::<K::Form, V::Form>()?;
    let spec = TreeSpec {
        name: name.to_owned(),
        design: design.code(),
        key_kind: K::kind(),
        value_kind: V::kind(),
        params: design.parse(given)?,
    };
    pool.create_tree(&spec, |file, entry| Ok(AnyTree::Guest(design.open(file, entry)?)))
}

/// Opens a tree of a design from outside: see [`TreeOptions::open`](crate::TreeOptions::open).
pub fn open<K: Key, V: Value, M: Medium>(
    pool: &Pool<M>,
    name: &str,
    design: impl GuestDesign,
) -> Result<Tree<K, V, M>> {
    design.admit::<K::Form, V::Form>()?;
    pool.open_tree(name, |_| Ok(()), |file, entry, _| Ok(AnyTree::Guest(design.open(file, entry)?)))
}
