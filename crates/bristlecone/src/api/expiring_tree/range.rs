//! Items of a tree that have not expired, in order.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use bristlecone_pm::Result;

use super::ExpiringTree;
use crate::api::ends::ItemOf;
use crate::api::iter::Range;
use crate::api::kinds::expiring::{Expiring, millis};
use crate::{Key, Value};
impl<K: Key, V: Value> ExpiringTree<K, V> {
    /// Returns the items of a range that have not expired.
    pub(crate) fn of<'t>(&self, entries: Range<'t, K, Expiring<V>>) -> ExpiringRange<'t, K, V> {
        ExpiringRange { entries, now: millis(self.now()) }
    }

    /// Iterates over the items within bounds, in order, from both ends: see [`Tree::range`](crate::Tree::range). An item that expires after
    /// this call is still returned.
    ///
    /// # Errors
    ///
    /// The iterator yields the errors of [`Tree::get`](crate::Tree::get). After an error it is finished.
    pub fn range<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> ExpiringRange<'_, K, V> {
        self.of(self.tree.range(bounds))
    }

    /// Iterates over all items in order, from both ends: see [`range`](Self::range).
    pub fn iter(&self) -> ExpiringRange<'_, K, V> {
        self.of(self.tree.iter())
    }

    /// Returns the number of items whose keys lie within bounds. It reads each entry: see [`Tree::count`](crate::Tree::count).
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`](crate::Tree::get).
    pub fn count<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> Result<u64> {
        self.range(bounds).try_fold(0, |count, item| item.map(|_| count + 1))
    }

    /// Returns the item with the smallest key.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`](crate::Tree::get).
    pub fn first_key_value(&self) -> Result<Option<ItemOf<K, V>>> {
        self.iter().next().transpose()
    }

    /// Returns the item with the largest key.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`](crate::Tree::get).
    pub fn last_key_value(&self) -> Result<Option<ItemOf<K, V>>> {
        self.iter().next_back().transpose()
    }

    /// Returns the item with the largest key below `key`.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`](crate::Tree::get).
    pub fn get_lt(&self, key: K::Ref<'_>) -> Result<Option<ItemOf<K, V>>> {
        self.range(..key).next_back().transpose()
    }

    /// Returns the item with the largest key that is `key` or below.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`](crate::Tree::get).
    pub fn get_le(&self, key: K::Ref<'_>) -> Result<Option<ItemOf<K, V>>> {
        self.range(..=key).next_back().transpose()
    }

    /// Returns the item with the smallest key above `key`.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`](crate::Tree::get).
    pub fn get_gt(&self, key: K::Ref<'_>) -> Result<Option<ItemOf<K, V>>> {
        self.range((Bound::Excluded(key), Bound::Unbounded)).next().transpose()
    }

    /// Returns the item with the smallest key that is `key` or above.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`](crate::Tree::get).
    pub fn get_ge(&self, key: K::Ref<'_>) -> Result<Option<ItemOf<K, V>>> {
        self.range(key..).next().transpose()
    }
}

/// An iterator over the items of a tree that have not expired. See [`ExpiringTree::range`].
pub struct ExpiringRange<'t, K: Key, V: Value> {
    entries: Range<'t, K, Expiring<V>>,
    now: u64,
}

impl<K: Key, V: Value> ExpiringRange<'_, K, V> {
    fn live(&self, entry: Result<(K::Owned, Expiring<V::Owned>)>) -> Option<Result<ItemOf<K, V>>> {
        entry.map(|(key, entry)| entry.live_at(self.now).map(|value| (key, value))).transpose()
    }
}

impl<K: Key, V: Value> Iterator for ExpiringRange<'_, K, V> {
    type Item = Result<ItemOf<K, V>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = self.entries.next()?;
            if let Some(item) = self.live(entry) {
                return Some(item);
            }
        }
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for ExpiringRange<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            let entry = self.entries.next_back()?;
            if let Some(item) = self.live(entry) {
                return Some(item);
            }
        }
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for ExpiringRange<'_, K, V> {}

impl<K: Key, V: Value> fmt::Debug for ExpiringRange<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringRange").finish_non_exhaustive()
    }
}

impl<'t, K: Key, V: Value> IntoIterator for &'t ExpiringTree<K, V> {
    type Item = Result<ItemOf<K, V>>;
    type IntoIter = ExpiringRange<'t, K, V>;

    fn into_iter(self) -> ExpiringRange<'t, K, V> {
        self.iter()
    }
}
