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
    pub(super) pool: Pool,
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

    /// Returns how many bytes of DRAM are kept for it, about; other snapshots share them. 0 if it was given up. A filter of
    /// 64 KiB, which tells of keys that were not changed, comes on top.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-snap-bytes-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// let before = view.bytes();
    /// ages.insert("Methuselah", 4858)?; // what it was is kept for the snapshot
    /// assert!(view.bytes() > before);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
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
    pub(super) fn contains_key(&self, tree: &dyn AnyTree, link: &Link, key: &Encoded) -> Result<bool> {
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

/// Returns what there is, and panics where it cannot be known.
#[track_caller]
pub(super) fn known<R>(result: Result<R>) -> R {
    match result {
        Ok(known) => known,
        Err(error) => panic!("{error}"),
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

/// An iterator over the items that a tree had. See [`SnapshotTree::range`](crate::SnapshotTree::range).
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

impl<'s, T: TreeHandle> SnapshotRange<'s, T> {
    /// Begins one, if the snapshot can show the tree.
    pub(super) fn new<'a>(
        snapshot: &'s Snapshot,
        tree: &'s T,
        bounds: impl RangeBounds<T::Key<'a>>,
        checked: bool,
    ) -> Result<Self> {
        snapshot.with_epoch(&tree.link(), |_| ())?;
        let bound = |bound: Bound<&T::Key<'_>>| -> Result<Bound<ScanKey<T>>> {
            Ok(match encode_bound(tree, bound)? {
                Bound::Included(key) => Bound::Included(T::Scan::decode_key(key)?),
                Bound::Excluded(key) => Bound::Excluded(T::Scan::decode_key(key)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        let (from, to) = (bound(bounds.start_bound())?, bound(bounds.end_bound())?);
        let merge = Merge::new(tree.scan(checked), from, to);
        Ok(Self { snapshot, tree, merge, checked, types: PhantomData })
    }

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

/// An iterator over the items that a tree had, or what is wrong with them. See
/// [`SnapshotTree::try_range`](crate::SnapshotTree::try_range).
pub struct CheckedSnapshotRange<'s, T: TreeHandle> {
    range: SnapshotRange<'s, T>,
    is_over: bool,
}

impl<T: TreeHandle> fmt::Debug for CheckedSnapshotRange<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedSnapshotRange").finish_non_exhaustive()
    }
}

impl<'s, T: TreeHandle> CheckedSnapshotRange<'s, T> {
    /// Begins one, if the snapshot can show the tree.
    pub(super) fn new<'a>(
        snapshot: &'s Snapshot,
        tree: &'s T,
        bounds: impl RangeBounds<T::Key<'a>>,
    ) -> Result<Self> {
        Ok(Self { range: SnapshotRange::new(snapshot, tree, bounds, true)?, is_over: false })
    }

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
