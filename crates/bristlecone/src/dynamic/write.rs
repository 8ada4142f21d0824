//! Writes of single keys.

use bristlecone_pm::Result;

use super::encode::{Records, Stored, Words};
use super::tree::{On, each};
use super::{Datum, Tree};
use crate::{CasError, TryInsertError};

impl Tree {
    /// Inserts or overwrites the value of a key; returns the previous value.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    ///
    /// ```
    /// use bristlecone::dynamic::{Datum, Kind};
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree_options("ages").create_dynamic(&Kind::Str, &Kind::U64)?;
    /// assert_eq!(ages.insert("Pando", 14_000u64)?, None);
    /// assert_eq!(ages.insert("Pando", 16_000u64)?, Some(Datum::U64(14_000)));
    /// assert_eq!(ages.update("Yggdrasil", 1u64)?, None); // absent, unchanged
    /// assert_eq!(ages.remove("Pando")?, Some(Datum::U64(16_000)));
    /// assert!(ages.is_empty()?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn insert<'k, 'v>(
        &self,
        key: impl Into<Datum<'k>>,
        value: impl Into<Datum<'v>>,
    ) -> Result<Option<Datum<'static>>> {
        let (key, value) = (key.into(), value.into());
        each!(&self.on, tree => Ok(self.replaced::<V>(self.item::<K, V, _>(&key, &value, |key, value| {
            tree.insert(key, value)
        })?)))
    }

    /// Inserts or overwrites the value of a key without returning the previous value: see
    /// [`crate::Tree::upsert`].
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn upsert<'k, 'v>(&self, key: impl Into<Datum<'k>>, value: impl Into<Datum<'v>>) -> Result<()> {
        let (key, value) = (key.into(), value.into());
        each!(&self.on, tree => self.item::<K, V, _>(&key, &value, |key, value| tree.upsert(key, value)))
    }

    /// Inserts a key if it is absent.
    ///
    /// # Errors
    ///
    /// [`TryInsertError::Present`] with the current value if the key is present; nothing has changed then.
    /// Otherwise the common errors: see [`Tree`].
    ///
    /// ```
    /// use bristlecone::dynamic::{Datum, Kind};
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let names = pool.tree_options("names").create_dynamic(&Kind::Str, &Kind::U64)?;
    /// names.try_insert("ada", 1u64)?;
    /// let taken = names.try_insert("ada", 2u64).unwrap_err();
    /// assert_eq!(taken.into_present()?, Datum::U64(1));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn try_insert<'k, 'v>(
        &self,
        key: impl Into<Datum<'k>>,
        value: impl Into<Datum<'v>>,
    ) -> std::result::Result<(), TryInsertError<Datum<'static>>> {
        let (key, value) = (key.into(), value.into());
        let held = each!(&self.on, tree => {
            let done = self.item::<K, V, _>(&key, &value, |key, value| match tree.try_insert(key, value) {
                Ok(()) => Ok(None),
                Err(present) => present.into_present().map(Some),
            })?;
            self.found::<V>(done)?
        });
        held.map_or(Ok(()), |held| Err(TryInsertError::Present(held)))
    }

    /// Replaces the value of an existing key; returns the previous value. Returns `None` if the key is
    /// absent, in which case nothing changes, or if the previous value does not decode as its kind.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn update<'k, 'v>(
        &self,
        key: impl Into<Datum<'k>>,
        value: impl Into<Datum<'v>>,
    ) -> Result<Option<Datum<'static>>> {
        let (key, value) = (key.into(), value.into());
        each!(&self.on, tree => Ok(self.replaced::<V>(self.item::<K, V, _>(&key, &value, |key, value| {
            tree.update(key, value)
        })?)))
    }

    /// Removes a key; returns its value.
    ///
    /// # Errors
    ///
    /// The common errors: see [`Tree`].
    pub fn remove<'a>(&self, key: impl Into<Datum<'a>>) -> Result<Option<Datum<'static>>> {
        let key = key.into();
        each!(&self.on, tree => Ok(self.replaced::<V>(self.key::<K, _>(&key, |key| tree.remove(key))??)))
    }

    /// Changes a key from an expected value to a new one; `None` means an absent key: see
    /// [`crate::Tree::compare_and_swap`].
    ///
    /// # Errors
    ///
    /// [`CasError::Found`] with the current value if the key is not as expected; nothing has changed then.
    /// Otherwise the common errors: see [`Tree`].
    ///
    /// ```
    /// use bristlecone::dynamic::Kind;
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let seats = pool.tree_options("seats").create_dynamic(&Kind::U64, &Kind::Str)?;
    /// seats.compare_and_swap(12u64, None, Some("Ada".into()))?;
    /// let taken = seats.compare_and_swap(12u64, None, Some("Grace".into())).unwrap_err();
    /// assert_eq!(taken.into_found()?, Some("Ada".into()));
    /// seats.compare_and_swap(12u64, Some("Ada".into()), None)?;
    /// assert!(seats.is_empty()?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn compare_and_swap<'k>(
        &self,
        key: impl Into<Datum<'k>>,
        expected: Option<Datum<'_>>,
        new: Option<Datum<'_>>,
    ) -> std::result::Result<(), CasError<Datum<'static>>> {
        let (key, [expected, new]) = (key.into(), [expected.as_ref(), new.as_ref()]);
        let found = each!(&self.on, tree => {
            let done = self.key::<K, _>(&key, |key| self.optional::<V, _>(expected, |expected| {
                self.optional::<V, _>(new, |new| match tree.compare_and_swap(key, expected, new) {
                    Ok(()) => Ok(None),
                    Err(found) => found.into_found().map(Some),
                })
            }))??;
            done.map(|found| self.found::<V>(found)).transpose()?
        });
        found.map_or(Ok(()), |found| Err(CasError::Found(found)))
    }

    /// Calls `use_it` with the stored form of a value, if there is one.
    fn optional<V: Stored, R>(
        &self,
        value: Option<&Datum<'_>>,
        use_it: impl FnOnce(Option<V::Ref<'_>>) -> Result<R>,
    ) -> Result<R> {
        match value {
            Some(value) => self.value::<V, _>(value, |value| use_it(Some(value)))?,
            None => use_it(None),
        }
    }

    /// Calls `use_it` with the stored form of a key and a value.
    fn item<K: Stored, V: Stored, R>(
        &self,
        key: &Datum<'_>,
        value: &Datum<'_>,
        use_it: impl FnOnce(K::Ref<'_>, V::Ref<'_>) -> Result<R>,
    ) -> Result<R> {
        self.key::<K, _>(key, |key| self.value::<V, _>(value, |value| use_it(key, value)))??
    }
}
