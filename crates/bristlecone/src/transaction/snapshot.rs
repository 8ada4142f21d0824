//! Snapshots: all trees as of one moment.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bristlecone_pm::{Error, Result};

use super::any_tree::{AnyTree, Scan, hash};
use super::epoch::{Epoch, Held};
use super::epochs::Hold;
use super::handle::{ItemOf, Link, TreeHandle};
use super::merge::{Merge, Overlay};
use crate::Pool;
use crate::index::parts::encoded::Encoded;

/// All trees of a pool as they were at one moment: see [`Pool::snapshot`].
///
/// What is changed afterwards is kept in DRAM as long as a snapshot may need it: [`bytes`](Self::bytes) says how much. A
/// snapshot ends with its process; it costs the pool nothing, and nothing of it is there after a crash. While there is
/// one, the pool is not closed.
pub struct Snapshot {
    pool: Pool,
    hold: Arc<Hold>,
    /// The epoch, unless its hold has a bound and may end.
    epoch: Option<Arc<Epoch>>,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.epoch = None;
        // In a child nothing is touched.
        if self.pool.0.is_here() {
            self.pool.0.epochs.release(&self.hold);
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl Pool {
    /// Takes a snapshot: all trees as they are now, whatever is written afterwards. Waits for the writes
    /// that are under way, and for nothing else; later writes keep what the snapshot needs before they change it.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-snapshot-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.insert("Methuselah", 4858)?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then: Vec<_> = view.tree(&ages).range("A"..).collect();
    /// assert_eq!(then, [("Methuselah".to_owned(), 4857)]);
    /// assert_eq!(view.tree(&ages).get("Prometheus"), None);
    /// assert_eq!(ages.get("Methuselah"), Some(4858));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.snapshot_within(usize::MAX)
    }

    /// Takes a snapshot for which at most about so many bytes are kept. Once more would be needed it is given up, and
    /// reading it gives [`Error::SnapshotTooOld`]; writers go on.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    ///
    /// ```
    /// # use bristlecone::{Error, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-within-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let squares = pool.tree::<u64, u64>("squares")?;
    /// let view = pool.snapshot_within(10_000)?;
    /// assert_eq!(view.tree(&squares).try_get(3)?, None);
    /// for n in 0..1000 {
    ///     squares.insert(n, n * n)?;
    /// }
    /// assert!(matches!(view.tree(&squares).try_get(3), Err(Error::SnapshotTooOld)));
    /// assert_eq!(view.bytes(), 0);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot_within(&self, max_bytes: usize) -> Result<Snapshot> {
        Snapshot::take(self, max_bytes, true)
    }
}

impl Snapshot {
    /// Takes one that may keep so many bytes, and `is_long` or a transaction's.
    pub(super) fn take(pool: &Pool, max_bytes: usize, is_long: bool) -> Result<Self> {
        Self::verify_taken(pool)?;
        let hold = pool.0.epochs.hold(max_bytes, is_long);
        let epoch = if max_bytes == usize::MAX { hold.epoch() } else { None };
        Ok(Self { pool: pool.clone(), hold, epoch })
    }

    /// Verifies that snapshots can be taken here.
    pub(super) fn verify_taken(pool: &Pool) -> Result<()> {
        pool.0.file.here()?;
        if pool.0.file.is_followed() {
            // What others write meanwhile would not be saved for it.
            return Err(Error::invalid(
                "a pool that is followed has no snapshots, and no transactions or copies",
            ));
        }
        Ok(())
    }

    /// Returns a tree as it was. One that was created since has no items; one that was
    /// [created with items](crate::TreeOptions::create_with) since cannot be shown: [`Error::SnapshotTooOld`].
    ///
    /// # Panics
    ///
    /// If the tree is of another pool.
    pub fn tree<'s, T: TreeHandle>(&'s self, tree: &'s T) -> SnapshotTree<'s, T> {
        assert!(self.pool.is_same(tree.pool()), "a snapshot of one pool was asked for a tree of another");
        SnapshotTree { snapshot: self, tree, any: tree.any() }
    }

    /// Returns how many bytes of DRAM are kept for it, about; other snapshots share them. 0 if it was given up. A filter of
    /// 64 KiB, which tells of keys that were not changed, comes on top.
    pub fn bytes(&self) -> usize {
        self.hold.epoch().map_or(0, |epoch| epoch.bytes())
    }

    /// Calls `look` with the epoch, if the snapshot can show this tree.
    #[inline]
    pub(super) fn with_epoch<R>(&self, link: &Link, look: impl FnOnce(&Arc<Epoch>) -> R) -> Result<R> {
        self.pool.0.file.here()?;
        let shown = |epoch: &&Arc<Epoch>| epoch.number > link.cleared;
        match &self.epoch {
            Some(epoch) => Some(epoch).filter(shown).map(look),
            None => self.hold.epoch().as_ref().filter(shown).map(look),
        }
        .ok_or(Error::SnapshotTooOld)
    }

    /// Returns what a key of a tree had.
    pub(super) fn get(&self, tree: &dyn AnyTree, link: &Link, key: &Encoded) -> Result<Option<Encoded>> {
        self.pool.0.file.here()?;
        // The tree first: a writer saves what was there before it changes it.
        let held = tree.get(key);
        self.saved(link, hash(key), || key.clone())?.map_or(held, Ok)
    }

    /// Returns whether a key of a tree was there.
    fn contains_key(&self, tree: &dyn AnyTree, link: &Link, key: &Encoded) -> Result<bool> {
        self.pool.0.file.here()?;
        let held = tree.contains_key(key)?;
        let saved =
            self.with_epoch(link, |epoch| epoch.value_of(link.identity, hash(key), || key.clone()))?;
        // A damaged value is one.
        Ok(saved.map_or(held, |saved| !matches!(saved, Ok(None))))
    }

    /// Returns what a key, with its hash, had, if it was changed since. The tree was read before.
    #[inline]
    pub(super) fn saved(
        &self,
        link: &Link,
        hash: u64,
        key: impl Fn() -> Encoded,
    ) -> Result<Option<Option<Encoded>>> {
        let held = self.with_epoch(link, |epoch| epoch.value_of(link.identity, hash, key))?;
        Ok(held.transpose()?)
    }
}

/// A tree as it was when a [`Snapshot`] was taken.
///
/// Operations that return no `Result` panic where the others return an error: in a child of the process that opened the pool,
/// for a snapshot that was [given up](Pool::snapshot_within), for a tree that [was cleared](Pool::clear_tree) since, and for a
/// key or bound that is not of a dynamic tree's kind. What cannot be of the tree's types, or was damaged before it was changed, they leave out, as
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

/// Returns what there is, and panics where it cannot be known.
#[track_caller]
fn known<R>(result: Result<R>) -> R {
    match result {
        Ok(known) => known,
        Err(error) => panic!("{error}"),
    }
}

impl<'s, T: TreeHandle> SnapshotTree<'s, T> {
    /// Returns the value that a key had.
    ///
    /// # Panics
    ///
    /// See [`SnapshotTree`].
    pub fn get(&self, key: T::Key<'_>) -> Option<T::OwnedValue> {
        match self.look_up(key, false) {
            Err(Error::Corrupted { .. }) => None,
            held => known(held),
        }
    }

    /// Returns the value that a key had, with the records of both compared with their checksums.
    ///
    /// # Errors
    ///
    /// [`Error::SnapshotTooOld`]; [`Error::Corrupted`] for a record that is damaged and a value that cannot be of its type;
    /// [`Error::Forked`]; for a dynamic tree [`Error::Mismatch`].
    pub fn try_get(&self, key: T::Key<'_>) -> Result<Option<T::OwnedValue>> {
        self.look_up(key, true)
    }

    #[inline]
    fn look_up(&self, key: T::Key<'_>, checked: bool) -> Result<Option<T::OwnedValue>> {
        self.snapshot.pool.0.file.here()?;
        let link = self.tree.link();
        self.tree.get_at(&*self.any, &key, checked, |hash, key| self.snapshot.saved(&link, hash, key))
    }

    /// Returns whether a key was there.
    ///
    /// # Panics
    ///
    /// See [`SnapshotTree`].
    pub fn contains_key(&self, key: T::Key<'_>) -> bool {
        let key = known(self.tree.encode_bound(&key));
        known(self.snapshot.contains_key(&*self.any, &self.tree.link(), &key))
    }

    /// Iterates over the items whose keys lie within bounds, in order, from both ends. Bounds the wrong way round hold
    /// nothing.
    ///
    /// # Panics
    ///
    /// See [`SnapshotTree`]; so does the iterator.
    pub fn range<'a>(&self, bounds: impl RangeBounds<T::Key<'a>>) -> SnapshotRange<'s, T> {
        known(self.begin(bounds, false))
    }

    /// Iterates over items as [`range`](Self::range) does, with the records of keys and values compared with their
    /// checksums. After an error nothing more comes.
    ///
    /// # Errors
    ///
    /// As [`try_get`](Self::try_get), and so are the items.
    pub fn try_range<'a>(&self, bounds: impl RangeBounds<T::Key<'a>>) -> Result<CheckedSnapshotRange<'s, T>> {
        Ok(CheckedSnapshotRange { range: self.begin(bounds, true)?, is_over: false })
    }

    /// Iterates over all items in order, from both ends.
    ///
    /// # Panics
    ///
    /// See [`SnapshotTree`]; so does the iterator.
    pub fn iter(&self) -> SnapshotRange<'s, T> {
        self.range(..)
    }

    /// Returns the item with the smallest key.
    ///
    /// # Panics
    ///
    /// See [`SnapshotTree`].
    pub fn first_key_value(&self) -> Option<(T::OwnedKey, T::OwnedValue)> {
        self.iter().next()
    }

    /// Returns the item with the largest key.
    ///
    /// # Panics
    ///
    /// See [`SnapshotTree`].
    pub fn last_key_value(&self) -> Option<(T::OwnedKey, T::OwnedValue)> {
        self.iter().next_back()
    }

    /// Counts the items: this reads all of them.
    ///
    /// # Panics
    ///
    /// See [`SnapshotTree`].
    pub fn len(&self) -> u64 {
        self.iter().count() as u64
    }

    /// Returns whether there were no items.
    ///
    /// # Panics
    ///
    /// See [`SnapshotTree`].
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    fn begin<'a>(&self, bounds: impl RangeBounds<T::Key<'a>>, checked: bool) -> Result<SnapshotRange<'s, T>> {
        self.snapshot.with_epoch(&self.tree.link(), |_| ())?;
        let bound = |bound: Bound<&T::Key<'_>>| -> Result<Bound<ScanKey<T>>> {
            Ok(match encode_bound(self.tree, bound)? {
                Bound::Included(key) => Bound::Included(T::Scan::decode_key(key)?),
                Bound::Excluded(key) => Bound::Excluded(T::Scan::decode_key(key)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        let (from, to) = (bound(bounds.start_bound())?, bound(bounds.end_bound())?);
        let merge = Merge::new(self.tree.scan(checked), from, to);
        Ok(SnapshotRange { snapshot: self.snapshot, tree: self.tree, merge, checked, types: PhantomData })
    }
}

/// Returns a bound as trees store it.
pub(super) fn encode_bound<T: TreeHandle>(tree: &T, bound: Bound<&T::Key<'_>>) -> Result<Bound<Encoded>> {
    Ok(match bound {
        Bound::Included(key) => Bound::Included(tree.encode_bound(key)?),
        Bound::Excluded(key) => Bound::Excluded(tree.encode_bound(key)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

/// An iterator over the items that a tree had. See [`SnapshotTree::range`].
pub struct SnapshotRange<'s, T: TreeHandle> {
    snapshot: &'s Snapshot,
    tree: &'s T,
    merge: Merge<T::Scan>,
    checked: bool,
    types: PhantomData<fn() -> T>,
}

type ScanKey<T> = <<T as TreeHandle>::Scan as Scan>::Key;

impl<T: TreeHandle> fmt::Debug for SnapshotRange<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotRange").finish_non_exhaustive()
    }
}

impl<T: TreeHandle> SnapshotRange<'_, T> {
    #[inline]
    fn step(&mut self, forward: bool) -> Result<Option<ItemOf<T>>> {
        let (snapshot, tree, checked) = (self.snapshot, self.tree, self.checked);
        snapshot.pool.0.file.here()?;
        self.merge.next(forward, |bounds| overlay(snapshot, tree, bounds, checked))
    }

    fn shown(&mut self, forward: bool) -> Option<(T::OwnedKey, T::OwnedValue)> {
        loop {
            let item = known(self.step(forward))?;
            if let Ok(item) = self.tree.decode_item(item) {
                return Some(item);
            }
        }
    }
}

/// Returns what a snapshot shows in place of a tree's items within bounds, which were read before. What was damaged is left out
/// if records are not compared with their checksums.
fn overlay<T: TreeHandle>(
    snapshot: &Snapshot,
    tree: &T,
    (from, to): (Bound<&ScanKey<T>>, Bound<&ScanKey<T>>),
    checked: bool,
) -> Result<Overlay<T::Scan>> {
    let link = tree.link();
    let (from, to) = (from.map(T::Scan::encode), to.map(T::Scan::encode));
    let saved = snapshot
        .with_epoch(&link, |epoch| epoch.values_within(link.identity, (from.as_ref(), to.as_ref())))?;
    let decode = |(key, held): (Encoded, Held)| {
        let value = if checked { held? } else { held.unwrap_or(None) };
        Ok((T::Scan::decode_key(key)?, value.map(T::Scan::decode_value).transpose()?))
    };
    saved.into_iter().map(decode).collect()
}

impl<T: TreeHandle> Iterator for SnapshotRange<'_, T> {
    type Item = (T::OwnedKey, T::OwnedValue);

    fn next(&mut self) -> Option<Self::Item> {
        self.shown(true)
    }
}

impl<T: TreeHandle> DoubleEndedIterator for SnapshotRange<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.shown(false)
    }
}

impl<T: TreeHandle> std::iter::FusedIterator for SnapshotRange<'_, T> {}

/// An iterator over the items that a tree had, or what is wrong with them. See [`SnapshotTree::try_range`].
pub struct CheckedSnapshotRange<'s, T: TreeHandle> {
    range: SnapshotRange<'s, T>,
    is_over: bool,
}

impl<T: TreeHandle> fmt::Debug for CheckedSnapshotRange<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedSnapshotRange").finish_non_exhaustive()
    }
}

impl<T: TreeHandle> CheckedSnapshotRange<'_, T> {
    fn step(&mut self, forward: bool) -> Option<Result<(T::OwnedKey, T::OwnedValue)>> {
        if self.is_over {
            return None;
        }
        let item = self.range.step(forward).transpose()?.and_then(|item| self.range.tree.decode_item(item));
        self.is_over = item.is_err();
        Some(item)
    }
}

impl<T: TreeHandle> Iterator for CheckedSnapshotRange<'_, T> {
    type Item = Result<(T::OwnedKey, T::OwnedValue)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl<T: TreeHandle> DoubleEndedIterator for CheckedSnapshotRange<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}
