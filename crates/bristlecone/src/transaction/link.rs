//! What batches, transactions and snapshots need of a tree.

use bristlecone_pm::{Result, TreeId};

use super::any_tree::{AnyTree, TypedScan};
use crate::api::tree_write::Stored;
use crate::api::{key, value};
use crate::index::parts::codec::Codec;
use crate::index::parts::encoded::Encoded;
use crate::{Key, Tree, Value};

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

impl<K: Key, V: Value> Tree<K, V> {
    /// Returns the tree as one of any codec.
    pub(crate) fn any(&self) -> AnyTree {
        AnyTree::new(self.undelayed_of_any(), *self.tree.opener())
    }

    /// Returns the stored form of a key that is to be written.
    pub(crate) fn encode_key(&self, key: K::Ref<'_>) -> Result<Encoded> {
        K::with(&self.keys, key, |key| {
            key::check_len(K::Codec::bytes(key))?;
            Ok(K::Codec::encode(K::Codec::owned(key)))
        })
    }

    /// Returns a key as a bound, which may be too long for a key of the tree.
    pub(crate) fn encode_bound(&self, key: K::Ref<'_>) -> Result<Encoded> {
        K::with(&self.keys, key, |key| Ok(K::Codec::encode(K::Codec::owned(key))))
    }

    /// Returns the stored form of a value that is to be written.
    pub(crate) fn encode_value(&self, value: V::Ref<'_>) -> Result<Encoded> {
        V::with(&self.values, value, |value| {
            value::check_len(V::Codec::bytes(value))?;
            Ok(V::Codec::encode(V::Codec::owned(value)))
        })
    }

    pub(crate) fn decode_value(&self, value: Encoded) -> Result<V::Owned> {
        self.taken(V::Codec::decode(value).ok_or_else(|| self.undecodable_value())?)
    }

    #[inline]
    pub(crate) fn decode_item(
        &self,
        (key, value): (Stored<K::Codec>, Stored<V::Codec>),
    ) -> Result<(K::Owned, V::Owned)> {
        let key = K::decode(&self.keys, key).ok_or_else(|| self.undecodable_key())?;
        Ok((key, self.taken(value)?))
    }

    /// Decodes an item in the form of any codec.
    pub(crate) fn decode_any(&self, (key, value): (Encoded, Encoded)) -> Result<(K::Owned, V::Owned)> {
        let key = K::Codec::decode(key).and_then(|key| K::decode(&self.keys, key));
        Ok((key.ok_or_else(|| self.undecodable_key())?, self.decode_value(value)?))
    }

    /// Begins a scan for a snapshot.
    pub(crate) fn scan(&self) -> TypedScan<K::Codec, V::Codec> {
        TypedScan::new(self.undelayed_handle())
    }
}
