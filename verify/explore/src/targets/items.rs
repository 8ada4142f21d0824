//! Types of keys and values for scenarios, which use numbers.

use bristlecone::parts::codec::Codec;
use bristlecone::{Key, Value};

/// Conversion of numbers to keys and values, and back. Keys order like their numbers.
pub trait Items: Copy + Sync + Send + 'static {
    /// The type of keys.
    type K: Key<Schema = ()>;
    /// The type of values.
    type V: Value<Schema = ()>;

    /// Passes the key of a number to `show`.
    fn with_key<R>(number: u64, show: impl FnOnce(<Self::K as Key>::Ref<'_>) -> R) -> R;
    /// Passes the keys of two numbers to `show`.
    fn with_keys<R>(
        first: u64,
        second: u64,
        show: impl for<'a> FnOnce(<Self::K as Key>::Ref<'a>, <Self::K as Key>::Ref<'a>) -> R,
    ) -> R;
    /// Passes the value of a number to `show`.
    fn with_value<R>(number: u64, show: impl FnOnce(<Self::V as Value>::Ref<'_>) -> R) -> R;
    /// Returns the key of a number.
    ///
    /// # Panics
    ///
    /// Never: a key that can be shown is valid.
    fn key(number: u64) -> <Self::K as Key>::Owned {
        let code = Self::with_key(number, |key| {
            Self::K::with(&(), key, |key| Ok(<Self::K as Key>::Codec::owned(key)))
        });
        Self::K::decode(&(), code.expect("an encoding")).expect("the code of a key")
    }
    /// Returns the value of a number.
    ///
    /// # Panics
    ///
    /// Never: a value that can be shown is valid.
    fn value(number: u64) -> <Self::V as Value>::Owned {
        let decoded = Self::with_value(number, |value| {
            Self::V::with(&(), value, |code| Ok(Self::V::decode(&(), code)))
        });
        decoded.ok().flatten().expect("the code of a value")
    }
    /// Returns the number of a key.
    ///
    /// # Errors
    ///
    /// If no number has this key: it was never written.
    fn key_number(key: &<Self::K as Key>::Owned) -> Result<u64, String>;
    /// Returns the number of a value.
    ///
    /// # Errors
    ///
    /// If no number has this value: it was never written.
    fn value_number(value: &<Self::V as Value>::Owned) -> Result<u64, String>;
}

/// Keys and values of one word, in the tree itself.
#[derive(Debug, Clone, Copy)]
pub struct Words;

impl Items for Words {
    type K = u64;
    type V = u64;

    fn with_key<R>(number: u64, show: impl FnOnce(u64) -> R) -> R {
        show(number)
    }
    fn with_keys<R>(first: u64, second: u64, show: impl FnOnce(u64, u64) -> R) -> R {
        show(first, second)
    }
    fn with_value<R>(number: u64, show: impl FnOnce(u64) -> R) -> R {
        show(number)
    }
    fn key_number(key: &u64) -> Result<u64, String> {
        Ok(*key)
    }
    fn value_number(value: &u64) -> Result<u64, String> {
        Ok(*value)
    }
}

/// Keys and values out of line, of several lengths.
#[derive(Debug, Clone, Copy)]
pub struct Texts;

/// Passes four digits and as many fillings as the last two bits of the number say. This is called so often
/// in explorations that it allocates no memory.
fn with_text<R>(number: u64, filling: &str, show: impl FnOnce(&str) -> R) -> R {
    let mut bytes = [0; TEXT_BYTES];
    for (at, digit) in bytes[..DIGITS].iter_mut().rev().enumerate() {
        *digit = b'0' + (number / 10_u64.pow(at as u32) % 10) as u8;
    }
    assert!(number < 10_u64.pow(DIGITS as u32), "a number of more digits");
    let mut len = DIGITS;
    for _ in 0..number % 4 {
        bytes[len..len + filling.len()].copy_from_slice(filling.as_bytes());
        len += filling.len();
    }
    show(str::from_utf8(&bytes[..len]).expect("it is made of such"))
}

fn number(found: &str, filling: &str) -> Result<u64, String> {
    let number = found.get(..DIGITS).and_then(|digits| digits.parse::<u64>().ok());
    number
        .filter(|number| with_text(*number, filling, |text| text == found))
        .ok_or_else(|| format!("{found:?} was never written"))
}

const DIGITS: usize = 4;
const TEXT_BYTES: usize = DIGITS + 3 * VALUE_FILLING.len();
const KEY_FILLING: &str = " keys ";
const VALUE_FILLING: &str = " values of more bytes ";

impl Items for Texts {
    type K = &'static str;
    type V = &'static str;

    fn with_key<R>(number: u64, show: impl FnOnce(&str) -> R) -> R {
        with_text(number, KEY_FILLING, show)
    }
    fn with_keys<R>(first: u64, second: u64, show: impl for<'a> FnOnce(&'a str, &'a str) -> R) -> R {
        with_text(first, KEY_FILLING, |first| with_text(second, KEY_FILLING, |second| show(first, second)))
    }
    fn with_value<R>(number: u64, show: impl FnOnce(&str) -> R) -> R {
        with_text(number, VALUE_FILLING, show)
    }
    fn key_number(key: &String) -> Result<u64, String> {
        number(key, KEY_FILLING)
    }
    fn value_number(value: &String) -> Result<u64, String> {
        number(value, VALUE_FILLING)
    }
}

/// Keys of one word in the tree, and values out of line.
#[derive(Debug, Clone, Copy)]
pub struct Notes;

impl Items for Notes {
    type K = u64;
    type V = &'static str;

    fn with_key<R>(number: u64, show: impl FnOnce(u64) -> R) -> R {
        show(number)
    }
    fn with_keys<R>(first: u64, second: u64, show: impl FnOnce(u64, u64) -> R) -> R {
        show(first, second)
    }
    fn with_value<R>(number: u64, show: impl FnOnce(&str) -> R) -> R {
        Texts::with_value(number, show)
    }
    fn key_number(key: &u64) -> Result<u64, String> {
        Ok(*key)
    }
    fn value_number(value: &String) -> Result<u64, String> {
        Texts::value_number(value)
    }
}

/// Keys out of line, and values of one word.
#[derive(Debug, Clone, Copy)]
pub struct Labels;

impl Items for Labels {
    type K = &'static str;
    type V = u64;

    fn with_key<R>(number: u64, show: impl FnOnce(&str) -> R) -> R {
        Texts::with_key(number, show)
    }
    fn with_keys<R>(first: u64, second: u64, show: impl for<'a> FnOnce(&'a str, &'a str) -> R) -> R {
        Texts::with_keys(first, second, show)
    }
    fn with_value<R>(number: u64, show: impl FnOnce(u64) -> R) -> R {
        show(number)
    }
    fn key_number(key: &String) -> Result<u64, String> {
        Texts::key_number(key)
    }
    fn value_number(value: &u64) -> Result<u64, String> {
        Ok(*value)
    }
}

/// Keys and values of many lines, at the limits of the size classes of records: one byte less than a slot
/// holds, all of it, and one byte more.
#[derive(Debug, Clone, Copy)]
pub struct Volumes;

/// Bytes of slots, at the upper limits of their classes.
const SLOTS: [usize; 12] =
    [64, 96, 512, 768, 1 << 10, 4 << 10, 12 << 10, 16 << 10, 24 << 10, 64 << 10, 96 << 10, 128 << 10];
/// Bytes before those of a record.
const HEADER: usize = 8;

/// Returns the length of the key or value of a number: keys up to 16 KiB, values up to 128 KiB.
fn volume(number: u64, slots: &[usize]) -> usize {
    let slot = slots[number as usize / 3 % slots.len()];
    // The longest record is one that fits.
    (slot - HEADER + number as usize % 3 - 1).min(slots[slots.len() - 1])
}

fn fill(number: u64, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at / 64) as u8 ^ (number >> (at % 8 * 8)) as u8).collect();
    // Keys order like their numbers.
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn unfill(found: &[u8], slots: &[usize]) -> Result<u64, String> {
    let number = found.first_chunk().map(|first| u64::from_be_bytes(*first));
    let number = number.filter(|number| fill(*number, volume(*number, slots)) == found);
    number.ok_or_else(|| format!("{} bytes that were never written", found.len()))
}

/// Slots that keys fit.
const KEY_SLOTS: usize = 8;

impl Items for Volumes {
    type K = &'static [u8];
    type V = &'static [u8];

    fn with_key<R>(number: u64, show: impl FnOnce(&[u8]) -> R) -> R {
        show(&fill(number, volume(number, &SLOTS[..KEY_SLOTS])))
    }
    fn with_keys<R>(first: u64, second: u64, show: impl for<'a> FnOnce(&'a [u8], &'a [u8]) -> R) -> R {
        let [first, second] = [first, second].map(|number| fill(number, volume(number, &SLOTS[..KEY_SLOTS])));
        show(&first, &second)
    }
    fn with_value<R>(number: u64, show: impl FnOnce(&[u8]) -> R) -> R {
        show(&fill(number, volume(number, &SLOTS)))
    }
    fn key_number(key: &Vec<u8>) -> Result<u64, String> {
        unfill(key, &SLOTS[..KEY_SLOTS])
    }
    fn value_number(value: &Vec<u8>) -> Result<u64, String> {
        unfill(value, &SLOTS)
    }
}
