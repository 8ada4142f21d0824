//! Transactions: consistent reads, and changes that apply only if the read set is unchanged.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

use bristlecone_pm::sync::wait;
use bristlecone_pm::{Error, Result};

use super::changes::{Changes, Place};
use super::reads::Reads;
use super::snapshot::Snapshot;
use crate::index::parts::encoded::Encoded;
use crate::{Durability, Key, Pool, Tree, Value};

/// Maximum number of attempts of a transaction.
const ATTEMPTS: u32 = 256;
/// Number of attempts after which the thread sleeps between two.
const PATIENCE: u32 = 16;

/// A running transaction: see [`Pool::transaction`].
///
/// It reads all trees at one point in time, overlaid with its own writes.
pub struct Transaction {
    pub(super) pool: Pool,
    /// Makes writers count their changes in their stripes while the transaction runs.
    _watching: Watching,
    pub(super) state: RefCell<State>,
    is_rolled_back: Cell<bool>,
    /// Set if others changed its read set, so that it cannot read more at that point in time.
    is_outrun: Cell<bool>,
    durability: Cell<Option<Durability>>,
}

#[derive(Default)]
pub(super) struct State {
    pub changes: Changes,
    /// Its writes, which it reads itself, until they are those of `changes`.
    pub writes: BTreeMap<Place, Option<Encoded>>,
    pub reads: Reads,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

impl Pool {
    /// Runs a closure in a transaction and applies its changes atomically if its read set is unchanged. After a
    /// conflict it runs the closure again, with increasing delay, up to 256 times.
    ///
    /// Transactions are serializable, ranges included: the result equals some serial order of all transactions,
    /// batches, snapshots and single-key writes. After `Ok` the changes are durable. After an error, or a panic in the
    /// closure, nothing has changed. The closure may run more than once, and should have no side effects outside the
    /// transaction. A read-only transaction runs at most twice.
    ///
    /// Each run of the closure sees a consistent state. The first run takes a snapshot only when it reads a range or
    /// more than sixteen keys, so short transactions add no cost to writers.
    ///
    /// # Errors
    ///
    /// Errors of the closure; [`Error::Conflict`] after 256 conflicts; [`Error::Invalid`] within another transaction of
    /// the pool on the same thread; otherwise same as [`Batch::commit`](crate::Batch::commit).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let accounts = pool.tree::<&str, u64>("accounts")?;
    /// accounts.insert("alice", 100)?;
    /// let moved = pool.transaction(|tx| {
    ///     let alice = tx.get(&accounts, "alice")?.unwrap_or(0);
    ///     let bob = tx.get(&accounts, "bob")?.unwrap_or(0);
    ///     let moved = alice.min(30);
    ///     tx.insert(&accounts, "alice", alice - moved)?;
    ///     tx.insert(&accounts, "bob", bob + moved)?;
    ///     Ok(moved)
    /// })?;
    /// assert_eq!((moved, accounts.get("alice")?, accounts.get("bob")?), (30, Some(70), Some(30)));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn transaction<R>(&self, mut work: impl FnMut(&Transaction) -> Result<R>) -> Result<R> {
        self.0.file.here()?;
        let _only = Only::begin(self)?;
        let ended = self.attempt(&mut work);
        // Also an error may tell what was read.
        self.settle_reads().and(ended)
    }

    fn attempt<R>(&self, work: &mut impl FnMut(&Transaction) -> Result<R>) -> Result<R> {
        for attempt in 0..ATTEMPTS {
            let transaction = Transaction::begin(self, attempt > 0)?;
            let ended = match work(&transaction) {
                _ if transaction.is_outrun.get() => self.outrun(),
                Ok(done) => transaction.finish().map(|()| done),
                Err(error) => return Err(error),
            };
            match ended {
                Err(Error::Conflict) => back_off(attempt),
                ended => return ended,
            }
        }
        Err(Error::Conflict)
    }

    /// Begins a transaction that the caller commits, and repeats after a conflict, for bindings and for loops that do
    /// not fit a closure. Prefer [`transaction`](Self::transaction) otherwise.
    ///
    /// Dropping the transaction discards it. While it exists, old values of concurrent changes are kept in DRAM.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    ///
    /// ```
    /// # use bristlecone::{Error, Pool};
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let hits = pool.tree::<&str, u64>("hits")?;
    /// let (first, second) = (pool.begin_transaction()?, pool.begin_transaction()?);
    /// for transaction in [&first, &second] {
    ///     let seen = transaction.get(&hits, "/")?.unwrap_or(0);
    ///     transaction.insert(&hits, "/", seen + 1)?;
    /// }
    /// first.commit()?;
    /// assert!(matches!(second.commit(), Err(Error::Conflict)));
    /// assert_eq!(hits.get("/")?, Some(1));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn begin_transaction(&self) -> Result<Transaction> {
        Transaction::begin(self, true)
    }

    /// Returns the conflict of a transaction that has only read so far.
    #[cold]
    fn outrun<R>(&self) -> Result<R> {
        self.0.meters.note_commit(&Err(Error::Conflict));
        Err(Error::Conflict)
    }
}

/// Waits, longer with each attempt and for a time that differs between threads.
#[cold]
fn back_off(attempt: u32) {
    let noise = bristlecone_pm::thread_index() as u32 * 7 + attempt * 13;
    (0..noise % (2 << attempt.min(8))).for_each(wait::pause);
    if attempt >= PATIENCE && !wait::is_simulated() {
        std::thread::sleep(std::time::Duration::from_micros((noise % (10 * attempt)).into()));
    }
}

/// Marker that this is the only transaction of its thread in a pool.
struct Only<'a>(&'a Pool);

impl<'a> Only<'a> {
    fn begin(pool: &'a Pool) -> Result<Self> {
        if !pool.0.epochs.note_transaction(true) {
            return Err(Error::invalid("nested transactions are not supported: use the outer one"));
        }
        Ok(Self(pool))
    }
}

impl Drop for Only<'_> {
    fn drop(&mut self) {
        self.0.0.epochs.note_transaction(false);
    }
}

/// A transaction's registration with the write barrier.
struct Watching(Pool);

impl Watching {
    fn begin(pool: &Pool) -> Self {
        pool.0.epochs.barrier.begin_use();
        Self(pool.clone())
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.0.epochs.barrier.end_use();
    }
}

impl Transaction {
    /// Begins a transaction that reads in a snapshot, or takes one only when needed.
    fn begin(pool: &Pool, in_snapshot: bool) -> Result<Self> {
        Snapshot::verify_taken(pool)?;
        let watching = Watching::begin(pool);
        let reads = if in_snapshot { Reads::in_snapshot(pool)? } else { Reads::default() };
        let state = RefCell::new(State { reads, ..State::default() });
        let (is_rolled_back, is_outrun, durability) = Default::default();
        Ok(Self { pool: pool.clone(), _watching: watching, state, is_rolled_back, is_outrun, durability })
    }

    /// Applies the changes of a transaction that [was begun](Pool::begin_transaction), atomically, if its read set is
    /// unchanged. A transaction within [`Pool::transaction`] is committed there.
    ///
    /// After `Ok` the changes are durable; after `Err` nothing has changed.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the read set has changed: repeat the whole transaction. Otherwise same as
    /// [`Batch::commit`](crate::Batch::commit), and errors met by a range.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let transaction = pool.begin_transaction()?;
    /// let age = transaction.get(&ages, "Methuselah")?.unwrap_or(0);
    /// transaction.insert(&ages, "Methuselah", age + 1)?;
    /// assert_eq!(ages.get("Methuselah")?, Some(4857));
    /// transaction.commit()?; // durable
    /// assert_eq!(ages.get("Methuselah")?, Some(4858));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn commit(self) -> Result<()> {
        self.pool.0.file.here()?;
        let pool = self.pool.clone();
        let ended = self.finish();
        pool.settle_reads().and(ended)
    }

    /// Commits the requested changes.
    fn finish(self) -> Result<()> {
        let durability = self.durability.get();
        let State { mut changes, writes, mut reads } = self.state.into_inner();
        // The reads are consistent. A transaction without changes is complete here.
        if self.is_rolled_back.get() || writes.is_empty() {
            return Ok(());
        }
        writes.into_iter().for_each(|(place, value)| changes.add(place, value));
        reads.end();
        changes.commit(&self.pool, Some(&reads), durability)
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a tree of another pool; [`Error::Corrupted`] for a damaged record or a value that does
    /// not decode as its type; [`Error::SnapshotTooOld`] for a tree that was cleared, or created with items, since the
    /// transaction took its snapshot; for a dynamic tree [`Error::Mismatch`]; [`Error::Conflict`] within
    /// [`Pool::transaction`] if the read set has changed: the closure then runs again, whatever it returns.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let age = pool.transaction(|tx| {
    ///     tx.insert(&ages, "Prometheus", 4900)?;
    ///     // The transaction's own write, and an existing item.
    ///     Ok((tx.get(&ages, "Prometheus")?, tx.get(&ages, "Methuselah")?))
    /// })?;
    /// assert_eq!(age, (Some(4900), Some(4857)));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn get<K: Key, V: Value>(&self, tree: &Tree<K, V>, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        let value = self.read(tree, key)?;
        value.map(|value| tree.decode_value(value)).transpose()
    }

    /// Returns whether the tree contains a key.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let first = pool.transaction(|tx| {
    ///     let first = !tx.contains_key(&ages, "Methuselah")?;
    ///     tx.insert(&ages, "Methuselah", 4858)?;
    ///     Ok(first)
    /// })?;
    /// assert!(!first);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn contains_key<K: Key, V: Value>(&self, tree: &Tree<K, V>, key: K::Ref<'_>) -> Result<bool> {
        self.read(tree, key).map(|value| value.is_some())
    }

    fn read<K: Key, V: Value>(&self, tree: &Tree<K, V>, key: K::Ref<'_>) -> Result<Option<Encoded>> {
        let State { changes, writes, reads } = &mut *self.state.borrow_mut();
        let place = (changes.tree(&self.pool, tree)?, tree.encode_bound(key)?);
        if let Some(own) = writes.get(&place) {
            return Ok(own.clone());
        }
        self.note_outrun(reads.get(&self.pool, changes, place))
    }

    /// Records that the read set has changed.
    pub(super) fn note_outrun<R>(&self, read: Result<R>) -> Result<R> {
        if let Err(Error::Conflict) = read {
            self.is_outrun.set(true);
        }
        read
    }

    /// Inserts or overwrites the value of a key. This reads nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a tree of another pool; [`Error::TooLong`]; for a dynamic tree [`Error::Mismatch`]. The
    /// transaction continues without this write.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// pool.transaction(|tx| {
    ///     tx.insert(&ages, "Methuselah", 4858)?;
    ///     tx.insert(&ages, "Prometheus", 4900)
    /// })?;
    /// assert_eq!((ages.get("Methuselah")?, ages.len()?), (Some(4858), 2));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn insert<K: Key, V: Value>(
        &self,
        tree: &Tree<K, V>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<()> {
        let value = tree.encode_value(value)?;
        self.put(tree, key, Some(value))
    }

    /// Removes a key if it is present. This reads nothing.
    ///
    /// # Errors
    ///
    /// Same as [`insert`](Self::insert).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// pool.transaction(|tx| {
    ///     tx.remove(&ages, "Methuselah")?;
    ///     tx.remove(&ages, "Pando")
    /// })?;
    /// assert!(ages.is_empty()?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn remove<K: Key, V: Value>(&self, tree: &Tree<K, V>, key: K::Ref<'_>) -> Result<()> {
        self.put(tree, key, None)
    }

    fn put<K: Key, V: Value>(
        &self,
        tree: &Tree<K, V>,
        key: K::Ref<'_>,
        value: Option<Encoded>,
    ) -> Result<()> {
        self.pool.0.file.writable()?;
        let mut state = self.state.borrow_mut();
        let place = (state.changes.tree(&self.pool, tree)?, tree.encode_key(key)?);
        state.writes.insert(place, value);
        Ok(())
    }

    /// Sets when the commit returns, in place of the pool's durability. Pools without a journal ignore it.
    ///
    /// ```
    /// # use bristlecone::Durability;
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let hits = pool.tree::<&str, u64>("hits")?;
    /// pool.transaction(|tx| {
    ///     tx.durability(Durability::Memory);
    ///     tx.insert(&hits, "/", 1)
    /// })?; // does not wait for the disk
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn durability(&self, durability: Durability) {
        self.durability.set(Some(durability));
    }

    /// Discards all earlier and later writes of the transaction: nothing changes, whatever the closure returns.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// pool.transaction(|tx| {
    ///     tx.remove(&ages, "Methuselah")?;
    ///     tx.rollback();
    ///     Ok(())
    /// })?;
    /// assert_eq!(ages.get("Methuselah")?, Some(4857));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn rollback(&self) {
        self.is_rolled_back.set(true);
    }
}
