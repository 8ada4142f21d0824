//! Stored form of data by kind: words, or the bytes of records, matching [`crate::kinds`].

use std::borrow::Cow;

use super::kind::for_words;
use super::{Datum, Kind};
use crate::Expiry;
use crate::api::kinds::expiring::{self, join, split};
use crate::api::kinds::records::{signed_from_bytes, signed_to_bytes};
use crate::api::kinds::words::{self, Word};
use crate::api::kinds::{Buffer, append_escaped, take_escaped};
use crate::index::parts::encoded::{Encoded, Item};

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

/// Whether data are keys or values, and their kind.
pub(crate) type As<'k> = (Role, &'k Kind);

/// Calls `use_it` with the stored form of a datum.
pub(crate) fn with<R>(
    as_kind: As<'_>,
    datum: &Datum<'_>,
    use_it: impl FnOnce(Item<'_>) -> R,
) -> Result<R, Unfit> {
    let (_, kind) = as_kind;
    if kind.is_word() {
        return word_of(as_kind, datum).map(|word| use_it(Item::Word(word))).ok_or(Unfit::Kind);
    }
    let use_it = |bytes: &[u8]| use_it(Item::Bytes(bytes));
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

/// Encodes the entry of a tree whose entries expire.
fn entry(kind: &Kind, value: &Datum<'_>, expiry: Expiry) -> Result<Buffer, Unfit> {
    with((Role::Value, kind), value, |value| join(expiry, value))
}

/// Decodes the stored form. Returns `None` if it does not decode as the kind.
pub(crate) fn view<'a>(as_kind: As<'_>, item: Item<'a>) -> Option<Datum<'a>> {
    let (_, kind) = as_kind;
    let bytes = match item {
        Item::Word(word) => return of_word(as_kind, word),
        Item::Bytes(_) if kind.is_word() => return None,
        Item::Bytes(bytes) => bytes,
    };
    match kind {
        Kind::Str => str::from_utf8(bytes).ok().map(|text| Datum::Str(text.into())),
        Kind::Json => str::from_utf8(bytes).ok().map(|text| Datum::Json(text.into())),
        Kind::Bytes => Some(Datum::Bytes(bytes.into())),
        Kind::Postcard => Some(Datum::Postcard(bytes.into())),
        Kind::Array(len) => (bytes.len() == *len).then(|| Datum::Bytes(bytes.into())),
        Kind::Expiring(kind) => {
            let (expiry, stored) = split(bytes)?;
            let item =
                if kind.is_word() { Item::Word(expiring::word_of(stored)?) } else { Item::Bytes(stored) };
            Some(Datum::Expiring(Box::new(view((Role::Value, kind), item)?), expiry))
        }
        _ => take_whole(kind, bytes),
    }
}

/// Decodes the stored form and takes ownership of its bytes.
pub(crate) fn take(as_kind: As<'_>, item: Encoded) -> Option<Datum<'static>> {
    let (_, kind) = as_kind;
    match (kind, item) {
        (Kind::Str, Encoded::Bytes(text)) => text_of(text).map(|text| Datum::Str(text.into())),
        (Kind::Json, Encoded::Bytes(text)) => text_of(text).map(|text| Datum::Json(text.into())),
        (Kind::Bytes, Encoded::Bytes(bytes)) => Some(Datum::Bytes(bytes.into_vec().into())),
        (Kind::Postcard, Encoded::Bytes(bytes)) => Some(Datum::Postcard(bytes.into_vec().into())),
        (_, item) => view(as_kind, item.item()).map(Datum::into_owned),
    }
}

fn text_of(bytes: Box<[u8]>) -> Option<String> {
    String::from_utf8(bytes.into_vec()).ok()
}

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

/// Returns the word of a datum, or `None` if it is of another kind.
fn word_of((role, kind): As<'_>, datum: &Datum<'_>) -> Option<u64> {
    match role {
        Role::Key => for_words!(to_word!(kind, datum, to_key)),
        Role::Value => for_words!(to_word!(kind, datum, to_value)),
    }
}

/// Returns the datum of a word, or `None` if it does not decode as the kind.
fn of_word((role, kind): As<'_>, word: u64) -> Option<Datum<'static>> {
    match role {
        Role::Key => for_words!(from_word!(kind, word, from_key)),
        Role::Value => for_words!(from_word!(kind, word, from_value)),
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

/// Appends the byte prefix of keys: of text, of bytes, or of the leading elements of a tuple.
pub(super) fn append_prefix(kind: &Kind, datum: &Datum<'_>, to: &mut Buffer) -> Result<(), Unfit> {
    match (kind, datum) {
        (Kind::Str, Datum::Str(text)) => to.extend_from_slice(text.as_bytes()),
        (Kind::Bytes | Kind::Array(_), Datum::Bytes(bytes)) => to.extend_from_slice(bytes),
        (Kind::Tuple(kinds), Datum::Tuple(elements)) if elements.len() <= kinds.len() => {
            for (kind, element) in kinds.iter().zip(elements) {
                append(kind, element, to)?;
            }
        }
        _ => return Err(Unfit::Kind),
    }
    Ok(())
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
fn take_element(kind: &Kind, from: &mut &[u8]) -> Option<Datum<'static>> {
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
            [1] => take_element(kind, from).map(|inner| Datum::Option(Some(Box::new(inner)))),
            _ => None,
        },
        Kind::Tuple(kinds) => {
            let elements: Option<_> = kinds.iter().map(|kind| take_element(kind, from)).collect();
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
    take_element(kind, &mut bytes).filter(|_| bytes.is_empty())
}
