//! Ordered iteration over the items of a tree.

use std::ops::{Bound, RangeBounds};

use bristlecone_pm::Result;

use crate::api::iter::Range;
use crate::{Key, Tree, Value};

impl<K: Key, V: Value> Tree<K, V> {
    /// Iterates over the items whose keys lie within bounds, in order, from both ends. Reversed bounds yield an
    /// empty range.
    ///
    /// The iterator reads one leaf at a time and holds no lock in between, so threads may write during
    /// iteration: see [`Tree`] for the guarantees.
    ///
    /// # Errors
    ///
    /// The iterator yields the errors of [`get`](Self::get). After an error it is finished.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// let sum: u64 = ages.range("N"..).map(|item| item.map(|(_, age)| age)).sum::<bristlecone::Result<_>>()?;
    /// assert_eq!(sum, 4900);
    /// let (name, age) = ages.range(.."N").next_back().transpose()?.unwrap();
    /// assert_eq!((&*name, age), ("Methuselah", 4857));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn range<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> Range<'_, K, V> {
        match self.limits(&bounds) {
            Ok((from, to)) => Range::new(self, from, to),
            Err(error) => Range::refused(self, error),
        }
    }

    /// Iterates over all items in order, from both ends: see [`range`](Self::range).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// for item in &ages {
    ///     let (name, age) = item?;
    ///     println!("{name}: {age}");
    /// }
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn iter(&self) -> Range<'_, K, V> {
        Range::new(self, Bound::Unbounded, Bound::Unbounded)
    }

    /// Returns the item with the smallest key.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// assert_eq!(ages.first_key_value()?, Some(("Methuselah".to_owned(), 4857)));
    /// assert_eq!(ages.last_key_value()?, Some(("Prometheus".to_owned(), 4900)));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn first_key_value(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.iter().next().transpose()
    }

    /// Returns the item with the largest key.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    pub fn last_key_value(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.iter().next_back().transpose()
    }

    /// Iterates over everything within bounds that is readable of a damaged tree, in order. It verifies no checksums,
    /// skips items that cannot be read or do not decode as the tree's types, and continues behind damage where the design
    /// can. Of a tree that recovery refused it returns all salvaged items: see [`damage`](Self::damage).
    ///
    /// [`PoolOptions::salvage`](crate::PoolOptions::salvage) copies what is readable to a new pool.
    pub fn readable<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> Range<'_, K, V> {
        self.range(bounds).lenient()
    }
}

impl<'t, K: Key, V: Value> IntoIterator for &'t Tree<K, V> {
    type Item = Result<(K::Owned, V::Owned)>;
    type IntoIter = Range<'t, K, V>;

    fn into_iter(self) -> Range<'t, K, V> {
        self.iter()
    }
}
