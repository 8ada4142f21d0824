//! Snapshots: all trees at one point in time.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bristlecone_pm::{Error, Result};

use super::any_tree::{AnyTree, TypedScan, hash};
use super::epoch::{Epoch, Held};
use super::epochs::Hold;
use super::link::Link;
use super::merge::{Bounds, Merge, Overlay};
use crate::api::tree_write::Stored;
use crate::index::of_any::unlike;
use crate::index::parts::codec::Codec;
use crate::index::parts::encoded::Encoded;
use crate::{Key, Pool, Tree, Value};

/// All trees of a pool at one point in time: see [`Pool::snapshot`].
///
/// Old values of later changes are kept in DRAM while a snapshot may need them: [`bytes`](Self::bytes) returns their
/// size. A snapshot exists only in its process: it takes no space in the pool and does not survive a crash. While it
/// exists, the pool cannot be closed.
pub struct Snapshot {
    pub(super) pool: Pool,
    hold: Arc<Hold>,
    /// The epoch, unless the snapshot has a size bound and may be dropped early.
    epoch: Option<Arc<Epoch>>,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.epoch = None;
        // A forked child touches nothing.
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
    /// Takes a snapshot of all trees. Later writes do not affect it. The call waits only for writes in progress; later
    /// writes save the old values that the snapshot needs.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// ages.insert("Methuselah", 4858)?;
    /// ages.insert("Prometheus", 4900)?;
    /// let then = view.tree(&ages).range("A"..).collect::<bristlecone::Result<Vec<_>>>()?;
    /// assert_eq!(then, [("Methuselah".to_owned(), 4857)]);
    /// assert_eq!(view.tree(&ages).get("Prometheus")?, None);
    /// assert_eq!(ages.get("Methuselah")?, Some(4858));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.snapshot_within(usize::MAX)
    }

    /// Takes a snapshot that keeps at most about `max_bytes` bytes of old values. When more would be needed, the
    /// snapshot is discarded, and reads from it return [`Error::SnapshotTooOld`]; writers are not blocked.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    ///
    /// ```
    /// # use bristlecone::{Error, Pool};
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let squares = pool.tree::<u64, u64>("squares")?;
    /// let view = pool.snapshot_within(10_000)?;
    /// assert_eq!(view.tree(&squares).get(3)?, None);
    /// for n in 0..1000 {
    ///     squares.insert(n, n * n)?;
    /// }
    /// assert!(matches!(view.tree(&squares).get(3), Err(Error::SnapshotTooOld)));
    /// assert_eq!(view.bytes(), 0);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn snapshot_within(&self, max_bytes: usize) -> Result<Snapshot> {
        let taken = Snapshot::take(self, max_bytes, true)?;
        self.settle_reads().map(|()| taken)
    }
}

impl Snapshot {
    /// Takes a snapshot with a size bound, either long-lived (`is_long`) or for a transaction.
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
            // Writes of other processes would not be saved for the snapshot.
            return Err(Error::invalid("a followed pool does not support snapshots, transactions or copies"));
        }
        Ok(())
    }

    /// Returns the approximate number of bytes of DRAM kept for the snapshot, shared with other snapshots; 0 if it was
    /// discarded. A filter of 64 KiB, which identifies unchanged keys, is not included.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let view = pool.snapshot()?;
    /// let before = view.bytes();
    /// ages.insert("Methuselah", 4858)?; // the old value is kept for the snapshot
    /// assert!(view.bytes() > before);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn bytes(&self) -> usize {
        self.hold.epoch().map_or(0, |epoch| epoch.bytes())
    }

    /// Calls `look` with the epoch if the snapshot can show this tree.
    #[inline]
    pub(super) fn with_epoch<R>(&self, link: &Link, look: impl FnOnce(&Arc<Epoch>) -> R) -> Result<R> {
        self.here()?;
        let shown = |epoch: &&Arc<Epoch>| epoch.number > link.cleared;
        match &self.epoch {
            Some(epoch) => Some(epoch).filter(shown).map(look),
            None => self.hold.epoch().as_ref().filter(shown).map(look),
        }
        .ok_or(Error::SnapshotTooOld)
    }
}

impl Snapshot {
    /// Fails in a child of the process that opened the pool.
    #[inline(always)]
    pub(super) fn here(&self) -> Result<()> {
        if self.pool.0.is_here() { Ok(()) } else { self.pool.0.file.here() }
    }

    /// Returns the value of a key of a tree.
    pub(super) fn get(&self, tree: &AnyTree, link: &Link, key: &Encoded) -> Result<Option<Encoded>> {
        self.here()?;
        // Read the tree first: a writer saves the old value before it changes the tree.
        let held = tree.get(key);
        if self.is_unchanged(link, || hash(key)) {
            return held;
        }
        self.saved(link, hash(key), || key.clone())?.map_or(held, Ok)
    }

    /// Returns whether the key with this hash is known to be unchanged.
    #[inline(always)]
    pub(super) fn is_unchanged(&self, link: &Link, hash: impl FnOnce() -> u64) -> bool {
        let is = |epoch: &Arc<Epoch>| epoch.number > link.cleared && epoch.is_unchanged(link.identity, hash);
        self.epoch.as_ref().is_some_and(is)
    }

    /// Returns the saved value of a key with this hash, if it has changed since.
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

/// Returns a bound in stored form.
pub(super) fn encode_bound<K: Key, V: Value>(
    tree: &Tree<K, V>,
    bound: Bound<&K::Ref<'_>>,
) -> Result<Bound<Encoded>> {
    Ok(match bound {
        Bound::Included(key) => Bound::Included(tree.encode_bound(*key)?),
        Bound::Excluded(key) => Bound::Excluded(tree.encode_bound(*key)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

/// An iterator over the items of a tree in a snapshot. After an error it is finished. See
/// [`SnapshotTree::range`](crate::SnapshotTree::range).
pub struct SnapshotRange<'s, K: Key, V: Value> {
    snapshot: &'s Snapshot,
    tree: &'s Tree<K, V>,
    /// `None` after an error.
    merge: Option<Merge<TypedScan<K::Codec, V::Codec>>>,
    /// The error that prevents the scan.
    refused: Option<Error>,
}

impl<K: Key, V: Value> fmt::Debug for SnapshotRange<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotRange").finish_non_exhaustive()
    }
}

impl<'s, K: Key, V: Value> SnapshotRange<'s, K, V> {
    pub(super) fn new<'a>(
        snapshot: &'s Snapshot,
        tree: &'s Tree<K, V>,
        bounds: impl RangeBounds<K::Ref<'a>>,
    ) -> Self {
        let bound = |bound: Bound<&K::Ref<'_>>| -> Result<Bound<Stored<K::Codec>>> {
            Ok(match encode_bound(tree, bound)? {
                Bound::Included(key) => Bound::Included(K::Codec::decode(key).ok_or_else(unlike)?),
                Bound::Excluded(key) => Bound::Excluded(K::Codec::decode(key).ok_or_else(unlike)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        let begin = || {
            snapshot.with_epoch(&tree.link, |_| ())?;
            Ok(Merge::new(tree.scan(), bound(bounds.start_bound())?, bound(bounds.end_bound())?))
        };
        let (merge, refused) = begin().map_or_else(|error| (None, Some(error)), |merge| (Some(merge), None));
        Self { snapshot, tree, merge, refused }
    }

    #[inline]
    fn step(&mut self, forward: bool) -> Option<Result<(K::Owned, V::Owned)>> {
        let Self { snapshot, tree, merge, refused, .. } = self;
        let (snapshot, tree) = (*snapshot, *tree);
        let Some(items) = merge else { return refused.take().map(Err) };
        let next =
            snapshot.here().and_then(|()| items.next(forward, |bounds| overlay(snapshot, tree, bounds)));
        let item = next.transpose()?.and_then(|item| tree.decode_item(item));
        if item.is_err() {
            self.merge = None;
        }
        Some(item)
    }
}

/// Returns the saved items that replace a tree's items within bounds, which must be read before.
fn overlay<K: Key, V: Value>(
    snapshot: &Snapshot,
    tree: &Tree<K, V>,
    (from, to): Bounds<'_, Stored<K::Codec>>,
) -> Result<Overlay<TypedScan<K::Codec, V::Codec>>> {
    let link = tree.link;
    let (from, to) =
        (from.map(|key| K::Codec::encode(key.clone())), to.map(|key| K::Codec::encode(key.clone())));
    let saved = snapshot
        .with_epoch(&link, |epoch| epoch.values_within(link.identity, (from.as_ref(), to.as_ref())))?;
    let decode = |(key, held): (Encoded, Held)| {
        let value = |held| V::Codec::decode(held).ok_or_else(unlike);
        Ok((K::Codec::decode(key).ok_or_else(unlike)?, held?.map(value).transpose()?))
    };
    saved.into_iter().map(decode).collect()
}

impl<K: Key, V: Value> Iterator for SnapshotRange<'_, K, V> {
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for SnapshotRange<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for SnapshotRange<'_, K, V> {}
