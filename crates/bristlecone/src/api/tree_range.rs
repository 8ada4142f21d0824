//! Ordered iteration over the items of a tree.

use std::ops::{Bound, RangeBounds};

use crate::api::iter::{CheckedRange, Range};
use crate::api::walk::limits;
use crate::{Key, Tree, Value};

impl<K: Key, V: Value> Tree<K, V> {
    /// Iterates over the items whose keys lie within bounds, in order, from both ends. Reversed bounds yield an
    /// empty range. Items that do not decode as the tree's types are skipped: [`try_range`](Self::try_range)
    /// reports them.
    ///
    /// The iterator reads one leaf at a time and holds no lock in between, so threads may write during
    /// iteration: see [`Tree`] for the guarantees. It panics in a child of the process that opened the pool.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// let names: Vec<_> = ages.range("N"..).map(|(name, _)| name).collect();
    /// assert_eq!(names, ["Prometheus"]);
    /// let (name, age) = ages.range(.."Q").next_back().unwrap();
    /// assert_eq!((&*name, age), ("Prometheus", 4900));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn range<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> Range<'_, K, V> {
        let (from, to) = limits::<K>(&bounds);
        Range::new(self, from, to)
    }

    /// Iterates over all items in order, from both ends: see [`range`](Self::range).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// for (name, age) in &ages {
    ///     println!("{name}: {age}");
    /// }
    /// assert_eq!(ages.iter().rev().next().unwrap().1, 4900);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn iter(&self) -> Range<'_, K, V> {
        Range::new(self, Bound::Unbounded, Bound::Unbounded)
    }

    /// Returns the item with the smallest key.
    ///
    /// # Panics
    ///
    /// Panics in a child of the process that opened the pool.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// assert_eq!(ages.first_key_value(), Some(("Methuselah".to_owned(), 4857)));
    /// assert_eq!(ages.last_key_value(), Some(("Prometheus".to_owned(), 4900)));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn first_key_value(&self) -> Option<(K::Owned, V::Owned)> {
        self.iter().next()
    }

    /// Returns the item with the largest key.
    ///
    /// # Panics
    ///
    /// Panics in a child of the process that opened the pool.
    pub fn last_key_value(&self) -> Option<(K::Owned, V::Owned)> {
        self.iter().next_back()
    }

    /// Iterates over items as [`range`](Self::range) does, and verifies the checksums of key and value records.
    /// After an error this end yields nothing more.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// let sum: u64 = ages.try_range(..).map(|item| item.map(|(_, age)| age)).sum::<bristlecone::Result<_>>()?;
    /// assert_eq!(sum, 9757);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn try_range<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> CheckedRange<'_, K, V> {
        self.range(bounds).checked()
    }
}

impl<'t, K: Key, V: Value> IntoIterator for &'t Tree<K, V> {
    type Item = (K::Owned, V::Owned);
    type IntoIter = Range<'t, K, V>;

    fn into_iter(self) -> Range<'t, K, V> {
        self.iter()
    }
}
