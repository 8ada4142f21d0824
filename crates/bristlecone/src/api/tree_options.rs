//! Options for creating and opening trees.

use bristlecone_pm::{Error, Result, TreeEntry, TreeId, TreeSpec, trace_span};

use crate::dynamic::Kind;
use crate::index::parts::codec::Codec;
use crate::journal::entry::Directory;
use crate::{Design, Key, Pool, Tree, Value};

/// Options for creating or opening a tree.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    pool: Pool,
    name: String,
    design: Option<Design>,
    given: Vec<(String, u64)>,
}

impl TreeOptions {
    pub(crate) fn new(pool: Pool, name: &str) -> Self {
        Self { pool, name: name.to_owned(), design: None, given: Vec::new() }
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Sets the design (default: NBTree, or the first one of a build without it). A tree keeps its design.
    pub fn design(mut self, design: Design) -> Self {
        self.design = Some(design);
        self
    }

    /// Sets a parameter of the design by name: see `docs/designs/`. Name and value are validated when the tree is
    /// created or opened.
    pub fn option(mut self, name: &str, value: u64) -> Self {
        self.given.push((name.to_owned(), value));
        self
    }

    /// Creates the tree. After `Ok` it exists durably. Creation is atomic: after `Err` or a crash the tree exists
    /// completely or not at all.
    ///
    /// # Errors
    ///
    /// [`Error::TreeExists`]; [`Error::Invalid`] and [`Error::TooLong`] for invalid names and options, or if the
    /// directory already has 65,536 trees; [`Error::PoolFull`] and [`Error::MediumFull`] for lack of space;
    /// [`Error::ReadOnly`].
    ///
    /// ```
    /// # use bristlecone::{Design, Pool};
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let options = pool.tree_options("hot").design(Design::NbTree).option("block_bytes", 512);
    /// options.create::<u64, u64>()?.insert(1, 2)?;
    /// assert!(pool.tree_options("hot").option("block_bytes", 256).open::<u64, u64>().is_err());
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn create<K: Key, V: Value>(&self) -> Result<Tree<K, V>> {
        self.create_as(&self.spec(K::kind(), V::kind())?)
    }

    /// Opens the tree, recovering it if it is not open yet. `K` and `V` must be the types it was created with, and any
    /// options set must match those of the tree.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTree`]; [`Error::Mismatch`]; [`Error::Corrupted`] for unreadable parts of the tree, unless the
    /// pool is read-only: see [`Tree::damage`]; [`Error::Newer`] for a design or a kind that this version does not
    /// know; [`Error::PoolFull`] and [`Error::MediumFull`] if recovery runs out of space.
    pub fn open<K: Key, V: Value>(&self) -> Result<Tree<K, V>> {
        self.open_as(&K::kind(), &V::kind())
    }

    /// Returns the specification for creating the tree.
    pub(crate) fn spec(&self, key_kind: String, value_kind: String) -> Result<TreeSpec> {
        let design = self.design.unwrap_or_default();
        let params = design.parse(&self.given)?;
        Ok(TreeSpec::new(&self.name, design.code(), key_kind, value_kind).with_params(params))
    }

    /// Returns the specification that the tree was created with.
    pub(crate) fn spec_of_tree(&self) -> Result<TreeSpec> {
        self.pool.0.file.here()?;
        Ok(self.pool.find(&self.name)?.spec)
    }

    /// Creates the tree with explicit kinds, which must have the encodings of `K` and `V`.
    pub(crate) fn create_as<K: Key, V: Value>(&self, spec: &TreeSpec) -> Result<Tree<K, V>> {
        self.pool.create_tree(|| {
            let create = || self.pool.0.file.create_index(spec, (K::Codec::INLINE, V::Codec::INLINE));
            let recorded = self.pool.begin_directory(Directory::Create(TreeId(0), spec.clone()), None)?;
            let created = trace_span("a tree is created", &spec.name, create);
            let lsn = recorded.end(&created, |(entry, _)| Some(entry.id));
            let (entry, tree) = created?;
            Ok((entry, tree.typed()?, lsn))
        })
    }

    /// Opens the tree if it has these kinds, which must have the encodings of `K` and `V`.
    pub(crate) fn open_as<K: Key, V: Value>(&self, key_kind: &str, value_kind: &str) -> Result<Tree<K, V>> {
        let recover = |entry: &_| self.pool.recover::<K, V>(entry);
        self.pool.open_tree(&self.name, |entry| self.verify(entry, key_kind, value_kind), recover)
    }

    fn verify(&self, entry: &TreeEntry, key_kind: &str, value_kind: &str) -> Result<()> {
        let spec = &entry.spec;
        let design = Design::of(spec)?;
        let mismatch = |what, found: &str, asked: String| Error::Mismatch {
            name: self.name.clone(),
            what,
            found: found.to_owned(),
            asked,
        };
        if spec.key_kind != key_kind {
            Kind::of_directory(&spec.key_kind)?;
            return Err(mismatch("keys of type", &spec.key_kind, key_kind.to_owned()));
        }
        if spec.value_kind != value_kind {
            Kind::of_directory(&spec.value_kind)?;
            return Err(mismatch("values of type", &spec.value_kind, value_kind.to_owned()));
        }
        if let Some(asked) = self.design.filter(|asked| *asked != design) {
            return Err(mismatch("design", design.name(), asked.to_string()));
        }
        // Names and values must be valid before they can be compared.
        design.parse(&self.given)?;
        for (option, found) in Design::options_of(spec)? {
            let given = self.given.iter().rev().find(|(name, _)| name == option);
            if let Some((_, asked)) = given.filter(|(_, asked)| *asked != found) {
                return Err(mismatch("options", &format!("{option}={found}"), format!("{option}={asked}")));
            }
        }
        Ok(())
    }
}
