//! Trees whatever their codecs are.

use std::ops::Bound;

use bristlecone_pm::{Error, Result};
use smallvec::SmallVec;

use crate::api::handle::Handle;
use crate::index::parts::codec::{Codec, GROUP, Inline, KeyCodec, Record};
use crate::index::parts::encoded::Encoded;
use crate::index::{Batch, Index};

/// Returns a hash of a key of which the top bits are the best ones.
pub fn hash(key: &Encoded) -> u64 {
    match key {
        Encoded::Word(word) => Inline::hash(*word),
        Encoded::Bytes(bytes) => Record::hash(bytes),
    }
}

/// Says that a key or value is not of its tree's codec: a defect, or damage in the commit log.
#[cold]
fn unlike() -> Error {
    Error::corrupted("a key or value of another codec than its tree's", "commit log")
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

    /// Writes the values of up to [`GROUP`] keys, or removes keys of which none gets one; calls `tell` with the place and the
    /// former value of each that is done, in their order.
    fn put_many(
        &self,
        items: &[(&Encoded, Option<&Encoded>)],
        tell: &mut dyn FnMut(usize, Option<Encoded>),
    ) -> Result<()>;

    /// Begins to scan.
    fn scan(&self, checked: bool) -> Box<dyn AnyScan>;
}

/// A scan of a tree of any codecs.
pub trait AnyScan: Send + Sync {
    /// Appends the items of the next leaf within bounds that has any, ascending. `false`: there are none.
    fn next(
        &mut self,
        forward: bool,
        bounds: (Bound<&Encoded>, Bound<&Encoded>),
        into: &mut Vec<(Encoded, Encoded)>,
    ) -> Result<bool>;
}

impl<K: KeyCodec, V: Codec> AnyTree for Handle<dyn Index<K, V>> {
    fn get(&self, key: &Encoded) -> Result<Option<Encoded>> {
        let mut found = None;
        (**self).get(lent::<K>(key)?, &mut |value| found = Some(V::encode(V::owned(value))));
        Ok(found)
    }

    fn put_many(
        &self,
        items: &[(&Encoded, Option<&Encoded>)],
        tell: &mut dyn FnMut(usize, Option<Encoded>),
    ) -> Result<()> {
        let mut at = 0;
        let mut told = |old: Option<V::Owned>| {
            tell(at, old.map(V::encode));
            at += 1;
        };
        let keys = items.iter().map(|(key, _)| lent::<K>(key));
        if items.iter().all(|(_, value)| value.is_none()) {
            let keys = keys.collect::<Result<SmallVec<[_; GROUP]>>>()?;
            return (**self).remove_many(&keys, &mut told);
        }
        let values = items.iter().filter_map(|(_, value)| value.map(lent::<V>));
        let items = keys.zip(values).map(|(key, value)| Ok((key?, value?)));
        (**self).write_many(&items.collect::<Result<SmallVec<[_; GROUP]>>>()?, &mut told)
    }

    fn put(&self, key: &Encoded, value: Option<&Encoded>) -> Result<()> {
        let key = lent::<K>(key)?;
        match value {
            Some(value) => (**self).upsert(key, lent::<V>(value)?),
            None => (**self).remove(key).map(drop),
        }
    }

    fn scan(&self, checked: bool) -> Box<dyn AnyScan> {
        let batch = || if checked { Batch::checked() } else { Batch::default() };
        Box::new(TypedScan { tree: self.clone(), forward: batch(), backward: batch() })
    }
}

/// A scan from both ends, which never meet: bounds see to that.
struct TypedScan<K: KeyCodec, V: Codec> {
    tree: Handle<dyn Index<K, V>>,
    forward: Batch<K, V>,
    backward: Batch<K, V>,
}

impl<K: KeyCodec, V: Codec> AnyScan for TypedScan<K, V> {
    fn next(
        &mut self,
        forward: bool,
        (from, to): (Bound<&Encoded>, Bound<&Encoded>),
        into: &mut Vec<(Encoded, Encoded)>,
    ) -> Result<bool> {
        let bounds = (lent_bound::<K>(from)?, lent_bound::<K>(to)?);
        let batch = if forward { &mut self.forward } else { &mut self.backward };
        let more = if forward {
            self.tree.scan_forward(bounds, batch)
        } else {
            self.tree.scan_backward(bounds, batch)
        };
        if let Some(damage) = batch.damage.take() {
            return Err(damage);
        }
        if more {
            let encode = |(key, value)| (K::encode(key), V::encode(value));
            // Forward they stand the other way round.
            match forward {
                true => into.extend(batch.entries.drain(..).rev().map(encode)),
                false => into.extend(batch.entries.drain(..).map(encode)),
            }
        }
        Ok(more)
    }
}
