//! A tree of a snapshot, and its operations.

use std::fmt;
use std::ops::RangeBounds;

use bristlecone_pm::Result;

use super::snapshot::{Snapshot, SnapshotRange};
use crate::index::parts::codec::Codec;
use crate::{Key, Tree, Value};

/// A tree at the time of a [`Snapshot`].
///
/// Reads return [`Error::SnapshotTooOld`](crate::Error) for a [discarded](crate::Pool::snapshot_within) snapshot, and for
/// a tree that [was cleared](crate::Pool::clear_tree) since; [`Error::Corrupted`](crate::Error) as
/// [`Tree::get`](crate::Tree::get) does, also for an item that was damaged before it was changed;
/// [`Error::Forked`](crate::Error); and [`Error::Mismatch`](crate::Error) for a key or bound that is not of a dynamic
/// tree's kind.
pub struct SnapshotTree<'s, K: Key, V: Value> {
    snapshot: &'s Snapshot,
    tree: &'s Tree<K, V>,
}

impl<K: Key, V: Value> fmt::Debug for SnapshotTree<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotTree").finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Returns a tree at the time of the snapshot. A tree that was created later is empty. A tree that was
    /// [created with items](crate::TreeOptions::create_with) later cannot be shown: [`Error::SnapshotTooOld`](crate::Error).
    ///
    /// # Panics
    ///
    /// Panics if the tree is of another pool.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// let names = pool.tree::<u64, &str>("names")?;
    /// let view = pool.snapshot()?;
    /// ages.insert("Methuselah", 4857)?;
    /// names.insert(4857, "Methuselah")?;
    /// assert!(view.tree(&ages).is_empty()? && view.tree(&names).is_empty()?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn tree<'s, K: Key, V: Value>(&'s self, tree: &'s Tree<K, V>) -> SnapshotTree<'s, K, V> {
        assert!(self.pool.is_same(&tree.pool), "a snapshot of one pool was asked for a tree of another");
        SnapshotTree { snapshot: self, tree }
    }
}

impl<'s, K: Key, V: Value> SnapshotTree<'s, K, V> {
    /// Returns the value of a key in the snapshot.
    ///
    /// # Errors
    ///
    /// See [`SnapshotTree`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.remove("Methuselah")?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then = view.tree(&ages);
    /// assert_eq!((then.get("Methuselah")?, then.get("Prometheus")?), (Some(4857), None));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    #[inline]
    pub fn get(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        let Self { snapshot, tree } = self;
        snapshot.here()?;
        K::with(&tree.keys, key, |key| {
            // Read the tree first: a writer saves the old value before it changes the tree.
            let held = tree.undelayed().get_owned(key);
            if snapshot.is_unchanged(&tree.link, || K::Codec::hash(key)) {
                return held?.map(|held| tree.taken(held)).transpose();
            }
            let encode = || K::Codec::encode(K::Codec::owned(key));
            match snapshot.saved(&tree.link, K::Codec::hash(key), encode)? {
                Some(saved) => saved.map(|value| tree.decode_value(value)).transpose(),
                None => held?.map(|held| tree.taken(held)).transpose(),
            }
        })
    }

    /// Returns whether the snapshot contains a key.
    ///
    /// # Errors
    ///
    /// See [`SnapshotTree`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.remove("Methuselah")?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then = view.tree(&ages);
    /// assert!(then.contains_key("Methuselah")? && !then.contains_key("Prometheus")?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn contains_key(&self, key: K::Ref<'_>) -> Result<bool> {
        self.get(key).map(|value| value.is_some())
    }

    /// Iterates over the items whose keys lie within bounds, in order, from both ends. Reversed bounds yield an empty
    /// range.
    ///
    /// # Errors
    ///
    /// The iterator yields those of [`SnapshotTree`]. After an error it is finished.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.remove("Methuselah")?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then = view.tree(&ages);
    /// for item in then.range("A".."Z") {
    ///     assert_eq!(item?, ("Methuselah".to_owned(), 4857));
    /// }
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn range<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> SnapshotRange<'s, K, V> {
        SnapshotRange::new(self.snapshot, self.tree, bounds)
    }

    /// Iterates over all items in order, from both ends.
    ///
    /// # Errors
    ///
    /// The iterator yields those of [`SnapshotTree`]. After an error it is finished.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.remove("Methuselah")?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then = view.tree(&ages);
    /// assert_eq!(then.iter().count(), 1);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn iter(&self) -> SnapshotRange<'s, K, V> {
        self.range(..)
    }

    /// Returns the item with the smallest key.
    ///
    /// # Errors
    ///
    /// See [`SnapshotTree`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.remove("Methuselah")?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then = view.tree(&ages);
    /// assert_eq!(then.first_key_value()?, Some(("Methuselah".to_owned(), 4857)));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn first_key_value(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.iter().next().transpose()
    }

    /// Returns the item with the largest key.
    ///
    /// # Errors
    ///
    /// See [`SnapshotTree`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.remove("Methuselah")?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then = view.tree(&ages);
    /// assert_eq!(then.last_key_value()?, Some(("Methuselah".to_owned(), 4857)));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn last_key_value(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        self.iter().next_back().transpose()
    }

    /// Counts the items by reading all of them.
    ///
    /// # Errors
    ///
    /// See [`SnapshotTree`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.remove("Methuselah")?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then = view.tree(&ages);
    /// assert_eq!((then.len()?, ages.len()?), (1, 1));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn len(&self) -> Result<u64> {
        self.iter().try_fold(0, |count, item| item.map(|_| count + 1))
    }

    /// Returns whether the tree is empty in the snapshot.
    ///
    /// # Errors
    ///
    /// See [`SnapshotTree`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.remove("Methuselah")?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then = view.tree(&ages);
    /// assert!(!then.is_empty()?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.first_key_value()?.is_none())
    }
}
