//! A tree: an ordered map whose operations take `&self` and are durable. Lookups and metadata.

use std::sync::Arc;
use std::time::Duration;

use bristlecone_pm::{Error, Issue, Result};

use crate::api::handle::{Handle, Inherited};
use crate::api::metrics::Operation;
use crate::api::tree_write::Stored;
use crate::api::value::undecodable;
use crate::dynamic::Kind;
use crate::index::of_any::of_any;
use crate::index::of_keys::Shared;
use crate::index::parts::codec::{Any, Codec};
use crate::index::{Index, TreeStats};
use crate::transaction::Link;
use crate::{Key, Pool, Value};

/// A concurrent ordered map from `K` to `V` in a pool.
///
/// A write is durable in the pool's domain when it returns `Ok`. After `Err` nothing has changed, except after
/// [`Error::DurabilityLost`](crate::Error), whose outcome is as undetermined as after a crash. Each operation that a
/// crash interrupts is applied or not, atomically. Readers see only durable data. Operations on single keys are
/// linearizable. An iterator returns keys in strict order and includes every key that was present throughout. It sees
/// each leaf at one point in time; in NBTree, each item.
///
/// A read verifies the checksums of the records that it returns: see [`get`](Self::get) for its errors. Words have no
/// checksum. `docs/durability.md` lists the damage that reads cannot detect.
///
/// A tree belongs to the process that opened its pool. In a forked child, operations return
/// [`Error::Forked`](crate::Error), because the pool's bytes are not in the child's memory.
pub struct Tree<K: Key, V: Value> {
    pub(crate) tree: Handle<dyn Index<K::Codec, V::Codec>>,
    pub(crate) pool: Pool,
    pub(crate) link: Link,
    /// Copied from the pool, because every write checks it.
    read_only: bool,
    /// Whether reads of `tree` wait for the journal.
    is_delayed: bool,
    pub(crate) keys: K::Schema,
    pub(crate) values: V::Schema,
}

impl<K: Key, V: Value> Clone for Tree<K, V> {
    fn clone(&self) -> Self {
        let Self { tree, pool, link, read_only, is_delayed, keys, values } = self;
        let (tree, pool, keys, values) = (tree.clone(), pool.clone(), keys.clone(), values.clone());
        Self { tree, pool, link: *link, read_only: *read_only, is_delayed: *is_delayed, keys, values }
    }
}

impl<K: Codec, V: Codec> Inherited for dyn Index<K, V> {}

impl<K: Key, V: Value> std::fmt::Debug for Tree<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree")
            .field("key", &K::name(&self.keys))
            .field("value", &V::name(&self.values))
            .finish_non_exhaustive()
    }
}

impl<K: Key, V: Value> Tree<K, V> {
    pub(crate) fn new(
        tree: Shared<K::Codec, V::Codec>,
        pool: Pool,
        link: Link,
        (keys, values): (K::Schema, V::Schema),
    ) -> Self {
        let read_only = pool.0.file.is_read_only();
        let tree = Handle::new(pool.as_read(tree), pool.0.file.opener());
        let is_delayed = tree.beneath().is_some();
        Self { tree, pool, link, read_only, is_delayed, keys, values }
    }

    /// Returns the time after which a value expires whose write names no expiry: see
    /// [`TreeOptions::expire_after`](crate::TreeOptions::expire_after).
    pub fn expire_after(&self) -> Option<Duration> {
        let millis = self.link.expire_after;
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// Returns the tree as one of other types with the same stored form.
    pub(crate) fn with_types<L: Key<Codec = K::Codec>, W: Value<Codec = V::Codec>>(
        self,
        keys: L::Schema,
        values: W::Schema,
    ) -> Tree<L, W> {
        let Self { tree, pool, link, read_only, is_delayed, .. } = self;
        Tree { tree, pool, link, read_only, is_delayed, keys, values }
    }

    /// Returns the error for a key that does not decode as its type.
    #[cold]
    pub(crate) fn undecodable_key(&self) -> Error {
        undecodable("key", K::name(&self.keys))
    }

    /// Returns the error for a value that does not decode as its type.
    #[cold]
    pub(crate) fn undecodable_value(&self) -> Error {
        undecodable("value", V::name(&self.values))
    }

    /// Decodes a value read from the tree.
    #[inline(always)]
    pub(crate) fn taken(&self, value: Stored<V::Codec>) -> Result<V::Owned> {
        V::take(&self.values, value).ok_or_else(|| self.undecodable_value())
    }

    /// Decodes a value that was replaced or removed. One that does not decode counts as absent, because it is gone.
    #[inline(always)]
    pub(crate) fn replaced(&self, value: Option<Stored<V::Codec>>) -> Option<V::Owned> {
        value.and_then(|value| V::take(&self.values, value))
    }

    /// Returns the tree for reads that do not wait for the journal: a snapshot waits once, and a commit must not wait with
    /// the locks that it holds.
    #[inline(always)]
    pub(crate) fn undelayed(&self) -> &dyn Index<K::Codec, V::Codec> {
        let beneath = if self.is_delayed { self.tree.beneath() } else { None };
        beneath.map_or(&*self.tree, |tree| &**tree)
    }

    /// Returns that tree as one of any codec.
    pub(crate) fn undelayed_of_any(&self) -> Shared<Any, Any> {
        of_any(self.tree.beneath().unwrap_or(self.tree.shared()))
    }

    /// Returns a handle to that tree.
    pub(crate) fn undelayed_handle(&self) -> Handle<dyn Index<K::Codec, V::Codec>> {
        let beneath = self.tree.beneath().map(|tree| Handle::new(Arc::clone(tree), *self.tree.opener()));
        beneath.unwrap_or_else(|| self.tree.clone())
    }

    #[inline(always)]
    pub(crate) fn writable(&self) -> Result<()> {
        if self.read_only || !self.tree.is_here() { self.pool.0.file.writable() } else { Ok(()) }
    }

    /// Verifies that this process opened the pool.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a child of the process that opened the pool.
    #[inline(always)]
    pub fn opened_here(&self) -> Result<()> {
        if self.tree.is_here() { Ok(()) } else { self.pool.0.file.here() }
    }

    /// Returns the tree, unless this is a child of the process that opened the pool.
    #[inline(always)]
    pub(crate) fn here(&self) -> Result<&dyn Index<K::Codec, V::Codec>> {
        self.opened_here().map(|()| &*self.tree)
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`](crate::Error) if the record of the key or of its value is damaged, if the value does not
    /// decode as its type, or if damage may affect the key, present or absent: see [`damage`](Self::damage).
    /// [`Error::NoWriter`](crate::Error) on a followed pool whose writer has exited.
    /// [`Error::Forked`](crate::Error) in a child of the process that opened the pool.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// assert_eq!(ages.get("Methuselah")?, Some(4857));
    /// assert_eq!(ages.get("Pando")?, None);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    #[inline]
    pub fn get(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        let mut found = None;
        self.look_up(key, &mut |value| found = Some(V::decode(&self.values, value)))?;
        found.map(|value| value.ok_or_else(|| self.undecodable_value())).transpose()
    }

    /// Calls `show` with the stored word of a key's value; returns whether the key is present.
    #[inline(always)]
    pub(crate) fn look_up(
        &self,
        key: K::Ref<'_>,
        show: &mut dyn FnMut(<V::Codec as Codec>::Ref<'_>),
    ) -> Result<bool> {
        self.count_one(Operation::Get);
        K::with(&self.keys, key, |key| self.here()?.get(key, show))
    }

    /// Calls `show` with the value of a key, without copying it. Words, strings and bytes are passed as stored in the
    /// tree; options, tuples and serde values are decoded first. No lock is held during the call, so `show` may use the
    /// tree.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let texts = pool.tree::<u64, &str>("texts")?;
    /// texts.insert(7, "one two three")?;
    /// let words = texts.get_with(7, |text| text.split(' ').count())?;
    /// assert_eq!(words, Some(3));
    /// assert_eq!(texts.get_with(8, str::len)?, None);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn get_with<R>(&self, key: K::Ref<'_>, show: impl FnOnce(V::Ref<'_>) -> R) -> Result<Option<R>> {
        let (mut show, mut shown) = (Some(show), None);
        self.look_up(key, &mut |value| {
            shown = show.take().map(|show| V::view(&self.values, value, show));
        })?;
        shown.map(|shown| shown.ok_or_else(|| self.undecodable_value())).transpose()
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
    /// ages.insert("Pando", 14_000)?;
    /// assert!(ages.contains_key("Pando")? && !ages.contains_key("Yggdrasil")?);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn contains_key(&self, key: K::Ref<'_>) -> Result<bool> {
        self.look_up(key, &mut |_| ())
    }

    /// Returns the number of items. The count is exact while no thread writes.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// assert!(ages.is_empty()?);
    /// ages.insert("Pando", 14_000)?;
    /// assert_eq!(ages.len()?, 1);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn len(&self) -> Result<u64> {
        self.here()?.len()
    }

    /// Returns whether the tree is empty.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the space that the tree occupies, in whole chunks of the pool.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// let stats = ages.stats()?;
    /// assert_eq!(stats.items, 2);
    /// assert!(stats.pm_bytes >= 2 << 20);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn stats(&self) -> Result<TreeStats> {
        self.here()?.stats()
    }

    /// Returns damage that reads have encountered since the tree was opened, as far as the design records it. An empty
    /// list does not mean that the tree is sound; use [`check`](Self::check) to verify it.
    ///
    /// A read-only pool opens a tree that recovery refuses. Its issues are in this list from the start, and its
    /// readable items are in memory. Reads return them, and [`Error::Corrupted`](crate::Error) for keys that the damage
    /// may affect, present or absent. [`readable`](Self::readable) returns those items, too.
    pub fn damage(&self) -> Vec<Issue> {
        self.tree.damage()
    }

    /// Returns whether recovery refused the tree, so that only its readable items are served: see
    /// [`damage`](Self::damage).
    pub fn is_salvaged(&self) -> bool {
        self.tree.is_salvaged()
    }

    /// Verifies everything reachable from the tree; an empty list means a sound tree. The result is exact only while no
    /// thread writes. In a child of the process that opened the pool, the result reports that.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// ages.insert("Prometheus", 4900)?;
    /// assert!(ages.check().is_empty());
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn check(&self) -> Vec<Issue> {
        if let Err(error) = self.pool.0.file.here() {
            return vec![Issue::new("tree", error.to_string())];
        }
        let mut issues = self.tree.check();
        if issues.is_empty() {
            self.find_undecodable(&mut issues);
        }
        issues
    }

    /// Finds items whose stored form does not decode as their types, if some form does not.
    fn find_undecodable(&self, issues: &mut Vec<Issue>) {
        let (keys, values) = (K::name(&self.keys), V::name(&self.values));
        let is_everything = |kind: &str| kind.parse().is_ok_and(|kind: Kind| kind.is_everything());
        if is_everything(&keys) && is_everything(&values) {
            return;
        }
        let (mut unfit_keys, mut unfit_values) = (0u64, 0u64);
        for (key, value) in self.walk_up() {
            unfit_keys += u64::from(K::decode(&self.keys, key).is_none());
            unfit_values += u64::from(V::take(&self.values, value).is_none());
        }
        for (count, what, kind) in [(unfit_keys, "keys", keys), (unfit_values, "values", values)] {
            if count > 0 {
                issues.push(Issue::new(what, format!("{count} of them are no {kind}")));
            }
        }
    }
}
