//! Trees of any codec, and scans.

use std::ops::Bound;

use bristlecone_pm::{Opener, Result};
use smallvec::SmallVec;

use crate::api::handle::Handle;
use crate::index::of_keys::Shared;
use crate::index::parts::codec::{Any, Codec, GROUP, Inline, KeyCodec, Record};
use crate::index::parts::encoded::{Encoded, Item};
use crate::index::{Batch, Index, Tell, for_each_leaf, remove_range};

/// Returns a hash of a key whose top bits have the best distribution.
#[inline]
pub fn hash(key: &Encoded) -> u64 {
    Any::hash(key.item())
}

/// Returns a word that has the order of the key, except for different keys of the same rank.
#[inline]
pub fn rank(key: &Encoded) -> u64 {
    match key {
        Encoded::Word(word) => Inline::rank(*word),
        Encoded::Bytes(bytes) => Record::rank(bytes),
    }
}

/// Returns the top `bits` bits of the combined hash of a tree and a key's hash.
#[inline]
pub fn place(tree: u64, hash: u64, bits: u32) -> usize {
    let mixed = (hash ^ tree.wrapping_mul(0xd6e8_feb8_6659_fd93)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - bits)) as usize
}

/// A tree of any codec.
pub struct AnyTree(Handle<dyn Index<Any, Any>>);

impl AnyTree {
    pub(crate) fn new(tree: Shared<Any, Any>, opener: Opener) -> Self {
        Self(Handle::new(tree, opener))
    }

    /// Returns the value of a key.
    pub(crate) fn get(&self, key: &Encoded) -> Result<Option<Encoded>> {
        self.0.get_owned(key.item())
    }

    /// Writes a value, or removes the key.
    pub(crate) fn put(&self, key: &Encoded, value: Option<&Encoded>) -> Result<()> {
        match value {
            Some(value) => self.0.upsert(key.item(), value.item()),
            None => self.0.remove(key.item()).map(drop),
        }
    }

    /// Writes the values of up to [`GROUP`] keys. Calls `tell` with the previous value of each completed key, in order.
    pub(crate) fn write_many(&self, items: &[(Item<'_>, Item<'_>)], tell: &mut Tell<'_, Any>) -> Result<()> {
        self.0.write_many(items, tell)
    }

    /// Returns whether [`upsert_many`](Self::upsert_many) is faster than [`write_many`](Self::write_many).
    pub(crate) fn has_fast_upserts(&self) -> bool {
        self.0.has_fast_upserts()
    }

    /// Writes the values of up to [`GROUP`] keys. Calls `tell` without the previous value of each completed key.
    pub(crate) fn upsert_many(&self, items: &[(Item<'_>, Item<'_>)], tell: &mut Tell<'_, Any>) -> Result<()> {
        self.0.upsert_many(items, tell)
    }

    /// Removes keys, and calls `tell` as [`write_many`](Self::write_many) does.
    pub(crate) fn remove_many(&self, keys: &[Item<'_>], tell: &mut Tell<'_, Any>) -> Result<()> {
        self.0.remove_many(keys, tell)
    }

    /// Writes the values of up to [`GROUP`] keys, or removes keys if none has a value.
    pub(crate) fn put_many<'a>(
        &self,
        items: impl Iterator<Item = (&'a Encoded, Option<&'a Encoded>)>,
    ) -> Result<()> {
        let (mut written, mut removed) = (SmallVec::<[_; GROUP]>::new(), SmallVec::<[_; GROUP]>::new());
        for (key, value) in items {
            match value {
                Some(value) => written.push((key.item(), value.item())),
                None => removed.push(key.item()),
            }
        }
        debug_assert!(written.is_empty() || removed.is_empty(), "writes and removals in one group");
        if written.is_empty() {
            self.remove_many(&removed, &mut |_| {})
        } else {
            self.write_many(&written, &mut |_| {})
        }
    }

    /// Calls `visit` with the keys within bounds, ascending, after verifying the checksums of their items.
    pub(crate) fn visit_keys(
        &self,
        (from, to): (Bound<&Encoded>, Bound<&Encoded>),
        visit: &mut dyn FnMut(&Encoded) -> Result<()>,
    ) -> Result<()> {
        let bounds = (from.map(Encoded::item), to.map(Encoded::item));
        for_each_leaf(&*self.0, bounds, false, &mut |items| items.iter().try_for_each(|(key, _)| visit(key)))
    }

    /// Removes the items within bounds one after the other; returns their number. Appends them to `removed`, also before
    /// an error.
    pub(crate) fn remove_range(
        &self,
        (from, to): (Bound<&Encoded>, Bound<&Encoded>),
        mut removed: Option<&mut Vec<(Encoded, Encoded)>>,
    ) -> Result<u64> {
        remove_range(&*self.0, (from.map(Encoded::item), to.map(Encoded::item)), &mut |key, value| {
            if let Some(removed) = &mut removed {
                removed.push((key.clone(), value));
            }
        })
    }

    /// Appends items to a tree that no other thread can access yet: see [`Index::append`].
    pub(crate) fn append(&self, items: &[(&Encoded, &Encoded)], last: bool) -> Result<usize> {
        let items: Vec<_> = items.iter().map(|(key, value)| (key.item(), value.item())).collect();
        self.0.append(&items, last)
    }

    /// Begins a scan.
    pub(crate) fn scan(&self) -> AnyScan {
        TypedScan::new(self.0.clone())
    }
}

/// A scan from both ends, leaf by leaf.
pub trait Scan: Send + Sync {
    /// The type of keys: in the tree's codec, or of any codec.
    type Key: Ord + Clone + Send + Sync;
    /// The type of values, likewise.
    type Value: Send + Sync;

    /// Appends the items of the next non-empty leaf within bounds, ascending. Returns `false` if there is
    /// none.
    fn next(
        &mut self,
        forward: bool,
        bounds: (Bound<&Self::Key>, Bound<&Self::Key>),
        into: &mut Vec<(Self::Key, Self::Value)>,
    ) -> Result<bool>;
}

/// A scan of a tree of any codec.
pub type AnyScan = TypedScan<Any, Any>;

/// A scan of a tree whose codecs are known. The caller's bounds must keep its two ends from meeting.
pub struct TypedScan<K: Codec, V: Codec> {
    tree: Handle<dyn Index<K, V>>,
    forward: Batch<K, V>,
    backward: Batch<K, V>,
}

impl<K: Codec, V: Codec> TypedScan<K, V> {
    /// Begins a scan.
    pub(crate) fn new(tree: Handle<dyn Index<K, V>>) -> Self {
        Self { tree, forward: Batch::default(), backward: Batch::default() }
    }

    /// Reads the next leaf; returns `false` if there is none. A forward scan stores its items in reverse
    /// order.
    fn read(&mut self, forward: bool, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>)) -> Result<bool> {
        let (batch, more);
        if forward {
            batch = &mut self.forward;
            more = self.tree.scan_forward(bounds, batch);
        } else {
            batch = &mut self.backward;
            more = self.tree.scan_backward(bounds, batch);
        }
        batch.damage.take().map_or(Ok(more), Err)
    }
}

impl<K: Codec, V: Codec> Scan for TypedScan<K, V> {
    type Key = K::Owned;
    type Value = V::Owned;

    fn next(
        &mut self,
        forward: bool,
        (from, to): (Bound<&K::Owned>, Bound<&K::Owned>),
        into: &mut Vec<(K::Owned, V::Owned)>,
    ) -> Result<bool> {
        let more = self.read(forward, (from.map(K::borrow), to.map(K::borrow)))?;
        match forward {
            _ if !more => {}
            true => into.extend(self.forward.entries.drain(..).rev()),
            false => into.append(&mut self.backward.entries),
        }
        Ok(more)
    }
}
