//! Writes of entries that expire.

use bristlecone_pm::Result;

use super::ExpiringTree;
use super::range::ExpiringRange;
use crate::api::ends::ItemOf;
use crate::api::key;
use crate::api::kinds::Buffer;
use crate::api::kinds::expiring::{EXPIRY_BYTES, Expiring, Expiry, bytes_of, entry_of, join, millis, split};
use crate::api::value;
use crate::index::parts::codec::Codec;
use crate::index::parts::encoded::Item;
use crate::{CasError, Key, TryInsertError, Value};
/// What to do with a key.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
enum Decision {
    Keep,
    Put(Buffer),
    Remove,
}

/// An entry that lives, with the stored form of its value.
struct Live<'a, T> {
    value: T,
    expiry: Expiry,
    stored: &'a [u8],
}

/// The codec of entries.
type Entry<V> = <Expiring<V> as Value>::Codec;

impl<K: Key, V: Value> ExpiringTree<K, V> {
    /// Inserts or overwrites the value of a key and its expiry; returns the previous value.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::insert`](crate::Tree::insert).
    pub fn insert(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        expiry: impl Into<Option<Expiry>>,
    ) -> Result<Option<V::Owned>> {
        let expiry = self.named(expiry);
        Ok(self.live(self.tree.insert(key, Expiring { value, expiry })?))
    }

    /// Inserts or overwrites the value of a key and its expiry without returning the previous value.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::insert`](crate::Tree::insert).
    pub fn upsert(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        expiry: impl Into<Option<Expiry>>,
    ) -> Result<()> {
        let expiry = self.named(expiry);
        self.tree.upsert(key, Expiring { value, expiry })
    }

    /// Inserts a key if it is absent.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::try_insert`](crate::Tree::try_insert).
    pub fn try_insert(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        expiry: impl Into<Option<Expiry>>,
    ) -> std::result::Result<(), TryInsertError<V::Owned>> {
        let new = self.checked(value, self.named(expiry))?;
        let held = self.decide(key, |live| match live {
            Some(live) => (Decision::Keep, Some(live.value)),
            None => (Decision::Put(new.clone()), None),
        })?;
        held.map_or(Ok(()), |held| Err(TryInsertError::Present(held)))
    }

    /// Replaces the value of an existing key and its expiry; returns the previous value, or `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::insert`](crate::Tree::insert). [`Error::Corrupted`](crate::Error) if the previous value does not decode as its type;
    /// nothing has changed then.
    pub fn update(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        expiry: impl Into<Option<Expiry>>,
    ) -> Result<Option<V::Owned>> {
        let new = self.checked(value, self.named(expiry))?;
        self.decide(key, |live| match live {
            Some(live) => (Decision::Put(new.clone()), Some(live.value)),
            None => (Decision::Keep, None),
        })
    }

    /// Removes a key; returns its value.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::remove`](crate::Tree::remove).
    pub fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        Ok(self.live(self.tree.remove(key)?))
    }

    /// Changes a key from an expected value to a new one with its expiry; `None` means an absent key. The expiry that the
    /// key had does not count.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::compare_and_swap`](crate::Tree::compare_and_swap).
    pub fn compare_and_swap(
        &self,
        key: K::Ref<'_>,
        expected: Option<V::Ref<'_>>,
        new: Option<(V::Ref<'_>, Expiry)>,
    ) -> std::result::Result<(), CasError<V::Owned>> {
        let expected = expected.map(|value| self.stored(value, Expiry::NEVER)).transpose()?;
        let expected = expected.as_ref().map(|entry| &entry[EXPIRY_BYTES..]);
        let new = new.map(|(value, expiry)| self.checked(value, expiry)).transpose()?;
        let outcome = self.decide(key, |live| {
            if live.as_ref().map(|live| live.stored) != expected {
                return (Decision::Keep, Err(live.map(|live| live.value)));
            }
            match (&new, expected) {
                (Some(new), _) => (Decision::Put(new.clone()), Ok(())),
                (None, Some(_)) => (Decision::Remove, Ok(())),
                (None, None) => (Decision::Keep, Ok(())),
            }
        })?;
        outcome.map_err(CasError::Found)
    }

    /// Sets when a key expires, and keeps its value; [`Expiry::NEVER`] makes it permanent. Returns the previous expiry, or
    /// `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// Same as [`update`](Self::update).
    pub fn set_expiry(&self, key: K::Ref<'_>, expiry: impl Into<Option<Expiry>>) -> Result<Option<Expiry>> {
        self.set_expiry_if(key, expiry, |_| true)
    }

    /// Sets when a key expires, as [`set_expiry`](Self::set_expiry) does, if `test` returns true for its expiry. Returns
    /// that expiry, or `None` if the key is absent. `test` may run more than once.
    ///
    /// # Errors
    ///
    /// Same as [`update`](Self::update).
    ///
    /// ```
    /// # use bristlecone::{Expiring, Expiry, Pool};
    /// # use std::time::Duration;
    /// # let pool = Pool::temporary()?;
    /// let sessions = pool.tree::<&str, Expiring<u64>>("sessions")?.expiring();
    /// let hour = sessions.after(Duration::from_secs(3600));
    /// sessions.insert("ada", 7, hour)?;
    /// // Prolongs a session, and never shortens it.
    /// let later = sessions.after(Duration::from_secs(60));
    /// sessions.set_expiry_if("ada", later, |now| now != Expiry::NEVER && now.as_millis() < later.as_millis())?;
    /// assert_eq!(sessions.expiry("ada")?, Some(hour));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn set_expiry_if(
        &self,
        key: K::Ref<'_>,
        expiry: impl Into<Option<Expiry>>,
        mut test: impl FnMut(Expiry) -> bool,
    ) -> Result<Option<Expiry>> {
        let expiry = self.named(expiry);
        self.decide(key, |live| match live {
            Some(live) if test(live.expiry) => {
                (Decision::Put(join(expiry, Item::Bytes(live.stored))), Some(live.expiry))
            }
            live => (Decision::Keep, live.map(|live| live.expiry)),
        })
    }

    /// Removes and returns the item with the smallest key; returns `None` if there is none: see [`Tree::pop_first`](crate::Tree::pop_first).
    ///
    /// # Errors
    ///
    /// Same as [`Tree::remove`](crate::Tree::remove).
    pub fn pop_first(&self) -> Result<Option<ItemOf<K, V>>> {
        self.pop(ExpiringRange::next)
    }

    /// Removes and returns the item with the largest key: otherwise the same as [`pop_first`](Self::pop_first).
    ///
    /// # Errors
    ///
    /// Same as [`Tree::remove`](crate::Tree::remove).
    pub fn pop_last(&self) -> Result<Option<ItemOf<K, V>>> {
        self.pop(ExpiringRange::next_back)
    }

    /// Removes the first of the live items that no other thread has removed.
    fn pop<'t>(
        &'t self,
        next: impl Fn(&mut ExpiringRange<'t, K, V>) -> Option<Result<ItemOf<K, V>>>,
    ) -> Result<Option<ItemOf<K, V>>> {
        self.tree.writable()?;
        loop {
            let (mut items, mut has_met_any) = (self.iter(), false);
            while let Some(item) = next(&mut items) {
                let (key, _) = item?;
                if let Some(value) = self.remove(K::lend(&key))? {
                    return Ok(Some((key, value)));
                }
                has_met_any = true;
            }
            // Another thread may have inserted an item before those that were removed.
            if !has_met_any {
                return Ok(None);
            }
        }
    }

    /// Changes a key as `decide` wants for its live value; it decides again if another thread was faster. An expired entry
    /// that would be kept is removed.
    fn decide<R>(
        &self,
        key: K::Ref<'_>,
        mut decide: impl FnMut(Option<Live<'_, V::Owned>>) -> (Decision, R),
    ) -> Result<R> {
        self.tree.writable()?;
        K::with(&self.tree.keys, key, |key| {
            key::check_len(K::Codec::bytes(key))?;
            let mut held = self.tree.stored(key)?;
            loop {
                let now = millis(self.now());
                let lent = held.as_ref().map(Entry::<V>::borrow);
                let live = lent.map(|entry| self.read(entry, now)).transpose()?.flatten();
                let has_expired = held.is_some() && live.is_none();
                let (decision, result) = decide(live);
                let new = match &decision {
                    Decision::Keep if !has_expired => return Ok(result),
                    Decision::Keep | Decision::Remove => None,
                    Decision::Put(entry) => Some(entry_of::<Entry<V>>(entry)),
                };
                match self.tree.exchange(key, lent, new)? {
                    Ok(()) => return Ok(result),
                    Err(found) => held = found,
                }
            }
        })
    }

    fn stored(&self, value: V::Ref<'_>, expiry: Expiry) -> Result<Buffer> {
        V::with(&self.tree.values, value, |value| Ok(join(expiry, V::Codec::item(value))))
    }

    /// Encodes an entry that is to be written.
    fn checked(&self, value: V::Ref<'_>, expiry: Expiry) -> Result<Buffer> {
        let entry = self.stored(value, expiry)?;
        value::check_len(entry.len()).map(|()| entry)
    }

    /// Decodes an entry, unless it has expired.
    fn read<'a>(&self, entry: <Entry<V> as Codec>::Ref<'a>, now: u64) -> Result<Option<Live<'a, V::Owned>>> {
        let damaged = || self.tree.undecodable_value();
        let (expiry, stored) = bytes_of::<Entry<V>>(entry).and_then(split).ok_or_else(damaged)?;
        if expiry.is_over_at(now) {
            return Ok(None);
        }
        let schema = &self.tree.values;
        let value = V::in_entry(schema, stored).and_then(|value| V::decode(schema, value));
        Ok(Some(Live { value: value.ok_or_else(damaged)?, expiry, stored }))
    }
}
