//! A tree of a snapshot, and its operations.

use std::fmt;
use std::ops::RangeBounds;

use bristlecone_pm::{Error, Result};

use super::any_tree::AnyTree;
use super::handle::TreeHandle;
use super::snapshot::{CheckedSnapshotRange, Snapshot, SnapshotRange, known};

/// A tree at the time of a [`Snapshot`].
///
/// Operations that return no `Result` panic where the others return an error: in a child of the process that opened
/// the pool, for a [discarded](crate::Pool::snapshot_within) snapshot, for a tree that
/// [was cleared](crate::Pool::clear_tree) since, and for a key or bound that is not of a dynamic tree's kind. They
/// skip items that do not decode as the tree's types or were damaged before they were changed, as
/// [`Tree::get`](crate::Tree::get) and [`Tree::range`](crate::Tree::range) do.
pub struct SnapshotTree<'s, T: TreeHandle> {
    snapshot: &'s Snapshot,
    tree: &'s T,
    any: Box<dyn AnyTree>,
}

impl<T: TreeHandle> fmt::Debug for SnapshotTree<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotTree").finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Returns a tree at the time of the snapshot. A tree that was created later is empty. A tree that was
    /// [created with items](crate::TreeOptions::create_with) later cannot be shown: [`Error::SnapshotTooOld`].
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
    /// assert!(view.tree(&ages).is_empty() && view.tree(&names).is_empty());
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn tree<'s, T: TreeHandle>(&'s self, tree: &'s T) -> SnapshotTree<'s, T> {
        assert!(self.pool.is_same(tree.pool()), "a snapshot of one pool was asked for a tree of another");
        SnapshotTree { snapshot: self, tree, any: tree.any() }
    }
}

impl<'s, T: TreeHandle> SnapshotTree<'s, T> {
    /// Returns the value of a key in the snapshot.
    ///
    /// # Panics
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
    /// assert_eq!((then.get("Methuselah"), then.get("Prometheus")), (Some(4857), None));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn get(&self, key: T::Key<'_>) -> Option<T::OwnedValue> {
        match self.look_up(key, false) {
            Err(Error::Corrupted { .. }) => None,
            held => known(held),
        }
    }

    /// Returns the value of a key in the snapshot, and verifies the checksums of both records.
    ///
    /// # Errors
    ///
    /// [`Error::SnapshotTooOld`]; [`Error::Corrupted`] for a damaged record or a value that does not decode as its
    /// type; [`Error::Forked`]; for a dynamic tree [`Error::Mismatch`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.remove("Methuselah")?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then = view.tree(&ages);
    /// assert_eq!(then.try_get("Methuselah")?, Some(4857));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn try_get(&self, key: T::Key<'_>) -> Result<Option<T::OwnedValue>> {
        self.look_up(key, true)
    }

    #[inline]
    fn look_up(&self, key: T::Key<'_>, checked: bool) -> Result<Option<T::OwnedValue>> {
        self.snapshot.pool.0.file.here()?;
        let link = self.tree.link();
        self.tree.get_at(&*self.any, &key, checked, |hash, key| self.snapshot.saved(&link, hash, key))
    }

    /// Returns whether the snapshot contains a key.
    ///
    /// # Panics
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
    /// assert!(then.contains_key("Methuselah") && !then.contains_key("Prometheus"));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn contains_key(&self, key: T::Key<'_>) -> bool {
        let key = known(self.tree.encode_bound(&key));
        known(self.snapshot.contains_key(&*self.any, &self.tree.link(), &key))
    }

    /// Iterates over the items whose keys lie within bounds, in order, from both ends. Reversed bounds yield an empty
    /// range.
    ///
    /// # Panics
    ///
    /// See [`SnapshotTree`]; so does the iterator.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.remove("Methuselah")?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then = view.tree(&ages);
    /// let names: Vec<_> = then.range("A".."Z").map(|(name, _)| name).collect();
    /// assert_eq!(names, ["Methuselah"]);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn range<'a>(&self, bounds: impl RangeBounds<T::Key<'a>>) -> SnapshotRange<'s, T> {
        known(SnapshotRange::new(self.snapshot, self.tree, bounds, false))
    }

    /// Iterates over items as [`range`](Self::range) does, and verifies the checksums of key and value records. After
    /// an error the iterator ends.
    ///
    /// # Errors
    ///
    /// Same as [`try_get`](Self::try_get), also for the items.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.remove("Methuselah")?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then = view.tree(&ages);
    /// for item in then.try_range("A"..)? {
    ///     assert_eq!(item?, ("Methuselah".to_owned(), 4857));
    /// }
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn try_range<'a>(&self, bounds: impl RangeBounds<T::Key<'a>>) -> Result<CheckedSnapshotRange<'s, T>> {
        CheckedSnapshotRange::new(self.snapshot, self.tree, bounds)
    }

    /// Iterates over all items in order, from both ends.
    ///
    /// # Panics
    ///
    /// See [`SnapshotTree`]; so does the iterator.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.remove("Methuselah")?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then = view.tree(&ages);
    /// assert_eq!(then.iter().map(|(_, age)| age).sum::<u64>(), 4857);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn iter(&self) -> SnapshotRange<'s, T> {
        self.range(..)
    }

    /// Returns the item with the smallest key.
    ///
    /// # Panics
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
    /// assert_eq!(then.first_key_value(), Some(("Methuselah".to_owned(), 4857)));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn first_key_value(&self) -> Option<(T::OwnedKey, T::OwnedValue)> {
        self.iter().next()
    }

    /// Returns the item with the largest key.
    ///
    /// # Panics
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
    /// assert_eq!(then.last_key_value(), Some(("Methuselah".to_owned(), 4857)));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn last_key_value(&self) -> Option<(T::OwnedKey, T::OwnedValue)> {
        self.iter().next_back()
    }

    /// Counts the items by reading all of them.
    ///
    /// # Panics
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
    /// assert_eq!((then.len(), ages.len()), (1, 1));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn len(&self) -> u64 {
        self.iter().count() as u64
    }

    /// Returns whether the tree is empty in the snapshot.
    ///
    /// # Panics
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
    /// assert!(!then.is_empty());
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}
