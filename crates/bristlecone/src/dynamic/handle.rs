//! Dynamic trees in batches, transactions and snapshots.

use bristlecone_pm::Result;

use super::encode::{Records, Role, Stored, Words};
use super::tree::On;
use super::{Datum, Kind, Tree};
use crate::Pool;
use crate::api::key;
use crate::api::value::{check_len, undecodable};
use crate::index::parts::encoded::Encoded;
use crate::transaction::sealed::Sealed;
use crate::transaction::{AnyScan, AnyTree, ItemOf, Link, TreeHandle};

impl Sealed for Tree {
    fn pool(&self) -> &Pool {
        match &self.on {
            On::WordWord(tree) => tree.pool(),
            On::WordRecord(tree) => tree.pool(),
            On::RecordWord(tree) => tree.pool(),
            On::RecordRecord(tree) => tree.pool(),
        }
    }

    fn link(&self) -> Link {
        match &self.on {
            On::WordWord(tree) => tree.link(),
            On::WordRecord(tree) => tree.link(),
            On::RecordWord(tree) => tree.link(),
            On::RecordRecord(tree) => tree.link(),
        }
    }

    fn any(&self) -> Box<dyn AnyTree> {
        match &self.on {
            On::WordWord(tree) => tree.any(),
            On::WordRecord(tree) => tree.any(),
            On::RecordWord(tree) => tree.any(),
            On::RecordRecord(tree) => tree.any(),
        }
    }
}

impl TreeHandle for Tree {
    type Key<'a> = Datum<'a>;
    type Value<'a> = Datum<'a>;
    type OwnedKey = Datum<'static>;
    type OwnedValue = Datum<'static>;

    fn encode_key(&self, key: &Datum<'_>) -> Result<Encoded> {
        let key = self.encoded(Role::Key, key)?;
        key::check_len(key.heap_bytes())?;
        Ok(key)
    }

    fn encode_bound(&self, key: &Datum<'_>) -> Result<Encoded> {
        self.encoded(Role::Key, key)
    }

    fn encode_value(&self, value: &Datum<'_>) -> Result<Encoded> {
        let value = self.encoded(Role::Value, value)?;
        check_len(value.heap_bytes())?;
        Ok(value)
    }

    fn decode_key(&self, key: Encoded) -> Result<Datum<'static>> {
        let kind = self.key_kind();
        Self::decoded(kind, Role::Key, key).ok_or_else(|| undecodable("key", kind))
    }

    fn decode_value(&self, value: Encoded) -> Result<Datum<'static>> {
        let kind = self.value_kind();
        Self::decoded(kind, Role::Value, value).ok_or_else(|| undecodable("value", kind))
    }

    type Scan = AnyScan;

    fn scan(&self) -> AnyScan {
        self.any().scan()
    }

    fn decode_item(&self, (key, value): ItemOf<Self>) -> Result<(Datum<'static>, Datum<'static>)> {
        Ok((self.decode_key(key)?, self.decode_value(value)?))
    }
}

impl Tree {
    /// Returns the stored form of a key or value of any length.
    fn encoded(&self, role: Role, datum: &Datum<'_>) -> Result<Encoded> {
        let kind = if role == Role::Key { self.key_kind() } else { self.value_kind() };
        let encoded = if kind.is_word() {
            Words::with(kind, role, datum, Encoded::Word)
        } else {
            Records::with(kind, role, datum, |bytes| Encoded::Bytes(bytes.into()))
        };
        encoded.map_err(|why| self.unfit(role, datum, why))
    }

    fn decoded(kind: &Kind, role: Role, encoded: Encoded) -> Option<Datum<'static>> {
        match (kind.is_word(), encoded) {
            (true, Encoded::Word(word)) => Words::take(kind, role, word),
            (false, Encoded::Bytes(bytes)) => Records::take(kind, role, bytes.into_vec()),
            _ => None,
        }
    }
}
