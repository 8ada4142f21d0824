//! Trees whose entries expire.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bristlecone_pm::Result;

use crate::api::ends::ItemOf;
use crate::api::iter::{Limit, Range};
use crate::api::key;
use crate::api::kinds::Buffer;
use crate::api::kinds::expiring::{EXPIRY_BYTES, Expiring, Expiry, item, join, millis, split};
use crate::api::value::{self, undecodable};
use crate::index::parts::codec::{Codec, Record};
use crate::index::parts::encoded::Item;
use crate::{CasError, Key, Tree, TryInsertError, Value};

/// A tree whose entries expire: for its operations, an entry whose time has come is absent.
///
/// [`Tree::expiring`] of a tree with values of the type [`Expiring`] returns it. Each operation has the guarantees and the
/// errors of the one of [`Tree`] with the same name, and is one atomic step.
///
/// ```
/// use bristlecone::{Expiring, Expiry, Pool};
/// use std::time::Duration;
///
/// # let pool = Pool::temporary()?;
/// let sessions = pool.tree::<&str, Expiring<u64>>("sessions")?.expiring();
/// sessions.insert("ada", 7, sessions.after(Duration::from_secs(3600)))?;
/// sessions.insert("grace", 8, Expiry::NEVER)?;
/// assert_eq!(sessions.get("ada")?, Some(7));
/// sessions.set_expiry("ada", sessions.after(Duration::ZERO))?;
/// assert_eq!((sessions.get("ada")?, sessions.get("grace")?), (None, Some(8)));
/// assert_eq!(sessions.remove_expired(1000)?.removed, 1);
/// # Ok::<(), bristlecone::Error>(())
/// ```
///
/// # Removal
///
/// An expired entry keeps its space until it is removed. A write to its key replaces or removes it. [`remove_expired`](
/// Self::remove_expired) removes expired entries of the whole tree, as many at a time as the caller wants. Reads remove
/// nothing.
///
/// # The clock
///
/// It is the clock of the system, in milliseconds. Within a process it does not go back: after the system's clock was set
/// back, time stands still until the clock has caught up. A process that begins then sees the earlier time, and entries
/// that had expired live again, if they were not removed. [`with_clock`](Self::with_clock) sets another clock.
///
/// # Batches, transactions, snapshots
///
/// They take the tree of entries, [`entries`](Self::entries), and [`live`](Self::live) drops what has expired:
///
/// ```
/// # use bristlecone::{Expiring, Expiry, Pool};
/// # let pool = Pool::temporary()?;
/// # let sessions = pool.tree::<&str, Expiring<u64>>("sessions")?.expiring();
/// let hour = sessions.after(std::time::Duration::from_secs(3600));
/// pool.transaction(|tx| {
///     let visits = sessions.live(tx.get(sessions.entries(), "ada")?).unwrap_or(0);
///     tx.insert(sessions.entries(), "ada", Expiring::new(visits + 1, hour))?;
///     Ok(())
/// })?;
/// assert_eq!(sessions.get("ada")?, Some(1));
/// # Ok::<(), bristlecone::Error>(())
/// ```
pub struct ExpiringTree<K: Key, V: Value> {
    tree: Tree<K, Expiring<V>>,
    clock: Clock,
    /// Where the next pass of [`remove_expired`](Self::remove_expired) begins.
    position: Arc<Mutex<Limit<K>>>,
}

/// Returns the time that a tree uses.
type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

impl<K: Key, V: Value> Clone for ExpiringTree<K, V> {
    fn clone(&self) -> Self {
        let Self { tree, clock, position } = self;
        Self { tree: tree.clone(), clock: Arc::clone(clock), position: Arc::clone(position) }
    }
}

impl<K: Key, V: Value> fmt::Debug for ExpiringTree<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExpiringTree").field(&self.tree).finish()
    }
}

impl<K: Key, V: Value> Tree<K, Expiring<V>> {
    /// Returns the tree with operations for which expired entries are absent.
    pub fn expiring(self) -> ExpiringTree<K, V> {
        let position = Arc::new(Mutex::new(Bound::Unbounded));
        ExpiringTree { tree: self, clock: Arc::new(system_time), position }
    }
}

/// Returns the time of the system, which does not go back within the process.
fn system_time() -> SystemTime {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    advance(&LATEST, SystemTime::now())
}

/// Returns the latest time that was passed, in whole milliseconds.
fn advance(latest: &AtomicU64, now: SystemTime) -> SystemTime {
    let (now, seen) = (millis(now), latest.load(Relaxed));
    // Most calls only read the line.
    let latest = if now > seen { latest.fetch_max(now, Relaxed).max(now) } else { seen };
    SystemTime::UNIX_EPOCH + Duration::from_millis(latest)
}

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

/// What to do with a key.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
enum Decision {
    Keep,
    Put(Buffer),
    Remove,
}

/// An entry that lives, with the stored form of its value.
struct Live<'a, T> {
    value: T,
    expiry: Expiry,
    stored: &'a [u8],
}

impl<K: Key, V: Value> ExpiringTree<K, V> {
    /// Replaces the clock of this handle and of its later clones. It should not go back, and must not use the tree.
    pub fn with_clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Returns the time of the tree's clock.
    pub fn now(&self) -> SystemTime {
        (self.clock)()
    }

    /// Returns the expiry after a duration from now on. A time that the system cannot represent is
    /// [`NEVER`](Expiry::NEVER).
    pub fn after(&self, time: Duration) -> Expiry {
        self.now().checked_add(time).map_or(Expiry::NEVER, Expiry::at)
    }

    /// Returns the tree of all entries, expired or not, with their times.
    pub fn entries(&self) -> &Tree<K, Expiring<V>> {
        &self.tree
    }

    /// Returns the value of an entry, unless it has expired.
    pub fn live<T>(&self, entry: Option<Expiring<T>>) -> Option<T> {
        entry.and_then(|entry| entry.live(self.now()))
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`].
    pub fn get(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        Ok(self.live(self.tree.get(key)?))
    }

    /// Calls `show` with the value of a key and its expiry, without copying the value: see [`Tree::get_with`].
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`].
    pub fn get_with<R>(
        &self,
        key: K::Ref<'_>,
        show: impl FnOnce(V::Ref<'_>, Expiry) -> R,
    ) -> Result<Option<R>> {
        let now = self.now();
        let shown =
            self.tree.get_with(key, |entry| entry.live(now).map(|value| show(value, entry.expiry)))?;
        Ok(shown.flatten())
    }

    /// Returns whether the tree contains a key.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`].
    pub fn contains_key(&self, key: K::Ref<'_>) -> Result<bool> {
        Ok(self.expiry(key)?.is_some())
    }

    /// Returns when a key expires; `None` if it is absent.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`].
    pub fn expiry(&self, key: K::Ref<'_>) -> Result<Option<Expiry>> {
        self.get_with(key, |_, expiry| expiry)
    }

    /// Returns the number of entries, including expired ones that were not removed yet. [`count`](Self::count) reads
    /// each entry, and leaves out those.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`].
    pub fn len(&self) -> Result<u64> {
        self.tree.len()
    }

    /// Returns whether the tree has no entries, expired or not.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`].
    pub fn is_empty(&self) -> Result<bool> {
        self.tree.is_empty()
    }

    /// Inserts or overwrites the value of a key and its expiry; returns the previous value.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::insert`].
    pub fn insert(&self, key: K::Ref<'_>, value: V::Ref<'_>, expiry: Expiry) -> Result<Option<V::Owned>> {
        Ok(self.live(self.tree.insert(key, Expiring { value, expiry })?))
    }

    /// Inserts or overwrites the value of a key and its expiry without returning the previous value.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::insert`].
    pub fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>, expiry: Expiry) -> Result<()> {
        self.tree.upsert(key, Expiring { value, expiry })
    }

    /// Inserts a key if it is absent.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::try_insert`].
    pub fn try_insert(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        expiry: Expiry,
    ) -> std::result::Result<(), TryInsertError<V::Owned>> {
        let new = checked::<V>(value, expiry)?;
        let held = self.decide(key, |live| match live {
            Some(live) => (Decision::Keep, Some(live.value)),
            None => (Decision::Put(new.clone()), None),
        })?;
        held.map_or(Ok(()), |held| Err(TryInsertError::Present(held)))
    }

    /// Replaces the value of an existing key and its expiry; returns the previous value, or `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::insert`]. [`Error::Corrupted`](crate::Error) if the previous value does not decode as its type;
    /// nothing has changed then.
    pub fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>, expiry: Expiry) -> Result<Option<V::Owned>> {
        let new = checked::<V>(value, expiry)?;
        self.decide(key, |live| match live {
            Some(live) => (Decision::Put(new.clone()), Some(live.value)),
            None => (Decision::Keep, None),
        })
    }

    /// Removes a key; returns its value.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::remove`].
    pub fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        Ok(self.live(self.tree.remove(key)?))
    }

    /// Changes a key from an expected value to a new one with its expiry; `None` means an absent key. The expiry that the
    /// key had does not count.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::compare_and_swap`].
    pub fn compare_and_swap(
        &self,
        key: K::Ref<'_>,
        expected: Option<V::Ref<'_>>,
        new: Option<(V::Ref<'_>, Expiry)>,
    ) -> std::result::Result<(), CasError<V::Owned>> {
        let expected = expected.map(|value| stored::<V>(value, Expiry::NEVER)).transpose()?;
        let expected = expected.as_ref().map(|entry| &entry[EXPIRY_BYTES..]);
        let new = new.map(|(value, expiry)| checked::<V>(value, expiry)).transpose()?;
        let outcome = self.decide(key, |live| {
            if live.as_ref().map(|live| live.stored) != expected {
                return (Decision::Keep, Err(live.map(|live| live.value)));
            }
            match (&new, expected) {
                (Some(new), _) => (Decision::Put(new.clone()), Ok(())),
                (None, Some(_)) => (Decision::Remove, Ok(())),
                (None, None) => (Decision::Keep, Ok(())),
            }
        })?;
        outcome.map_err(CasError::Found)
    }

    /// Sets when a key expires, and keeps its value; [`Expiry::NEVER`] makes it permanent. Returns the previous expiry, or
    /// `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// Same as [`update`](Self::update).
    pub fn set_expiry(&self, key: K::Ref<'_>, expiry: Expiry) -> Result<Option<Expiry>> {
        self.set_expiry_if(key, expiry, |_| true)
    }

    /// Sets when a key expires, as [`set_expiry`](Self::set_expiry) does, if `test` returns true for its expiry. Returns
    /// that expiry, or `None` if the key is absent. `test` may run more than once.
    ///
    /// # Errors
    ///
    /// Same as [`update`](Self::update).
    ///
    /// ```
    /// # use bristlecone::{Expiring, Expiry, Pool};
    /// # use std::time::Duration;
    /// # let pool = Pool::temporary()?;
    /// let sessions = pool.tree::<&str, Expiring<u64>>("sessions")?.expiring();
    /// let hour = sessions.after(Duration::from_secs(3600));
    /// sessions.insert("ada", 7, hour)?;
    /// // Prolongs a session, and never shortens it.
    /// let later = sessions.after(Duration::from_secs(60));
    /// sessions.set_expiry_if("ada", later, |now| now != Expiry::NEVER && now.as_millis() < later.as_millis())?;
    /// assert_eq!(sessions.expiry("ada")?, Some(hour));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn set_expiry_if(
        &self,
        key: K::Ref<'_>,
        expiry: Expiry,
        mut test: impl FnMut(Expiry) -> bool,
    ) -> Result<Option<Expiry>> {
        self.decide(key, |live| match live {
            Some(live) if test(live.expiry) => {
                (Decision::Put(join(expiry, Item::Bytes(live.stored))), Some(live.expiry))
            }
            live => (Decision::Keep, live.map(|live| live.expiry)),
        })
    }

    /// Iterates over the items within bounds, in order, from both ends: see [`Tree::range`]. An item that expires after
    /// this call is still returned.
    ///
    /// # Errors
    ///
    /// The iterator yields the errors of [`Tree::get`]. After an error it is finished.
    pub fn range<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> ExpiringRange<'_, K, V> {
        ExpiringRange { entries: self.tree.range(bounds), now: millis(self.now()) }
    }

    /// Iterates over all items in order, from both ends: see [`range`](Self::range).
    pub fn iter(&self) -> ExpiringRange<'_, K, V> {
        ExpiringRange { entries: self.tree.iter(), now: millis(self.now()) }
    }

    /// Returns the number of items whose keys lie within bounds. It reads each entry: see [`Tree::count`].
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`].
    pub fn count<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> Result<u64> {
        self.range(bounds).try_fold(0, |count, item| item.map(|_| count + 1))
    }

    /// Returns the item with the smallest key.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`].
    pub fn first_key_value(&self) -> Result<Option<ItemOf<K, V>>> {
        self.iter().next().transpose()
    }

    /// Returns the item with the largest key.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`].
    pub fn last_key_value(&self) -> Result<Option<ItemOf<K, V>>> {
        self.iter().next_back().transpose()
    }

    /// Returns the item with the largest key below `key`.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`].
    pub fn get_lt(&self, key: K::Ref<'_>) -> Result<Option<ItemOf<K, V>>> {
        self.range(..key).next_back().transpose()
    }

    /// Returns the item with the largest key that is `key` or below.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`].
    pub fn get_le(&self, key: K::Ref<'_>) -> Result<Option<ItemOf<K, V>>> {
        self.range(..=key).next_back().transpose()
    }

    /// Returns the item with the smallest key above `key`.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`].
    pub fn get_gt(&self, key: K::Ref<'_>) -> Result<Option<ItemOf<K, V>>> {
        self.range((Bound::Excluded(key), Bound::Unbounded)).next().transpose()
    }

    /// Returns the item with the smallest key that is `key` or above.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::get`].
    pub fn get_ge(&self, key: K::Ref<'_>) -> Result<Option<ItemOf<K, V>>> {
        self.range(key..).next().transpose()
    }

    /// Removes and returns the item with the smallest key; returns `None` if there is none: see [`Tree::pop_first`].
    ///
    /// # Errors
    ///
    /// Same as [`Tree::remove`].
    pub fn pop_first(&self) -> Result<Option<ItemOf<K, V>>> {
        self.pop(ExpiringRange::next)
    }

    /// Removes and returns the item with the largest key: otherwise the same as [`pop_first`](Self::pop_first).
    ///
    /// # Errors
    ///
    /// Same as [`Tree::remove`].
    pub fn pop_last(&self) -> Result<Option<ItemOf<K, V>>> {
        self.pop(ExpiringRange::next_back)
    }

    /// Removes the first of the live items that no other thread has removed.
    fn pop<'t>(
        &'t self,
        next: impl Fn(&mut ExpiringRange<'t, K, V>) -> Option<Result<ItemOf<K, V>>>,
    ) -> Result<Option<ItemOf<K, V>>> {
        self.tree.writable()?;
        loop {
            let (mut items, mut has_met_any) = (self.iter(), false);
            while let Some(item) = next(&mut items) {
                let (key, _) = item?;
                if let Some(value) = self.remove(K::lend(&key))? {
                    return Ok(Some((key, value)));
                }
                has_met_any = true;
            }
            // Another thread may have inserted an item before those that were removed.
            if !has_met_any {
                return Ok(None);
            }
        }
    }

    /// Reads up to `budget` entries and removes the expired ones among them. The next call of this handle, or of a clone,
    /// continues behind them, and begins again after the end of the tree. Calls of other threads wait.
    ///
    /// Each removal is atomic, and happens only if the entry is still the one that had expired: a renewed entry stays.
    /// After an error, or a crash, any subset of the expired entries is removed. In a pool with a journal the call waits
    /// once for the disk.
    ///
    /// # Errors
    ///
    /// Same as [`Tree::remove`].
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
            if split(&entry).is_some_and(|(expiry, _)| expiry.is_over_at(now)) {
                let removed = self.tree.exchange(K::Codec::borrow(&key), Some(&entry), None)?;
                pass.removed += u64::from(removed.is_ok());
            }
            *position = Bound::Excluded(key);
        }
        Ok(pass)
    }

    /// Changes a key as `decide` wants for its live value; it decides again if another thread was faster. An expired entry
    /// that would be kept is removed.
    fn decide<R>(
        &self,
        key: K::Ref<'_>,
        mut decide: impl FnMut(Option<Live<'_, V::Owned>>) -> (Decision, R),
    ) -> Result<R> {
        self.tree.writable()?;
        K::with(key, |key| {
            key::check_len(K::Codec::bytes(key))?;
            let mut held = self.tree.stored(key)?;
            loop {
                let now = millis(self.now());
                let live = held.as_deref().map(|entry| live::<V>(entry, now)).transpose()?.flatten();
                let has_expired = held.is_some() && live.is_none();
                let (decision, result) = decide(live);
                let new = match &decision {
                    Decision::Keep if !has_expired => return Ok(result),
                    Decision::Keep | Decision::Remove => None,
                    Decision::Put(entry) => Some(&entry[..]),
                };
                match self.tree.exchange(key, held.as_deref(), new)? {
                    Ok(()) => return Ok(result),
                    Err(found) => held = found,
                }
            }
        })
    }
}

/// Returns the stored form of an entry.
fn stored<V: Value>(value: V::Ref<'_>, expiry: Expiry) -> Result<Buffer> {
    V::with(value, |value| join(expiry, V::Codec::item(value)))
}

/// Returns the stored form of an entry that can be written.
fn checked<V: Value>(value: V::Ref<'_>, expiry: Expiry) -> Result<Buffer> {
    let entry = stored::<V>(value, expiry)?;
    value::check_len(entry.len()).map(|()| entry)
}

/// Returns a stored entry, unless it has expired.
fn live<V: Value>(entry: &[u8], now: u64) -> Result<Option<Live<'_, V::Owned>>> {
    let damaged = || undecodable("value", Expiring::<V>::kind());
    let (expiry, stored) = split(entry).ok_or_else(damaged)?;
    if expiry.is_over_at(now) {
        return Ok(None);
    }
    let value = item::<V::Codec>(stored).and_then(V::decode).ok_or_else(damaged)?;
    Ok(Some(Live { value, expiry, stored }))
}

/// An iterator over the items of a tree that have not expired. See [`ExpiringTree::range`].
pub struct ExpiringRange<'t, K: Key, V: Value> {
    entries: Range<'t, K, Expiring<V>>,
    now: u64,
}

impl<K: Key, V: Value> ExpiringRange<'_, K, V> {
    fn live(&self, entry: Result<(K::Owned, Expiring<V::Owned>)>) -> Option<Result<ItemOf<K, V>>> {
        entry.map(|(key, entry)| entry.live_at(self.now).map(|value| (key, value))).transpose()
    }
}

impl<K: Key, V: Value> Iterator for ExpiringRange<'_, K, V> {
    type Item = Result<ItemOf<K, V>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = self.entries.next()?;
            if let Some(item) = self.live(entry) {
                return Some(item);
            }
        }
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for ExpiringRange<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            let entry = self.entries.next_back()?;
            if let Some(item) = self.live(entry) {
                return Some(item);
            }
        }
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for ExpiringRange<'_, K, V> {}

impl<K: Key, V: Value> fmt::Debug for ExpiringRange<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringRange").finish_non_exhaustive()
    }
}

impl<'t, K: Key, V: Value> IntoIterator for &'t ExpiringTree<K, V> {
    type Item = Result<ItemOf<K, V>>;
    type IntoIter = ExpiringRange<'t, K, V>;

    fn into_iter(self) -> ExpiringRange<'t, K, V> {
        self.iter()
    }
}

/// The codec of entries, on whose bytes the functions of this module work.
const _: fn() = || {
    fn is_record<V: Value<Codec = Record>>() {}
    is_record::<Expiring<u64>>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let (latest, at) =
            (AtomicU64::new(0), |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let seen = [100, 300, 200, 0, 301].map(|seconds| advance(&latest, at(seconds)));
        assert_eq!(seen, [100, 300, 300, 300, 301].map(at));
        assert_eq!(advance(&latest, SystemTime::UNIX_EPOCH - Duration::from_secs(5)), at(301));
        assert!(system_time() <= system_time());
    }
}
