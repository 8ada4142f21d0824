//! Trees whose entries expire.

mod clock;
mod range;
mod removal;
mod write;

use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bristlecone_pm::Result;

pub use self::range::ExpiringRange;
pub use self::removal::ExpiredRemoval;
use crate::api::iter::Limit;
use crate::api::kinds::expiring::{Expiring, Expiry};
use crate::{Key, Tree, Value};

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
/// # The expiry of a write
///
/// A write takes an [`Expiry`], or `None` for that of the tree: [`default_expiry`](Self::default_expiry), which
/// [`TreeOptions::expire_after`](crate::TreeOptions::expire_after) sets when the tree is created.
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
        ExpiringTree { tree: self, clock: Arc::new(clock::system_time), position }
    }
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

    /// Returns the time after which a value expires whose write names no expiry: see
    /// [`TreeOptions::expire_after`](crate::TreeOptions::expire_after).
    pub fn expire_after(&self) -> Option<Duration> {
        self.tree.expire_after()
    }

    /// Returns the expiry of a value that is written now without one.
    pub fn default_expiry(&self) -> Expiry {
        self.expire_after().map_or(Expiry::NEVER, |time| self.after(time))
    }

    /// Returns the expiry that a write names, or the default.
    fn named(&self, expiry: impl Into<Option<Expiry>>) -> Expiry {
        expiry.into().unwrap_or_else(|| self.default_expiry())
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
}
