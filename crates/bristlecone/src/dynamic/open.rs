//! Opening and creating trees whose kinds are known at run time.

use std::sync::Arc;

use bristlecone_pm::{Error, Result, TreeEntry};

use super::schema::{Keys, Values};
use super::{Kind, Tree};
use crate::index::any::AnyIndex;
use crate::{Design, Pool, TreeOptions};

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
        let are_words = (kinds.0.is_word(), kinds.1.is_word());
        self.dynamic(self.open_index(&spec.key_kind, &spec.value_kind, are_words)?, kinds)
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
        let are_words = (keys.is_word(), values.is_word());
        self.dynamic(self.create_index(&spec, are_words)?, (keys.clone(), values.clone()))
    }

    fn dynamic(&self, index: (TreeEntry, AnyIndex), (keys, values): (Kind, Kind)) -> Result<Tree> {
        let (name, spec) = (index.0.spec.name.clone(), &index.0.spec);
        let is_u64 = (&keys, &values) == (&Kind::U64, &Kind::U64);
        let words = if is_u64 { Some(self.pool().handle(&index, ((), ()))?) } else { None };
        let (design, options) = (Design::of(spec)?, Design::options_of(spec)?);
        let values = Values { name: name.clone(), kind: values };
        let keys = Keys { name, kind: keys, design, options, words };
        self.pool().handle(&index, (Arc::new(keys), Arc::new(values)))
    }
}
