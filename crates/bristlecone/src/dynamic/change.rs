//! Read-modify-write and bulk operations on a tree whose kinds are known at run time.

use std::ops::RangeBounds;

use bristlecone_pm::Result;

use super::encode::{Records, Role, Stored, Words};
use super::tree::{On, each};
use super::{Datum, Item, Tree};
use crate::api::fetch_update::Wanted;
use crate::api::value::undecodable;

/// The previous and the resulting value of a key.
type Change = (Option<Datum<'static>>, Option<Datum<'static>>);

impl Tree {
    /// Replaces the value of a key by the result of `update`, atomically; returns the previous value: see
    /// [`crate::Tree::fetch_update`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`]. Nothing has changed after any of them.
    ///
    /// ```
    /// use bristlecone::dynamic::{Datum, Kind};
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let hits = pool.tree_options("hits").create_dynamic(&Kind::Str, &Kind::U64)?;
    /// let count = |old: Option<Datum<'_>>| match old {
    ///     Some(Datum::U64(count)) => Some(Datum::U64(count + 1)),
    ///     _ => Some(Datum::U64(1)),
    /// };
    /// hits.fetch_update("/", count)?;
    /// assert_eq!(hits.update_and_fetch("/", count)?, Some(Datum::U64(2)));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn fetch_update<'a>(
        &self,
        key: impl Into<Datum<'a>>,
        update: impl FnMut(Option<Datum<'_>>) -> Option<Datum<'static>>,
    ) -> Result<Option<Datum<'static>>> {
        self.alter(&key.into(), update).map(|(old, _)| old)
    }

    /// Replaces the value of a key by the result of `update`, atomically; returns the resulting value: see
    /// [`crate::Tree::update_and_fetch`].
    ///
    /// # Errors
    ///
    /// Same as [`fetch_update`](Self::fetch_update).
    pub fn update_and_fetch<'a>(
        &self,
        key: impl Into<Datum<'a>>,
        update: impl FnMut(Option<Datum<'_>>) -> Option<Datum<'static>>,
    ) -> Result<Option<Datum<'static>>> {
        self.alter(&key.into(), update).map(|(_, new)| new)
    }

    fn alter(
        &self,
        key: &Datum<'_>,
        mut update: impl FnMut(Option<Datum<'_>>) -> Option<Datum<'static>>,
    ) -> Result<Change> {
        let kind = self.value_kind();
        each!(&self.on, tree => {
            let changed = self.key::<K, _>(key, |key| tree.alter(key, |old| {
                let shown = old.map(|old| {
                    V::view(kind, Role::Value, V::lend(old)).ok_or_else(|| undecodable("value", kind))
                });
                let new = update(shown.transpose()?);
                new.map(|new| self.value::<V, _>(&new, V::own)).transpose().map(Wanted::Be)
            }));
            let (old, new) = changed??;
            Ok((self.found::<V>(old)?, self.found::<V>(new)?))
        })
    }

    /// Removes and returns the item with the smallest key: see [`crate::Tree::pop_first`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    ///
    /// ```
    /// use bristlecone::dynamic::Kind;
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let jobs = pool.tree_options("jobs").create_dynamic(&Kind::U64, &Kind::Str)?;
    /// jobs.insert(2u64, "fell")?;
    /// jobs.insert(1u64, "sharpen")?;
    /// assert_eq!(jobs.pop_first()?, Some((1u64.into(), "sharpen".into())));
    /// assert_eq!(jobs.pop_last()?, Some((2u64.into(), "fell".into())));
    /// assert_eq!(jobs.pop_first()?, None);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn pop_first(&self) -> Result<Option<Item>> {
        self.pop_if(false, |_, _| true)
    }

    /// Removes and returns the item with the largest key: see [`crate::Tree::pop_last`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn pop_last(&self) -> Result<Option<Item>> {
        self.pop_if(true, |_, _| true)
    }

    /// Removes the item with the smallest key if `test` returns true: see [`crate::Tree::pop_first_if`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`]. Nothing has changed after any of them.
    pub fn pop_first_if(&self, test: impl FnMut(&Datum<'_>, &Datum<'_>) -> bool) -> Result<Option<Item>> {
        self.pop_if(false, test)
    }

    /// Removes the item with the largest key if `test` returns true: see [`crate::Tree::pop_last_if`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`]. Nothing has changed after any of them.
    pub fn pop_last_if(&self, test: impl FnMut(&Datum<'_>, &Datum<'_>) -> bool) -> Result<Option<Item>> {
        self.pop_if(true, test)
    }

    fn pop_if(
        &self,
        down: bool,
        mut test: impl FnMut(&Datum<'_>, &Datum<'_>) -> bool,
    ) -> Result<Option<Item>> {
        let (keys, values) = (self.key_kind(), self.value_kind());
        let mut damage = None;
        each!(&self.on, tree => {
            let popped = tree.pop_if(down, |key, value| {
                match (K::view(keys, Role::Key, key), V::view(values, Role::Value, value)) {
                    (Some(key), Some(value)) => test(&key, &value),
                    (None, _) => {
                        damage = Some(undecodable("key", keys));
                        false
                    }
                    (_, None) => {
                        damage = Some(undecodable("value", values));
                        false
                    }
                }
            })?;
            damage.map_or(Ok(()), Err)?;
            popped.map(|item| self.item_of::<K, V>(item)).transpose()
        })
    }

    /// Decodes an item read from the tree.
    fn item_of<K: Stored, V: Stored>(&self, (key, value): (K::Owned, V::Owned)) -> Result<Item> {
        let (keys, values) = (self.key_kind(), self.value_kind());
        let key = K::take(keys, Role::Key, key).ok_or_else(|| undecodable("key", keys))?;
        let value = V::take(values, Role::Value, value).ok_or_else(|| undecodable("value", values))?;
        Ok((key, value))
    }

    /// Atomically removes the items whose keys lie within bounds; returns the number removed: see
    /// [`crate::Tree::remove_range`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`]. Nothing has changed after any of them.
    ///
    /// ```
    /// use bristlecone::dynamic::{Datum, Kind};
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let days = pool.tree_options("days").create_dynamic(&Kind::U64, &Kind::U64)?;
    /// (0..10u64).try_for_each(|day| days.insert(day, day * day).map(drop))?;
    /// assert_eq!(days.remove_range(..Datum::U64(7))?, 7);
    /// days.retain(|_, value| *value > Datum::U64(50))?;
    /// assert_eq!(days.keys()?.collect::<bristlecone::Result<Vec<_>>>()?, [Datum::U64(8), Datum::U64(9)]);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn remove_range<'a>(&self, bounds: impl RangeBounds<Datum<'a>>) -> Result<u64> {
        self.opened_here()?;
        each!(&self.on, tree => {
            let limits = (self.bound::<K>(bounds.start_bound())?, self.bound::<K>(bounds.end_bound())?);
            tree.remove_within(limits)
        })
    }

    /// Atomically removes every item: see [`crate::Tree::clear`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`]. Nothing has changed after any of them.
    pub fn clear(&self) -> Result<()> {
        each!(&self.on, tree => tree.clear())
    }

    /// Removes the items within bounds for which `keep` returns false, each atomically: see
    /// [`crate::Tree::retain_in`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`]. Items up to some key may be removed then.
    pub fn retain_in<'a>(
        &self,
        bounds: impl RangeBounds<Datum<'a>>,
        mut keep: impl FnMut(&Datum<'_>, &Datum<'_>) -> bool,
    ) -> Result<()> {
        self.opened_here()?;
        let (keys, values) = (self.key_kind(), self.value_kind());
        each!(&self.on, tree => {
            let limits = (self.bound::<K>(bounds.start_bound())?, self.bound::<K>(bounds.end_bound())?);
            tree.retain_walked(tree.walk(limits).lenient(), |key, value| {
                let item = K::view(keys, Role::Key, key).zip(V::view(values, Role::Value, value));
                item.is_none_or(|(key, value)| keep(&key, &value))
            })
        })
    }

    /// Removes the items for which `keep` returns false: same as [`retain_in`](Self::retain_in) over the whole tree.
    ///
    /// # Errors
    ///
    /// Same as [`retain_in`](Self::retain_in).
    pub fn retain(&self, keep: impl FnMut(&Datum<'_>, &Datum<'_>) -> bool) -> Result<()> {
        self.retain_in(.., keep)
    }

    /// Returns an iterator that removes the items within bounds one by one, from both ends, as it returns them, each
    /// atomically: see [`crate::Tree::drain`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`]; the iterator yields the errors of [`remove`](Self::remove).
    pub fn drain<'a>(
        &self,
        bounds: impl RangeBounds<Datum<'a>>,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Item>> + '_> {
        each!(&self.on, tree => tree.writable()?);
        let items = self.range(bounds)?;
        Ok(items.filter_map(|item| match item {
            Ok((key, _)) => self.remove(key.borrowed()).map(|value| Some((key, value?))).transpose(),
            Err(error) => Some(Err(error)),
        }))
    }
}
