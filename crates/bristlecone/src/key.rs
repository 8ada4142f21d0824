//! Types of keys, and how they order.

use bristlecone_pm::KEY_BYTES_MAX;
use smallvec::SmallVec;

use crate::shared::codec::{Codec, Inline, KeyCodec, Record};

/// Encoded keys up to this length are built without allocating.
type Buffer = SmallVec<[u8; 256]>;

/// A type of keys: `u64`, `u32`, `i64`, `&str`, `&[u8]`, `[u8; N]`, and tuples of them.
///
/// Keys order as their type does: integers by value, strings and byte strings bytewise, tuples by
/// their first differing element. Integers stand in the tree itself, the whole domain of them;
/// everything else is written out of line and may have up to 16 KiB.
pub trait Key: 'static {
    /// What operations take.
    type Ref<'a>: Copy;
    /// What iterators give.
    type Owned: Clone + Send + Sync + std::fmt::Debug;
    #[doc(hidden)]
    type Codec: KeyCodec;

    /// The type's name in the pool's directory.
    fn kind() -> String;

    #[doc(hidden)]
    fn with<R>(key: Self::Ref<'_>, use_it: impl FnOnce(<Self::Codec as Codec>::Ref<'_>) -> R) -> R;

    #[doc(hidden)]
    fn decode(key: &<Self::Codec as Codec>::Owned) -> Self::Owned;

    #[doc(hidden)]
    fn bytes(key: <Self::Codec as Codec>::Ref<'_>) -> usize;
}

macro_rules! integer_key {
    ($type:ty, $encode:expr, $decode:expr) => {
        impl Key for $type {
            type Ref<'a> = $type;
            type Owned = $type;
            type Codec = Inline;

            fn kind() -> String {
                stringify!($type).to_owned()
            }
            #[inline(always)]
            fn with<R>(key: $type, use_it: impl FnOnce(u64) -> R) -> R {
                use_it($encode(key))
            }
            #[inline(always)]
            fn decode(key: &u64) -> $type {
                $decode(*key)
            }
            #[inline(always)]
            fn bytes(_: u64) -> usize {
                8
            }
        }
    };
}

integer_key!(u64, |key: u64| key, |word: u64| word);
integer_key!(u32, u64::from, |word: u64| word as u32);
integer_key!(i64, |key: i64| key as u64 ^ 1 << 63, |word: u64| (word ^ 1 << 63) as i64);

macro_rules! bytes_key {
    ($type:ty, $ref:ty, $owned:ty, $kind:expr, $bytes:expr, $decode:expr) => {
        impl Key for $type {
            type Ref<'a> = &'a $ref;
            type Owned = $owned;
            type Codec = Record;

            fn kind() -> String {
                $kind
            }
            fn with<R>(key: &$ref, use_it: impl FnOnce(&[u8]) -> R) -> R {
                use_it($bytes(key))
            }
            fn decode(key: &Box<[u8]>) -> $owned {
                $decode(key)
            }
            fn bytes(key: &[u8]) -> usize {
                key.len()
            }
        }
    };
}

bytes_key!(&'static str, str, String, "str".to_owned(), str::as_bytes, |key: &[u8]| {
    String::from_utf8_lossy(key).into_owned()
});
bytes_key!(&'static [u8], [u8], Vec<u8>, "bytes".to_owned(), |key| key, |key: &[u8]| key.to_vec());

impl<const N: usize> Key for [u8; N] {
    type Ref<'a> = [u8; N];
    type Owned = [u8; N];
    type Codec = Record;

    fn kind() -> String {
        format!("[u8; {N}]")
    }
    fn with<R>(key: [u8; N], use_it: impl FnOnce(&[u8]) -> R) -> R {
        use_it(&key)
    }
    fn decode(key: &Box<[u8]>) -> [u8; N] {
        <[u8; N]>::try_from(&key[..]).unwrap_or([0; N])
    }
    fn bytes(key: &[u8]) -> usize {
        key.len()
    }
}

/// An element of a tuple: written so that the tuple's bytes order as the tuple does.
pub trait Element: Key {
    #[doc(hidden)]
    fn append(element: Self::Ref<'_>, to: &mut Buffer);
    #[doc(hidden)]
    fn take(from: &mut &[u8]) -> Self::Owned;
}

macro_rules! integer_element {
    ($type:ty) => {
        impl Element for $type {
            fn append(element: $type, to: &mut Buffer) {
                Self::with(element, |word| to.extend_from_slice(&word.to_be_bytes()));
            }
            fn take(from: &mut &[u8]) -> $type {
                let (word, rest) = from.split_first_chunk().unwrap_or((&[0; 8], &[]));
                *from = rest;
                Self::decode(&u64::from_be_bytes(*word))
            }
        }
    };
}

integer_element!(u64);
integer_element!(u32);
integer_element!(i64);

/// A zero byte becomes 00 FF, the end 00 01: so a string orders before its continuations.
fn append_escaped(bytes: &[u8], to: &mut Buffer) {
    for &byte in bytes {
        to.push(byte);
        if byte == 0 {
            to.push(0xff);
        }
    }
    to.extend_from_slice(&[0, 1]);
}

fn take_escaped(from: &mut &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some((&byte, rest)) = from.split_first() {
        *from = rest;
        if byte == 0 {
            let Some((&mark, rest)) = from.split_first() else { break };
            *from = rest;
            if mark == 1 {
                break;
            }
        }
        bytes.push(byte);
    }
    bytes
}

impl Element for &'static str {
    fn append(element: &str, to: &mut Buffer) {
        append_escaped(element.as_bytes(), to);
    }
    fn take(from: &mut &[u8]) -> String {
        String::from_utf8_lossy(&take_escaped(from)).into_owned()
    }
}

impl Element for &'static [u8] {
    fn append(element: &[u8], to: &mut Buffer) {
        append_escaped(element, to);
    }
    fn take(from: &mut &[u8]) -> Vec<u8> {
        take_escaped(from)
    }
}

impl<const N: usize> Element for [u8; N] {
    fn append(element: [u8; N], to: &mut Buffer) {
        to.extend_from_slice(&element);
    }
    fn take(from: &mut &[u8]) -> [u8; N] {
        let (bytes, rest) = from.split_first_chunk().unwrap_or((&[0; N], &[]));
        *from = rest;
        *bytes
    }
}

macro_rules! tuple_key {
    ($($name:ident $at:tt),+) => {
        impl<$($name: Element),+> Key for ($($name,)+) {
            type Ref<'a> = ($($name::Ref<'a>,)+);
            type Owned = ($($name::Owned,)+);
            type Codec = Record;

            fn kind() -> String {
                format!("({})", [$($name::kind()),+].join(", "))
            }
            fn with<R>(key: Self::Ref<'_>, use_it: impl FnOnce(&[u8]) -> R) -> R {
                let mut buffer = Buffer::new();
                $($name::append(key.$at, &mut buffer);)+
                use_it(&buffer)
            }
            fn decode(key: &Box<[u8]>) -> Self::Owned {
                let mut rest = &key[..];
                ($($name::take(&mut rest),)+)
            }
            fn bytes(key: &[u8]) -> usize {
                key.len()
            }
        }
    };
}

tuple_key!(A 0, B 1);
tuple_key!(A 0, B 1, C 2);
tuple_key!(A 0, B 1, C 2, D 3);

/// Whether a key can be stored, as a tree asks before writing.
pub(crate) fn check_len(bytes: usize) -> crate::Result<()> {
    if bytes <= KEY_BYTES_MAX {
        return Ok(());
    }
    Err(crate::Error::TooLong { what: "key", bytes, max_bytes: KEY_BYTES_MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded<K: Key<Codec = Record>>(key: K::Ref<'_>) -> Box<[u8]> {
        K::with(key, |bytes| bytes.into())
    }

    #[test]
    fn integers_keep_their_order() {
        let words = [i64::MIN, -7, -1, 0, 1, i64::MAX].map(|key| i64::with(key, |word| word));
        assert!(words.is_sorted());
        assert_eq!(words.map(|word| i64::decode(&word)), [i64::MIN, -7, -1, 0, 1, i64::MAX]);
    }

    #[test]
    fn tuples_keep_their_order_and_come_back() {
        type K = (&'static str, u64, &'static [u8]);
        let mut keys: Vec<(&str, u64, &[u8])> = Vec::new();
        for text in ["", "\0", "\0\0", "\0\u{1}", "a", "a\0", "a\0b", "ab", "b"] {
            for number in [0, 1, 255, 256, u64::MAX] {
                for bytes in [&b""[..], b"\0", b"\0\xff", b"\xff", b"\xff\xff"] {
                    keys.push((text, number, bytes));
                }
            }
        }
        keys.sort_unstable();
        let bytes: Vec<_> = keys.iter().map(|&key| encoded::<K>(key)).collect();
        assert!(bytes.is_sorted());
        for (key, bytes) in keys.iter().zip(&bytes) {
            assert_eq!(K::decode(bytes), (key.0.to_owned(), key.1, key.2.to_vec()));
        }
        assert_eq!(K::kind(), "(str, u64, bytes)");
    }
}
