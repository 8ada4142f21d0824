//! Changes that depend on what is there: read, computed, and written if nothing came between.

use bristlecone_pm::Result;

use crate::api::tree_write::Stored;
use crate::api::value::undecodable;
use crate::index::parts::codec::Codec;
use crate::{Key, Tree, Value};

/// What is to become of a key.
pub(crate) enum Wanted<T> {
    /// It stays as it is.
    Same,
    /// It gets a value, or goes.
    Be(Option<T>),
}

/// What a key had, and what it has now.
type Change<V> = (Option<<V as Value>::Owned>, Option<<V as Value>::Owned>);

impl<K: Key, V: Value> Tree<K, V> {
    /// Replaces a key's value by what `update` makes of it; returns the value it had.
    ///
    /// `update` gets the value, or `None` if the key is absent. What it returns is written; if that is `None`, the key
    /// is removed, or stays absent.
    ///
    /// The change is one atomic step, for other threads and for a crash. If another thread changes the key meanwhile,
    /// `update` is called again, with the new value: it should have no effect but its result. Nothing is locked while
    /// it runs, and it may use the tree. If it panics nothing has changed.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert), but that nothing has changed after [`Error::Corrupted`](crate::Error) either.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-fetch-update-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let hits = pool.tree::<&str, u64>("hits")?;
    /// let count = |hits: Option<u64>| Some(hits.unwrap_or(0) + 1);
    /// assert_eq!(hits.fetch_update("/", count)?, None);
    /// assert_eq!(hits.fetch_update("/", count)?, Some(1));
    /// // The last visitor takes the key along.
    /// assert_eq!(hits.fetch_update("/", |hits| hits.filter(|hits| *hits > 2))?, Some(2));
    /// assert_eq!(hits.get("/"), None);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn fetch_update(
        &self,
        key: K::Ref<'_>,
        mut update: impl FnMut(Option<V::Ref<'_>>) -> Option<V::Owned>,
    ) -> Result<Option<V::Owned>> {
        self.alter(key, |old| Ok(Wanted::Be(update(old.map(V::lend))))).map(|(old, _)| old)
    }

    /// Replaces a key's value by what `update` makes of it; returns the value it has now: otherwise as
    /// [`fetch_update`](Self::fetch_update).
    ///
    /// # Errors
    ///
    /// As [`fetch_update`](Self::fetch_update).
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-update-fetch-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let logs = pool.tree::<u64, &str>("logs")?;
    /// let append = |log: Option<&str>| Some(format!("{}.", log.unwrap_or("")));
    /// assert_eq!(logs.update_and_fetch(7, append)?.as_deref(), Some("."));
    /// assert_eq!(logs.update_and_fetch(7, append)?.as_deref(), Some(".."));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn update_and_fetch(
        &self,
        key: K::Ref<'_>,
        mut update: impl FnMut(Option<V::Ref<'_>>) -> Option<V::Owned>,
    ) -> Result<Option<V::Owned>> {
        self.alter(key, |old| Ok(Wanted::Be(update(old.map(V::lend))))).map(|(_, new)| new)
    }

    /// Changes a key until no other thread did meanwhile, or `update` fails; returns what it had, and what it has.
    pub(crate) fn alter(
        &self,
        key: K::Ref<'_>,
        mut update: impl FnMut(Option<&V::Owned>) -> Result<Wanted<V::Owned>>,
    ) -> Result<Change<V>> {
        self.writable()?;
        K::with(key, |key| {
            let mut held = self.stored(key);
            loop {
                let old = held.as_ref().map(decoded::<V>).transpose()?;
                let new = match update(old.as_ref())? {
                    Wanted::Same => return Ok((old.clone(), old)),
                    Wanted::Be(new) => new,
                };
                let expected = held.as_ref().map(V::Codec::borrow);
                let changed = match &new {
                    Some(new) => V::with(V::lend(new), |new| self.exchange(key, expected, Some(new)))??,
                    None => self.exchange(key, expected, None)?,
                };
                match changed {
                    Ok(()) => return Ok((old, new)),
                    Err(found) => held = found,
                }
            }
        })
    }
}

/// Returns what a value is that stays where it is.
fn decoded<V: Value>(value: &Stored<V::Codec>) -> Result<V::Owned> {
    V::decode(V::Codec::borrow(value)).ok_or_else(|| undecodable("value", V::kind()))
}
