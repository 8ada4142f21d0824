//! Ranges of a transaction: the items of a tree, with the transaction's own writes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bristlecone_pm::{Error, Result};

use super::any_tree::AnyScan;
use super::changes::Place;
use super::epoch::Epoch;
use super::merge::Merge;
use super::snapshot::encode_bound;
use super::transact::{State, Transaction};
use crate::index::parts::encoded::Encoded;
use crate::{Key, Tree, Value};

impl Transaction {
    /// Iterates over the items whose keys lie within bounds, in order, from both ends, including earlier writes of the
    /// transaction. Writes during the iteration may or may not be included.
    ///
    /// # Errors
    ///
    /// The iterator yields those of [`get`](Self::get). After an error it is finished.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let sum = pool.transaction(|tx| {
    ///     tx.insert(&ages, "Prometheus", 4900)?;
    ///     tx.range(&ages, "A"..).map(|item| item.map(|(_, age)| age)).sum::<bristlecone::Result<u64>>()
    /// })?;
    /// assert_eq!(sum, 4857 + 4900);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn range<'s, 'a, K: Key, V: Value>(
        &'s self,
        tree: &'s Tree<K, V>,
        bounds: impl RangeBounds<K::Ref<'a>>,
    ) -> TransactionRange<'s, K, V> {
        let begin = || -> Result<(usize, Merge<AnyScan>)> {
            let State { changes, reads, .. } = &mut *self.state.borrow_mut();
            let number = changes.tree(&self.pool, tree)?;
            // The snapshot must be taken before the tree is read.
            self.note_outrun(reads.snapshot(&self.pool).map(drop))?;
            let (from, to) =
                (encode_bound(tree, bounds.start_bound())?, encode_bound(tree, bounds.end_bound())?);
            Ok((number, Merge::new(tree.any().scan(), from, to)))
        };
        let (range, refused) = begin().map_or_else(|error| (None, Some(error)), |range| (Some(range), None));
        TransactionRange { transaction: self, tree, range, refused }
    }
}

/// An iterator over the items of a tree in a transaction. After an error it is finished. See [`Transaction::range`].
pub struct TransactionRange<'s, K: Key, V: Value> {
    transaction: &'s Transaction,
    tree: &'s Tree<K, V>,
    /// The tree's index among the changes; `None` after an error.
    range: Option<(usize, Merge<AnyScan>)>,
    /// The error that prevents the scan.
    refused: Option<Error>,
}

impl<K: Key, V: Value> fmt::Debug for TransactionRange<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionRange").finish_non_exhaustive()
    }
}

impl<K: Key, V: Value> TransactionRange<'_, K, V> {
    fn step(&mut self, forward: bool) -> Result<Option<(K::Owned, V::Owned)>> {
        let Self { transaction, tree, range, refused } = self;
        refused.take().map_or(Ok(()), Err)?;
        let Some((number, merge)) = range else { return Ok(None) };
        let (link, number) = (tree.link, *number);
        let item = merge.next(forward, |(from, to)| {
            let changed = |epoch: &Arc<Epoch>| epoch.values_within(link.identity, (from, to));
            let State { writes, reads, .. } = &mut *transaction.state.borrow_mut();
            let saved = reads.snapshot(&transaction.pool)?.with_epoch(&link, changed)?;
            let mut overlay =
                saved.into_iter().map(|(key, held)| Ok((key, held?))).collect::<Result<BTreeMap<_, _>>>()?;
            let own = writes.range((at(number, from, 0), at(number, to, 1)));
            overlay.extend(own.map(|((_, key), value)| (key.clone(), value.clone())));
            reads.note_range(number, from.cloned(), to.cloned());
            Ok(overlay)
        })?;
        item.map(|item| tree.decode_any(item)).transpose()
    }

    fn shown(&mut self, forward: bool) -> Option<Result<(K::Owned, V::Owned)>> {
        self.step(forward).inspect_err(|_| self.range = None).transpose()
    }
}

/// Returns the place of a bound. An unbounded start is at the beginning of the tree; an unbounded end is at the next
/// tree.
fn at(tree: usize, bound: Bound<&Encoded>, next: usize) -> Bound<Place> {
    match bound {
        Bound::Included(key) => Bound::Included((tree, key.clone())),
        Bound::Excluded(key) => Bound::Excluded((tree, key.clone())),
        Bound::Unbounded if next == 0 => Bound::Included((tree, Encoded::LEAST)),
        Bound::Unbounded => Bound::Excluded((tree + 1, Encoded::LEAST)),
    }
}

impl<K: Key, V: Value> Iterator for TransactionRange<'_, K, V> {
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.shown(true)
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for TransactionRange<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.shown(false)
    }
}
