//! The designs, their parts, and their common interface.

pub mod any;
mod damage;
mod damaged;
pub mod designs;
pub mod followed;
pub mod of_any;
pub mod of_keys;
pub mod options;
#[cfg(feature = "lab")]
#[doc(hidden)]
pub mod parts;
#[cfg(not(feature = "lab"))]
pub mod parts;
#[cfg(feature = "lab")]
#[doc(hidden)]
pub mod plugin;
mod ranges;
mod salvage;
mod scan;
mod table;
#[cfg(test)]
mod testing;
mod visit;

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bristlecone_pm::{Error, Issue, Manifest, ManifestReader, Medium, PoolFile, Result, TreeEntry};

pub use self::damage::Damage;
pub use self::damaged::{DamagedTree, Saved};
pub use self::options::{Allowed, OptionInfo};
pub use self::ranges::{for_each_leaf, is_empty, remove_range};
pub use self::salvage::{SalvageSink, SaveTo, Span};
pub use self::table::{Design, part_of, salvage};
use crate::index::parts::codec::{Codec, KeyCodec};
pub use crate::index::parts::items::Form;
use crate::index::parts::volatile_index::Cursor;

/// The operations of every design, with one trait for each kind. [`crate::Tree`] defines the guarantees after `Ok`,
/// `Err` and a crash.
pub trait Index<K: Codec, V: Codec>: Read<K, V> + Write<K, V> + Scan<K, V> + Inspect + 'static {}

impl<K: Codec, V: Codec, T> Index<K, V> for T where
    T: Read<K, V> + Write<K, V> + Scan<K, V> + Inspect + 'static
{
}

impl<K: Codec, V: Codec> dyn Index<K, V> {
    /// Returns a copy of the value of a key.
    ///
    /// # Errors
    ///
    /// Same as [`Read::get`].
    #[inline]
    pub fn get_owned(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        let mut held = None;
        self.get(key, &mut |value| held = Some(V::owned(value)))?;
        Ok(held)
    }
}

/// Looks up a key among all items of its leaf, and verifies the checksums of all their keys: any damaged one might be
/// the key. Otherwise like [`Read::get`].
#[cold]
pub fn get_in_leaf<K: Codec, V: Codec>(
    tree: &impl Scan<K, V>,
    key: K::Ref<'_>,
    show: &mut dyn FnMut(V::Ref<'_>),
) -> Result<bool> {
    let mut batch = Batch::default();
    tree.scan_forward((Bound::Included(key), Bound::Included(key)), &mut batch);
    match batch.damage {
        Some(error) => Err(error),
        None => Ok(batch.entries.pop().inspect(|(_, value)| show(V::borrow(value))).is_some()),
    }
}

/// Opening the trees of a design.
pub trait Open<K: KeyCodec, M: Medium>: Inspect + Sized + 'static {
    /// The options that its trees are created with.
    type Options;

    /// Opens the tree of an entry, and recovers it after a crash on up to `threads` threads. A newly created tree is
    /// empty.
    fn open(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: Self::Options,
        threads: usize,
    ) -> Result<Self>;

    /// Takes over the index that was saved when the tree was last closed, in place of [`open`](Self::open). Returns
    /// `None` if the saved index does not match; the tree is opened normally then.
    fn resume(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: Self::Options,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let _ = (pool, entry, options, manifest);
        None
    }

    /// Takes over the tree of a process that was killed, from what that had [`share`](Self::share)d with followers, in
    /// place of [`open`](Self::open). Completes or undoes what was under way. Returns `None` if the design does not
    /// support this, or in any doubt; the tree is opened normally then.
    fn take_over(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: Self::Options,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let _ = (pool, entry, options, manifest);
        None
    }

    /// Records where followers find the tree's DRAM part: `resume` takes it over in their processes, to read it while
    /// it changes. Returns `None` if the design does not support followers.
    fn share(&self, manifest: &mut Manifest) -> Option<()> {
        let _ = manifest;
        None
    }
}

/// Salvage of the trees of a design.
pub trait Salvage<K: KeyCodec, M: Medium>: Open<K, M> {
    /// Passes every readable item of a damaged tree to `sink`. The pool is a private copy.
    fn salvage(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: Self::Options,
        sink: &mut SalvageSink<'_, K>,
    ) -> Result<()>;
}

/// The directory's entry of a tree, and the form of the tree's values. The form of its keys is a type parameter.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    /// The entry.
    pub entry: &'a TreeEntry,
    /// The form of the values.
    pub values: Form,
}

impl std::ops::Deref for Described<'_> {
    type Target = TreeEntry;

    fn deref(&self) -> &TreeEntry {
        self.entry
    }
}

/// Lookups.
pub trait Read<K: Codec, V: Codec> {
    /// Looks up a key, and calls `show` once with its value; returns whether the key is present. Verifies the checksums
    /// of both records. A key counts as absent only if no damaged key can be this one: the records of keys with its
    /// fingerprint are verified.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`]; [`Error::NoWriter`] on a followed tree.
    fn get(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) -> Result<bool>;

    /// Looks up at most [`GROUP`](parts::codec::GROUP) keys, and calls `show` in order with the position and the value
    /// of each present key.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get); `show` was called for earlier keys then.
    fn get_many(&self, keys: &[K::Ref<'_>], show: &mut dyn FnMut(usize, V::Ref<'_>)) -> Result<()> {
        keys.iter()
            .enumerate()
            .try_for_each(|(at, key)| self.get(*key, &mut |value| show(at, value)).map(drop))
    }

    /// Returns the tree whose reads this one delays.
    fn beneath(&self) -> Option<&Arc<dyn Index<K, V>>> {
        None
    }
}

/// Writes.
pub trait Write<K: Codec, V: Codec> {
    /// Writes an item; returns the previous value.
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>>;

    /// Inserts or overwrites an item without returning the previous value.
    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.write(key, value, WriteMode::Upsert).map(drop)
    }

    /// Returns whether an upsert is faster than a [`write`](Self::write), because it does not search the previous value.
    fn has_fast_upserts(&self) -> bool {
        false
    }

    /// Removes an item; returns its value.
    fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>>;

    /// Writes at most [`GROUP`](parts::codec::GROUP) items, independently and in order, and calls `tell` with the
    /// previous value of each once it is durable. After an error exactly the reported items are written.
    fn write_many(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], tell: &mut Tell<'_, V>) -> Result<()> {
        items.iter().try_for_each(|(key, value)| {
            tell(self.write(*key, *value, WriteMode::Upsert)?);
            Ok(())
        })
    }

    /// Writes items as [`write_many`](Self::write_many) does. `tell` may not get their previous values.
    fn upsert_many(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], tell: &mut Tell<'_, V>) -> Result<()> {
        if !self.has_fast_upserts() {
            return self.write_many(items, tell);
        }
        items.iter().try_for_each(|(key, value)| {
            self.upsert(*key, *value)?;
            tell(None);
            Ok(())
        })
    }

    /// Removes at most [`GROUP`](parts::codec::GROUP) items, and calls `tell` as [`write_many`](Self::write_many) does.
    fn remove_many(&self, keys: &[K::Ref<'_>], tell: &mut Tell<'_, V>) -> Result<()> {
        keys.iter().try_for_each(|key| {
            tell(self.remove(*key)?);
            Ok(())
        })
    }

    /// Appends items to a tree that no other thread can access yet. Their keys must be ascending and above all existing
    /// keys. Returns the number of items written: as many as fill leaves, or all if they are the `last` ones.
    /// Discarding the tree after an error, or a crash, discards all of its items.
    fn append(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], last: bool) -> Result<usize> {
        let _ = last;
        for group in items.chunks(parts::codec::GROUP) {
            self.upsert_many(group, &mut |_| {})?;
        }
        Ok(items.len())
    }

    /// Removes an item if its value is `expected`; the inner `Err` is the value found instead, which stays.
    fn remove_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>) -> Result<Swapped<V>>;

    /// Replaces a value if it is `expected`; the inner `Err` is the value found instead.
    fn compare_and_swap(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>>;
}

/// Receives the previous values of a group of changes, in order.
pub type Tell<'a, V> = dyn FnMut(Option<<V as Codec>::Owned>) + 'a;

/// Outcome of a conditional change: done, or the value found instead.
pub type Swapped<V> = std::result::Result<(), Option<<V as Codec>::Owned>>;

/// Outcome of a removal: the removed value, or the value found instead.
pub type Removed<V> = std::result::Result<<V as Codec>::Owned, Option<<V as Codec>::Owned>>;

/// Scans, one leaf at a time.
pub trait Scan<K: Codec, V: Codec> {
    /// Appends the items within bounds of the next non-empty leaf to the empty batch `into`. Returns `false` if there
    /// are none, or if the scan ended early, for the reason in [`Batch::damage`]. A call with the same batch continues
    /// the scan.
    fn scan_forward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool;

    /// Scans in descending order, otherwise like [`scan_forward`](Self::scan_forward).
    fn scan_backward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool;

    /// Calls `visit` with the items within bounds, in ascending order, until it breaks.
    ///
    /// # Errors
    ///
    /// Same as [`Read::get`].
    fn visit(
        &self,
        bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        visit: &mut Visit<'_, K, V>,
    ) -> Result<()> {
        let (mut batch, mut last) = (Batch::default(), None);
        while self.scan_forward(visit::behind::<K>(&last, bounds), &mut batch) {
            while let Some((key, value)) = batch.entries.pop() {
                if visit.see(K::borrow(&key), V::borrow(&value)).is_break() {
                    return Ok(());
                }
                last = Some(key);
            }
        }
        batch.damage.map_or(Ok(()), Err)
    }
}

/// Receives items, without copying them.
pub type SeeItem<'a, K, V> = dyn FnMut(<K as Codec>::Ref<'_>, <V as Codec>::Ref<'_>) -> ControlFlow<()> + 'a;

/// Receives keys, without copying them.
pub type SeeKey<'a, K> = dyn FnMut(<K as Codec>::Ref<'_>) -> ControlFlow<()> + 'a;

/// Receives the items of a range in order.
pub enum Visit<'a, K: Codec, V: Codec> {
    /// Keys and values.
    Items(&'a mut SeeItem<'a, K, V>),
    /// Keys alone. A design may leave values unread, and then does not verify them.
    Keys(&'a mut SeeKey<'a, K>),
}

impl<K: Codec, V: Codec> Visit<'_, K, V> {
    /// Passes on an item.
    #[inline(always)]
    pub fn see(&mut self, key: K::Ref<'_>, value: V::Ref<'_>) -> ControlFlow<()> {
        match self {
            Self::Items(see) => see(key, value),
            Self::Keys(see) => see(key),
        }
    }
}

/// Statistics and checks of a tree, independent of its key and value types.
#[allow(clippy::len_without_is_empty, reason = "the public face has it")]
pub trait Inspect: Send + Sync {
    /// Returns the number of items. The count is exact while no thread writes.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`] if damage may affect the number; [`Error::NoWriter`] on a followed tree.
    fn len(&self) -> Result<u64>;

    /// Returns the number of items, or `None` if they would have to be counted.
    fn len_known(&self) -> Option<u64> {
        self.len().ok()
    }

    /// Returns the space that the tree occupies.
    ///
    /// # Errors
    ///
    /// [`Error::NoWriter`] on a followed tree.
    fn stats(&self) -> Result<TreeStats>;

    /// Verifies everything reachable from the tree. The result is exact only while no thread writes.
    fn check(&self) -> Vec<Issue>;

    /// Returns the damage that reads have encountered since the tree was opened; they may have returned incomplete
    /// results.
    fn damage(&self) -> Vec<Issue> {
        Vec::new()
    }

    /// Returns whether recovery refused the tree, so that only its readable items are served.
    fn is_salvaged(&self) -> bool {
        false
    }
}

/// Condition of a write on the presence of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Writes unconditionally.
    Upsert,
    /// Writes only if the key is absent.
    New,
    /// Writes only if the key is present.
    Update,
}

/// Space that a tree occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeStats {
    /// Items.
    pub items: u64,
    /// Leaves.
    pub leaves: u64,
    /// Bytes of the pool, in whole chunks.
    pub pm_bytes: u64,
    /// Bytes of DRAM of the index and the leaf descriptors.
    pub dram_bytes: u64,
    /// Part of the pool's bytes that the log uses, including its reserve.
    pub log_bytes: u64,
    /// Log entries that recovery would still need, i.e. buffered items. Exact while no thread writes.
    pub log_entries: u64,
}

/// The items of one leaf in an iterator, which takes them from the end.
pub struct Batch<K: Codec, V: Codec> {
    /// Forward: descending. Backward: ascending.
    pub entries: Vec<(K::Owned, V::Owned)>,
    /// Forward: position of the next leaf.
    cursor: Option<Cursor>,
    /// Forward: no item within the bounds is behind this leaf.
    ended: bool,
    /// Backward: the low fence of this leaf (`Some(None)`: the leaf is the first). Forward, for designs without
    /// cursors: the low fence of the next leaf.
    pub fence: Option<Option<K::Owned>>,
    /// Whether the scan also returns items that damage may affect: it verifies no checksums.
    pub lenient: bool,
    /// The reason why a scan ended before its bounds.
    pub damage: Option<Error>,
    /// The state of a followed tree to which the position belongs.
    state: u64,
}

impl<K: Codec, V: Codec> Default for Batch<K, V> {
    fn default() -> Self {
        let (entries, damage) = (Vec::new(), None);
        Self { entries, cursor: None, ended: false, fence: None, lenient: false, damage, state: 0 }
    }
}

impl<K: Codec, V: Codec> Batch<K, V> {
    /// Ends the scan because of damage, with an empty batch. Returns `false`, as scans do at their end.
    #[cold]
    pub fn fail(&mut self, error: Error) -> bool {
        self.entries.clear();
        self.ended = true;
        self.damage.get_or_insert(error);
        false
    }
}
