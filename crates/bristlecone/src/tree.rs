//! A tree: an ordered map whose operations take `&self` and survive.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use bristlecone_pm::{Finding, Result};

use crate::handle::{Handle, Inherited};
use crate::iter::{CheckedRange, Range};
use crate::shared::codec::{Codec, KeyCodec};
use crate::trees::any::Shared;
use crate::trees::{Batch, Index, Swapped, TreeStats, WriteMode};
use crate::value::taken;
use crate::{Key, Pool, Value, key, value};

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
    tree: Handle<dyn Index<K::Codec, V::Codec>>,
    pool: Pool,
    /// Of the pool; here because every write asks.
    read_only: bool,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value> Clone for Tree<K, V> {
    fn clone(&self) -> Self {
        let Self { tree, pool, read_only, types } = self;
        Self { tree: tree.clone(), pool: pool.clone(), read_only: *read_only, types: *types }
    }
}

impl<K: KeyCodec, V: Codec> Inherited for dyn Index<K, V> {}

impl<K: Key, V: Value> std::fmt::Debug for Tree<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("key", &K::kind()).field("value", &V::kind()).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value> Tree<K, V> {
    pub(crate) fn new(tree: Shared<K::Codec, V::Codec>, pool: Pool) -> Self {
        let read_only = pool.0.file.is_read_only();
        let tree = Handle::new(tree, pool.0.file.opener());
        Self { tree, pool, read_only, types: PhantomData }
    }

    #[inline(always)]
    fn writable(&self) -> Result<()> {
        if self.read_only || !self.tree.is_here() { self.pool.0.file.writable() } else { Ok(()) }
    }

    /// `Err` in a child of the process that opened the pool.
    pub(crate) fn opened_here(&self) -> Result<()> {
        self.pool.0.file.here()
    }

    /// Returns the tree; panics in a child of the process that opened the pool.
    #[inline(always)]
    pub(crate) fn here(&self) -> &dyn Index<K::Codec, V::Codec> {
        self.pool.assert_here();
        &*self.tree
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: K::Ref<'_>) -> Option<V::Owned> {
        let mut found = None;
        K::with(key, |key| self.here().get(key, &mut |value| found = V::decode(value)));
        found
    }

    /// Calls `show` with the value of a key, without copying it. Nothing is locked meanwhile, so that it
    /// may use the tree.
    pub fn get_with<R>(&self, key: K::Ref<'_>, show: impl FnOnce(V::Ref<'_>) -> R) -> Option<R> {
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
    /// [`Error::Corrupted`](crate::Error) if the value's record is damaged, or that of any key in the same leaf,
    /// since it might be the one that was asked for.
    pub fn try_get(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.pool.0.file.here()?;
        let mut batch = Batch::checked();
        K::with(key, |key| self.tree.scan_forward((Bound::Included(key), Bound::Included(key)), &mut batch));
        match batch.damage {
            Some(error) => Err(error),
            None => batch.entries.pop().map(|(_, value)| taken::<V>(value)).transpose(),
        }
    }

    /// Iterates over items as [`range`](Self::range) does, with the records of keys and values
    /// compared with their checksums. After an error nothing more comes from this end.
    pub fn try_range<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> CheckedRange<'_, K, V> {
        self.range(bounds).checked()
    }

    /// Whether a key is there.
    pub fn contains_key(&self, key: K::Ref<'_>) -> bool {
        K::with(key, |key| self.here().get(key, &mut |_| ()))
    }

    /// Writes a key's value, whether it is there or not; gives the value it had.
    pub fn insert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Option<V::Owned>> {
        self.write(key, value, WriteMode::Upsert)
    }

    /// Writes a key's value, whether it is there or not, and does not tell which. Trees that buffer
    /// (LodgeTree, and CCL-BTree where keys fit a word) need not look into a leaf for that.
    pub fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.writable()?;
        V::with(value, |value| {
            value::check_len(V::Codec::bytes(value))?;
            K::with(key, |key| {
                key::check_len(K::Codec::bytes(key))?;
                self.tree.upsert(key, value)
            })
        })
    }

    /// Writes a key that is not there yet. `Some`: it was, with this value, and nothing changed.
    pub fn insert_new(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Option<V::Owned>> {
        self.write(key, value, WriteMode::New)
    }

    /// Replaces the value of a key that is there; gives the value it had. `None`: it was not, and
    /// nothing changed.
    pub fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Option<V::Owned>> {
        self.write(key, value, WriteMode::Update)
    }

    #[inline]
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>> {
        self.writable()?;
        let old = V::with(value, |value| {
            value::check_len(V::Codec::bytes(value))?;
            K::with(key, |key| {
                key::check_len(K::Codec::bytes(key))?;
                self.tree.write(key, value, mode)
            })
        })?;
        old.map(taken::<V>).transpose()
    }

    /// Removes a key; gives its value.
    pub fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.writable()?;
        let old = K::with(key, |key| self.tree.remove(key))?;
        old.map(taken::<V>).transpose()
    }

    /// Removes a key if its value is `expected`. `Err` within `Ok`: it was not, nothing changed, and this is
    /// what was there.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub fn remove_if(
        &self,
        key: K::Ref<'_>,
        expected: V::Ref<'_>,
    ) -> Result<std::result::Result<(), Option<V::Owned>>> {
        self.writable()?;
        let removed = V::with(expected, |expected| K::with(key, |key| self.tree.remove_if(key, expected)))?;
        missed::<V>(removed)
    }

    /// Replaces the value of a key if it is `expected`. `Err` within `Ok`: it was not, nothing
    /// changed, and this is what was there.
    pub fn compare_and_swap(
        &self,
        key: K::Ref<'_>,
        expected: V::Ref<'_>,
        new: V::Ref<'_>,
    ) -> Result<std::result::Result<(), Option<V::Owned>>> {
        self.writable()?;
        let swapped = V::with(expected, |expected| {
            V::with(new, |new| {
                value::check_len(V::Codec::bytes(new))?;
                K::with(key, |key| self.tree.compare_and_swap(key, expected, new))
            })
        })?;
        missed::<V>(swapped)
    }

    /// The items whose keys lie within bounds, in order, from both ends. Bounds the wrong way
    /// round hold nothing.
    pub fn range<'a>(&self, bounds: impl RangeBounds<K::Ref<'a>>) -> Range<'_, K, V> {
        let own =
            |bound: Bound<&K::Ref<'a>>| bound.map(|key| K::with(*key, |key| <K::Codec as Codec>::owned(key)));
        Range::new(self, own(bounds.start_bound()), own(bounds.end_bound()))
    }

    /// All items in order, from both ends.
    pub fn iter(&self) -> Range<'_, K, V> {
        Range::new(self, Bound::Unbounded, Bound::Unbounded)
    }

    /// The item with the smallest key.
    pub fn first_key_value(&self) -> Option<(K::Owned, V::Owned)> {
        self.iter().next()
    }

    /// The item with the largest key.
    pub fn last_key_value(&self) -> Option<(K::Owned, V::Owned)> {
        self.iter().next_back()
    }

    /// Number of items; exact while nobody writes.
    pub fn len(&self) -> u64 {
        self.here().len()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the tree occupies.
    pub fn stats(&self) -> TreeStats {
        self.here().stats()
    }

    /// Returns what reads came across that is wrong since the tree was opened. Lookups and scans have no
    /// error to return: a damaged tree shows what it can, and a scan may end early. Nothing here
    /// means that no read met damage, not that there is none; [`check`](Self::check) looks for it.
    pub fn damage(&self) -> Vec<Finding> {
        self.tree.damage()
    }

    /// Verifies everything the tree reaches. Exact only while nobody writes.
    pub fn check(&self) -> Vec<Finding> {
        match self.pool.0.file.here() {
            Ok(()) => self.tree.check(),
            Err(error) => vec![Finding::new("tree", error.to_string())],
        }
    }
}

/// Returns what a write came to that was to happen only beside a certain value.
fn missed<V: Value>(done: Swapped<V::Codec>) -> Result<std::result::Result<(), Option<V::Owned>>> {
    match done {
        Ok(()) => Ok(Ok(())),
        Err(found) => found.map(taken::<V>).transpose().map(Err),
    }
}
