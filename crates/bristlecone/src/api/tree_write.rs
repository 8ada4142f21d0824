//! Writes to a tree: atomic operations on one key.

use bristlecone_pm::Result;

use super::{key, value};
use crate::api::metrics::Operation;
use crate::index::parts::codec::Codec;
use crate::index::{Index, Swapped, WriteMode};
use crate::journal::Done;
use crate::{CasError, Key, Tree, TryInsertError, Value};

/// The owned form of a codec's data.
pub(crate) type Stored<C> = <C as Codec>::Owned;

/// The borrowed form of a codec's data.
pub(crate) type StoredRef<'a, C> = <C as Codec>::Ref<'a>;

/// Outcome of a conditional change: done, or the value that was found instead.
type Held<V> = std::result::Result<(), Option<<V as Value>::Owned>>;

impl<K: Key, V: Value> Tree<K, V> {
    /// Inserts or overwrites the value of a key; returns the previous value.
    ///
    /// # Errors
    ///
    /// [`Error::PoolFull`](crate::Error) and [`Error::MediumFull`](crate::Error) for lack of space;
    /// [`Error::TooLong`](crate::Error) for a key or value that exceeds the limits;
    /// [`Error::ReadOnly`](crate::Error); [`Error::Forked`](crate::Error) in a child of the opener. Nothing has
    /// changed after any of these. After [`Error::DurabilityLost`](crate::Error) the outcome is undetermined. A
    /// previous value that does not decode as its type is replaced and treated as absent, as in [`get`](Self::get).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// assert_eq!(ages.insert("Pando", 14_000)?, None);
    /// assert_eq!(ages.insert("Pando", 16_000)?, Some(14_000));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn insert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Option<V::Owned>> {
        self.write(key, value, WriteMode::Upsert)
    }

    /// Inserts or overwrites the value of a key without returning the previous value. Trees that buffer (LodgeTree,
    /// and CCL-BTree if keys fit a word) can skip reading the leaf.
    ///
    /// # Errors
    ///
    /// Same as [`insert`](Self::insert).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.upsert("Pando", 14_000)?;
    /// ages.upsert("Pando", 16_000)?;
    /// assert_eq!(ages.get("Pando")?, Some(16_000));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.writable()?;
        self.count_one(Operation::Upsert);
        V::with(&self.values, value, |value| {
            value::check_len(V::Codec::bytes(value))?;
            K::with(&self.keys, key, |key| {
                key::check_len(K::Codec::bytes(key))?;
                self.change(key, Some(value), |()| Done::one(None), |tree| tree.upsert(key, value))
            })
        })
    }

    /// Inserts a key if it is absent.
    ///
    /// # Errors
    ///
    /// [`TryInsertError::Present`] with the current value if the key is present; nothing has changed then. Otherwise
    /// same as [`insert`](Self::insert).
    ///
    /// ```
    /// use bristlecone::TryInsertError;
    /// # let pool = bristlecone::Pool::temporary()?;
    ///
    /// let names = pool.tree::<&str, u64>("names")?;
    /// names.try_insert("ada", 1)?;
    /// match names.try_insert("ada", 2) {
    ///     Err(TryInsertError::Present(owner)) => assert_eq!(owner, 1),
    ///     other => other?,
    /// }
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    #[inline]
    pub fn try_insert(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> std::result::Result<(), TryInsertError<V::Owned>> {
        match self.write_new(key, value)? {
            None => Ok(()),
            Some(held) => Err(TryInsertError::Present(held)),
        }
    }

    /// Replaces the value of an existing key; returns the previous value. Returns `None` if the key is absent, in
    /// which case nothing changes, or if the previous value does not decode as its type.
    ///
    /// # Errors
    ///
    /// Same as [`insert`](Self::insert).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// assert_eq!(ages.update("Pando", 14_000)?, None);
    /// assert!(ages.is_empty()?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Option<V::Owned>> {
        self.write(key, value, WriteMode::Update)
    }

    #[inline]
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>> {
        Ok(self.replaced(self.write_stored(key, value, mode)?))
    }

    /// Inserts an absent item, or returns the existing value.
    fn write_new(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Option<V::Owned>> {
        self.write_stored(key, value, WriteMode::New)?.map(|value| self.taken(value)).transpose()
    }

    #[inline]
    fn write_stored(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        mode: WriteMode,
    ) -> Result<Option<Stored<V::Codec>>> {
        self.writable()?;
        self.count_one(Operation::Insert);
        V::with(&self.values, value, |value| {
            value::check_len(V::Codec::bytes(value))?;
            K::with(&self.keys, key, |key| {
                key::check_len(K::Codec::bytes(key))?;
                let done = |old: &Option<_>| match (mode, old.is_some()) {
                    (WriteMode::New, true) | (WriteMode::Update, false) => Done::NONE,
                    (_, existed) => Done::one(Some(existed)),
                };
                self.change(key, Some(value), done, |tree| tree.write(key, value, mode))
            })
        })
    }

    /// Removes a key; returns its value.
    ///
    /// # Errors
    ///
    /// Same as [`insert`](Self::insert), except that a full pool does not prevent removal.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Prometheus", 4900)?;
    /// assert_eq!(ages.remove("Prometheus")?, Some(4900));
    /// assert_eq!(ages.remove("Prometheus")?, None);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.writable()?;
        self.count_one(Operation::Remove);
        let old = K::with(&self.keys, key, |key| self.change(key, None, removed, |tree| tree.remove(key)))?;
        Ok(self.replaced(old))
    }

    /// Changes a key from an expected value to a new one; `None` means an absent key.
    ///
    /// | `expected` | `new` | if the key is as expected |
    /// |---|---|---|
    /// | `None` | `Some` | it is inserted |
    /// | `Some` | `Some` | its value is replaced |
    /// | `Some` | `None` | it is removed |
    /// | `None` | `None` | it stays absent: a pure check |
    ///
    /// Each call is one atomic step, for other threads and across crashes.
    ///
    /// # Errors
    ///
    /// [`CasError::Found`] with the current value if the key is not as expected; nothing has changed then. Otherwise
    /// same as [`insert`](Self::insert).
    ///
    /// ```
    /// use bristlecone::CasError;
    /// # let pool = bristlecone::Pool::temporary()?;
    ///
    /// let hits = pool.tree::<&str, u64>("hits")?;
    /// let count = |page| -> bristlecone::Result<u64> {
    ///     let mut held = hits.get(page)?;
    ///     loop {
    ///         let next = held.unwrap_or(0) + 1;
    ///         match hits.compare_and_swap(page, held, Some(next)) {
    ///             Ok(()) => return Ok(next),
    ///             // Another thread changed it first.
    ///             Err(CasError::Found(other)) => held = other,
    ///             Err(error) => return Err(error.into()),
    ///         }
    ///     }
    /// };
    /// assert_eq!((count("/")?, count("/")?), (1, 2));
    /// assert!(hits.compare_and_swap("/", Some(1), None).is_err());
    /// hits.compare_and_swap("/", Some(2), None)?;
    /// hits.compare_and_swap("/", None, None)?;
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn compare_and_swap(
        &self,
        key: K::Ref<'_>,
        expected: Option<V::Ref<'_>>,
        new: Option<V::Ref<'_>>,
    ) -> std::result::Result<(), CasError<V::Owned>> {
        let found = match (expected, new) {
            (None, Some(new)) => self.write_new(key, new)?.map(Some),
            (Some(expected), Some(new)) => self.replace_if(key, expected, new)?.err(),
            (Some(expected), None) => self.remove_if(key, expected)?.err(),
            (None, None) => {
                self.writable()?;
                self.found(key)?.map(Some)
            }
        };
        found.map_or(Ok(()), |found| Err(CasError::Found(found)))
    }

    /// Returns the value of a key for a result that must report it.
    fn found(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        K::with(&self.keys, key, |key| self.stored(key))?.map(|value| self.taken(value)).transpose()
    }

    /// Returns a value in its stored form.
    pub(crate) fn stored(&self, key: StoredRef<'_, K::Codec>) -> Result<Option<Stored<V::Codec>>> {
        self.here()?.get_owned(key)
    }

    /// Changes a key from an expected to a new value, both in stored form; the inner `Err` is the value found
    /// instead. Values that decode to equal values may have different stored forms: a loop over this function
    /// terminates, one over [`compare_and_swap`](Self::compare_and_swap) might not.
    pub(crate) fn exchange(
        &self,
        key: StoredRef<'_, K::Codec>,
        expected: Option<StoredRef<'_, V::Codec>>,
        new: Option<StoredRef<'_, V::Codec>>,
    ) -> Result<Swapped<V::Codec>> {
        self.writable()?;
        self.count_one(Operation::Swap);
        key::check_len(K::Codec::bytes(key))?;
        value::check_len(new.map_or(0, V::Codec::bytes))?;
        match (expected, new) {
            (Some(expected), Some(new)) => {
                let swap = |tree: &dyn Index<_, _>| tree.compare_and_swap(key, expected, new);
                self.change(key, Some(new), swapped, swap)
            }
            (Some(expected), None) => self.change(key, None, swapped, |tree| tree.remove_if(key, expected)),
            (None, Some(new)) => {
                let write = |tree: &dyn Index<_, _>| tree.write(key, new, WriteMode::New);
                let held = self.change(key, Some(new), inserted, write)?;
                Ok(held.map_or(Ok(()), |held| Err(Some(held))))
            }
            (None, None) => Ok(self.stored(key)?.map_or(Ok(()), |held| Err(Some(held)))),
        }
    }

    /// Removes a key in stored form; returns whether it was present.
    pub(crate) fn discard(&self, key: StoredRef<'_, K::Codec>) -> Result<bool> {
        self.writable()?;
        self.count_one(Operation::Remove);
        Ok(self.change(key, None, removed, |tree| tree.remove(key))?.is_some())
    }

    /// Replaces a value if it is `expected`; the inner `Err` is the value found instead.
    #[inline]
    fn replace_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Held<V>> {
        self.writable()?;
        self.count_one(Operation::Swap);
        let swapped = V::with(&self.values, expected, |expected| {
            V::with(&self.values, new, |new| {
                value::check_len(V::Codec::bytes(new))?;
                K::with(&self.keys, key, |key| {
                    let swap = |tree: &dyn Index<_, _>| tree.compare_and_swap(key, expected, new);
                    self.change(key, Some(new), swapped, swap)
                })
            })
        })?;
        self.missed(swapped)
    }

    /// Removes a key if its value is `expected`; the inner `Err` is the value found instead.
    #[inline]
    fn remove_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>) -> Result<Held<V>> {
        self.writable()?;
        self.count_one(Operation::Swap);
        let removed = V::with(&self.values, expected, |expected| {
            K::with(&self.keys, key, |key| {
                self.change(key, None, swapped, |tree| tree.remove_if(key, expected))
            })
        })?;
        self.missed(removed)
    }

    /// Converts the outcome of a conditional write to the public types.
    fn missed(&self, done: Swapped<V::Codec>) -> Result<Held<V>> {
        match done {
            Ok(()) => Ok(Ok(())),
            Err(found) => found.map(|value| self.taken(value)).transpose().map(Err),
        }
    }
}

/// What a removal did that found this value.
fn removed<V>(old: &Option<V>) -> Done {
    old.as_ref().map_or(Done::NONE, |_| Done::one(Some(true)))
}

/// What an insertion of a new key did that found this value.
fn inserted<V>(held: &Option<V>) -> Done {
    held.as_ref().map_or(Done::one(Some(false)), |_| Done::NONE)
}

/// What a change from an expected value did.
fn swapped<T, E>(swapped: &std::result::Result<T, E>) -> Done {
    swapped.as_ref().map_or(Done::NONE, |_| Done::one(Some(true)))
}
