//! Trees of any codecs.

use std::ops::Bound;

use bristlecone_pm::{Error, Result};
use smallvec::SmallVec;

use crate::api::handle::Handle;
use crate::index::parts::codec::{Codec, GROUP, Inline, KeyCodec, Record};
use crate::index::parts::encoded::{Encoded, Item};
use crate::index::{Batch, Index, for_each_leaf, remove_range};

/// Returns a hash of a key whose top bits have the best distribution.
pub fn hash(key: &Encoded) -> u64 {
    match key {
        Encoded::Word(word) => Inline::hash(*word),
        Encoded::Bytes(bytes) => Record::hash(bytes),
    }
}

/// Returns a word that has the order of the key, except for different keys of the same rank.
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

/// Returns the error for a key or value of another codec: a defect, or damage in the commit log.
#[cold]
fn unlike() -> Error {
    Error::corrupted("a key or value with the wrong codec", "commit log")
}

fn lent<C: Codec>(item: &Encoded) -> Result<C::Ref<'_>> {
    C::lend(item).ok_or_else(unlike)
}

fn lent_bound<C: Codec>(bound: Bound<&Encoded>) -> Result<Bound<C::Ref<'_>>> {
    Ok(match bound {
        Bound::Included(key) => Bound::Included(lent::<C>(key)?),
        Bound::Excluded(key) => Bound::Excluded(lent::<C>(key)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

/// A tree of any codecs.
pub trait AnyTree: Send + Sync {
    /// Returns the value of a key.
    fn get(&self, key: &Encoded) -> Result<Option<Encoded>>;

    /// Writes a value, or removes the key.
    fn put(&self, key: &Encoded, value: Option<&Encoded>) -> Result<()>;

    /// Writes the values of up to [`GROUP`] keys, or removes keys if none has a value. Calls `tell` with the previous
    /// value of each completed key, in order.
    fn put_many(
        &self,
        items: &[(&Encoded, Option<&Encoded>)],
        tell: &mut dyn FnMut(Option<Encoded>),
    ) -> Result<()>;

    /// Calls `visit` with the keys within bounds, ascending, after verifying the checksums of their items.
    fn visit_keys(
        &self,
        bounds: (Bound<&Encoded>, Bound<&Encoded>),
        visit: &mut dyn FnMut(Item<'_>) -> Result<()>,
    ) -> Result<()>;

    /// Removes the items within bounds one after the other; returns their number. Appends them to `removed`, also before
    /// an error.
    fn remove_range(
        &self,
        bounds: (Bound<&Encoded>, Bound<&Encoded>),
        removed: Option<&mut Vec<(Encoded, Encoded)>>,
    ) -> Result<u64>;

    /// Appends items to a tree that no other thread can access yet: see [`Index::append`].
    fn append(&self, items: &[(&Encoded, &Encoded)], last: bool) -> Result<usize>;

    /// Begins a scan.
    fn scan(&self) -> AnyScan;
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

    /// Converts a key to the codec-independent form.
    fn encode(key: &Self::Key) -> Encoded;
    /// Converts a key from the codec-independent form.
    fn decode_key(key: Encoded) -> Result<Self::Key>;
    /// Converts a value from the codec-independent form.
    fn decode_value(value: Encoded) -> Result<Self::Value>;
}

/// A scan of a tree of any codecs.
pub type AnyScan = Box<dyn Leaves>;

/// Source of leaves for an [`AnyScan`].
pub trait Leaves: Send + Sync {
    /// See [`Scan::next`].
    fn next(
        &mut self,
        forward: bool,
        bounds: (Bound<&Encoded>, Bound<&Encoded>),
        into: &mut Vec<(Encoded, Encoded)>,
    ) -> Result<bool>;
}

impl Scan for AnyScan {
    type Key = Encoded;
    type Value = Encoded;

    fn next(
        &mut self,
        forward: bool,
        bounds: (Bound<&Encoded>, Bound<&Encoded>),
        into: &mut Vec<(Encoded, Encoded)>,
    ) -> Result<bool> {
        (**self).next(forward, bounds, into)
    }

    fn encode(key: &Encoded) -> Encoded {
        key.clone()
    }
    fn decode_key(key: Encoded) -> Result<Encoded> {
        Ok(key)
    }
    fn decode_value(value: Encoded) -> Result<Encoded> {
        Ok(value)
    }
}

impl<K: KeyCodec, V: Codec> AnyTree for Handle<dyn Index<K, V>> {
    fn get(&self, key: &Encoded) -> Result<Option<Encoded>> {
        Ok((**self).get_owned(lent::<K>(key)?)?.map(V::encode))
    }

    fn put_many(
        &self,
        items: &[(&Encoded, Option<&Encoded>)],
        tell: &mut dyn FnMut(Option<Encoded>),
    ) -> Result<()> {
        let mut told = |old: Option<V::Owned>| tell(old.map(V::encode));
        let (mut written, mut removed) = (SmallVec::<[_; GROUP]>::new(), SmallVec::<[_; GROUP]>::new());
        for (key, value) in items {
            match value {
                Some(value) => written.push((lent::<K>(key)?, lent::<V>(value)?)),
                None => removed.push(lent::<K>(key)?),
            }
        }
        debug_assert!(written.is_empty() || removed.is_empty(), "writes and removals in one group");
        if written.is_empty() {
            return (**self).remove_many(&removed, &mut told);
        }
        (**self).write_many(&written, &mut told)
    }

    fn put(&self, key: &Encoded, value: Option<&Encoded>) -> Result<()> {
        let key = lent::<K>(key)?;
        match value {
            Some(value) => (**self).upsert(key, lent::<V>(value)?),
            None => (**self).remove(key).map(drop),
        }
    }

    fn visit_keys(
        &self,
        (from, to): (Bound<&Encoded>, Bound<&Encoded>),
        visit: &mut dyn FnMut(Item<'_>) -> Result<()>,
    ) -> Result<()> {
        let bounds = (lent_bound::<K>(from)?, lent_bound::<K>(to)?);
        for_each_leaf(&**self, bounds, false, &mut |items| {
            items.iter().try_for_each(|(key, _)| visit(K::item(K::borrow(key))))
        })
    }

    fn remove_range(
        &self,
        (from, to): (Bound<&Encoded>, Bound<&Encoded>),
        mut removed: Option<&mut Vec<(Encoded, Encoded)>>,
    ) -> Result<u64> {
        remove_range(&**self, (lent_bound::<K>(from)?, lent_bound::<K>(to)?), &mut |key, value| {
            if let Some(removed) = &mut removed {
                removed.push((K::encode(key.clone()), V::encode(value)));
            }
        })
    }

    fn append(&self, items: &[(&Encoded, &Encoded)], last: bool) -> Result<usize> {
        let lent = items.iter().map(|(key, value)| Ok((lent::<K>(key)?, lent::<V>(value)?)));
        (**self).append(&lent.collect::<Result<Vec<_>>>()?, last)
    }

    fn scan(&self) -> AnyScan {
        Box::new(TypedScan::new(self.clone()))
    }
}

/// A scan of a tree whose codecs are known. The caller's bounds must keep its two ends from meeting.
pub struct TypedScan<K: KeyCodec, V: Codec> {
    tree: Handle<dyn Index<K, V>>,
    forward: Batch<K, V>,
    backward: Batch<K, V>,
}

impl<K: KeyCodec, V: Codec> TypedScan<K, V> {
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

impl<K: KeyCodec, V: Codec> Scan for TypedScan<K, V> {
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

    fn encode(key: &K::Owned) -> Encoded {
        K::encode(key.clone())
    }
    fn decode_key(key: Encoded) -> Result<K::Owned> {
        K::decode(key).ok_or_else(unlike)
    }
    fn decode_value(value: Encoded) -> Result<V::Owned> {
        V::decode(value).ok_or_else(unlike)
    }
}

impl<K: KeyCodec, V: Codec> Leaves for TypedScan<K, V> {
    fn next(
        &mut self,
        forward: bool,
        (from, to): (Bound<&Encoded>, Bound<&Encoded>),
        into: &mut Vec<(Encoded, Encoded)>,
    ) -> Result<bool> {
        let more = self.read(forward, (lent_bound::<K>(from)?, lent_bound::<K>(to)?))?;
        let encode = |(key, value)| (K::encode(key), V::encode(value));
        match forward {
            _ if !more => {}
            true => into.extend(self.forward.entries.drain(..).rev().map(encode)),
            false => into.extend(self.backward.entries.drain(..).map(encode)),
        }
        Ok(more)
    }
}
