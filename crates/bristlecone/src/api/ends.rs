//! Removing items from either end of a tree, as from a queue.

use bristlecone_pm::Result;

use crate::api::walk::Walk;
use crate::index::parts::codec::Codec;
use crate::{Key, Tree, Value};

/// A key and a value, owned.
pub(crate) type ItemOf<K, V> = (<K as Key>::Owned, <V as Value>::Owned);

impl<K: Key, V: Value> Tree<K, V> {
    /// Removes and returns the item with the smallest key; returns `None` if the tree is empty.
    ///
    /// Each item is returned exactly once even with concurrent calls: its removal is one atomic step, for other
    /// threads and across crashes. Finding the item is a separate step: an item with a smaller key that is inserted
    /// in between stays for the next call.
    ///
    /// Items that do not decode as the tree's types stay.
    ///
    /// # Errors
    ///
    /// Same as [`remove`](Self::remove).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let jobs = pool.tree::<u64, &str>("jobs")?;
    /// jobs.insert(2, "fell")?;
    /// jobs.insert(1, "sharpen")?;
    /// assert_eq!(jobs.pop_first()?, Some((1, "sharpen".to_owned())));
    /// assert_eq!(jobs.pop_last()?, Some((2, "fell".to_owned())));
    /// assert_eq!(jobs.pop_first()?, None);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn pop_first(&self) -> Result<Option<ItemOf<K, V>>> {
        self.pop(|| self.walk_up())
    }

    /// Removes and returns the item with the largest key: otherwise the same as [`pop_first`](Self::pop_first).
    ///
    /// # Errors
    ///
    /// Same as [`remove`](Self::remove).
    pub fn pop_last(&self) -> Result<Option<ItemOf<K, V>>> {
        self.pop(|| self.walk_down())
    }

    /// Removes the item with the smallest key if `test` returns true; returns `None` if the tree is empty or `test`
    /// returns false.
    ///
    /// The item is removed atomically, and only if it still is the one passed to `test`. If another thread changed
    /// or removed it first, `test` is called with the new first item. Otherwise the same as
    /// [`pop_first`](Self::pop_first).
    ///
    /// # Errors
    ///
    /// Same as [`remove`](Self::remove).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let expiring = pool.tree::<u64, &str>("sessions by time")?;
    /// expiring.insert(1000, "ada")?;
    /// expiring.insert(2000, "grace")?;
    /// let mut expired = Vec::new();
    /// while let Some((_, session)) = expiring.pop_first_if(|time, _| time < 1500)? {
    ///     expired.push(session);
    /// }
    /// assert_eq!(expired, ["ada"]);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn pop_first_if(
        &self,
        test: impl FnMut(K::Ref<'_>, V::Ref<'_>) -> bool,
    ) -> Result<Option<ItemOf<K, V>>> {
        self.pop_if(false, test)
    }

    /// Removes the item with the largest key if `test` returns true: otherwise the same as
    /// [`pop_first_if`](Self::pop_first_if).
    ///
    /// # Errors
    ///
    /// Same as [`remove`](Self::remove).
    pub fn pop_last_if(
        &self,
        test: impl FnMut(K::Ref<'_>, V::Ref<'_>) -> bool,
    ) -> Result<Option<ItemOf<K, V>>> {
        self.pop_if(true, test)
    }

    /// Removes the first of the given items that still exists; other threads have removed those before it.
    fn pop<'t>(&'t self, items: impl Fn() -> Walk<'t, K, V>) -> Result<Option<ItemOf<K, V>>> {
        self.writable()?;
        loop {
            let (mut items, mut met_any) = (items(), false);
            for (key, held) in &mut items {
                let decoded = K::decode(&self.keys, key).filter(|_| V::take(&self.values, held).is_some());
                let Some(key) = decoded else { continue };
                if let Some(value) = self.remove(K::lend(&key))? {
                    return Ok(Some((key, value)));
                }
                met_any = true;
            }
            items.finish()?;
            // No item is left behind the last one, but another thread may have inserted one before it.
            if !met_any {
                return Ok(None);
            }
        }
    }

    /// Removes the first or the last item if `test` returns true.
    pub(crate) fn pop_if(
        &self,
        down: bool,
        mut test: impl FnMut(K::Ref<'_>, V::Ref<'_>) -> bool,
    ) -> Result<Option<ItemOf<K, V>>> {
        self.writable()?;
        loop {
            let mut items = if down { self.walk_down() } else { self.walk_up() };
            let decoded = items.find_map(|(key, held)| {
                let own = K::decode(&self.keys, key.clone())?;
                let value = V::decode(&self.values, V::Codec::borrow(&held))?;
                Some((key, held, own, value))
            });
            let Some((key, held, own, value)) = decoded else { return items.finish().map(|()| None) };
            if !test(K::lend(&own), V::lend(&value)) {
                return Ok(None);
            }
            let (key, held) = (K::Codec::borrow(&key), V::Codec::borrow(&held));
            if self.exchange(key, Some(held), None)?.is_ok() {
                return Ok(Some((own, value)));
            }
        }
    }
}
