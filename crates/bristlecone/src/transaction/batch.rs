//! Batches: atomic groups of changes with conditions.

use std::fmt;

use bristlecone_pm::{Error, Result};

use super::changes::Changes;
use crate::{Durability, Key, Pool, Tree, Value};

/// An atomic group of changes to any trees of one pool: see [`Pool::batch`].
///
/// Nothing is written before [`commit`](Self::commit): until then the batch is a list in DRAM, and dropping it
/// discards it. `commit` reports invalid changes (a key that is too long, a tree of another pool), so that the
/// calls before it can be chained.
///
/// # Ranges
///
/// A batch names its keys: it locks and records each of them. [`Tree::remove_range`](crate::Tree::remove_range) locks the
/// whole tree and records only the first and the last key, so it is a commit of its own. To remove a range together with
/// other changes, remove its keys in a transaction, which is tried again if another thread has written to the range:
///
/// ```
/// # let pool = bristlecone::Pool::temporary()?;
/// let (log, totals) = (pool.tree::<u64, u64>("log")?, pool.tree::<&str, u64>("totals")?);
/// log.upsert_many(&[(1, 10), (2, 20), (3, 30)])?;
/// pool.transaction(|tx| {
///     let old = tx.range(&log, ..3).collect::<Result<Vec<_>, _>>()?;
///     for (key, _) in &old {
///         tx.remove(&log, *key)?;
///     }
///     tx.insert(&totals, "removed", old.len() as u64)
/// })?;
/// assert_eq!((log.len()?, totals.get("removed")?), (1, Some(2)));
/// # Ok::<(), bristlecone::Error>(())
/// ```
pub struct Batch {
    pool: Pool,
    changes: Changes,
    refused: Option<Error>,
    durability: Option<Durability>,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Pool {
    /// Begins a batch.
    ///
    /// ```
    /// use bristlecone::{Error, Pool};
    /// # let pool = bristlecone::Pool::temporary()?;
    ///
    /// let accounts = pool.tree::<&str, u64>("accounts")?;
    /// let pending = pool.tree::<u64, &str>("pending")?;
    /// accounts.insert("alice", 100)?;
    /// pending.insert(17, "alice pays 10")?;
    ///
    /// let mut batch = pool.batch();
    /// batch.expect(&accounts, "alice", Some(100));
    /// batch.insert(&accounts, "alice", 90);
    /// batch.remove(&pending, 17);
    /// batch.commit()?; // durable, both or none
    /// assert_eq!((accounts.get("alice")?, pending.get(17)?), (Some(90), None));
    ///
    /// let mut batch = pool.batch();
    /// batch.expect(&accounts, "alice", Some(100)).insert(&accounts, "alice", 80);
    /// assert!(matches!(batch.commit(), Err(Error::Conflict)));
    /// assert_eq!(accounts.get("alice")?, Some(90));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn batch(&self) -> Batch {
        Batch { pool: self.clone(), changes: Changes::default(), refused: None, durability: None }
    }
}

impl Batch {
    fn note(&mut self, change: impl FnOnce(&mut Changes, &Pool) -> Result<()>) -> &mut Self {
        if let Err(error) = change(&mut self.changes, &self.pool) {
            self.refused.get_or_insert(error);
        }
        self
    }

    /// Inserts or overwrites the value of a key. If a key is changed more than once, the last change counts.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// let mut batch = pool.batch();
    /// batch.insert(&ages, "Methuselah", 4857).insert(&ages, "Prometheus", 4900).insert(&ages, "Methuselah", 4858);
    /// batch.commit()?;
    /// assert_eq!((ages.get("Methuselah")?, ages.get("Prometheus")?), (Some(4858), Some(4900)));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn insert<K: Key, V: Value>(
        &mut self,
        tree: &Tree<K, V>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> &mut Self {
        self.note(|changes, pool| {
            let place = (changes.tree(pool, tree)?, tree.encode_key(key)?);
            changes.add(place, Some(tree.encode_value(value)?));
            Ok(())
        })
    }

    /// Removes a key if it is present.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let mut batch = pool.batch();
    /// batch.remove(&ages, "Methuselah").remove(&ages, "Pando").insert(&ages, "Prometheus", 4900);
    /// batch.commit()?;
    /// assert_eq!((ages.get("Methuselah")?, ages.len()?), (None, 1));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn remove<K: Key, V: Value>(&mut self, tree: &Tree<K, V>, key: K::Ref<'_>) -> &mut Self {
        self.note(|changes, pool| {
            let place = (changes.tree(pool, tree)?, tree.encode_key(key)?);
            changes.add(place, None);
            Ok(())
        })
    }

    /// Adds a condition: before the batch, the key has this value or is absent. If a condition does not hold,
    /// `commit` returns [`Error::Conflict`]. If a key has several conditions, all must hold.
    ///
    /// ```
    /// # use bristlecone::{Error, Pool};
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let mut batch = pool.batch();
    /// batch.expect(&ages, "Methuselah", Some(4857)).expect(&ages, "Pando", None);
    /// batch.insert(&ages, "Methuselah", 4858);
    /// batch.commit()?;
    /// let mut batch = pool.batch();
    /// batch.expect(&ages, "Methuselah", Some(4857)).remove(&ages, "Methuselah");
    /// assert!(matches!(batch.commit(), Err(Error::Conflict)));
    /// assert_eq!(ages.get("Methuselah")?, Some(4858));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn expect<K: Key, V: Value>(
        &mut self,
        tree: &Tree<K, V>,
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
    ) -> &mut Self {
        self.note(|changes, pool| {
            let place = (changes.tree(pool, tree)?, tree.encode_key(key)?);
            let value = value.map(|value| tree.encode_value(value)).transpose()?;
            match changes.expected.get(&place) {
                Some(other) if *other != value => Err(Error::Conflict),
                _ => {
                    changes.expected.insert(place, value);
                    Ok(())
                }
            }
        })
    }

    /// Sets when [`commit`](Self::commit) returns, in place of the pool's durability. Pools without a journal ignore it.
    ///
    /// ```
    /// # use bristlecone::Durability;
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let hits = pool.tree::<&str, u64>("hits")?;
    /// let mut batch = pool.batch();
    /// batch.insert(&hits, "/", 1).durability(Durability::Memory);
    /// batch.commit()?; // does not wait for the disk
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn durability(&mut self, durability: Durability) -> &mut Self {
        self.durability = Some(durability);
        self
    }

    /// Returns the number of changed keys.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// let mut batch = pool.batch();
    /// assert!(batch.is_empty());
    /// batch.insert(&ages, "Methuselah", 4857).insert(&ages, "Methuselah", 4858).remove(&ages, "Pando");
    /// assert_eq!(batch.len(), 2);
    /// assert!(ages.is_empty()?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.changes.places()
    }

    /// Returns whether the batch changes no key.
    pub fn is_empty(&self) -> bool {
        self.changes.writes.is_empty()
    }

    /// Applies all changes atomically, if all conditions hold.
    ///
    /// After `Ok` all changes are durable. After `Err` nothing has changed. After a crash either all changes are
    /// applied or none, for trees of any designs. The batch is ordered before or after each other batch,
    /// transaction, snapshot and single-key write. Two lookups without a snapshot are not isolated: the batch may
    /// take effect between them.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if a condition does not hold; [`Error::Invalid`] for a tree of another pool;
    /// [`Error::TooLong`], and for dynamic trees [`Error::Mismatch`], for data that cannot be stored;
    /// [`Error::PoolFull`] and [`Error::MediumFull`] if there is no space for the whole batch; [`Error::ReadOnly`];
    /// [`Error::Forked`]. After [`Error::DurabilityLost`] the outcome is undetermined until the pool is opened
    /// again; then all changes are applied or none.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// let mut batch = pool.batch();
    /// batch.insert(&ages, "Methuselah", 4857).insert(&ages, "Prometheus", 4900);
    /// assert!(ages.is_empty()?);
    /// batch.commit()?; // durable, both
    /// assert_eq!(ages.len()?, 2);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn commit(mut self) -> Result<()> {
        self.pool.0.file.writable()?;
        match self.refused {
            Some(error) => {
                let refused = Err(error);
                self.pool.0.meters.note_commit(&refused);
                refused
            }
            None => {
                // An entry of a journal has the order of the keys.
                self.changes.settle(self.pool.0.journal.get().is_some());
                let ended = self.changes.commit(&self.pool, None, self.durability);
                // A conflict tells what others have written.
                if ended.is_err() { self.pool.settle_reads().and(ended) } else { ended }
            }
        }
    }
}
