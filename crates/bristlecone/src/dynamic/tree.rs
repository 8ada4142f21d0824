//! A tree whose kinds are known at run time.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use bristlecone_pm::{Error, Issue, Result};

use super::encode::{Records, Role, Stored, Unfit, Words};
use super::{Datum, Item, Kind, Range};
use crate::api::value::undecodable;
use crate::{Design, TreeStats};

/// The tree, by its codecs.
#[derive(Clone)]
pub(crate) enum On {
    WordWord(crate::Tree<u64, u64>),
    WordRecord(crate::Tree<u64, Vec<u8>>),
    RecordWord(crate::Tree<Vec<u8>, u64>),
    RecordRecord(crate::Tree<Vec<u8>, Vec<u8>>),
}

/// Directory information of a tree at the time it was opened.
pub(super) struct About {
    pub name: String,
    pub keys: Kind,
    pub values: Kind,
    pub design: Design,
    pub options: Vec<(&'static str, u64)>,
}

/// Runs the same code for each combination of codecs: `K` and `V` are the stored forms of its keys and values.
macro_rules! each {
    ($on:expr, $tree:ident => $do:expr) => {
        each!($on, $tree => $do; WordWord Words Words, WordRecord Words Records, RecordWord Records Words,
            RecordRecord Records Records)
    };
    ($on:expr, $tree:ident => $do:expr; $($codecs:ident $key:ident $value:ident),+) => {
        match $on {
            $(On::$codecs($tree) => {
                #[allow(dead_code, reason = "not every operation needs both")]
                type K = $key;
                #[allow(dead_code, reason = "not every operation needs both")]
                type V = $value;
                $do
            })+
        }
    };
}

pub(super) use each;

/// An ordered map in a pool, with the kinds named in the pool's directory.
///
/// Operations have the guarantees of those of [`crate::Tree`]. In addition to its own errors, each operation
/// returns these common errors. [`Error::Mismatch`] for a key or value of another kind; nothing changes then.
/// [`Error::Forked`] in a child of the process that opened the pool. [`Error::NoWriter`] on a followed pool
/// whose writer has exited. [`Error::Corrupted`] for damage, as [`crate::Tree::get`], and if the returned value
/// does not decode as the tree's kind; a replacement or removal of that value is done nevertheless.
#[derive(Clone)]
pub struct Tree {
    pub(super) on: On,
    about: Arc<About>,
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { name, keys, values, .. } = &*self.about;
        let mut debug = f.debug_struct("Tree");
        debug.field("name", name).field("key", keys).field("value", values).finish_non_exhaustive()
    }
}

impl Tree {
    pub(super) fn new(on: On, about: About) -> Self {
        Self { on, about: Arc::new(about) }
    }

    /// Returns the tree by its codecs.
    pub(crate) fn on(&self) -> &On {
        &self.on
    }

    /// Returns the tree's name at the time it was opened.
    pub fn name(&self) -> &str {
        &self.about.name
    }

    /// Returns the kind of the tree's keys.
    pub fn key_kind(&self) -> &Kind {
        &self.about.keys
    }

    /// Returns the kind of the tree's values.
    pub fn value_kind(&self) -> &Kind {
        &self.about.values
    }

    /// Returns the tree's design.
    pub fn design(&self) -> Design {
        self.about.design
    }

    /// Returns the time after which a value expires whose write names no expiry: see
    /// [`TreeOptions::expire_after`](crate::TreeOptions::expire_after).
    pub fn expire_after(&self) -> Option<Duration> {
        each!(&self.on, tree => tree.expire_after())
    }

    /// Returns the options of the tree's design by name.
    pub fn options(&self) -> &[(&'static str, u64)] {
        &self.about.options
    }

    /// Returns the error for a datum that cannot be a key or a value.
    #[cold]
    pub(super) fn unfit(&self, role: Role, datum: &Datum<'_>, why: Unfit) -> Error {
        let (what, kind) = match role {
            Role::Key => ("keys of type", self.key_kind()),
            Role::Value => ("values of type", self.value_kind()),
        };
        match why {
            Unfit::Kind => Error::Mismatch {
                name: self.about.name.clone(),
                what,
                found: kind.to_string(),
                asked: datum.describe(kind),
            },
            Unfit::Json(why) => Error::Invalid { what: why },
        }
    }

    /// Calls `use_it` with the stored form of a key.
    pub(super) fn key<K: Stored, R>(
        &self,
        key: &Datum<'_>,
        use_it: impl FnOnce(K::Ref<'_>) -> R,
    ) -> Result<R> {
        K::with(self.key_kind(), Role::Key, key, use_it).map_err(|why| self.unfit(Role::Key, key, why))
    }

    /// Calls `use_it` with the stored form of a value.
    pub(super) fn value<V: Stored, R>(
        &self,
        value: &Datum<'_>,
        use_it: impl FnOnce(V::Ref<'_>) -> R,
    ) -> Result<R> {
        V::with(self.value_kind(), Role::Value, value, use_it)
            .map_err(|why| self.unfit(Role::Value, value, why))
    }

    /// Decodes a value read from the tree.
    pub(super) fn found<V: Stored>(&self, value: Option<V::Owned>) -> Result<Option<Datum<'static>>> {
        let taken = value.map(|value| {
            let kind = self.value_kind();
            V::take(kind, Role::Value, value).ok_or_else(|| undecodable("value", kind))
        });
        taken.transpose()
    }

    /// Decodes a value that was replaced or removed. A value that does not decode as its kind counts as
    /// absent, because it is gone.
    pub(super) fn replaced<V: Stored>(&self, value: Option<V::Owned>) -> Option<Datum<'static>> {
        value.and_then(|value| V::take(self.value_kind(), Role::Value, value))
    }

    /// Verifies that this process opened the pool.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a child of the process that opened the pool.
    pub fn opened_here(&self) -> Result<()> {
        each!(&self.on, tree => tree.opened_here())
    }

    /// Returns the typed tree if keys and values are `u64`, for calls whose data are arrays of these.
    pub fn as_u64(&self) -> Option<&crate::Tree<u64, u64>> {
        match &self.on {
            On::WordWord(tree) if (self.key_kind(), self.value_kind()) == (&Kind::U64, &Kind::U64) => {
                Some(tree)
            }
            _ => None,
        }
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    ///
    /// ```
    /// use bristlecone::dynamic::{Datum, Kind};
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree_options("ages").create_dynamic(&Kind::Str, &Kind::U64)?;
    /// ages.insert("Pando", 14_000u64)?;
    /// assert_eq!(ages.get("Pando")?, Some(Datum::U64(14_000)));
    /// assert_eq!(ages.get("Yggdrasil")?, None);
    /// assert!(ages.get(7u64).is_err()); // its keys are strings
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn get<'a>(&self, key: impl Into<Datum<'a>>) -> Result<Option<Datum<'static>>> {
        self.get_with(key, |value| value.into_owned())
    }

    /// Calls `show` with the value of a key, without copying strings and bytes. No lock is held during the
    /// call, so `show` may use the tree.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn get_with<'a, R>(
        &self,
        key: impl Into<Datum<'a>>,
        show: impl FnOnce(Datum<'_>) -> R,
    ) -> Result<Option<R>> {
        let (key, kind) = (key.into(), self.value_kind());
        let (mut show, mut shown) = (Some(show), None);
        each!(&self.on, tree => self.key::<K, _>(&key, |key| {
            tree.look_up(key, &mut |value| {
                let show = |value| show.take().map(|show| show(value));
                shown = Some(V::view(kind, Role::Value, value).and_then(show));
            })
        }))??;
        match shown {
            Some(None) => Err(undecodable("value", kind)),
            shown => Ok(shown.flatten()),
        }
    }

    /// Returns whether the tree contains a key.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn contains_key<'a>(&self, key: impl Into<Datum<'a>>) -> Result<bool> {
        let key = key.into();
        each!(&self.on, tree => self.key::<K, _>(&key, |key| tree.look_up(key, &mut |_| ()))?)
    }

    /// Returns a bound in the form that the tree takes.
    pub(super) fn bound<K: Stored>(&self, bound: Bound<&Datum<'_>>) -> Result<Bound<K::Bound>> {
        let own = |key| self.key::<K, _>(key, K::bound);
        Ok(match bound {
            Bound::Included(key) => Bound::Included(own(key)?),
            Bound::Excluded(key) => Bound::Excluded(own(key)?),
            Bound::Unbounded => Bound::Unbounded,
        })
    }

    /// Returns the items whose keys lie within bounds, in order, from both ends. Reversed bounds yield an
    /// empty range.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for a bound of another kind; [`Error::Forked`]. The iterator yields the common errors: see
    /// [`Tree`]. After an error it is finished.
    ///
    /// ```
    /// use bristlecone::dynamic::{Datum, Kind};
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree_options("ages").create_dynamic(&Kind::Str, &Kind::U64)?;
    /// ages.insert("Methuselah", 4857u64)?;
    /// ages.insert("Prometheus", 4900u64)?;
    /// let mut items = ages.range(Datum::from("N")..)?;
    /// assert_eq!(items.next().transpose()?, Some((Datum::from("Prometheus"), Datum::U64(4900))));
    /// assert_eq!(ages.last_key_value()?, ages.range(..)?.next_back().transpose()?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn range<'a>(&self, bounds: impl RangeBounds<Datum<'a>>) -> Result<Range<'_>> {
        self.opened_here()?;
        let kinds = (self.key_kind(), self.value_kind());
        each!(&self.on, tree => {
            let (from, to) = (self.bound::<K>(bounds.start_bound())?, self.bound::<K>(bounds.end_bound())?);
            Ok(Range::new::<K, V>(crate::Range::new(tree, from, to), kinds))
        })
    }

    /// Returns everything within bounds that is readable of a damaged tree: see [`crate::Tree::readable`].
    ///
    /// # Errors
    ///
    /// Same as [`range`](Self::range).
    pub fn readable<'a>(&self, bounds: impl RangeBounds<Datum<'a>>) -> Result<Range<'_>> {
        self.opened_here()?;
        let kinds = (self.key_kind(), self.value_kind());
        each!(&self.on, tree => {
            let (from, to) = (self.bound::<K>(bounds.start_bound())?, self.bound::<K>(bounds.end_bound())?);
            Ok(Range::new::<K, V>(crate::Range::new(tree, from, to).lenient(), kinds).lenient())
        })
    }

    /// Returns the item with the smallest key.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn first_key_value(&self) -> Result<Option<Item>> {
        self.first_of(..)
    }

    /// Returns the item with the largest key.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn last_key_value(&self) -> Result<Option<Item>> {
        self.last_of(..)
    }

    /// Returns the number of items. The count is exact while no thread writes.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn len(&self) -> Result<u64> {
        each!(&self.on, tree => tree.len())
    }

    /// Returns whether the tree is empty.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the space that the tree occupies.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn stats(&self) -> Result<TreeStats> {
        each!(&self.on, tree => tree.stats())
    }

    /// Returns a histogram of leaves by number of items: see [`crate::Tree::leaves_by_items`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn leaves_by_items(&self) -> Result<BTreeMap<u64, u64>> {
        each!(&self.on, tree => tree.leaves_by_items())
    }

    /// Returns the damage that reads have encountered: see [`crate::Tree::damage`].
    pub fn damage(&self) -> Vec<Issue> {
        each!(&self.on, tree => tree.damage())
    }

    /// Returns whether recovery refused the tree, as [`Tree::is_salvaged`](crate::Tree::is_salvaged) does.
    pub fn is_salvaged(&self) -> bool {
        each!(&self.on, tree => tree.is_salvaged())
    }

    /// Verifies everything reachable from the tree, and that its keys and values are of its kinds. The result
    /// is exact only while no thread writes.
    ///
    /// ```
    /// use bristlecone::dynamic::Kind;
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree_options("ages").create_dynamic(&Kind::Str, &Kind::U64)?;
    /// ages.insert("Pando", 14_000u64)?;
    /// assert!(ages.check().is_empty() && ages.stats()?.items == ages.len()?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn check(&self) -> Vec<Issue> {
        let mut issues = each!(&self.on, tree => tree.check());
        let kinds = (self.key_kind(), self.value_kind());
        if issues.is_empty() && !(kinds.0.is_everything() && kinds.1.is_everything()) {
            let (mut keys, mut values) = (0u64, 0u64);
            each!(&self.on, tree => for (key, value) in tree.readable(..).flatten() {
                keys += u64::from(K::take(kinds.0, Role::Key, key).is_none());
                values += u64::from(V::take(kinds.1, Role::Value, value).is_none());
            });
            for (count, what, kind) in [(keys, "keys", kinds.0), (values, "values", kinds.1)] {
                if count > 0 {
                    issues.push(Issue::new(what, format!("{count} of them are no {kind}")));
                }
            }
        }
        issues
    }
}
