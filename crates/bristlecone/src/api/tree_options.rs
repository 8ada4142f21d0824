//! Options for creating and opening trees.

use std::any::TypeId;
use std::time::Duration;

use bristlecone_pm::{Error, Result, TreeEntry, TreeId, TreeSpec, trace_span};

use crate::dynamic::Kind;
use crate::index::any::AnyIndex;
use crate::index::parts::codec::Inline;
use crate::journal::entry::Directory;
use crate::{Design, Key, Pool, Tree, Value};

/// Options for creating or opening a tree.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    pool: Pool,
    name: String,
    design: Option<Design>,
    given: Vec<(String, u64)>,
    /// Milliseconds.
    expire_after: Option<u64>,
}

impl TreeOptions {
    pub(crate) fn new(pool: Pool, name: &str) -> Self {
        Self { pool, name: name.to_owned(), design: None, given: Vec::new(), expire_after: None }
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

    /// Sets how long a value of the type [`Expiring`](crate::Expiring) lives if its write names no expiry (default: it does
    /// not expire). The tree stores the time, rounded up to a millisecond, and keeps it. Writes use it through
    /// [`ExpiringTree`](crate::ExpiringTree); those of [`Tree`] name an expiry.
    ///
    /// Trees of other types, and a time of zero or more than 2^64 milliseconds, are refused when the tree is created or
    /// opened.
    ///
    /// ```
    /// # use bristlecone::{Expiring, Expiry, Pool};
    /// use std::time::Duration;
    ///
    /// # let pool = Pool::temporary()?;
    /// let hour = Duration::from_secs(3600);
    /// pool.tree_options("sessions").expire_after(hour).create::<&str, Expiring<u64>>()?;
    /// let sessions = pool.tree::<&str, Expiring<u64>>("sessions")?.expiring();
    /// sessions.insert("ada", 7, None)?; // expires after an hour
    /// sessions.insert("root", 0, Expiry::NEVER)?;
    /// assert_eq!(sessions.expire_after(), Some(hour));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn expire_after(mut self, time: Duration) -> Self {
        let millis = time.as_nanos().div_ceil(1_000_000);
        self.expire_after = Some(u64::try_from(millis).unwrap_or(0));
        self
    }

    /// Returns the milliseconds after which values of this kind expire; 0 for never.
    fn expire_after_of(&self, value_kind: &str) -> Result<u64> {
        match self.expire_after {
            Some(0) => Err(Error::invalid("the time after which values expire is between 1 ms and 2^64 ms")),
            Some(_) if !value_kind.starts_with("Expiring<") => Err(Error::invalid(format!(
                "values of type {value_kind} do not expire: expire_after is for Expiring<…>"
            ))),
            given => Ok(given.unwrap_or(0)),
        }
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
        let schema = (K::fixed()?, V::fixed()?);
        let tree = self.create_index(&self.spec(K::kind(), V::kind())?, are_words::<K, V>())?;
        self.pool.handle(&tree, schema)
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
        let schema = (K::fixed()?, V::fixed()?);
        self.pool.handle(&self.open_index(&K::kind(), &V::kind(), are_words::<K, V>())?, schema)
    }

    /// Returns the specification for creating the tree.
    pub(crate) fn spec(&self, key_kind: String, value_kind: String) -> Result<TreeSpec> {
        let design = self.design.unwrap_or_default();
        let params = design.parse(&self.given)?;
        let expire_after = self.expire_after_of(&value_kind)?;
        let spec = TreeSpec::new(&self.name, design.code(), key_kind, value_kind);
        Ok(spec.with_params(params).with_expire_after(expire_after))
    }

    /// Returns the specification that the tree was created with.
    pub(crate) fn spec_of_tree(&self) -> Result<TreeSpec> {
        self.pool.0.file.here()?;
        Ok(self.pool.find(&self.name)?.spec)
    }

    /// Creates the tree with explicit kinds, which must have the encodings of `K` and `V`.
    pub(crate) fn create_index(
        &self,
        spec: &TreeSpec,
        are_words: (bool, bool),
    ) -> Result<(TreeEntry, AnyIndex)> {
        self.pool.create_index(|| {
            let create = || self.pool.0.file.create_index(spec, are_words);
            let recorded = self.pool.begin_directory(Directory::Create(TreeId(0), spec.clone()), None)?;
            let created = trace_span("a tree is created", &spec.name, create);
            let lsn = recorded.end(&created, |(entry, _)| Some(entry.id));
            created.map(|(entry, tree)| (entry, tree, lsn))
        })
    }

    /// Opens the tree if it has these kinds.
    pub(crate) fn open_index(
        &self,
        key_kind: &str,
        value_kind: &str,
        are_words: (bool, bool),
    ) -> Result<(TreeEntry, AnyIndex)> {
        let verify = |entry: &_| self.verify(entry, key_kind, value_kind);
        let recover = |entry: &_| self.pool.recover(entry, are_words);
        self.pool.open_index(&self.name, are_words, verify, recover)
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
        let (asked, found) = (self.expire_after_of(value_kind)?, spec.expire_after_ms);
        if self.expire_after.is_some() && asked != found {
            let [found, asked] = [found, asked].map(|millis| format!("expire_after={millis}ms"));
            return Err(mismatch("options", &found, asked));
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

/// Returns whether keys and values of these types, which are known, are stored as words.
pub(crate) fn are_words<K: Key, V: Value>() -> (bool, bool) {
    let is_word = |codec: TypeId| codec == TypeId::of::<Inline>();
    (is_word(TypeId::of::<K::Codec>()), is_word(TypeId::of::<V::Codec>()))
}
