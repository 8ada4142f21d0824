//! Types of keys and values that a scenario is run with. Scenarios speak of numbers.

use bristlecone::{Key, Value};

/// How numbers become keys and values, and back. The order of keys is that of the numbers.
pub trait Items: Copy + Sync + Send + 'static {
    /// The type of keys.
    type K: Key;
    /// The type of values.
    type V: Value;

    /// Shows the key of a number.
    fn with_key<R>(number: u64, show: impl FnOnce(<Self::K as Key>::Ref<'_>) -> R) -> R;
    /// Shows the value of a number.
    fn with_value<R>(number: u64, show: impl FnOnce(<Self::V as Value>::Ref<'_>) -> R) -> R;
    /// The number of a key; an error if it is nobody's.
    fn key_number(key: &<Self::K as Key>::Owned) -> Result<u64, String>;
    /// The number of a value; an error if it is nobody's.
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

/// Shows four digits and as many fillings as the last two bits of the number say. Explorations
/// do little else as often: no memory is allocated for it.
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
