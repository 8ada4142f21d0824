//! Kinds that are stored as words in the tree.

use super::expiring::word_of;
use super::{Buffer, Element};
use crate::index::parts::codec::Inline;
use crate::{Key, Result, Value};

/// A type that fits a word. As a key, its word preserves the order; as a value, it is stored unchanged.
pub(crate) trait Word: Sized + Copy {
    /// The name of the kind in the directory.
    const NAME: &'static str;
    /// Number of low bytes of the key's word that vary; an element stores only these.
    const ELEMENT_BYTES: usize;

    fn to_key(self) -> u64;
    fn from_key(word: u64) -> Option<Self>;
    fn to_value(self) -> u64;
    fn from_value(word: u64) -> Option<Self>;
}

/// Types that have the same word as key and as value.
macro_rules! plain_word {
    ($type:ty, $bytes:expr, $to:expr, $from:expr) => {
        impl Word for $type {
            const NAME: &'static str = stringify!($type);
            const ELEMENT_BYTES: usize = $bytes;

            #[inline(always)]
            fn to_key(self) -> u64 {
                $to(self)
            }
            #[inline(always)]
            fn from_key(word: u64) -> Option<Self> {
                $from(word)
            }
            #[inline(always)]
            fn to_value(self) -> u64 {
                $to(self)
            }
            #[inline(always)]
            fn from_value(word: u64) -> Option<Self> {
                $from(word)
            }
        }
    };
}

plain_word!((), 0, |()| 0, |word| (word == 0).then_some(()));
plain_word!(bool, 1, u64::from, |word| (word < 2).then_some(word == 1));
plain_word!(u8, 1, u64::from, |word| u8::try_from(word).ok());
plain_word!(u16, 2, u64::from, |word| u16::try_from(word).ok());
// Eight bytes as an element, for compatibility with versions before the smaller integers.
plain_word!(u32, 8, u64::from, |word| u32::try_from(word).ok());
plain_word!(u64, 8, std::convert::identity, Some);
plain_word!(char, 4, u64::from, |word| u32::try_from(word).ok().and_then(char::from_u32));

/// Signed integers: sign bit flipped in keys, sign-extended in values.
macro_rules! signed_word {
    ($type:ty, $unsigned:ty) => {
        impl Word for $type {
            const NAME: &'static str = stringify!($type);
            const ELEMENT_BYTES: usize = size_of::<$type>();

            #[inline(always)]
            fn to_key(self) -> u64 {
                (self ^ <$type>::MIN) as $unsigned as u64
            }
            #[inline(always)]
            fn from_key(word: u64) -> Option<Self> {
                <$unsigned>::try_from(word).ok().map(|bits| bits as $type ^ <$type>::MIN)
            }
            #[inline(always)]
            fn to_value(self) -> u64 {
                self as i64 as u64
            }
            #[inline(always)]
            fn from_value(word: u64) -> Option<Self> {
                <$type>::try_from(word as i64).ok()
            }
        }
    };
}

signed_word!(i8, u8);
signed_word!(i16, u16);
signed_word!(i32, u32);
signed_word!(i64, u64);

/// Floats: raw bits in values. In keys, negative numbers have all bits flipped, the others only the
/// sign bit.
macro_rules! float_word {
    ($type:ty, $unsigned:ty, $signed:ty) => {
        impl Word for $type {
            const NAME: &'static str = stringify!($type);
            const ELEMENT_BYTES: usize = size_of::<$type>();

            #[inline(always)]
            fn to_key(self) -> u64 {
                let bits = self.to_bits() as $signed;
                let flipped = (bits >> (<$signed>::BITS - 1)) | <$signed>::MIN;
                (bits ^ flipped) as $unsigned as u64
            }
            #[inline(always)]
            fn from_key(word: u64) -> Option<Self> {
                let bits = <$unsigned>::try_from(word).ok()? as $signed;
                let flipped = (!bits >> (<$signed>::BITS - 1)) | <$signed>::MIN;
                Some(Self::from_bits((bits ^ flipped) as $unsigned))
            }
            #[inline(always)]
            fn to_value(self) -> u64 {
                self.to_bits() as u64
            }
            #[inline(always)]
            fn from_value(word: u64) -> Option<Self> {
                <$unsigned>::try_from(word).ok().map(Self::from_bits)
            }
        }
    };
}

float_word!(f32, u32, i32);
float_word!(f64, u64, i64);

/// Appends the word of a key as an element.
#[inline(always)]
pub(crate) fn append<W: Word>(word: W, to: &mut Buffer) {
    to.extend_from_slice(&word.to_key().to_be_bytes()[8 - W::ELEMENT_BYTES..]);
}

/// Takes the word of a key from the front.
#[inline(always)]
pub(crate) fn take<W: Word>(from: &mut &[u8]) -> Option<W> {
    let (bytes, rest) = from.split_at_checked(W::ELEMENT_BYTES)?;
    *from = rest;
    let mut word = [0; 8];
    word[8 - W::ELEMENT_BYTES..].copy_from_slice(bytes);
    W::from_key(u64::from_be_bytes(word))
}

macro_rules! words {
    ($($type:ty),+) => {$(
        impl Key for $type {
            type Ref<'a> = $type;
            type Owned = $type;
            type Codec = Inline;
            type Schema = ();

            fn kind() -> String {
                <$type as Word>::NAME.to_owned()
            }
            fn fixed() -> Result<()> {
                Ok(())
            }
            #[inline(always)]
            fn lend(key: &$type) -> $type {
                *key
            }
            #[inline(always)]
            fn with<R>((): &(), key: $type, use_it: impl FnOnce(u64) -> Result<R>) -> Result<R> {
                use_it(key.to_key())
            }
            #[inline(always)]
            fn decode((): &(), key: u64) -> Option<$type> {
                Word::from_key(key)
            }
        }

        impl Value for $type {
            type Ref<'a> = $type;
            type Owned = $type;
            type Codec = Inline;
            type Schema = ();

            fn kind() -> String {
                <$type as Word>::NAME.to_owned()
            }
            fn fixed() -> Result<()> {
                Ok(())
            }
            #[inline(always)]
            fn lend(value: &$type) -> $type {
                *value
            }
            #[inline(always)]
            fn with<R>((): &(), value: $type, use_it: impl FnOnce(u64) -> Result<R>) -> Result<R> {
                use_it(value.to_value())
            }
            #[inline(always)]
            fn view<R>((): &(), value: u64, show: impl FnOnce($type) -> R) -> Option<R> {
                Word::from_value(value).map(show)
            }
            #[inline(always)]
            fn decode((): &(), value: u64) -> Option<$type> {
                Word::from_value(value)
            }
            fn in_entry((): &(), stored: &[u8]) -> Option<u64> {
                word_of(stored)
            }
        }

        impl Element for $type {
            #[inline(always)]
            fn append(element: $type, to: &mut Buffer) {
                append(element, to);
            }
            #[inline(always)]
            fn take(from: &mut &[u8]) -> Option<$type> {
                take(from)
            }
        }
    )+};
}

words!((), bool, u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, char);
