//! Removal of expired entries.

use std::ops::Bound;
use std::sync::PoisonError;

use bristlecone_pm::Result;

use super::ExpiringTree;
use crate::api::iter::Limit;
use crate::api::kinds::expiring::{Expiring, bytes_of, millis, split};
use crate::index::parts::codec::Codec;
use crate::{Key, Value};
/// What a pass of [`ExpiringTree::remove_expired`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpiredRemoval {
    /// Number of entries that it read.
    pub examined: u64,
    /// Number of expired entries that it removed.
    pub removed: u64,
    /// Whether it reached the end of the tree. The next pass begins at the smallest key.
    pub is_complete: bool,
}

impl<K: Key, V: Value> ExpiringTree<K, V> {
    /// Reads up to `budget` entries and removes the expired ones among them. The next call of this handle, or of a clone,
    /// continues behind them, and begins again after the end of the tree. Calls of other threads wait.
    ///
    /// Each removal is atomic, and happens only if the entry is still the one that had expired: a renewed entry stays.
    /// After an error, or a crash, any subset of the expired entries is removed. In a pool with a journal the call waits
    /// once for the disk.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::remove`](crate::Tree::remove).
    ///
    /// ```
    /// # use bristlecone::{Expiring, Expiry, Pool};
    /// # let pool = Pool::temporary()?;
    /// let cache = pool.tree::<u64, Expiring<u64>>("cache")?.expiring();
    /// for key in 0..10 {
    ///     cache.insert(key, key, if key < 5 { Expiry::from_millis(1) } else { Expiry::NEVER })?;
    /// }
    /// let mut removed = 0;
    /// loop {
    ///     let pass = cache.remove_expired(3)?;
    ///     removed += pass.removed;
    ///     if pass.is_complete {
    ///         break;
    ///     }
    /// }
    /// assert_eq!((removed, cache.len()?), (5, 5));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn remove_expired(&self, budget: u64) -> Result<ExpiredRemoval> {
        self.tree.writable()?;
        let (now, pool) = (millis(self.now()), &self.tree.pool);
        let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        pool.deferred(|| self.remove_from(&mut position, budget, now))
    }

    fn remove_from(&self, position: &mut Limit<K>, budget: u64, now: u64) -> Result<ExpiredRemoval> {
        let mut pass = ExpiredRemoval { examined: 0, removed: 0, is_complete: false };
        let mut entries = self.tree.walk((position.clone(), Bound::Unbounded)).lenient();
        while pass.examined < budget {
            let Some((key, entry)) = entries.next() else {
                *position = Bound::Unbounded;
                pass.is_complete = true;
                return entries.finish().map(|()| pass);
            };
            pass.examined += 1;
            let entry = <Expiring<V> as Value>::Codec::borrow(&entry);
            let time = bytes_of::<<Expiring<V> as Value>::Codec>(entry).and_then(split);
            if time.is_some_and(|(expiry, _)| expiry.is_over_at(now)) {
                let removed = self.tree.exchange(K::Codec::borrow(&key), Some(entry), None)?;
                pass.removed += u64::from(removed.is_ok());
            }
            *position = Bound::Excluded(key);
        }
        Ok(pass)
    }
}
