//! Codecs: keys and values are inline, or in records out of line.

use std::fmt;

use bristlecone::{Key, Value};
use bristlecone_random::mix;

/// Location of keys and values: the four pairs for which the trees are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Both in the tree: see [`Words`].
    Words,
    /// Values out of line: see [`Notes`].
    Notes,
    /// Keys out of line: see [`Labels`].
    Labels,
    /// Both out of line: see [`Texts`].
    Texts,
}

/// A function of a codec's keys and values.
pub trait Visit {
    /// Runs it.
    fn visit<I: Items>(self);
}

impl Codec {
    /// Every codec.
    pub const ALL: [Self; 4] = [Self::Words, Self::Notes, Self::Labels, Self::Texts];

    /// Runs a function with the codec's keys and values.
    pub fn visit(self, with: impl Visit) {
        match self {
            Self::Words => with.visit::<Words>(),
            Self::Notes => with.visit::<Notes>(),
            Self::Labels => with.visit::<Labels>(),
            Self::Texts => with.visit::<Texts>(),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Words => "words",
            Self::Notes => "notes",
            Self::Labels => "labels",
            Self::Texts => "texts",
        })
    }
}

/// Keys and values of a codec, derived from numbers: distinct numbers below 2^32 give distinct
/// keys.
pub trait Items: Copy + Send + Sync + 'static {
    /// The type of keys.
    type K: Key<Owned: Ord>;
    /// The type of values.
    type V: Value<Owned: PartialEq + fmt::Debug>;

    /// Makes a key.
    fn key(number: u64) -> <Self::K as Key>::Owned;
    /// Makes a value.
    fn value(number: u64) -> <Self::V as Value>::Owned;
    /// Borrows a key for an operation.
    fn key_ref(key: &<Self::K as Key>::Owned) -> <Self::K as Key>::Ref<'_>;
    /// Borrows a value for an operation.
    fn value_ref(value: &<Self::V as Value>::Owned) -> <Self::V as Value>::Ref<'_>;
}

macro_rules! items {
    ($(#[$doc:meta])* $name:ident: $key:ty, $value:ty, $make_key:expr, $make_value:expr, $key_ref:expr, $value_ref:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Items for $name {
            type K = $key;
            type V = $value;

            fn key(number: u64) -> <$key as Key>::Owned {
                $make_key(number)
            }
            fn value(number: u64) -> <$value as Value>::Owned {
                $make_value(number)
            }
            fn key_ref<'a>(key: &'a <$key as Key>::Owned) -> <$key as Key>::Ref<'a> {
                $key_ref(key)
            }
            fn value_ref<'a>(value: &'a <$value as Value>::Owned) -> <$value as Value>::Ref<'a> {
                $value_ref(value)
            }
        }
    };
}

items!(
    /// Words, including the ends of their range.
    Words: u64, u64, rank, word, |key: &u64| *key, |value: &u64| *value
);
items!(
    /// Words as keys, byte strings of every length as values.
    Notes: u64, &'static [u8], rank, bytes, |key: &u64| *key, Vec::as_slice
);
items!(
    /// Strings as keys, words as values.
    Labels: &'static str, u64, text, word, String::as_str, |value: &u64| *value
);
items!(
    /// Byte strings as keys, strings as values.
    Texts: &'static [u8], &'static str, |number| text(number).into_bytes(), text, Vec::as_slice, String::as_str
);

/// Returns a key: first the ends of the range, then adjacent and scattered numbers alternately.
fn rank(number: u64) -> u64 {
    match number {
        0..5 => [0, u64::MAX, 1, u64::MAX - 1, 1 << 63][number as usize],
        _ if number.is_multiple_of(2) => number,
        _ => mix(number),
    }
}

fn word(number: u64) -> u64 {
    [0, u64::MAX, 1, u64::MAX - 1, 1 << 63][number as usize % 5] ^ number.wrapping_mul(3) << (number % 8)
}

fn text(number: u64) -> String {
    // Keys of one byte, long common prefixes, and prefixes of each other.
    let stem = ["", "a", "path/that/is/shared/by/very/many/keys/", "\0"][number as usize % 4];
    format!("{stem}{}{}", "xyz".repeat(number as usize % 7), number / 7)
}

fn bytes(number: u64) -> Vec<u8> {
    let len = [0, 1, 7, 8, 9, 100, 1000, 5000][number as usize % 8];
    (0..len).map(|at| (number >> (at % 8)) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codec_keys_of_different_numbers_differ() {
        assert_eq!((0..100_000).map(rank).collect::<BTreeSet<_>>().len(), 100_000);
        assert_eq!((0..100_000).map(text).collect::<BTreeSet<_>>().len(), 100_000);
    }
}
