//! Items near a key, counts, and iterators over keys or values.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use bristlecone_pm::Result;

use crate::api::ends::ItemOf;
use crate::api::iter::Range;
use crate::{Key, Tree, Value};

impl<K: Key, V: Value> Tree<K, V> {
    /// Returns the item with the largest key below `key`.
    ///
    /// The lookup reads one leaf at one point in time, or several leaves if those next to the key have no such item.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let prices = pool.tree::<u32, u64>("prices by day")?;
    /// prices.insert(10, 250)?;
    /// prices.insert(20, 270)?;
    /// assert_eq!(prices.get_le(19)?, Some((10, 250))); // the price of day 19
    /// assert_eq!(prices.get_le(20)?, Some((20, 270)));
    /// assert_eq!(prices.get_lt(20)?, Some((10, 250)));
    /// assert_eq!(prices.get_ge(11)?, Some((20, 270)));
    /// assert_eq!(prices.get_gt(20)?, None);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn get_lt(&self, key: K::Ref<'_>) -> Result<Option<ItemOf<K, V>>> {
        self.range(..key).next_back().transpose()
    }

    /// Returns the item with the largest key that is `key` or below: otherwise the same as [`get_lt`](Self::get_lt).
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    pub fn get_le(&self, key: K::Ref<'_>) -> Result<Option<ItemOf<K, V>>> {
        self.range(..=key).next_back().transpose()
    }

    /// Returns the item with the smallest key above `key`: otherwise the same as [`get_lt`](Self::get_lt).
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    pub fn get_gt(&self, key: K::Ref<'_>) -> Result<Option<ItemOf<K, V>>> {
        self.range((Bound::Excluded(key), Bound::Unbounded)).next().transpose()
    }

    /// Returns the item with the smallest key that is `key` or above: otherwise the same as
    /// [`get_lt`](Self::get_lt).
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    pub fn get_ge(&self, key: K::Ref<'_>) -> Result<Option<ItemOf<K, V>>> {
        self.range(key..).next().transpose()
    }

    /// Returns the number of items whose keys lie within bounds. It reads each item; use [`len`](Self::len) for the
    /// total.
    ///
    /// Like [`range`](Self::range), it sees each leaf at a different point in time: the count is exact while no
    /// thread writes. It includes items that do not decode as the tree's types.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let primes = pool.tree::<u64, ()>("primes")?;
    /// [2, 3, 5, 7, 11].into_iter().try_for_each(|prime| primes.upsert(prime, ()))?;
    /// assert_eq!(primes.count(3..10)?, 3);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn count<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> Result<u64> {
        self.walk(self.limits(&bounds)?).count()
    }

    /// Iterates over all keys in order, from both ends: see [`range`](Self::range).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// assert_eq!(ages.keys().collect::<bristlecone::Result<Vec<_>>>()?, ["Methuselah", "Prometheus"]);
    /// assert_eq!(ages.values().sum::<bristlecone::Result<u64>>()?, 9757);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn keys(&self) -> Keys<'_, K, V> {
        Keys(self.iter())
    }

    /// Iterates over all values in the order of their keys, from both ends: see [`range`](Self::range).
    pub fn values(&self) -> Values<'_, K, V> {
        Values(self.iter())
    }
}

macro_rules! half {
    ($(#[$doc:meta])* $name:ident, $item:ty, $($place:tt)+) => {
        $(#[$doc])*
        pub struct $name<'t, K: Key, V: Value>(Range<'t, K, V>);

        impl<K: Key, V: Value> Iterator for $name<'_, K, V> {
            type Item = Result<$item>;

            fn next(&mut self) -> Option<Result<$item>> {
                self.0.next().map(|item| item.map(|item| item.$($place)+))
            }
        }

        impl<K: Key, V: Value> DoubleEndedIterator for $name<'_, K, V> {
            fn next_back(&mut self) -> Option<Result<$item>> {
                self.0.next_back().map(|item| item.map(|item| item.$($place)+))
            }
        }

        impl<K: Key, V: Value> std::iter::FusedIterator for $name<'_, K, V> {}

        impl<K: Key, V: Value> fmt::Debug for $name<'_, K, V> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

half!(
    /// An iterator over the keys of a tree. See [`Tree::keys`].
    Keys, K::Owned, 0
);
half!(
    /// An iterator over the values of a tree. See [`Tree::values`].
    Values, V::Owned, 1
);
