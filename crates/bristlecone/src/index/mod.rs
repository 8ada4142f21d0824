//! The designs, their parts, and the face that they share.

pub mod any;
mod damage;
pub mod designs;
pub mod followed;
pub mod options;
#[cfg(feature = "lab")]
#[doc(hidden)]
pub mod parts;
#[cfg(not(feature = "lab"))]
pub mod parts;
#[cfg(feature = "lab")]
#[doc(hidden)]
pub mod plugin;
mod salvage;
mod scan;
mod table;
mod visit;

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bristlecone_pm::{Error, Finding, Medium, Notes, NotesReader, PoolFile, Result, TreeEntry};

pub use self::damage::Damage;
pub use self::options::{Allowed, OptionInfo};
pub use self::salvage::SalvageSink;
pub use self::table::{Design, part_of, salvage};
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::parts::volatile_index::Cursor;

/// What every design does, one trait for each kind of operation. What holds after `Ok`, `Err` and a crash stands at
/// [`crate::Tree`].
pub trait Index<K: KeyCodec, V: Codec>: Read<K, V> + Write<K, V> + Scan<K, V> + Inspect + 'static {}

impl<K: KeyCodec, V: Codec, T> Index<K, V> for T where
    T: Read<K, V> + Write<K, V> + Scan<K, V> + Inspect + 'static
{
}

impl<K: KeyCodec, V: Codec> dyn Index<K, V> {
    /// Returns the value of a key, with the records of both compared with their checksums.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`]; [`Error::NoWriter`] of a tree that is followed.
    #[inline]
    pub fn get_checked(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        if K::INLINE && V::INLINE {
            let mut held = None;
            self.look_up(key, &mut |value| held = Some(V::owned(value)))?;
            return Ok(held);
        }
        let mut batch = Batch::checked();
        self.scan_forward((Bound::Included(key), Bound::Included(key)), &mut batch);
        match batch.damage {
            Some(error) => Err(error),
            None => Ok(batch.entries.pop().map(|(_, value)| value)),
        }
    }
}

/// How a design's trees are opened.
pub trait Open<K: KeyCodec, V: Codec, M: Medium>: Index<K, V> + Sized {
    /// What its trees are created with.
    type Options;

    /// Opens the tree of an entry, recovering whatever a crash left on up to `threads` threads; a
    /// tree that was just created is empty.
    fn open(
        pool: &Arc<PoolFile<M>>,
        entry: &TreeEntry,
        options: Self::Options,
        threads: usize,
    ) -> Result<Self>;

    /// Takes over what the tree left behind when it was last closed, in place of [`open`](Self::open). `None`: that is
    /// something else, and the tree is opened.
    fn resume(
        pool: &Arc<PoolFile<M>>,
        entry: &TreeEntry,
        options: Self::Options,
        notes: &mut NotesReader<'_>,
    ) -> Option<Self> {
        let _ = (pool, entry, options, notes);
        None
    }

    /// Notes where followers find what the tree has in DRAM: `resume` takes that over in their processes, to read it while
    /// it changes. `None`: it has no followers.
    fn share(&self, notes: &mut Notes) -> Option<()> {
        let _ = notes;
        None
    }

    /// Hands over every item that can still be read, whatever is damaged. The pool is a private
    /// copy. A design that can do no better opens the tree, which is all or nothing.
    fn salvage(
        pool: &Arc<PoolFile<M>>,
        entry: &TreeEntry,
        options: Self::Options,
        sink: &mut SalvageSink<'_, K, V>,
    ) -> Result<()> {
        let tree = Self::open(pool, entry, options, 1)?;
        sink.findings.extend(tree.check());
        let mut batch = Batch::default();
        while tree.scan_forward((Bound::Unbounded, Bound::Unbounded), &mut batch) {
            for (key, value) in batch.entries.drain(..).rev() {
                sink.keep(K::borrow(&key), V::borrow(&value))?;
            }
        }
        Ok(())
    }
}

/// Lookups.
pub trait Read<K: KeyCodec, V: Codec> {
    /// Looks a key up, and calls `show` with its value, once; returns whether it is there.
    fn get(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) -> bool;

    /// Looks a key up as [`get`](Self::get) does, where that can fail.
    ///
    /// # Errors
    ///
    /// [`Error::NoWriter`] of a tree that is followed.
    fn look_up(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) -> Result<bool> {
        Ok(self.get(key, show))
    }

    /// Looks up to [`GROUP`](parts::codec::GROUP) keys up, and calls `show` with the place and the value of each that
    /// is there, in their order.
    fn get_many(&self, keys: &[K::Ref<'_>], show: &mut dyn FnMut(usize, V::Ref<'_>)) {
        for (at, key) in keys.iter().enumerate() {
            self.get(*key, &mut |value| show(at, value));
        }
    }

    /// Looks keys up as [`get_many`](Self::get_many) does, where that can fail.
    ///
    /// # Errors
    ///
    /// [`Error::NoWriter`] of a tree that is followed.
    fn look_up_many(&self, keys: &[K::Ref<'_>], show: &mut dyn FnMut(usize, V::Ref<'_>)) -> Result<()> {
        self.get_many(keys, show);
        Ok(())
    }
}

/// Changes.
pub trait Write<K: KeyCodec, V: Codec> {
    /// Writes an item; returns the value that was there.
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>>;

    /// Writes an item, without telling what was there.
    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.write(key, value, WriteMode::Upsert).map(drop)
    }

    /// Removes an item; returns its value.
    fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>>;

    /// Writes up to [`GROUP`](parts::codec::GROUP) items, each by itself and in their order, and calls `tell` with what
    /// each replaced once it is durable. After an error so many are written as were told, and no others.
    fn write_many(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], tell: &mut Tell<'_, V>) -> Result<()> {
        items.iter().try_for_each(|(key, value)| {
            tell(self.write(*key, *value, WriteMode::Upsert)?);
            Ok(())
        })
    }

    /// Writes items as [`write_many`](Self::write_many) does, and calls `tell` with nothing.
    fn upsert_many(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], tell: &mut Tell<'_, V>) -> Result<()> {
        items.iter().try_for_each(|(key, value)| {
            self.upsert(*key, *value)?;
            tell(None);
            Ok(())
        })
    }

    /// Removes up to [`GROUP`](parts::codec::GROUP) items, and calls `tell` as [`write_many`](Self::write_many) does.
    fn remove_many(&self, keys: &[K::Ref<'_>], tell: &mut Tell<'_, V>) -> Result<()> {
        keys.iter().try_for_each(|key| {
            tell(self.remove(*key)?);
            Ok(())
        })
    }

    /// Adds items to a tree that no other thread has yet: their keys ascend, and lie above all that is there. Returns how
    /// many of the first ones are written, as many as fill leaves, or all if they are the `last` ones. A tree that is
    /// given up after an error, or lost in a crash, takes everything along.
    fn append(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], last: bool) -> Result<usize> {
        let _ = last;
        for group in items.chunks(parts::codec::GROUP) {
            self.upsert_many(group, &mut |_| {})?;
        }
        Ok(items.len())
    }

    /// Removes an item if its value is `expected`; `Err` within `Ok` is what was there instead, and stays.
    fn remove_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>) -> Result<Swapped<V>>;

    /// Replaces a value if it is `expected`; `Err` within `Ok` is what was there instead.
    fn compare_and_swap(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>>;
}

/// Takes what a change of a group replaced: the changes are told in their order.
pub type Tell<'a, V> = dyn FnMut(Option<<V as Codec>::Owned>) + 'a;

/// What a conditional change came to: done, or the value that was there instead.
pub type Swapped<V> = std::result::Result<(), Option<<V as Codec>::Owned>>;

/// What a removal came to: the value that was removed, or the one that was not as expected.
pub type Removed<V> = std::result::Result<<V as Codec>::Owned, Option<<V as Codec>::Owned>>;

/// Scans, a leaf at a time.
pub trait Scan<K: KeyCodec, V: Codec> {
    /// Puts the items within bounds of the next leaf that has any into `into`, which is empty.
    /// `false`: there are none, or [`Batch::damage`] says why there might be. Going on with the same
    /// batch continues where it ended.
    fn scan_forward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool;

    /// Goes towards smaller keys, otherwise as [`scan_forward`](Self::scan_forward).
    fn scan_backward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool;

    /// Calls `visit` with the items within bounds, towards larger keys, until it breaks off.
    fn visit(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), visit: &mut Visit<'_, K, V>) {
        let (mut batch, mut last) = (Batch::default(), None);
        while self.scan_forward(visit::behind::<K>(&last, bounds), &mut batch) {
            while let Some((key, value)) = batch.entries.pop() {
                if visit(K::borrow(&key), V::borrow(&value)).is_break() {
                    return;
                }
                last = Some(key);
            }
        }
    }
}

/// Is shown items in order, without their being copied.
pub type Visit<'a, K, V> = dyn FnMut(<K as Codec>::Ref<'_>, <V as Codec>::Ref<'_>) -> ControlFlow<()> + 'a;

/// What a tree says about itself, whatever its keys and values are.
#[allow(clippy::len_without_is_empty, reason = "the public face has it")]
pub trait Inspect: Send + Sync {
    /// Returns the number of items; exact while no thread writes.
    fn len(&self) -> u64;

    /// Returns the same.
    ///
    /// # Errors
    ///
    /// [`Error::NoWriter`] of a tree that is followed.
    fn try_len(&self) -> Result<u64> {
        Ok(self.len())
    }

    /// Returns the same, unless the tree would have to be counted.
    fn len_known(&self) -> Option<u64> {
        Some(self.len())
    }

    /// Returns what the tree occupies.
    fn stats(&self) -> TreeStats;

    /// Verifies everything the tree reaches. Exact only while no thread writes.
    fn check(&self) -> Vec<Finding>;

    /// Returns what reads came across that is wrong since the tree was opened: they may have shown less
    /// than there is.
    fn damage(&self) -> Vec<Finding> {
        Vec::new()
    }
}

/// What a write does with a key that is there, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Writes in any case.
    Upsert,
    /// Writes only if the key is absent.
    New,
    /// Writes only if the key is present.
    Update,
}

/// What a tree occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeStats {
    /// Items.
    pub items: u64,
    /// Leaves.
    pub leaves: u64,
    /// Bytes of the pool: whole chunks.
    pub pm_bytes: u64,
    /// Bytes of DRAM of the index and the leaves' descriptors.
    pub dram_bytes: u64,
    /// Those bytes of the pool that a log takes, with what it keeps for later.
    pub log_bytes: u64,
    /// Log entries that a recovery would still need: what is buffered. Exact while no thread writes.
    pub log_entries: u64,
}

/// The items of one leaf on their way through an iterator, which takes them from the end.
pub struct Batch<K: KeyCodec, V: Codec> {
    /// Forward: descending. Backward: ascending.
    pub entries: Vec<(K::Owned, V::Owned)>,
    /// Forward: where the next leaf is.
    cursor: Option<Cursor>,
    /// Forward: nothing within the bounds lies behind this leaf.
    ended: bool,
    /// Backward: where this leaf begins (`Some(None)`: at the very beginning). Forward, for designs
    /// without cursors: where the next leaf begins.
    pub fence: Option<Option<K::Owned>>,
    /// Whether the records of what is collected are compared with their checksums.
    pub checked: bool,
    /// Why a scan ended before its bounds did.
    pub damage: Option<Error>,
    /// Of which state of a tree that is followed the place is.
    state: u64,
}

impl<K: KeyCodec, V: Codec> Default for Batch<K, V> {
    fn default() -> Self {
        let (entries, damage) = (Vec::new(), None);
        Self { entries, cursor: None, ended: false, fence: None, checked: false, damage, state: 0 }
    }
}

impl<K: KeyCodec, V: Codec> Batch<K, V> {
    /// Makes a batch whose records are compared with their checksums.
    pub fn checked() -> Self {
        Self { checked: true, ..Self::default() }
    }

    /// Notes that what was to be collected is damaged: the scan is over, with nothing collected.
    /// Returns `false`, as scans do that have nothing more.
    #[cold]
    pub fn fail(&mut self, error: Error) -> bool {
        self.entries.clear();
        self.ended = true;
        self.damage.get_or_insert(error);
        false
    }
}
