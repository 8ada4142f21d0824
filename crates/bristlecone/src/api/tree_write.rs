//! What changes a tree: writes of one key, each of them one atomic step.

use bristlecone_pm::Result;

use super::{key, value};
use crate::api::metrics::Operation;
use crate::api::value::taken;
use crate::index::parts::codec::Codec;
use crate::index::{Swapped, WriteMode};
use crate::{CasError, Key, Tree, TryInsertError, Value};

/// What a codec keeps.
pub(crate) type Stored<C> = <C as Codec>::Owned;

/// What a codec takes.
pub(crate) type StoredRef<'a, C> = <C as Codec>::Ref<'a>;

/// What a conditional change came to: done, or what was there instead.
type Held<V> = std::result::Result<(), Option<<V as Value>::Owned>>;

impl<K: Key, V: Value> Tree<K, V> {
    /// Writes a key's value, whether it is there or not; returns the value it had.
    ///
    /// # Errors
    ///
    /// [`Error::PoolFull`](crate::Error) and [`Error::MediumFull`](crate::Error) where there is no room;
    /// [`Error::TooLong`](crate::Error) for a key or value that no tree holds; [`Error::ReadOnly`](crate::Error);
    /// [`Error::Forked`](crate::Error) in a child of the opener. Nothing has changed after any of these.
    /// [`Error::DurabilityLost`](crate::Error) leaves open whether it has. A value that was there and cannot be of its type is
    /// replaced without being returned, as if the key had been absent: so it is for [`get`](Self::get).
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-insert-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// assert_eq!(ages.insert("Pando", 14_000)?, None);
    /// assert_eq!(ages.insert("Pando", 16_000)?, Some(14_000));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn insert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Option<V::Owned>> {
        self.write(key, value, WriteMode::Upsert)
    }

    /// Writes a key's value, whether it is there or not, and does not tell which. Trees that buffer
    /// (LodgeTree, and CCL-BTree where keys fit a word) need not look into a leaf for that.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-upsert-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.upsert("Pando", 14_000)?;
    /// ages.upsert("Pando", 16_000)?;
    /// assert_eq!(ages.get("Pando"), Some(16_000));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.writable()?;
        self.count_one(Operation::Upsert);
        V::with(value, |value| {
            value::check_len(V::Codec::bytes(value))?;
            K::with(key, |key| {
                key::check_len(K::Codec::bytes(key))?;
                self.change(key, |tree| tree.upsert(key, value))
            })
        })?
    }

    /// Inserts a key that is absent.
    ///
    /// # Errors
    ///
    /// [`TryInsertError::Present`] if the key is there, with its value, and nothing has changed; otherwise as
    /// [`insert`](Self::insert).
    ///
    /// ```
    /// use bristlecone::TryInsertError;
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-try-insert-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    ///
    /// let names = pool.tree::<&str, u64>("names")?;
    /// names.try_insert("ada", 1)?;
    /// match names.try_insert("ada", 2) {
    ///     Err(TryInsertError::Present(owner)) => assert_eq!(owner, 1),
    ///     other => other?,
    /// }
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
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

    /// Replaces the value of a key that is there; returns the value it had. `None`: it was not, and
    /// nothing changed; or what it had cannot be of its type.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-update-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// assert_eq!(ages.update("Pando", 14_000)?, None);
    /// assert!(ages.is_empty());
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Option<V::Owned>> {
        self.write(key, value, WriteMode::Update)
    }

    #[inline]
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>> {
        Ok(self.write_stored(key, value, mode)?.and_then(V::take))
    }

    /// Writes an item that is absent; returns the value that is there instead.
    fn write_new(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Option<V::Owned>> {
        self.write_stored(key, value, WriteMode::New)?.map(taken::<V>).transpose()
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
        V::with(value, |value| {
            value::check_len(V::Codec::bytes(value))?;
            K::with(key, |key| {
                key::check_len(K::Codec::bytes(key))?;
                self.change(key, |tree| tree.write(key, value, mode))
            })
        })?
    }

    /// Removes a key; returns its value.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert); a full pool is none.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-remove-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Prometheus", 4900)?;
    /// assert_eq!(ages.remove("Prometheus")?, Some(4900));
    /// assert_eq!(ages.remove("Prometheus")?, None);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.writable()?;
        self.count_one(Operation::Remove);
        let old = K::with(key, |key| self.change(key, |tree| tree.remove(key)))?;
        Ok(old.and_then(V::take))
    }

    /// Changes a key from what is expected to what is wanted; `None` stands for an absent key.
    ///
    /// | `expected` | `new` | if the key is as expected |
    /// |---|---|---|
    /// | `None` | `Some` | it is inserted |
    /// | `Some` | `Some` | its value is replaced |
    /// | `Some` | `None` | it is removed |
    /// | `None` | `None` | it stays absent, and that is all that is asked |
    ///
    /// Each is one atomic step, for other threads and for a crash.
    ///
    /// # Errors
    ///
    /// [`CasError::Found`] if the key is not as expected, with what it is, and nothing has changed; otherwise as
    /// [`insert`](Self::insert).
    ///
    /// ```
    /// use bristlecone::CasError;
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-swap-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    ///
    /// let hits = pool.tree::<&str, u64>("hits")?;
    /// let count = |page| -> bristlecone::Result<u64> {
    ///     let mut held = hits.get(page);
    ///     loop {
    ///         let next = held.unwrap_or(0) + 1;
    ///         match hits.compare_and_swap(page, held, Some(next)) {
    ///             Ok(()) => return Ok(next),
    ///             // Another thread was faster.
    ///             Err(CasError::Found(other)) => held = other,
    ///             Err(error) => return Err(error.into()),
    ///         }
    ///     }
    /// };
    /// assert_eq!((count("/")?, count("/")?), (1, 2));
    /// assert!(hits.compare_and_swap("/", Some(1), None).is_err());
    /// hits.compare_and_swap("/", Some(2), None)?;
    /// hits.compare_and_swap("/", None, None)?;
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
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

    /// Returns the value of a key, for an answer that must not leave it out.
    fn found(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        let mut found = None;
        K::with(key, |key| self.here().get(key, &mut |value| found = Some(V::Codec::owned(value))));
        found.map(taken::<V>).transpose()
    }

    /// Returns a value as it is stored.
    pub(crate) fn stored(&self, key: StoredRef<'_, K::Codec>) -> Option<Stored<V::Codec>> {
        let mut found = None;
        self.here().get(key, &mut |value| found = Some(V::Codec::owned(value)));
        found
    }

    /// Changes a key that is stored like this from what is expected to what is wanted; `Err` within `Ok` is what was
    /// there instead. Values that decode alike need not be stored alike: a loop of these ends, one of
    /// [`compare_and_swap`](Self::compare_and_swap) might not.
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
            (Some(expected), Some(new)) => self.change(key, |tree| tree.compare_and_swap(key, expected, new)),
            (Some(expected), None) => self.change(key, |tree| tree.remove_if(key, expected)),
            (None, Some(new)) => {
                let held = self.change(key, |tree| tree.write(key, new, WriteMode::New))?;
                Ok(held.map_or(Ok(()), |held| Err(Some(held))))
            }
            (None, None) => Ok(self.stored(key).map_or(Ok(()), |held| Err(Some(held)))),
        }
    }

    /// Removes a key that is stored like this; returns whether it was there.
    pub(crate) fn discard(&self, key: StoredRef<'_, K::Codec>) -> Result<bool> {
        self.writable()?;
        self.count_one(Operation::Remove);
        Ok(self.change(key, |tree| tree.remove(key))?.is_some())
    }

    /// Replaces a value if it is `expected`; `Err` within `Ok` is what was there instead.
    #[inline]
    fn replace_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Held<V>> {
        self.writable()?;
        self.count_one(Operation::Swap);
        let swapped = V::with(expected, |expected| {
            V::with(new, |new| {
                value::check_len(V::Codec::bytes(new))?;
                K::with(key, |key| self.change(key, |tree| tree.compare_and_swap(key, expected, new)))
            })
        })???;
        missed::<V>(swapped)
    }

    /// Removes a key if its value is `expected`; `Err` within `Ok` is what was there instead.
    #[inline]
    fn remove_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>) -> Result<Held<V>> {
        self.writable()?;
        self.count_one(Operation::Swap);
        let removed = V::with(expected, |expected| {
            K::with(key, |key| self.change(key, |tree| tree.remove_if(key, expected)))
        })??;
        missed::<V>(removed)
    }
}

/// Returns what a write came to that was to happen only beside a certain value.
fn missed<V: Value>(done: Swapped<V::Codec>) -> Result<Held<V>> {
    match done {
        Ok(()) => Ok(Ok(())),
        Err(found) => found.map(taken::<V>).transpose().map(Err),
    }
}
