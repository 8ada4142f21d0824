//! Read-modify-write operations: read, compute, and write if no other thread intervened.

use bristlecone_pm::Result;

use crate::api::tree_write::Stored;
use crate::index::parts::codec::Codec;
use crate::{Key, Tree, Value};

/// The intended change of a key.
pub(crate) enum Wanted<T> {
    /// No change.
    Same,
    /// Sets the value, or removes the key.
    Be(Option<T>),
}

/// The previous and the resulting value of a key.
type Change<V> = (Option<<V as Value>::Owned>, Option<<V as Value>::Owned>);

impl<K: Key, V: Value> Tree<K, V> {
    /// Replaces the value of a key by the result of `update`; returns the previous value.
    ///
    /// `update` gets the value, or `None` if the key is absent. Its result is written; `None` removes the key or
    /// leaves it absent.
    ///
    /// The change is one atomic step, for other threads and across crashes. If another thread changes the key
    /// concurrently, `update` runs again with the new value: it should have no side effects. No lock is held while it
    /// runs, and it may use the tree. If it panics, nothing has changed.
    ///
    /// # Errors
    ///
    /// Same as [`insert`](Self::insert), except that nothing has changed after [`Error::Corrupted`](crate::Error)
    /// either.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let hits = pool.tree::<&str, u64>("hits")?;
    /// let count = |hits: Option<u64>| Some(hits.unwrap_or(0) + 1);
    /// assert_eq!(hits.fetch_update("/", count)?, None);
    /// assert_eq!(hits.fetch_update("/", count)?, Some(1));
    /// // The last visitor removes the key.
    /// assert_eq!(hits.fetch_update("/", |hits| hits.filter(|hits| *hits > 2))?, Some(2));
    /// assert_eq!(hits.get("/")?, None);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn fetch_update(
        &self,
        key: K::Ref<'_>,
        mut update: impl FnMut(Option<V::Ref<'_>>) -> Option<V::Owned>,
    ) -> Result<Option<V::Owned>> {
        self.alter(key, |old| Ok(Wanted::Be(update(old.map(V::lend))))).map(|(old, _)| old)
    }

    /// Replaces the value of a key by the result of `update`; returns the resulting value: otherwise the same as
    /// [`fetch_update`](Self::fetch_update).
    ///
    /// # Errors
    ///
    /// Same as [`fetch_update`](Self::fetch_update).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let logs = pool.tree::<u64, &str>("logs")?;
    /// let append = |log: Option<&str>| Some(format!("{}.", log.unwrap_or("")));
    /// assert_eq!(logs.update_and_fetch(7, append)?.as_deref(), Some("."));
    /// assert_eq!(logs.update_and_fetch(7, append)?.as_deref(), Some(".."));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn update_and_fetch(
        &self,
        key: K::Ref<'_>,
        mut update: impl FnMut(Option<V::Ref<'_>>) -> Option<V::Owned>,
    ) -> Result<Option<V::Owned>> {
        self.alter(key, |old| Ok(Wanted::Be(update(old.map(V::lend))))).map(|(_, new)| new)
    }

    /// Retries a change until it applies without conflict or `update` fails; returns the previous and the resulting
    /// value.
    pub(crate) fn alter(
        &self,
        key: K::Ref<'_>,
        mut update: impl FnMut(Option<&V::Owned>) -> Result<Wanted<V::Owned>>,
    ) -> Result<Change<V>> {
        self.writable()?;
        K::with(&self.keys, key, |key| {
            let mut held = self.stored(key)?;
            loop {
                let old = held.as_ref().map(|held| self.decoded(held)).transpose()?;
                let new = match update(old.as_ref())? {
                    Wanted::Same => return Ok((old.clone(), old)),
                    Wanted::Be(new) => new,
                };
                let expected = held.as_ref().map(V::Codec::borrow);
                let changed = match &new {
                    Some(new) => {
                        V::with(&self.values, V::lend(new), |new| self.exchange(key, expected, Some(new)))?
                    }
                    None => self.exchange(key, expected, None)?,
                };
                match changed {
                    Ok(()) => return Ok((old, new)),
                    Err(found) => held = found,
                }
            }
        })
    }

    fn decoded(&self, value: &Stored<V::Codec>) -> Result<V::Owned> {
        V::decode(&self.values, V::Codec::borrow(value)).ok_or_else(|| self.undecodable_value())
    }
}
