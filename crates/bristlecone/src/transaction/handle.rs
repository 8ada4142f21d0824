//! Arguments of batches, transactions and snapshots: handles to trees, typed or dynamic.

use bristlecone_pm::{Result, TreeId};

use self::sealed::Sealed;
use super::any_tree::{AnyTree, Scan, TypedScan};
use crate::api::value::{taken, undecodable};
use crate::api::{key, value};
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::parts::encoded::Encoded;
use crate::{Key, Pool, Tree, Value};

/// A handle to a tree, [`Tree`] or [`dynamic::Tree`](crate::dynamic::Tree), as an argument of a
/// [`Batch`](crate::Batch), a [`Transaction`](crate::Transaction) and a [`Snapshot`](crate::Snapshot).
///
/// Keys and values have the same types as in the tree's own methods; those of a dynamic tree are
/// [`Datum`](crate::dynamic::Datum)s. The trait is sealed.
pub trait TreeHandle: Sealed {
    /// The borrowed form of a key.
    type Key<'a>;
    /// The borrowed form of a value.
    type Value<'a>;
    /// The owned form of a key.
    type OwnedKey: Clone + Send + Sync + std::fmt::Debug;
    /// The owned form of a value.
    type OwnedValue: Clone + Send + Sync + std::fmt::Debug;

    #[doc(hidden)]
    fn encode_key(&self, key: &Self::Key<'_>) -> Result<Encoded>;
    /// Returns a key as a bound, which may be too long for a key of the tree.
    #[doc(hidden)]
    fn encode_bound(&self, key: &Self::Key<'_>) -> Result<Encoded>;
    #[doc(hidden)]
    fn encode_value(&self, value: &Self::Value<'_>) -> Result<Encoded>;
    #[doc(hidden)]
    fn decode_key(&self, key: Encoded) -> Result<Self::OwnedKey>;
    #[doc(hidden)]
    fn decode_value(&self, value: Encoded) -> Result<Self::OwnedValue>;

    /// The type that scans the tree for a snapshot.
    #[doc(hidden)]
    type Scan: Scan;
    #[doc(hidden)]
    fn scan(&self) -> Self::Scan;
    #[doc(hidden)]
    fn decode_item(&self, item: ItemOf<Self>) -> Result<(Self::OwnedKey, Self::OwnedValue)>;

    /// Returns the value of a key in a snapshot.
    #[doc(hidden)]
    fn get_at(
        &self,
        any: &dyn AnyTree,
        key: &Self::Key<'_>,
        past: &impl Past,
    ) -> Result<Option<Self::OwnedValue>> {
        let held = past.get(any, &self.link(), &self.encode_bound(key)?)?;
        held.map(|value| self.decode_value(value)).transpose()
    }
}

/// Changed keys of a snapshot. A tree must be read before: a writer saves the old value before it changes the tree.
pub trait Past {
    /// Fails in a child of the process that opened the pool.
    fn here(&self) -> Result<()>;
    /// Returns the value of a key of a tree.
    fn get(&self, tree: &dyn AnyTree, link: &Link, key: &Encoded) -> Result<Option<Encoded>>;
    /// Returns whether the key with this hash is known to be unchanged.
    fn is_unchanged(&self, link: &Link, hash: impl FnOnce() -> u64) -> bool;
    /// Returns the saved value of a key with this hash, if it has changed since.
    fn saved(&self, link: &Link, hash: u64, key: impl Fn() -> Encoded) -> Result<Option<Option<Encoded>>>;
}

/// An item in the form that a scan of a tree returns.
pub type ItemOf<T> = (<<T as TreeHandle>::Scan as Scan>::Key, <<T as TreeHandle>::Scan as Scan>::Value);

pub(crate) mod sealed {
    use super::{AnyTree, Link, Pool};

    /// Internal interface of a handle.
    pub trait Sealed {
        #[doc(hidden)]
        fn pool(&self) -> &Pool;
        #[doc(hidden)]
        fn link(&self) -> Link;
        #[doc(hidden)]
        fn any(&self) -> Box<dyn AnyTree>;
    }
}

/// Identity of a tree for batches and snapshots, and what its directory entry says of its writes.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Its directory entry.
    pub id: TreeId,
    /// An identifier that is unique while the pool is open.
    pub identity: u64,
    /// The epoch in which it was cleared; no earlier snapshot shows it.
    pub cleared: u64,
    /// Maximum bytes of the pool that a write of one item may need for leaves.
    pub split_bytes: u64,
    /// Whether the library knows the tree's design, and can therefore replay commits to it.
    pub is_known: bool,
    /// Milliseconds after which its values expire by default; 0 for never.
    pub expire_after: u64,
}

impl<K: Key, V: Value> Sealed for Tree<K, V> {
    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn link(&self) -> Link {
        self.link
    }

    fn any(&self) -> Box<dyn AnyTree> {
        Box::new(self.undelayed_handle())
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

    fn scan(&self) -> Self::Scan {
        TypedScan::new(self.undelayed_handle())
    }

    #[inline]
    fn decode_item(&self, (key, value): ItemOf<Self>) -> Result<(K::Owned, V::Owned)> {
        let key = K::decode(key).ok_or_else(|| undecodable("key", K::kind()))?;
        Ok((key, taken::<V>(value)?))
    }

    #[inline]
    fn get_at(&self, _: &dyn AnyTree, key: &K::Ref<'_>, past: &impl Past) -> Result<Option<V::Owned>> {
        past.here()?;
        K::with(*key, |key| {
            let held = self.undelayed().get_owned(key);
            if past.is_unchanged(&self.link, || K::Codec::hash(key)) {
                return held?.map(taken::<V>).transpose();
            }
            let encode = || K::Codec::encode(K::Codec::owned(key));
            match past.saved(&self.link, K::Codec::hash(key), encode)? {
                Some(saved) => saved.map(|value| self.decode_value(value)).transpose(),
                None => held?.map(taken::<V>).transpose(),
            }
        })
    }
}
