//! Bulk removal: of a range in one commit, and of single items in order.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use bristlecone_pm::{Error, Result};

use crate::api::ends::ItemOf;
use crate::api::iter::{Limit, Range};
use crate::api::metrics::Operation;
use crate::api::walk::Walk;
use crate::index::parts::codec::Codec;
use crate::transaction::RangeRemoval;
use crate::{Key, Tree, Value};

impl<K: Key, V: Value> Tree<K, V> {
    /// Atomically removes the items whose keys lie within bounds; returns the number removed.
    ///
    /// After `Ok` the removal is durable. After `Err` nothing has changed. After a crash either all items are removed or
    /// none. A concurrent write to a key of the range is ordered before or after the whole removal. Writers of the tree
    /// wait until the removal ends. Lookups and iterators may see a part of it; snapshots and transactions see all or
    /// nothing. Items that do not decode as the tree's types are also removed. [`retain_in`](Self::retain_in) and
    /// [`drain`](Self::drain) remove items one by one and stop no writer.
    ///
    /// The commit takes constant space in the pool. A pool with a journal records the removed keys, and needs memory of
    /// their size meanwhile. In a tree of an external design only the removal of each item is atomic: after an error or
    /// a crash, the items up to some key are removed.
    ///
    /// # Errors
    ///
    /// Same as [`remove`](Self::remove); [`Error::PoolFull`] and [`Error::MediumFull`] if a full pool has no space for
    /// the commit's record: remove single items then. [`Error::Corrupted`] for damage in the range, which
    /// [`retain_in`](Self::retain_in) removes where it can be reached. After [`Error::DurabilityLost`] the outcome is
    /// undetermined until the pool is opened again; then all items are removed or none.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let samples = pool.tree::<u64, f64>("samples by time")?;
    /// (0..100).try_for_each(|time| samples.upsert(time, 0.5))?;
    /// assert_eq!(samples.remove_range(..90)?, 90);
    /// assert_eq!(samples.first_key_value()?, Some((90, 0.5)));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn remove_range<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> Result<u64> {
        self.remove_limits(self.limits(&bounds)?)
    }

    /// Atomically removes every item, as [`remove_range`](Self::remove_range) does.
    ///
    /// [`Pool::clear_tree`](crate::Pool::clear_tree) takes the same time for any number of items, but requires that the
    /// tree is not open.
    ///
    /// # Errors
    ///
    /// Same as [`remove_range`](Self::remove_range).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Pando", 14_000)?;
    /// ages.clear()?;
    /// assert!(ages.is_empty()?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn clear(&self) -> Result<()> {
        self.remove_limits((Bound::Unbounded, Bound::Unbounded)).map(drop)
    }

    /// Removes the items within bounds.
    pub(crate) fn remove_limits(&self, (from, to): (Limit<K>, Limit<K>)) -> Result<u64> {
        if !self.link.is_known {
            return self.remove_walked(self.walk((from, to)).lenient());
        }
        self.writable()?;
        self.count_one(Operation::Scan);
        let bounds = (from.map(K::Codec::encode), to.map(K::Codec::encode));
        let (pool, tree) = (&self.pool, self.any());
        let removed = RangeRemoval { pool, link: self.link, tree: &tree, bounds }.run()?;
        self.count_many(Operation::Remove, removed as usize);
        Ok(removed)
    }

    /// Removes the items of a walk, one by one.
    fn remove_walked(&self, mut items: Walk<'_, K, V>) -> Result<u64> {
        self.writable()?;
        self.pool.deferred(|| {
            let mut removed = 0;
            for (key, _) in &mut items {
                removed += u64::from(self.discard(K::Codec::borrow(&key))?);
            }
            items.finish().map(|()| removed)
        })
    }

    /// Removes the items for which `keep` returns false: same as [`retain_in`](Self::retain_in) over the whole tree.
    ///
    /// # Errors
    ///
    /// Same as [`retain_in`](Self::retain_in).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let stock = pool.tree::<&str, u64>("stock")?;
    /// stock.upsert_many(&[("axe", 0), ("saw", 3), ("wedge", 0)])?;
    /// stock.retain(|_, left| left > 0)?;
    /// assert_eq!(stock.keys().collect::<bristlecone::Result<Vec<_>>>()?, ["saw"]);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn retain(&self, keep: impl FnMut(K::Ref<'_>, V::Ref<'_>) -> bool) -> Result<()> {
        self.retain_walked(self.walk_up(), keep)
    }

    /// Removes the items within bounds for which `keep` returns false.
    ///
    /// Each item is removed atomically, and only if it still is the one passed to `keep`; if another thread changes
    /// it, `keep` is called again. The whole call is not atomic: after an error or a crash, the items up to some key are
    /// done, and the call can be repeated. Items that do not decode as the tree's types stay.
    ///
    /// # Errors
    ///
    /// Same as [`remove`](Self::remove); [`Error::Corrupted`] if damage makes the following items unreachable.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let stock = pool.tree::<&str, u64>("stock")?;
    /// for (item, count) in [("axe", 0), ("saw", 3), ("wedge", 0)] {
    ///     stock.insert(item, count)?;
    /// }
    /// stock.retain_in(.."m", |_, count| count > 0)?;
    /// assert_eq!(stock.keys().collect::<bristlecone::Result<Vec<_>>>()?, ["saw", "wedge"]);
    /// stock.retain(|_, count| count > 0)?;
    /// assert_eq!(stock.len()?, 1);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn retain_in<'a>(
        &self,
        bounds: impl RangeBounds<K::Ref<'a>>,
        keep: impl FnMut(K::Ref<'_>, V::Ref<'_>) -> bool,
    ) -> Result<()> {
        self.retain_walked(self.walk(self.limits(&bounds)?).lenient(), keep)
    }

    /// Removes the items of a walk for which `keep` returns false.
    pub(crate) fn retain_walked(
        &self,
        mut items: Walk<'_, K, V>,
        mut keep: impl FnMut(K::Ref<'_>, V::Ref<'_>) -> bool,
    ) -> Result<()> {
        self.writable()?;
        for (key, held) in &mut items {
            let Some(own) = K::decode(&self.keys, key.clone()) else { continue };
            let (key, mut held) = (K::Codec::borrow(&key), Some(held));
            while let Some(value) = held.take() {
                let shown = V::decode(&self.values, V::Codec::borrow(&value));
                if shown.is_some_and(|shown| !keep(K::lend(&own), V::lend(&shown)))
                    && let Err(found) = self.exchange(key, Some(V::Codec::borrow(&value)), None)?
                {
                    held = found;
                }
            }
        }
        items.finish()
    }

    /// Returns an iterator that removes the items within bounds one by one, from both ends, as it returns them. Items
    /// that it has not returned when it is dropped stay in the tree.
    ///
    /// Each item is returned exactly once, even if several threads drain the same range: its removal is atomic, for
    /// other threads and across crashes.
    ///
    /// # Errors
    ///
    /// The iterator yields the errors of [`remove`](Self::remove) and of [`range`](Self::range). After an error it is
    /// finished.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let (inbox, archive) = (pool.tree::<u64, &str>("inbox")?, pool.tree::<u64, &str>("archive")?);
    /// inbox.insert(1, "read")?;
    /// inbox.insert(9, "new")?;
    /// for item in inbox.drain(..5) {
    ///     let (number, mail) = item?;
    ///     archive.insert(number, &mail)?;
    /// }
    /// assert_eq!((inbox.len()?, archive.len()?), (1, 1));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn drain<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> Drain<'_, K, V> {
        let refused = self.writable().err();
        Drain { tree: self, items: self.range(bounds), ended: false, refused }
    }
}

/// An iterator that removes the items it returns. See [`Tree::drain`].
#[must_use = "an item is removed when it is returned"]
pub struct Drain<'t, K: Key, V: Value> {
    tree: &'t Tree<K, V>,
    items: Range<'t, K, V>,
    ended: bool,
    /// The error that prevents removal.
    refused: Option<Error>,
}

impl<'t, K: Key, V: Value> Drain<'t, K, V> {
    fn take(
        &mut self,
        next: impl Fn(&mut Range<'t, K, V>) -> Option<Result<ItemOf<K, V>>>,
    ) -> Option<Result<ItemOf<K, V>>> {
        if let Some(error) = self.refused.take() {
            self.ended = true;
            return Some(Err(error));
        }
        while !self.ended {
            let removed = match next(&mut self.items)? {
                Ok((key, _)) => self.tree.remove(K::lend(&key)).map(|value| Some((key, value?))),
                Err(error) => Err(error),
            };
            match removed {
                Ok(Some(item)) => return Some(Ok(item)),
                // Another thread removed the item first.
                Ok(None) => {}
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl<K: Key, V: Value> Iterator for Drain<'_, K, V> {
    type Item = Result<ItemOf<K, V>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(Range::next)
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Drain<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(Range::next_back)
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for Drain<'_, K, V> {}

impl<K: Key, V: Value> fmt::Debug for Drain<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").finish_non_exhaustive()
    }
}
