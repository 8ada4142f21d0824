//! A tree: an ordered map whose operations take `&self` and survive; its lookups, and what it says of itself.

use std::marker::PhantomData;

use bristlecone_pm::{Finding, Result};
use smallvec::{SmallVec, smallvec};

use crate::api::handle::{Handle, Inherited};
use crate::api::metrics::Operation;
use crate::api::value::taken;
use crate::index::any::Shared;
use crate::index::parts::codec::{Codec, GROUP, KeyCodec};
use crate::index::{Index, TreeStats};
use crate::transaction::Link;
use crate::{Key, Pool, Value};

/// An ordered map from `K` to `V` in a pool, for any number of threads.
///
/// Every operation that changes the tree is durable when it returns `Ok`, in the pool's domain.
/// After `Err` nothing has changed, except after [`Error::DurabilityLost`](crate::Error), which
/// leaves open what a crash would. After a crash an operation that had not returned happened
/// wholly or not at all. Readers see only what is durable. Operations on single keys are
/// linearizable. An iterator sees keys in strict order, and every key that was there all the while;
/// it sees each leaf as it was at one moment, in NBTree each item.
///
/// A tree belongs to the process that opened its pool. In a child that was forked from it, writes return
/// [`Error::Forked`](crate::Error) and whatever returns no `Result` panics with its message, since the
/// pool's bytes are not in the child's memory.
pub struct Tree<K: Key, V: Value> {
    pub(crate) tree: Handle<dyn Index<K::Codec, V::Codec>>,
    pub(crate) pool: Pool,
    pub(crate) link: Link,
    /// Of the pool; here because every write asks.
    read_only: bool,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value> Clone for Tree<K, V> {
    fn clone(&self) -> Self {
        let Self { tree, pool, link, read_only, types } = self;
        Self { tree: tree.clone(), pool: pool.clone(), link: *link, read_only: *read_only, types: *types }
    }
}

impl<K: KeyCodec, V: Codec> Inherited for dyn Index<K, V> {}

impl<K: Key, V: Value> std::fmt::Debug for Tree<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("key", &K::kind()).field("value", &V::kind()).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value> Tree<K, V> {
    pub(crate) fn new(tree: Shared<K::Codec, V::Codec>, pool: Pool, link: Link) -> Self {
        let read_only = pool.0.file.is_read_only();
        let tree = Handle::new(tree, pool.0.file.opener());
        Self { tree, pool, link, read_only, types: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn writable(&self) -> Result<()> {
        if self.read_only || !self.tree.is_here() { self.pool.0.file.writable() } else { Ok(()) }
    }

    /// Changes a key through the pool's gate: other threads' batches and transactions happen before it or after it, and
    /// snapshots keep what they have to show.
    #[inline(always)]
    pub(crate) fn change<R>(
        &self,
        key: <K::Codec as Codec>::Ref<'_>,
        change: impl FnOnce(&dyn Index<K::Codec, V::Codec>) -> R,
    ) -> R {
        self.change_group(|| smallvec![key], change)
    }

    /// Changes up to [`GROUP`] keys: see [`change`](Self::change).
    #[inline(always)]
    pub(crate) fn change_group<'k, R>(
        &self,
        keys: impl FnOnce() -> SmallVec<[<K::Codec as Codec>::Ref<'k>; GROUP]>,
        change: impl FnOnce(&dyn Index<K::Codec, V::Codec>) -> R,
    ) -> R {
        let epochs = &self.pool.0.epochs;
        let entered = epochs.gate.enter();
        if !entered.is_watchful() {
            return change(&*self.tree);
        }
        let changed = {
            let _locked = epochs.watch(&entered, self.link.identity, &*self.tree, &keys());
            change(&*self.tree)
        };
        drop(entered);
        epochs.shed_if_over();
        changed
    }

    /// Verifies that this process opened the pool, so that no operation panics.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error) in a child of the process that opened the pool.
    #[inline(always)]
    pub fn opened_here(&self) -> Result<()> {
        if self.tree.is_here() { Ok(()) } else { self.pool.0.file.here() }
    }

    /// Returns whether another process writes to the pool, and may be gone at any time.
    pub(crate) fn is_followed(&self) -> bool {
        self.pool.0.file.is_followed()
    }

    /// Returns the tree; panics in a child of the process that opened the pool.
    #[inline(always)]
    pub(crate) fn here(&self) -> &dyn Index<K::Codec, V::Codec> {
        self.pool.assert_here();
        &*self.tree
    }

    /// Returns the value of a key. A value that was damaged, and cannot be of its type any more, is left out as if
    /// the key were absent: [`try_get`](Self::try_get) reports it, and compares records with their checksums, which this
    /// does not.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-get-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// assert_eq!(ages.get("Methuselah"), Some(4857));
    /// assert_eq!(ages.get("Pando"), None);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn get(&self, key: K::Ref<'_>) -> Option<V::Owned> {
        self.count_one(Operation::Get);
        let mut found = None;
        K::with(key, |key| self.here().get(key, &mut |value| found = V::decode(value)));
        found
    }

    /// Returns the value of a key as [`get`](Self::get) does, with an error where that panics.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error) in a child of the process that opened the pool; [`Error::NoWriter`](crate::Error) of a pool that is
    /// followed, whose writer has gone.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-look-up-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// assert_eq!(ages.look_up("Methuselah")?, Some(4857));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn look_up(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        let mut found = None;
        self.look_up_word(key, &mut |value| found = V::decode(value))?;
        Ok(found)
    }

    /// Calls `show` with what stands for the value of a key; returns whether it is there.
    pub(crate) fn look_up_word(
        &self,
        key: K::Ref<'_>,
        show: &mut dyn FnMut(<V::Codec as Codec>::Ref<'_>),
    ) -> Result<bool> {
        self.opened_here()?;
        self.count_one(Operation::Get);
        K::with(key, |key| self.tree.look_up(key, show))
    }

    /// Calls `show` with the value of a key, without copying it: words, strings and bytes are shown as they are in
    /// the tree; options, tuples and what serde encodes are decoded for it. Nothing is locked meanwhile, so that it
    /// may use the tree.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-get-with-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let texts = pool.tree::<u64, &str>("texts")?;
    /// texts.insert(7, "one two three")?;
    /// let words = texts.get_with(7, |text| text.split(' ').count());
    /// assert_eq!(words, Some(3));
    /// assert_eq!(texts.get_with(8, str::len), None);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_with<R>(&self, key: K::Ref<'_>, show: impl FnOnce(V::Ref<'_>) -> R) -> Option<R> {
        self.count_one(Operation::Get);
        let (mut show, mut shown) = (Some(show), None);
        let mut once = |value: <V::Codec as Codec>::Ref<'_>| {
            shown = show.take().and_then(|show| V::view(value, show));
        };
        K::with(key, |key| self.here().get(key, &mut once));
        shown
    }

    /// Returns the value of a key, with the records of keys and values compared with their checksums:
    /// [`get`](Self::get) and [`range`](Self::range) return what is there.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`](crate::Error) if the value's record is damaged or cannot be of its type, or if the record
    /// of any key in the same leaf is damaged, since it might be the one that was asked for; [`Error::Forked`](crate::Error) in a child of the opener.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-try-get-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// assert_eq!(ages.try_get("Prometheus")?, Some(4900));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_get(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.pool.0.file.here()?;
        self.count_one(Operation::Get);
        K::with(key, |key| self.tree.get_checked(key))?.map(taken::<V>).transpose()
    }

    /// Returns whether a key is there.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-contains-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Pando", 14_000)?;
    /// assert!(ages.contains_key("Pando") && !ages.contains_key("Yggdrasil"));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn contains_key(&self, key: K::Ref<'_>) -> bool {
        self.count_one(Operation::Get);
        K::with(key, |key| self.here().get(key, &mut |_| ()))
    }

    /// Returns the number of items; exact while no thread writes.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-len-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// assert!(ages.is_empty());
    /// ages.insert("Pando", 14_000)?;
    /// assert_eq!(ages.len(), 1);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn len(&self) -> u64 {
        self.here().len()
    }

    /// Returns the number of items as [`len`](Self::len) does, with an error where that panics.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error); [`Error::NoWriter`](crate::Error) of a pool that is followed, if its writer has
    /// gone.
    pub fn try_len(&self) -> Result<u64> {
        self.opened_here()?;
        self.tree.try_len()
    }

    /// Returns whether there are no items.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns what the tree occupies, in whole chunks of the pool.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-stats-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// let stats = ages.stats();
    /// assert_eq!(stats.items, 2);
    /// assert!(stats.pm_bytes >= 2 << 20);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn stats(&self) -> TreeStats {
        self.here().stats()
    }

    /// Returns what reads came across that is wrong since the tree was opened. Lookups and scans have no
    /// error to return: a damaged tree shows what it can, and a scan may end early. Nothing here
    /// means that no read met damage, not that there is none; [`check`](Self::check) looks for it.
    pub fn damage(&self) -> Vec<Finding> {
        self.tree.damage()
    }

    /// Verifies everything the tree reaches; an empty list is a sound tree. Exact only while no thread writes. In a
    /// child of the process that opened the pool, that is what it finds.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-check-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// assert!(ages.check().is_empty());
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Vec<Finding> {
        match self.pool.0.file.here() {
            Ok(()) => self.tree.check(),
            Err(error) => vec![Finding::new("tree", error.to_string())],
        }
    }
}
