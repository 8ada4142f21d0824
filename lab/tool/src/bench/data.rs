//! Keys and values derived from 64-bit identities, at the cost of a store or two.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use bristlecone::{KEY_BYTES_MAX, Key, VALUE_BYTES_MAX, Value};
use bristlecone_random::{GOLDEN_RATIO, mix};
use ferntree::OptimisticRead;

/// Shape of keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    U64,
    /// Byte strings of these lengths, uniformly distributed.
    Bytes {
        min: usize,
        max: usize,
    },
    /// Addresses of web pages: byte strings that have their beginnings in common.
    Urls,
}

/// An address, with zeros where the digits of its identity go, and words that are cut off.
const URL: &[u8] =
    b"https://www.h000.example.org/00/00000000/what-is-written-there-and-by-whom-it-was-written-then";
/// Digits of five bits, in ascending order. Their places are in the order of their weight.
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
const PLACES: [usize; 13] = [13, 14, 15, 29, 30, 32, 33, 34, 35, 36, 37, 38, 39];
/// Bytes of the shortest address.
const URL_BYTES: usize = 41;

impl Shape {
    /// Returns the mean number of bytes of a datum.
    pub fn mean_bytes(self) -> u64 {
        match self {
            Self::U64 => 8,
            Self::Bytes { min, max } => (min + max).div_ceil(2) as u64,
            Self::Urls => (URL_BYTES + URL.len()).div_ceil(2) as u64,
        }
    }

    /// Returns the maximum number of bytes of a datum.
    #[cfg(feature = "rivals")]
    pub fn most_bytes(self) -> usize {
        match self {
            Self::U64 => 8,
            Self::Bytes { max, .. } => max,
            Self::Urls => URL.len(),
        }
    }

    /// Returns the number of bytes of each datum, if it is constant.
    pub fn fixed_bytes(self) -> Option<usize> {
        match self {
            Self::U64 => Some(8),
            Self::Bytes { min, max } => (min == max).then_some(min),
            Self::Urls => None,
        }
    }

    fn read(text: &str, what: &str, least: usize, most: usize) -> Result<Self, String> {
        let refusal = || format!("{text:?}: write u64, bytes:LENGTH or bytes:MIN-MAX");
        let lengths = match text.split_once(':') {
            None if text == "u64" => return Ok(Self::U64),
            // Sizes are as in PiBench, where 8 bytes are a number.
            None if text == "8" => return Ok(Self::U64),
            None if text.parse::<usize>().is_ok() => text,
            Some(("bytes", lengths)) => lengths,
            _ => return Err(refusal()),
        };
        let (min, max) = lengths.split_once('-').unwrap_or((lengths, lengths));
        let (Ok(min), Ok(max)) = (min.parse(), max.parse()) else { return Err(refusal()) };
        if min < least || max > most || min > max {
            return Err(format!("{text:?}: {what} have {least} to {most} bytes here"));
        }
        Ok(Self::Bytes { min, max })
    }

    /// Parses the shape of keys. Fewer than 8 bytes do not yield enough distinct keys.
    pub fn of_keys(text: &str) -> Result<Self, String> {
        if text == "urls" {
            return Ok(Self::Urls);
        }
        Self::read(text, "keys", 8, KEY_BYTES_MAX)
            .map_err(|error| error.replace("write u64,", "write u64, urls,"))
    }

    /// Parses the shape of values.
    pub fn of_values(text: &str) -> Result<Self, String> {
        Self::read(text, "values", 0, VALUE_BYTES_MAX)
    }

    /// Creates the buffer in which data of this shape are built.
    pub fn buffer(self) -> Buffer {
        match self {
            Self::U64 => Buffer { bytes: Box::default(), min: 0, lengths: 1 },
            Self::Urls => {
                Buffer { bytes: URL.into(), min: URL_BYTES, lengths: (URL.len() - URL_BYTES + 1) as u64 }
            }
            Self::Bytes { min, max } => {
                let bytes = (0..max.max(8)).map(|at| b'a' + (at % 26) as u8).collect();
                Buffer { bytes, min, lengths: (max - min + 1) as u64 }
            }
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U64 => f.write_str("u64"),
            Self::Urls => f.write_str("urls"),
            Self::Bytes { min, max } if min == max => write!(f, "bytes:{min}"),
            Self::Bytes { min, max } => write!(f, "bytes:{min}-{max}"),
        }
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::of_values(text)
    }
}

/// How only addresses begin: no identity in use has these bytes.
const URL_BEGINS: &[u8] = URL.split_at(PLACES[0]).0;

/// Returns the identity in an address.
fn id_of_url(url: &[u8]) -> u64 {
    let digit = |at: usize| match url[at] {
        digit @ b'0'..=b'9' => u64::from(digit - b'0'),
        letter => u64::from(letter.wrapping_sub(b'a')) + 10,
    };
    PLACES.into_iter().fold(0, |id, at| id << 5 | digit(at))
}

/// Buffer for a datum: a filler whose first eight bytes identify its key.
pub struct Buffer {
    bytes: Box<[u8]>,
    min: usize,
    lengths: u64,
}

impl Buffer {
    #[inline]
    fn make(&mut self, word: u64, length_from: u64) -> &[u8] {
        self.bytes[..8].copy_from_slice(&word.to_be_bytes());
        let length = self.length(length_from);
        &self.bytes[..length]
    }

    #[inline]
    fn make_key(&mut self, id: u64) -> &[u8] {
        if !self.bytes.starts_with(URL_BEGINS) {
            return self.make(id, id);
        }
        for (number, at) in PLACES.into_iter().rev().enumerate() {
            self.bytes[at] = DIGITS[(id >> (5 * number)) as usize % 32];
        }
        let length = self.length(id);
        &self.bytes[..length]
    }

    /// Returns the length selected by the lower half of a word.
    #[inline]
    fn length(&self, word: u64) -> usize {
        self.min + (((word & 0xffff_ffff) * self.lengths) >> 32) as usize
    }

    /// Returns the number of bytes of the key of an identity.
    pub fn key_bytes(&self, id: u64) -> u64 {
        if self.bytes.is_empty() { 8 } else { self.length(id) as u64 }
    }

    /// Returns the number of bytes of a version of the value of an identity.
    pub fn value_bytes(&self, id: u64, version: u64) -> u64 {
        self.key_bytes(mix(tag(id, version)))
    }

    /// Returns whether bytes are a complete value of the key of this identity.
    #[inline]
    fn is_of(&self, value: &[u8], id: u64) -> bool {
        let (ours, versions) = (tag(id, 0).to_be_bytes(), 6);
        let Some((first, filler)) = value.split_first_chunk::<8>() else {
            // Too short for the version: only its bytes can be compared.
            let own = value.len().min(versions);
            return value.len() >= self.min && value[..own] == ours[..own];
        };
        let length = self.length(mix(u64::from_be_bytes(*first)));
        first[..versions] == ours[..versions] && value.len() == length && *filler == self.bytes[8..length]
    }
}

/// Bits of a value that identify its version.
const VERSION: u64 = 0xffff;

/// Returns the first word of a version of the value of an identity. All its bits except the version
/// are unique to the key.
#[inline(always)]
fn tag(id: u64, version: u64) -> u64 {
    id.wrapping_mul(GOLDEN_RATIO) & !VERSION | version & VERSION
}

/// A type of keys in benchmarks.
pub trait BenchKey: Key {
    /// The owned type in a volatile map.
    type Own: Clone + Ord + Send + Sync + OptimisticRead + Borrow<Self::Part> + 'static;
    /// The borrowed type for lookups in a volatile map.
    type Part: Ord + ?Sized;
    fn make(id: u64, buffer: &mut Buffer) -> Self::Ref<'_>;
    fn own(key: Self::Ref<'_>) -> Self::Own;
    /// Converts an owned key to the form that is passed.
    fn show(key: &Self::Own) -> Self::Ref<'_>;
    fn part<'a>(key: &'a Self::Ref<'_>) -> &'a Self::Part;
    /// Returns the identity from which a key was derived.
    fn id(key: Self::Ref<'_>) -> u64;
    /// Calls `with` with the key as bytes, in the same order as keys.
    fn bytes<R>(key: Self::Ref<'_>, with: impl FnOnce(&[u8]) -> R) -> R;
    /// Parses bytes as a key; `None` if they are invalid.
    fn from_bytes(bytes: &[u8]) -> Option<Self::Ref<'_>>;
}

/// A type of values in benchmarks.
pub trait BenchValue: Value {
    /// The owned type in a volatile map.
    type Own: Clone + Send + Sync + OptimisticRead + 'static;
    /// Creates a version of the value of an identity.
    fn make(id: u64, version: u64, buffer: &mut Buffer) -> Self::Ref<'_>;
    fn own(value: Self::Ref<'_>) -> Self::Own;
    /// Converts an owned value to the form that is passed.
    fn show(value: &Self::Own) -> Self::Ref<'_>;
    /// Returns whether a value belongs to the key of this identity.
    fn is_of(value: Self::Ref<'_>, id: u64, buffer: &Buffer) -> bool;
    /// Returns the first word of a value.
    fn word(value: Self::Ref<'_>) -> u64;
    /// Calls `with` with the value as bytes.
    fn bytes<R>(value: Self::Ref<'_>, with: impl FnOnce(&[u8]) -> R) -> R;
    /// Parses bytes as a value; `None` if they are invalid.
    fn from_bytes(bytes: &[u8]) -> Option<Self::Ref<'_>>;
}

impl BenchKey for u64 {
    type Own = u64;
    type Part = u64;
    #[inline(always)]
    fn make(id: u64, _: &mut Buffer) -> u64 {
        id
    }
    #[inline(always)]
    fn own(key: u64) -> u64 {
        key
    }
    #[inline(always)]
    fn show(key: &u64) -> u64 {
        *key
    }
    #[inline(always)]
    fn part(key: &u64) -> &u64 {
        key
    }
    #[inline(always)]
    fn id(key: u64) -> u64 {
        key
    }
    #[inline(always)]
    fn bytes<R>(key: u64, with: impl FnOnce(&[u8]) -> R) -> R {
        with(&key.to_be_bytes())
    }
    #[inline(always)]
    fn from_bytes(bytes: &[u8]) -> Option<u64> {
        bytes.try_into().ok().map(u64::from_be_bytes)
    }
}

impl BenchValue for u64 {
    type Own = u64;
    #[inline(always)]
    fn make(id: u64, version: u64, _: &mut Buffer) -> u64 {
        tag(id, version)
    }
    #[inline(always)]
    fn own(value: u64) -> u64 {
        value
    }
    #[inline(always)]
    fn show(value: &u64) -> u64 {
        *value
    }
    #[inline(always)]
    fn is_of(value: u64, id: u64, _: &Buffer) -> bool {
        (value ^ tag(id, 0)) & !VERSION == 0
    }
    #[inline(always)]
    fn word(value: u64) -> u64 {
        value
    }
    #[inline(always)]
    fn bytes<R>(value: u64, with: impl FnOnce(&[u8]) -> R) -> R {
        with(&value.to_be_bytes())
    }
    #[inline(always)]
    fn from_bytes(bytes: &[u8]) -> Option<u64> {
        bytes.try_into().ok().map(u64::from_be_bytes)
    }
}

impl BenchKey for &'static [u8] {
    type Own = Vec<u8>;
    type Part = [u8];
    #[inline(always)]
    fn make(id: u64, buffer: &mut Buffer) -> &[u8] {
        buffer.make_key(id)
    }
    #[inline(always)]
    fn own(key: &[u8]) -> Vec<u8> {
        key.to_vec()
    }
    #[inline(always)]
    fn show(key: &Vec<u8>) -> &[u8] {
        key
    }
    #[inline(always)]
    fn part<'a>(key: &'a &[u8]) -> &'a [u8] {
        key
    }
    #[inline(always)]
    fn id(key: &[u8]) -> u64 {
        if key.len() >= URL_BYTES && key.starts_with(URL_BEGINS) { id_of_url(key) } else { first(key) }
    }
    #[inline(always)]
    fn bytes<R>(key: &[u8], with: impl FnOnce(&[u8]) -> R) -> R {
        with(key)
    }
    #[inline(always)]
    fn from_bytes(bytes: &[u8]) -> Option<&[u8]> {
        Some(bytes)
    }
}

impl BenchValue for &'static [u8] {
    type Own = Vec<u8>;
    #[inline(always)]
    fn make(id: u64, version: u64, buffer: &mut Buffer) -> &[u8] {
        let tag = tag(id, version);
        buffer.make(tag, mix(tag))
    }
    #[inline(always)]
    fn own(value: &[u8]) -> Vec<u8> {
        value.to_vec()
    }
    #[inline(always)]
    fn show(value: &Vec<u8>) -> &[u8] {
        value
    }
    #[inline(always)]
    fn is_of(value: &[u8], id: u64, buffer: &Buffer) -> bool {
        buffer.is_of(value, id)
    }
    #[inline(always)]
    fn word(value: &[u8]) -> u64 {
        first(value)
    }
    #[inline(always)]
    fn bytes<R>(value: &[u8], with: impl FnOnce(&[u8]) -> R) -> R {
        with(value)
    }
    #[inline(always)]
    fn from_bytes(bytes: &[u8]) -> Option<&[u8]> {
        Some(bytes)
    }
}

/// Returns the first word, or the available part of it.
#[inline(always)]
fn first(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or_else(
        || bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        |word| u64::from_be_bytes(*word),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datum_shape_printed_parses_to_the_same() {
        for text in ["u64", "bytes:8", "bytes:8-128", "urls"] {
            assert_eq!(Shape::of_keys(text).unwrap().to_string(), text);
        }
        assert!(Shape::of_values("urls").is_err());
        assert!(Shape::of_values("bytes:0-0").is_ok());
        for wrong in ["", "str", "bytes", "bytes:", "bytes:7", "bytes:9-8", "bytes:8-1000000", "u64:8"] {
            assert!(Shape::of_keys(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn datum_keys_of_different_identities_differ_and_have_every_length() {
        let mut buffer = Shape::Bytes { min: 8, max: 11 }.buffer();
        let mut seen = std::collections::HashSet::new();
        let mut lengths = [0; 12];
        for id in (0..1000u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let key = <&[u8] as BenchKey>::make(id, &mut buffer).to_vec();
            assert_eq!(<&[u8] as BenchKey>::id(&key), id);
            lengths[key.len()] += 1;
            assert!(seen.insert(key));
        }
        assert!(lengths[8..].iter().all(|count| *count > 200), "{lengths:?}");
    }

    #[test]
    fn datum_addresses_have_the_order_of_their_identities_and_contain_them() {
        let mut buffer = Shape::Urls.buffer();
        let mut ids: Vec<_> = (0..1000u64).map(|at| at.wrapping_mul(GOLDEN_RATIO)).collect();
        ids.extend([1, 31, 32, u64::MAX]);
        ids.sort_unstable();
        ids.dedup();
        let keys = ids.iter().map(|id| <&[u8] as BenchKey>::make(*id, &mut buffer).to_vec());
        let keys: Vec<_> = keys.collect();
        assert!(
            keys.is_sorted() && keys.iter().map(|key| <&[u8] as BenchKey>::id(key)).eq(ids.iter().copied())
        );
        let lengths = keys.iter().zip(&ids).map(|(key, id)| (key.len() as u64, buffer.key_bytes(*id)));
        assert!(lengths.clone().all(|(length, said)| length == said));
        let (least, most) = (lengths.clone().min().unwrap().0, lengths.max().unwrap().0);
        assert!(least < 45 && most > 85, "{least} to {most}");
    }

    #[test]
    fn datum_values_are_told_from_those_of_other_keys_whatever_their_version() {
        for (min, max) in [(8, 8), (8, 200), (3, 12), (6, 6)] {
            let mut buffer = Shape::Bytes { min, max }.buffer();
            let mut lengths = std::collections::HashSet::new();
            // Adjacent identities, as of sequential keys.
            for id in 0..300u64 {
                let value = <&[u8] as BenchValue>::make(id, id * 7, &mut buffer).to_vec();
                lengths.insert(value.len());
                assert_eq!(value.len() as u64, buffer.value_bytes(id, id * 7));
                assert!(buffer.is_of(&value, id) && !buffer.is_of(&value, id + 1), "{id}: {value:?}");
                // Among values of varying length, the shortest do not contain their length.
                let is_short = min < max && value.len() <= 8;
                assert!(is_short || !buffer.is_of(&value[..value.len() - 1], id), "a byte is missing");
                let mut torn = value.clone();
                *torn.last_mut().unwrap() ^= 1;
                assert!(value.len() == 8 || value.len() == 7 || !buffer.is_of(&torn, id), "{value:?}");
            }
            assert_eq!(lengths.len() > 1, max > min);
        }
        let buffer = &mut Shape::U64.buffer();
        for id in [0, 1, 2, u64::MAX] {
            let value = <u64 as BenchValue>::make(id, 77, buffer);
            assert!(<u64 as BenchValue>::is_of(value, id, buffer), "{id}");
            assert!(!<u64 as BenchValue>::is_of(value, id.wrapping_add(1), buffer), "{id}");
        }
    }
}
