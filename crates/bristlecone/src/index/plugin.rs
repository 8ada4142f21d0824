//! Interface for external designs, so that they can be measured and explored like the library's
//! own: the items that a crate needs to implement a design, and its trees behind the common
//! interface. Not part of the product.

use std::any::Any;
use std::sync::Arc;

use bristlecone_pm::{Medium, PoolFile, Result, TreeEntry, TreeSpec};

use crate::api::tree_options::are_words;
pub use crate::design_options;
pub use crate::index::any::AnyIndex;
use crate::index::any::PoolOn;
use crate::index::of_keys::OfKeys;
pub use crate::index::options::{PARAMS, Parameters};
pub use crate::index::part_of;
pub use crate::index::parts::codec::{Inline, KeyCodec};
pub use crate::index::{Batch, Described, Form, Index, Inspect, Open, Read, Scan, Swapped, Write, WriteMode};
use crate::{Design, Error, Key, Pool, Tree, Value};

/// An external design.
pub trait ExternalDesign: Copy {
    /// The code in the directory, which must differ from those of the library's own designs.
    fn code(self) -> u32;

    /// Returns an error if its trees cannot store such keys and values: words or records.
    fn supports(self, are_words: (bool, bool)) -> Result<()>;

    /// Returns the parameters as words: defaults, overridden by the given names and values.
    fn parse(self, given: &[(String, u64)]) -> Result<[u64; PARAMS]>;

    /// Opens a tree, and recovers it after a crash.
    fn open<M: Medium>(self, pool: &Arc<PoolFile<M>>, entry: &TreeEntry) -> Result<AnyIndex>;
}

/// A design, internal or external, that creates and opens trees in a pool on the medium `M`.
pub trait TreeDesign: Copy + Send + Sync + 'static {
    /// Creates a tree, with options by name.
    ///
    /// # Errors
    ///
    /// Same as [`TreeOptions::create`](crate::TreeOptions::create).
    fn create<K: Key, V: Value, M: Medium>(
        self,
        pool: &Pool,
        name: &str,
        options: &[(String, u64)],
    ) -> Result<Tree<K, V>>;

    /// Opens a tree.
    ///
    /// # Errors
    ///
    /// Same as [`TreeOptions::open`](crate::TreeOptions::open).
    fn open<K: Key, V: Value, M: Medium>(self, pool: &Pool, name: &str) -> Result<Tree<K, V>>;

    /// Returns the design if it is one of the library's own.
    fn library(self) -> Option<Design> {
        None
    }
}

impl<D: ExternalDesign + Send + Sync + 'static> TreeDesign for D {
    fn create<K: Key, V: Value, M: Medium>(
        self,
        pool: &Pool,
        name: &str,
        options: &[(String, u64)],
    ) -> Result<Tree<K, V>> {
        create::<K, V, M>(pool, name, self, options)
    }

    fn open<K: Key, V: Value, M: Medium>(self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        open::<K, V, M>(pool, name, self)
    }
}

/// A medium chosen at run time.
pub type AnyMedium = Box<dyn Medium>;

/// Creates a pool on a medium chosen at run time, with trees of the library's designs. These are
/// compiled here once for all such media.
///
/// # Errors
///
/// [`Error::Corrupted`](crate::Error) if a committed but unfinished record is unreadable.
pub fn pool_on_any(file: Arc<PoolFile<AnyMedium>>) -> Result<Pool> {
    pool_on_any_with(file, 1)
}

/// Creates a pool as [`pool_on_any`] does, whose trees are recovered on `recovery_threads` threads.
///
/// # Errors
///
/// Same as [`pool_on_any`].
pub fn pool_on_any_with(file: Arc<PoolFile<AnyMedium>>, recovery_threads: usize) -> Result<Pool> {
    Pool::on(file, recovery_threads)
}

/// Creates a tree of an external design in a pool on the medium `M`: see
/// [`TreeOptions::create`](crate::TreeOptions::create).
///
/// # Errors
///
/// Same as for that function; [`Error::Invalid`](crate::Error) if the pool belongs to another medium, or
/// the design does not support such items.
pub fn create<K: Key, V: Value, M: Medium>(
    pool: &Pool,
    name: &str,
    design: impl ExternalDesign,
    given: &[(String, u64)],
) -> Result<Tree<K, V>> {
    let spec = TreeSpec::new(name, design.code(), K::kind(), V::kind()).with_params(design.parse(given)?);
    design.supports(are_words::<K, V>())?;
    let file = file_of::<M>(pool)?;
    if pool.0.journal.get().is_some() {
        return Err(Error::invalid("a pool with a journal cannot have trees of external designs"));
    }
    let tree = pool.create_index(|| {
        let (entry, tree) = file.create_tree_with(&spec, |entry| design.open(file, entry))?;
        Ok((entry, tree, None))
    })?;
    pool.handle(&tree, (K::fixed()?, V::fixed()?))
}

/// Opens a tree of an external design in a pool on the medium `M`: see
/// [`TreeOptions::open`](crate::TreeOptions::open).
///
/// # Errors
///
/// Same as for that function; [`Error::Invalid`](crate::Error) if the pool belongs to another medium, or
/// the design does not support such items.
pub fn open<K: Key, V: Value, M: Medium>(
    pool: &Pool,
    name: &str,
    design: impl ExternalDesign,
) -> Result<Tree<K, V>> {
    let file = file_of::<M>(pool)?;
    let are_words = are_words::<K, V>();
    let supports = |_: &TreeEntry| design.supports(are_words);
    let tree = pool.open_index(name, are_words, supports, |entry| design.open(file, entry))?;
    pool.handle(&tree, (K::fixed()?, V::fixed()?))
}

/// Returns a tree of words as one of any codec.
pub fn of_words(tree: impl Index<Inline, Inline>) -> AnyIndex {
    AnyIndex::Words(OfKeys::Words(Arc::new(tree)))
}

fn file_of<M: Medium>(pool: &Pool) -> Result<&Arc<PoolFile<M>>> {
    let file: &dyn Any = &*pool.0.file;
    let file = file.downcast_ref::<PoolOn<M>>().map(|on| &on.0);
    file.ok_or_else(|| Error::invalid("the pool belongs to another medium"))
}
