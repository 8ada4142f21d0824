//! Lookups near a key, and reads of parts of items, of a tree whose kinds are known at run time.

use std::ops::{Bound, RangeBounds};

use bristlecone_pm::{Error, Result};

use super::encode::{Records, Role, Words, prefix};
use super::tree::{On, each};
use super::{Datum, Item, Range, Tree};
use crate::api::prefix::limits_of_prefix;

impl Tree {
    /// Returns the item with the largest key below `key`: see [`crate::Tree::get_lt`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    ///
    /// ```
    /// use bristlecone::dynamic::Kind;
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let prices = pool.tree_options("prices by day").create_dynamic(&Kind::U32, &Kind::U64)?;
    /// prices.insert(10u32, 250u64)?;
    /// prices.insert(20u32, 270u64)?;
    /// assert_eq!(prices.get_le(19u32)?, Some((10u32.into(), 250u64.into()))); // the price of day 19
    /// assert_eq!(prices.get_lt(20u32)?, prices.get_le(10u32)?);
    /// assert_eq!(prices.get_ge(11u32)?, prices.get_gt(10u32)?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn get_lt<'a>(&self, key: impl Into<Datum<'a>>) -> Result<Option<Item>> {
        self.last_of(..key.into())
    }

    /// Returns the item with the largest key that is `key` or below: see [`crate::Tree::get_le`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn get_le<'a>(&self, key: impl Into<Datum<'a>>) -> Result<Option<Item>> {
        self.last_of(..=key.into())
    }

    /// Returns the item with the smallest key above `key`: see [`crate::Tree::get_gt`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn get_gt<'a>(&self, key: impl Into<Datum<'a>>) -> Result<Option<Item>> {
        self.first_of((Bound::Excluded(key.into()), Bound::Unbounded))
    }

    /// Returns the item with the smallest key that is `key` or above: see [`crate::Tree::get_ge`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn get_ge<'a>(&self, key: impl Into<Datum<'a>>) -> Result<Option<Item>> {
        self.first_of(key.into()..)
    }

    /// Returns the number of items whose keys lie within bounds: see [`crate::Tree::count`].
    ///
    /// # Errors
    ///
    /// Same as [`range`](Self::range).
    pub fn count<'a>(&self, bounds: impl RangeBounds<Datum<'a>>) -> Result<u64> {
        self.opened_here()?;
        each!(&self.on, tree => {
            let limits = (self.bound::<K>(bounds.start_bound())?, self.bound::<K>(bounds.end_bound())?);
            tree.walk(limits).count()
        })
    }

    /// Returns the first item within bounds.
    pub(super) fn first_of<'a>(&self, bounds: impl RangeBounds<Datum<'a>>) -> Result<Option<Item>> {
        self.range(bounds)?.next().transpose()
    }

    /// Returns the last item within bounds.
    pub(super) fn last_of<'a>(&self, bounds: impl RangeBounds<Datum<'a>>) -> Result<Option<Item>> {
        self.range(bounds)?.next_back().transpose()
    }

    /// Returns all keys in order, from both ends.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn keys(&self) -> Result<impl DoubleEndedIterator<Item = Result<Datum<'static>>> + '_> {
        Ok(self.range(..)?.map(|item| item.map(|(key, _)| key)))
    }

    /// Returns all values in the order of their keys, from both ends.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn values(&self) -> Result<impl DoubleEndedIterator<Item = Result<Datum<'static>>> + '_> {
        Ok(self.range(..)?.map(|item| item.map(|(_, value)| value)))
    }

    /// Returns the items whose keys begin with a prefix, in order, from both ends. The prefix is text for text, bytes
    /// for bytes, and a tuple of leading elements for a tuple: see [`crate::Tree::prefix`].
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for a datum that cannot be a prefix of the tree's keys; [`Error::Forked`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// pool.tree::<&str, u64>("pages")?.insert("/trees/oak", 7)?;
    /// let pages = pool.dynamic_tree("pages")?;
    /// assert_eq!(pages.prefix("/trees")?.count(), 1);
    /// assert!(pages.prefix(7u64).is_err());
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn prefix<'a>(&self, of: impl Into<Datum<'a>>) -> Result<Range<'_>> {
        self.opened_here()?;
        let of = of.into();
        let kinds = (self.key_kind(), self.value_kind());
        let bytes = prefix(kinds.0, &of).map_err(|why| self.unfit(Role::Key, &of, why))?;
        let (from, to) = limits_of_prefix(&bytes);
        match &self.on {
            On::RecordWord(tree) => {
                Ok(Range::new::<Records, Words>(crate::Range::new(tree, from, to), kinds))
            }
            On::RecordRecord(tree) => {
                Ok(Range::new::<Records, Records>(crate::Range::new(tree, from, to), kinds))
            }
            // A word has no prefix.
            On::WordWord(_) | On::WordRecord(_) => Err(Error::invalid("keys of one word have no prefixes")),
        }
    }
}
