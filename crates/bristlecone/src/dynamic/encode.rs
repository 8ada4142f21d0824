//! Stored form of data by kind: words, or the bytes of records, matching [`crate::kinds`].

use std::borrow::Cow;

use super::kind::for_words;
use super::{Datum, Kind};
use crate::Expiry;
use crate::api::kinds::expiring::{item, join, split};
use crate::api::kinds::records::{signed_from_bytes, signed_to_bytes};
use crate::api::kinds::words::{self, Word};
use crate::api::kinds::{Buffer, append_escaped, take_escaped};
use crate::index::parts::codec::Inline;
use crate::index::parts::encoded::Item;

/// Whether a datum is a key or a value: words of keys preserve order, words of values are stored
/// unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Key,
    Value,
}

/// The reason why a datum cannot be stored.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// It is of another kind.
    Kind,
    /// It is not JSON, or cannot be verified as JSON.
    Json(String),
}

/// The stored form of data: words or records.
pub(crate) trait Stored {
    /// The borrowed form that a tree takes.
    type Ref<'a>: Copy;
    /// The owned form that a tree returns.
    type Owned;
    /// The form of range bounds, and of items in multi-key calls.
    type Bound;

    /// Returns a copy in the form of a bound.
    fn bound(key: Self::Ref<'_>) -> Self::Bound;

    /// Borrows such a copy.
    fn lend_bound(bound: &Self::Bound) -> Self::Ref<'_>;

    /// Copies the borrowed form.
    fn own(item: Self::Ref<'_>) -> Self::Owned;

    /// Borrows the owned form.
    fn lend(item: &Self::Owned) -> Self::Ref<'_>;

    /// Calls `use_it` with the stored form of a datum.
    fn with<R>(
        kind: &Kind,
        role: Role,
        datum: &Datum<'_>,
        use_it: impl FnOnce(Self::Ref<'_>) -> R,
    ) -> Result<R, Unfit>;

    /// Decodes the stored form. Returns `None` if it does not decode as the kind.
    fn view<'a>(kind: &Kind, role: Role, item: Self::Ref<'a>) -> Option<Datum<'a>>;

    /// Decodes the stored form and takes ownership of its bytes.
    fn take(kind: &Kind, role: Role, item: Self::Owned) -> Option<Datum<'static>>;
}

/// Data of kinds stored as words.
pub(crate) struct Words;

/// Data of all other kinds.
pub(crate) struct Records;

macro_rules! to_word {
    (($kind:expr, $datum:expr, $to:ident) $($variant:ident $type:ty),+) => {
        match ($kind, $datum) {
            (Kind::Unit, Datum::Unit) => Some(0),
            $((Kind::$variant, Datum::$variant(it)) => Some(Word::$to(*it)),)+
            _ => None,
        }
    };
}

macro_rules! from_word {
    (($kind:expr, $word:expr, $from:ident) $($variant:ident $type:ty),+) => {
        match $kind {
            Kind::Unit => <() as Word>::$from($word).map(|()| Datum::Unit),
            $(Kind::$variant => <$type as Word>::$from($word).map(Datum::$variant),)+
            _ => None,
        }
    };
}

impl Stored for Words {
    type Ref<'a> = u64;
    type Owned = u64;
    type Bound = u64;

    fn bound(key: u64) -> u64 {
        key
    }

    fn lend_bound(bound: &u64) -> u64 {
        *bound
    }

    fn own(word: u64) -> u64 {
        word
    }

    fn lend(word: &u64) -> u64 {
        *word
    }

    fn with<R>(
        kind: &Kind,
        role: Role,
        datum: &Datum<'_>,
        use_it: impl FnOnce(u64) -> R,
    ) -> Result<R, Unfit> {
        let word = match role {
            Role::Key => for_words!(to_word!(kind, datum, to_key)),
            Role::Value => for_words!(to_word!(kind, datum, to_value)),
        };
        word.map(use_it).ok_or(Unfit::Kind)
    }

    fn view<'a>(kind: &Kind, role: Role, word: Self::Ref<'a>) -> Option<Datum<'a>> {
        match role {
            Role::Key => for_words!(from_word!(kind, word, from_key)),
            Role::Value => for_words!(from_word!(kind, word, from_value)),
        }
    }

    fn take(kind: &Kind, role: Role, word: u64) -> Option<Datum<'static>> {
        Self::view(kind, role, word)
    }
}

impl Stored for Records {
    type Ref<'a> = &'a [u8];
    type Owned = Vec<u8>;
    type Bound = Box<[u8]>;

    fn bound(key: &[u8]) -> Box<[u8]> {
        key.into()
    }

    fn lend_bound(bound: &Box<[u8]>) -> &[u8] {
        bound
    }

    fn own(bytes: &[u8]) -> Vec<u8> {
        bytes.into()
    }

    fn lend(bytes: &Vec<u8>) -> &[u8] {
        bytes
    }

    fn with<R>(kind: &Kind, _: Role, datum: &Datum<'_>, use_it: impl FnOnce(&[u8]) -> R) -> Result<R, Unfit> {
        Ok(match (kind, datum) {
            (Kind::Str, Datum::Str(text)) => use_it(text.as_bytes()),
            (Kind::Bytes, Datum::Bytes(bytes)) | (Kind::Postcard, Datum::Postcard(bytes)) => use_it(bytes),
            (Kind::Json, Datum::Json(text)) => {
                expect_json(text)?;
                use_it(text.as_bytes())
            }
            (Kind::Expiring(kind), Datum::Expiring(value, expiry)) => use_it(&entry(kind, value, *expiry)?),
            _ => {
                let mut buffer = Buffer::new();
                append(kind, datum, &mut buffer)?;
                use_it(&buffer)
            }
        })
    }

    fn view<'a>(kind: &Kind, _: Role, bytes: Self::Ref<'a>) -> Option<Datum<'a>> {
        match kind {
            Kind::Str => str::from_utf8(bytes).ok().map(|text| Datum::Str(text.into())),
            Kind::Json => str::from_utf8(bytes).ok().map(|text| Datum::Json(text.into())),
            Kind::Bytes => Some(Datum::Bytes(bytes.into())),
            Kind::Postcard => Some(Datum::Postcard(bytes.into())),
            Kind::Array(len) => (bytes.len() == *len).then(|| Datum::Bytes(bytes.into())),
            Kind::Expiring(kind) => view_entry(kind, bytes),
            _ => take_whole(kind, bytes),
        }
    }

    fn take(kind: &Kind, _: Role, bytes: Vec<u8>) -> Option<Datum<'static>> {
        match kind {
            Kind::Str => String::from_utf8(bytes).ok().map(|text| Datum::Str(text.into())),
            Kind::Json => String::from_utf8(bytes).ok().map(|text| Datum::Json(text.into())),
            Kind::Bytes => Some(Datum::Bytes(bytes.into())),
            Kind::Postcard => Some(Datum::Postcard(bytes.into())),
            Kind::Array(len) => (bytes.len() == *len).then(|| Datum::Bytes(bytes.into())),
            Kind::Expiring(kind) => view_entry(kind, &bytes).map(Datum::into_owned),
            _ => take_whole(kind, &bytes),
        }
    }
}

/// Encodes the entry of a tree whose entries expire.
fn entry(kind: &Kind, value: &Datum<'_>, expiry: Expiry) -> Result<Buffer, Unfit> {
    if kind.is_word() {
        Words::with(kind, Role::Value, value, |word| join(expiry, Item::Word(word)))
    } else {
        Records::with(kind, Role::Value, value, |bytes| join(expiry, Item::Bytes(bytes)))
    }
}

/// Decodes the entry of a tree whose entries expire.
fn view_entry<'a>(kind: &Kind, bytes: &'a [u8]) -> Option<Datum<'a>> {
    let (expiry, stored) = split(bytes)?;
    Some(Datum::Expiring(Box::new(view_value(kind, stored)?), expiry))
}

/// Decodes the value in the entry of a tree whose entries expire.
pub(super) fn view_value<'a>(kind: &Kind, stored: &'a [u8]) -> Option<Datum<'a>> {
    if kind.is_word() {
        Words::view(kind, Role::Value, item::<Inline>(stored)?)
    } else {
        Records::view(kind, Role::Value, stored)
    }
}

/// Validates a JSON text before it is stored.
#[cfg(feature = "serde")]
fn expect_json(text: &str) -> Result<(), Unfit> {
    let parsed = serde_json::from_str::<serde::de::IgnoredAny>(text);
    parsed.map(drop).map_err(|error| Unfit::Json(format!("it is no JSON: {error}")))
}

#[cfg(not(feature = "serde"))]
fn expect_json(_: &str) -> Result<(), Unfit> {
    Err(Unfit::Json("JSON is written with the feature `serde` only, which verifies it".to_owned()))
}

macro_rules! append_word {
    (($kind:expr, $datum:expr, $to:expr) $($variant:ident $type:ty),+) => {
        match ($kind, $datum) {
            (Kind::Unit, Datum::Unit) => {}
            $((Kind::$variant, Datum::$variant(it)) => words::append(*it, $to),)+
            _ => return Err(Unfit::Kind),
        }
    };
}

/// Appends an element.
fn append(kind: &Kind, datum: &Datum<'_>, to: &mut Buffer) -> Result<(), Unfit> {
    match (kind, datum) {
        (Kind::U128, Datum::U128(number)) => to.extend_from_slice(&number.to_be_bytes()),
        (Kind::I128, Datum::I128(number)) => to.extend_from_slice(&signed_to_bytes(*number)),
        (Kind::Str, Datum::Str(text)) => append_escaped(text.as_bytes(), to),
        (Kind::Bytes, Datum::Bytes(bytes)) => append_escaped(bytes, to),
        (Kind::Array(len), Datum::Bytes(bytes)) if bytes.len() == *len => to.extend_from_slice(bytes),
        (Kind::Option(_), Datum::Option(None)) => to.push(0),
        (Kind::Option(kind), Datum::Option(Some(inner))) => {
            to.push(1);
            append(kind, inner, to)?;
        }
        (Kind::Tuple(kinds), Datum::Tuple(elements)) if kinds.len() == elements.len() => {
            for (kind, element) in kinds.iter().zip(elements) {
                append(kind, element, to)?;
            }
        }
        _ => for_words!(append_word!(kind, datum, to)),
    }
    Ok(())
}

/// Returns the byte prefix of keys: of text, of bytes, or of the leading elements of a tuple.
pub(super) fn prefix(kind: &Kind, datum: &Datum<'_>) -> Result<Buffer, Unfit> {
    let mut prefix = Buffer::new();
    match (kind, datum) {
        (Kind::Str, Datum::Str(text)) => prefix.extend_from_slice(text.as_bytes()),
        (Kind::Bytes | Kind::Array(_), Datum::Bytes(bytes)) => prefix.extend_from_slice(bytes),
        (Kind::Tuple(kinds), Datum::Tuple(elements)) if elements.len() <= kinds.len() => {
            for (kind, element) in kinds.iter().zip(elements) {
                append(kind, element, &mut prefix)?;
            }
        }
        _ => return Err(Unfit::Kind),
    }
    Ok(prefix)
}

macro_rules! take_word {
    (($kind:expr, $from:expr) $($variant:ident $type:ty),+) => {
        match $kind {
            Kind::Unit => Some(Datum::Unit),
            $(Kind::$variant => words::take($from).map(Datum::$variant),)+
            _ => None,
        }
    };
}

/// Takes an element from the front of the bytes.
fn take(kind: &Kind, from: &mut &[u8]) -> Option<Datum<'static>> {
    match kind {
        Kind::U128 => take_array(from).map(|bytes| Datum::U128(u128::from_be_bytes(bytes))),
        Kind::I128 => take_array(from).map(|bytes| Datum::I128(signed_from_bytes(bytes))),
        Kind::Str => {
            let text = String::from_utf8(take_escaped(from)?).ok()?;
            Some(Datum::Str(text.into()))
        }
        Kind::Bytes => take_escaped(from).map(|bytes| Datum::Bytes(bytes.into())),
        Kind::Array(len) => {
            let (bytes, rest) = from.split_at_checked(*len)?;
            *from = rest;
            Some(Datum::Bytes(Cow::Owned(bytes.to_vec())))
        }
        Kind::Option(kind) => match take_array(from)? {
            [0] => Some(Datum::Option(None)),
            [1] => take(kind, from).map(|inner| Datum::Option(Some(Box::new(inner)))),
            _ => None,
        },
        Kind::Tuple(kinds) => {
            let elements: Option<_> = kinds.iter().map(|kind| take(kind, from)).collect();
            elements.map(Datum::Tuple)
        }
        word => for_words!(take_word!(word, from)),
    }
}

fn take_array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*bytes)
}

/// Decodes an element that must use all of the bytes.
fn take_whole(kind: &Kind, mut bytes: &[u8]) -> Option<Datum<'static>> {
    take(kind, &mut bytes).filter(|_| bytes.is_empty())
}
