//! Kinds that are stored as byte strings in records.

use super::{Buffer, Element, append_escaped, take_escaped};
use crate::index::parts::codec::Record;
use crate::{Key, Result, Value};

/// Strings and byte strings, which a record stores unchanged.
macro_rules! bytes {
    ($type:ty, $ref:ty, $owned:ty, $kind:expr, $bytes:expr, $view:expr, $take:expr) => {
        impl Key for $type {
            type Ref<'a> = &'a $ref;
            type Owned = $owned;
            type Codec = Record;
            type Schema = ();

            fn kind() -> String {
                $kind.to_owned()
            }
            fn fixed() -> Result<()> {
                Ok(())
            }
            fn lend(key: &$owned) -> &$ref {
                key
            }
            #[inline(always)]
            fn with<R>((): &(), key: &$ref, use_it: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
                use_it($bytes(key))
            }
            #[inline(always)]
            fn show<R>((): &(), key: &[u8], show: impl FnOnce(&$ref) -> R) -> Option<R> {
                $view(key).map(show)
            }
            #[inline(always)]
            fn decode((): &(), key: Box<[u8]>) -> Option<$owned> {
                $take(key.into_vec())
            }
        }

        impl Value for $type {
            type Ref<'a> = &'a $ref;
            type Owned = $owned;
            type Codec = Record;
            type Schema = ();

            fn kind() -> String {
                $kind.to_owned()
            }
            fn fixed() -> Result<()> {
                Ok(())
            }
            fn lend(value: &$owned) -> &$ref {
                value
            }
            #[inline(always)]
            fn with<R>((): &(), value: &$ref, use_it: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
                use_it($bytes(value))
            }
            #[inline(always)]
            fn view<R>((): &(), value: &[u8], show: impl FnOnce(&$ref) -> R) -> Option<R> {
                $view(value).map(show)
            }
            #[inline(always)]
            fn decode((): &(), value: &[u8]) -> Option<$owned> {
                $view(value).map(<$ref>::to_owned)
            }
            #[inline(always)]
            fn take((): &(), value: Box<[u8]>) -> Option<$owned> {
                $take(value.into_vec())
            }
            fn in_entry<'a>((): &(), stored: &'a [u8]) -> Option<&'a [u8]> {
                Some(stored)
            }
        }

        impl Element for $type {
            fn append(element: &$ref, to: &mut Buffer) {
                append_escaped($bytes(element), to);
            }
            fn take(from: &mut &[u8]) -> Option<$owned> {
                take_escaped(from).and_then($take)
            }
        }
    };
}

fn text(bytes: &[u8]) -> Option<&str> {
    if bytes.is_ascii() {
        // SAFETY: ASCII is UTF-8.
        return Some(unsafe { str::from_utf8_unchecked(bytes) });
    }
    str::from_utf8(bytes).ok()
}

fn string(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes).ok()
}

bytes!(&'static str, str, String, "str", str::as_bytes, text, string);
bytes!(String, str, String, "str", str::as_bytes, text, string);
bytes!(&'static [u8], [u8], Vec<u8>, "bytes", std::convert::identity, Some, Some);
bytes!(Vec<u8>, [u8], Vec<u8>, "bytes", std::convert::identity, Some, Some);

/// Types of a fixed size, whose bytes have the order of the type.
macro_rules! fixed {
    ([$($generics:tt)*] $type:ty, $kind:expr, $to:expr, $from:expr) => {
        impl<$($generics)*> Key for $type {
            type Ref<'a> = $type;
            type Owned = $type;
            type Codec = Record;
            type Schema = ();

            fn kind() -> String {
                $kind
            }
            fn fixed() -> Result<()> {
                Ok(())
            }
            fn lend(key: &$type) -> $type {
                *key
            }
            #[inline(always)]
            fn with<R>((): &(), key: $type, use_it: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
                use_it(&$to(key))
            }
            fn decode((): &(), key: Box<[u8]>) -> Option<$type> {
                <Self as Value>::decode(&(), &key)
            }
        }

        impl<$($generics)*> Value for $type {
            type Ref<'a> = $type;
            type Owned = $type;
            type Codec = Record;
            type Schema = ();

            fn kind() -> String {
                $kind
            }
            fn fixed() -> Result<()> {
                Ok(())
            }
            fn lend(value: &$type) -> $type {
                *value
            }
            #[inline(always)]
            fn with<R>((): &(), value: $type, use_it: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
                use_it(&$to(value))
            }
            fn view<R>((): &(), value: &[u8], show: impl FnOnce($type) -> R) -> Option<R> {
                <Self as Value>::decode(&(), value).map(show)
            }
            #[inline(always)]
            fn decode((): &(), value: &[u8]) -> Option<$type> {
                value.try_into().ok().map($from)
            }
            fn in_entry<'a>((): &(), stored: &'a [u8]) -> Option<&'a [u8]> {
                Some(stored)
            }
        }

        impl<$($generics)*> Element for $type {
            fn append(element: $type, to: &mut Buffer) {
                to.extend_from_slice(&$to(element));
            }
            fn take(from: &mut &[u8]) -> Option<$type> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some($from(*bytes))
            }
        }
    };
}

fixed!([const N: usize] [u8; N], format!("[u8; {N}]"), |bytes| bytes, |bytes| bytes);
fixed!([] u128, "u128".to_owned(), u128::to_be_bytes, u128::from_be_bytes);
fixed!([] i128, "i128".to_owned(), signed_to_bytes, signed_from_bytes);

/// Returns the bytes with the sign bit flipped, so that negative numbers order first.
pub(crate) fn signed_to_bytes(number: i128) -> [u8; 16] {
    (number ^ i128::MIN).to_be_bytes()
}

pub(crate) fn signed_from_bytes(bytes: [u8; 16]) -> i128 {
    i128::from_be_bytes(bytes) ^ i128::MIN
}
