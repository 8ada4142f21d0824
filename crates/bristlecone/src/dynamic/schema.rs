//! Keys and values of any kind, as types of a tree.

use std::sync::Arc;

use bristlecone_pm::{Error, Result};

use super::encode::{self, Role, Unfit};
use super::{Datum, Kind};
use crate::api::kinds::Buffer;
use crate::api::kinds::expiring::word_of;
use crate::index::parts::codec::Any;
use crate::index::parts::encoded::{Encoded, Item};
use crate::{Design, Key, Prefix, Value};

/// Keys, or values, of a kind that is known at run time: operations take and return [`Datum`]s.
///
/// [`Pool::dynamic_tree`](crate::Pool::dynamic_tree) and
/// [`TreeOptions::create_dynamic`](crate::TreeOptions::create_dynamic) return trees of them. Calls that open a tree by its
/// types return [`Error::Invalid`] for this one: its kind is not known then.
#[derive(Debug)]
pub struct Dynamic;

/// The keys of a tree, and what else is known of it when it is opened.
pub struct Keys {
    /// The tree's name.
    pub name: String,
    pub kind: Kind,
    pub design: Design,
    pub options: Vec<(&'static str, u64)>,
    /// The typed tree, if keys and values are `u64`.
    pub words: Option<crate::Tree<u64, u64>>,
}

/// The values of a tree.
pub struct Values {
    /// The tree's name.
    pub name: String,
    pub kind: Kind,
}

impl Values {
    /// Returns the values of entries that expire.
    pub fn in_entries(&self) -> Option<Self> {
        let Kind::Expiring(kind) = &self.kind else { return None };
        Some(Self { name: self.name.clone(), kind: Kind::clone(kind) })
    }
}

/// Returns the error for a datum that cannot be a key or a value.
#[cold]
fn unfit(tree: &str, (role, kind): (Role, &Kind), datum: &Datum<'_>, why: Unfit) -> Error {
    let what = if role == Role::Key { "keys of type" } else { "values of type" };
    match why {
        Unfit::Kind => {
            let (found, asked) = (kind.to_string(), datum.describe(kind));
            Error::Mismatch { name: tree.to_owned(), what, found, asked }
        }
        Unfit::Json(why) => Error::Invalid { what: why },
    }
}

/// Returns the error for a tree that is opened or created as if its types were known.
#[cold]
fn unknown() -> Error {
    Error::invalid("the kinds of a dynamic tree are known at run time: use dynamic_tree or create_dynamic")
}

impl Key for Dynamic {
    type Ref<'a> = &'a Datum<'a>;
    type Owned = Datum<'static>;
    type Codec = Any;
    type Schema = Arc<Keys>;

    fn kind() -> String {
        "dynamic".to_owned()
    }
    fn fixed() -> Result<Arc<Keys>> {
        Err(unknown())
    }
    fn name(keys: &Arc<Keys>) -> String {
        keys.kind.to_string()
    }
    fn lend<'a>(key: &'a Datum<'static>) -> &'a Datum<'a> {
        key
    }
    fn with<R>(keys: &Arc<Keys>, key: &Datum<'_>, use_it: impl FnOnce(Item<'_>) -> Result<R>) -> Result<R> {
        let as_key = (Role::Key, &keys.kind);
        encode::with(as_key, key, use_it).map_err(|why| unfit(&keys.name, as_key, key, why))?
    }
    fn show<R>(keys: &Arc<Keys>, key: Item<'_>, show: impl for<'a> FnOnce(&'a Datum<'a>) -> R) -> Option<R> {
        encode::view((Role::Key, &keys.kind), key).map(|key| show(&key))
    }
    fn decode(keys: &Arc<Keys>, key: Encoded) -> Option<Datum<'static>> {
        encode::take((Role::Key, &keys.kind), key)
    }
}

impl Value for Dynamic {
    type Ref<'a> = &'a Datum<'a>;
    type Owned = Datum<'static>;
    type Codec = Any;
    type Schema = Arc<Values>;

    fn kind() -> String {
        "dynamic".to_owned()
    }
    fn fixed() -> Result<Arc<Values>> {
        Err(unknown())
    }
    fn name(values: &Arc<Values>) -> String {
        values.kind.to_string()
    }
    fn lend<'a>(value: &'a Datum<'static>) -> &'a Datum<'a> {
        value
    }
    fn with<R>(
        values: &Arc<Values>,
        value: &Datum<'_>,
        use_it: impl FnOnce(Item<'_>) -> Result<R>,
    ) -> Result<R> {
        let as_value = (Role::Value, &values.kind);
        encode::with(as_value, value, use_it).map_err(|why| unfit(&values.name, as_value, value, why))?
    }
    fn view<R>(
        values: &Arc<Values>,
        value: Item<'_>,
        show: impl for<'a> FnOnce(&'a Datum<'a>) -> R,
    ) -> Option<R> {
        encode::view((Role::Value, &values.kind), value).map(|value| show(&value))
    }
    fn decode(values: &Arc<Values>, value: Item<'_>) -> Option<Datum<'static>> {
        encode::view((Role::Value, &values.kind), value).map(Datum::into_owned)
    }
    fn take(values: &Arc<Values>, value: Encoded) -> Option<Datum<'static>> {
        encode::take((Role::Value, &values.kind), value)
    }
    fn in_entry<'a>(values: &Arc<Values>, stored: &'a [u8]) -> Option<Item<'a>> {
        if values.kind.is_word() { word_of(stored).map(Item::Word) } else { Some(Item::Bytes(stored)) }
    }
}

/// Text for text, bytes for bytes, and a tuple of leading elements for a tuple.
impl Prefix<Dynamic> for &Datum<'_> {
    fn append(self, keys: &Arc<Keys>, to: &mut Buffer) -> Result<()> {
        let unfit = |why| unfit(&keys.name, (Role::Key, &keys.kind), self, why);
        encode::append_prefix(&keys.kind, self, to).map_err(unfit)
    }
}
