//! What batches, transactions and snapshots take: handles to trees, typed or dynamic.

use bristlecone_pm::{Result, TreeId};

use self::sealed::Sealed;
use super::any_tree::{AnyTree, Scan, TypedScan, hash};
use crate::api::value::{taken, undecodable};
use crate::api::{key, value};
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::parts::encoded::Encoded;
use crate::{Key, Pool, Tree, Value};

/// A handle to a tree, [`Tree`] or [`dynamic::Tree`](crate::dynamic::Tree): what a [`Batch`](crate::Batch), a
/// [`Transaction`](crate::Transaction) and a [`Snapshot`](crate::Snapshot) take.
///
/// Keys and values are given and returned as the tree's own methods do; those of a dynamic tree are
/// [`Datum`](crate::dynamic::Datum)s. Nothing else implements the trait.
pub trait TreeHandle: Sealed {
    /// What operations take as a key.
    type Key<'a>;
    /// What operations take as a value.
    type Value<'a>;
    /// A key that is given.
    type OwnedKey: Clone + Send + Sync + std::fmt::Debug;
    /// A value that is given.
    type OwnedValue: Clone + Send + Sync + std::fmt::Debug;

    #[doc(hidden)]
    fn encode_key(&self, key: &Self::Key<'_>) -> Result<Encoded>;
    /// Returns a key that no tree need have: it may be too long for one.
    #[doc(hidden)]
    fn encode_bound(&self, key: &Self::Key<'_>) -> Result<Encoded>;
    #[doc(hidden)]
    fn encode_value(&self, value: &Self::Value<'_>) -> Result<Encoded>;
    #[doc(hidden)]
    fn decode_key(&self, key: Encoded) -> Result<Self::OwnedKey>;
    #[doc(hidden)]
    fn decode_value(&self, value: Encoded) -> Result<Self::OwnedValue>;

    /// What scans the tree for a snapshot.
    #[doc(hidden)]
    type Scan: Scan;
    #[doc(hidden)]
    fn scan(&self, checked: bool) -> Self::Scan;
    #[doc(hidden)]
    fn decode_item(&self, item: ItemOf<Self>) -> Result<(Self::OwnedKey, Self::OwnedValue)>;

    /// Returns the value that a key had, where `saved` says what has changed since; with its record compared with the checksum, if
    /// that is wanted. That of a dynamic tree always is.
    #[doc(hidden)]
    fn get_at(
        &self,
        any: &dyn AnyTree,
        key: &Self::Key<'_>,
        _checked: bool,
        saved: impl FnOnce(u64, &dyn Fn() -> Encoded) -> Saved,
    ) -> Result<Option<Self::OwnedValue>> {
        let key = self.encode_bound(key)?;
        let held = any.get(&key);
        let held = saved(hash(&key), &|| key.clone())?.map_or(held, Ok)?;
        held.map(|value| self.decode_value(value)).transpose()
    }
}

/// What a key, given with its hash, had when a snapshot was taken, if it was changed since. The tree is read before it is
/// asked for: a writer saves what was there before it changes it.
pub type Saved = Result<Option<Option<Encoded>>>;

/// An item as a scan of a tree gives it.
pub type ItemOf<T> = (<<T as TreeHandle>::Scan as Scan>::Key, <<T as TreeHandle>::Scan as Scan>::Value);

pub(crate) mod sealed {
    use super::{AnyTree, Link, Pool};

    /// What the library knows of a handle.
    pub trait Sealed {
        #[doc(hidden)]
        fn pool(&self) -> &Pool;
        #[doc(hidden)]
        fn link(&self) -> Link;
        #[doc(hidden)]
        fn any(&self) -> Box<dyn AnyTree>;
    }
}

/// What a tree is to batches and snapshots.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Its place in the directory.
    pub id: TreeId,
    /// What no other tree of this opening has.
    pub identity: u64,
    /// The epoch in which it was cleared; no snapshot from before shows it.
    pub cleared: u64,
    /// Bytes of the pool that a write of one item may take for leaves, at most.
    pub split_bytes: u64,
    /// Whether the library knows its design, and can open it to carry out what was committed.
    pub is_known: bool,
}

impl<K: Key, V: Value> Sealed for Tree<K, V> {
    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn link(&self) -> Link {
        self.link
    }

    fn any(&self) -> Box<dyn AnyTree> {
        Box::new(self.tree.clone())
    }
}

impl<K: Key, V: Value> TreeHandle for Tree<K, V> {
    type Key<'a> = K::Ref<'a>;
    type Value<'a> = V::Ref<'a>;
    type OwnedKey = K::Owned;
    type OwnedValue = V::Owned;

    fn encode_key(&self, key: &K::Ref<'_>) -> Result<Encoded> {
        K::with(*key, |key| {
            key::check_len(K::Codec::bytes(key))?;
            Ok(K::Codec::encode(K::Codec::owned(key)))
        })
    }

    fn encode_bound(&self, key: &K::Ref<'_>) -> Result<Encoded> {
        Ok(K::with(*key, |key| K::Codec::encode(K::Codec::owned(key))))
    }

    fn encode_value(&self, value: &V::Ref<'_>) -> Result<Encoded> {
        V::with(*value, |value| {
            value::check_len(V::Codec::bytes(value))?;
            Ok(V::Codec::encode(V::Codec::owned(value)))
        })?
    }

    fn decode_key(&self, key: Encoded) -> Result<K::Owned> {
        K::Codec::decode(key).and_then(K::decode).ok_or_else(|| undecodable("key", K::kind()))
    }

    fn decode_value(&self, value: Encoded) -> Result<V::Owned> {
        let value = V::Codec::decode(value).ok_or_else(|| undecodable("value", V::kind()))?;
        taken::<V>(value)
    }

    type Scan = TypedScan<K::Codec, V::Codec>;

    fn scan(&self, checked: bool) -> Self::Scan {
        TypedScan::new(&self.tree, checked)
    }

    #[inline]
    fn decode_item(&self, (key, value): ItemOf<Self>) -> Result<(K::Owned, V::Owned)> {
        let key = K::decode(key).ok_or_else(|| undecodable("key", K::kind()))?;
        Ok((key, taken::<V>(value)?))
    }

    #[inline]
    fn get_at(
        &self,
        _: &dyn AnyTree,
        key: &K::Ref<'_>,
        checked: bool,
        saved: impl FnOnce(u64, &dyn Fn() -> Encoded) -> Saved,
    ) -> Result<Option<V::Owned>> {
        K::with(*key, |key| {
            let held = if checked {
                (*self.tree).get_checked(key)
            } else {
                let mut held = None;
                (*self.tree).get(key, &mut |value| held = Some(V::Codec::owned(value)));
                Ok(held)
            };
            match saved(K::Codec::hash(key), &|| K::Codec::encode(K::Codec::owned(key)))? {
                Some(saved) => saved.map(|value| self.decode_value(value)).transpose(),
                None => held?.map(taken::<V>).transpose(),
            }
        })
    }
}
