//! Keys and values made from 64-bit identities, at the cost of a store or two.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use bristlecone::{KEY_BYTES_MAX, Key, VALUE_BYTES_MAX, Value};
use ferntree::OptimisticRead;

/// What keys or values are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    U64,
    /// Byte strings of these lengths, evenly.
    Bytes {
        min: usize,
        max: usize,
    },
}

impl Shape {
    /// Returns the bytes of a datum, on average.
    pub fn mean_bytes(self) -> u64 {
        match self {
            Self::U64 => 8,
            Self::Bytes { min, max } => (min + max).div_ceil(2) as u64,
        }
    }

    fn read(text: &str, what: &str, least: usize, most: usize) -> Result<Self, String> {
        let refusal = || format!("{text:?}: write u64, bytes:LENGTH or bytes:MIN-MAX");
        let lengths = match text.split_once(':') {
            None if text == "u64" => return Ok(Self::U64),
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

    /// Reads the shape of keys. Fewer than 8 bytes do not make enough different keys.
    pub fn of_keys(text: &str) -> Result<Self, String> {
        Self::read(text, "keys", 8, KEY_BYTES_MAX)
    }

    /// Reads the shape of values.
    pub fn of_values(text: &str) -> Result<Self, String> {
        Self::read(text, "values", 0, VALUE_BYTES_MAX)
    }

    /// Creates the buffer in which data of this shape are made.
    pub fn buffer(self) -> Buffer {
        match self {
            Self::U64 => Buffer { bytes: Box::default(), min: 0, lengths: 1 },
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

/// A datum in the making: a filler whose first eight bytes are the identity.
pub struct Buffer {
    bytes: Box<[u8]>,
    min: usize,
    lengths: u64,
}

impl Buffer {
    #[inline]
    fn make(&mut self, id: u64) -> &[u8] {
        self.bytes[..8].copy_from_slice(&id.to_be_bytes());
        let length = self.length(id);
        &self.bytes[..length]
    }

    #[inline]
    fn length(&self, id: u64) -> usize {
        self.min + (((id & 0xffff_ffff) * self.lengths) >> 32) as usize
    }

    /// Returns the bytes of the datum of an identity.
    pub fn bytes_of(&self, id: u64) -> u64 {
        if self.bytes.is_empty() { 8 } else { self.length(id) as u64 }
    }
}

/// A type of keys in benches.
pub trait BenchKey: Key {
    /// The form in which a volatile map owns it.
    type Own: Clone + Ord + Send + Sync + OptimisticRead + Borrow<Self::Part> + 'static;
    /// The form in which a volatile map looks it up.
    type Part: Ord + ?Sized;
    fn make(id: u64, buffer: &mut Buffer) -> Self::Ref<'_>;
    fn own(key: Self::Ref<'_>) -> Self::Own;
    fn part<'a>(key: &'a Self::Ref<'_>) -> &'a Self::Part;
    /// Reads a key that a map owns.
    fn touch(key: &Self::Own) -> u64;
}

/// A type of values in benches.
pub trait BenchValue: Value {
    /// The form in which a volatile map owns it.
    type Own: Clone + Send + Sync + OptimisticRead + 'static;
    fn make(id: u64, buffer: &mut Buffer) -> Self::Ref<'_>;
    fn own(value: Self::Ref<'_>) -> Self::Own;
    /// Reads a value: what a user would do with it, so that no store can leave out the load.
    fn touch(value: Self::Ref<'_>) -> u64;
    /// Reads a value that a map owns.
    fn touch_own(value: &Self::Own) -> u64;
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
    fn part(key: &u64) -> &u64 {
        key
    }
    #[inline(always)]
    fn touch(key: &u64) -> u64 {
        *key
    }
}

impl BenchValue for u64 {
    type Own = u64;
    #[inline(always)]
    fn make(id: u64, _: &mut Buffer) -> u64 {
        id
    }
    #[inline(always)]
    fn own(value: u64) -> u64 {
        value
    }
    #[inline(always)]
    fn touch(value: u64) -> u64 {
        value
    }
    #[inline(always)]
    fn touch_own(value: &u64) -> u64 {
        *value
    }
}

impl BenchKey for &'static [u8] {
    type Own = Vec<u8>;
    type Part = [u8];
    #[inline(always)]
    fn make(id: u64, buffer: &mut Buffer) -> &[u8] {
        buffer.make(id)
    }
    #[inline(always)]
    fn own(key: &[u8]) -> Vec<u8> {
        key.to_vec()
    }
    #[inline(always)]
    fn part<'a>(key: &'a &[u8]) -> &'a [u8] {
        key
    }
    #[inline(always)]
    fn touch(key: &Vec<u8>) -> u64 {
        first(key)
    }
}

impl BenchValue for &'static [u8] {
    type Own = Vec<u8>;
    #[inline(always)]
    fn make(id: u64, buffer: &mut Buffer) -> &[u8] {
        buffer.make(id)
    }
    #[inline(always)]
    fn own(value: &[u8]) -> Vec<u8> {
        value.to_vec()
    }
    #[inline(always)]
    fn touch(value: &[u8]) -> u64 {
        first(value)
    }
    #[inline(always)]
    fn touch_own(value: &Vec<u8>) -> u64 {
        first(value)
    }
}

#[inline(always)]
fn first(bytes: &[u8]) -> u64 {
    bytes.first().copied().unwrap_or(0).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datum_shape_printed_parses_to_the_same() {
        for text in ["u64", "bytes:8", "bytes:8-128"] {
            assert_eq!(Shape::of_keys(text).unwrap().to_string(), text);
        }
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
            let key = buffer.make(id).to_vec();
            lengths[key.len()] += 1;
            assert!(seen.insert(key));
        }
        assert!(lengths[8..].iter().all(|count| *count > 200), "{lengths:?}");
    }
}
