//! Opening and creating trees whose kinds are known at run time.

use bristlecone_pm::{Error, Result, TreeSpec};

use super::tree::{About, On};
use super::{Kind, Tree};
use crate::{Design, Key, Pool, TreeOptions, Value};

impl Pool {
    /// Opens the tree with this name, for any kinds of keys and values.
    ///
    /// # Errors
    ///
    /// Same as [`TreeOptions::open`], and [`Error::Newer`] for a design or a kind that this version does not
    /// know.
    pub fn dynamic_tree(&self, name: &str) -> Result<Tree> {
        self.tree_options(name).open_dynamic()
    }
}

impl TreeOptions {
    /// Opens the tree, for any kinds of keys and values. Any options set must match those of the tree.
    ///
    /// # Errors
    ///
    /// Same as [`Pool::dynamic_tree`].
    pub fn open_dynamic(&self) -> Result<Tree> {
        let spec = self.spec_of_tree()?;
        let kinds = (Kind::of_directory(&spec.key_kind)?, Kind::of_directory(&spec.value_kind)?);
        self.dynamic(spec, kinds, Open)
    }

    /// Creates the tree with keys and values of these kinds: see [`create`](Self::create).
    ///
    /// # Errors
    ///
    /// Same as [`create`](Self::create); [`Error::Invalid`] for kinds that are not valid for keys or values,
    /// [`Error::TooLong`] for kinds whose names exceed 48 bytes.
    ///
    /// ```
    /// use bristlecone::dynamic::Kind;
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let keys: Kind = "(str, u32)".parse()?;
    /// pool.tree_options("visits").create_dynamic(&keys, &Kind::U64)?;
    /// let visits = pool.dynamic_tree("visits")?;
    /// assert_eq!((visits.key_kind(), visits.value_kind()), (&keys, &Kind::U64));
    /// assert!("decimal".parse::<Kind>().is_err());
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn create_dynamic(&self, keys: &Kind, values: &Kind) -> Result<Tree> {
        keys.expect_possible("key type")?;
        values.expect_possible("value type")?;
        if !keys.is_key() {
            return Err(Error::invalid(format!("keys cannot be {keys}: it has no order")));
        }
        let spec = self.spec(keys.to_string(), values.to_string())?;
        self.dynamic(spec, (keys.clone(), values.clone()), Create)
    }

    fn dynamic(&self, spec: TreeSpec, (keys, values): (Kind, Kind), get: impl Get) -> Result<Tree> {
        let on = match (keys.is_word(), values.is_word()) {
            (true, true) => On::WordWord(get.get(self, &spec)?),
            (true, false) => On::WordRecord(get.get(self, &spec)?),
            (false, true) => On::RecordWord(get.get(self, &spec)?),
            (false, false) => On::RecordRecord(get.get(self, &spec)?),
        };
        let (design, options) = (Design::of(&spec)?, Design::options_of(&spec)?);
        Ok(Tree::new(on, About { name: spec.name, keys, values, design, options }))
    }
}

/// A way to open or create a tree, for any codecs.
trait Get {
    fn get<K: Key, V: Value>(&self, options: &TreeOptions, spec: &TreeSpec) -> Result<crate::Tree<K, V>>;
}

struct Open;

impl Get for Open {
    fn get<K: Key, V: Value>(&self, options: &TreeOptions, spec: &TreeSpec) -> Result<crate::Tree<K, V>> {
        options.open_as(&spec.key_kind, &spec.value_kind)
    }
}

struct Create;

impl Get for Create {
    fn get<K: Key, V: Value>(&self, options: &TreeOptions, spec: &TreeSpec) -> Result<crate::Tree<K, V>> {
        options.create_as(spec)
    }
}
