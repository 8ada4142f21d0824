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

fn text(number: u64, filling: &str) -> String {
    format!("{number:04}{}", filling.repeat(number as usize % 4))
}

fn number(found: &str, filling: &str) -> Result<u64, String> {
    let number = found.get(..4).and_then(|digits| digits.parse().ok());
    number
        .filter(|number| text(*number, filling) == found)
        .ok_or_else(|| format!("{found:?} was never written"))
}

const KEY_FILLING: &str = " keys ";
const VALUE_FILLING: &str = " values of more bytes ";

impl Items for Texts {
    type K = &'static str;
    type V = &'static str;

    fn with_key<R>(number: u64, show: impl FnOnce(&str) -> R) -> R {
        show(&text(number, KEY_FILLING))
    }
    fn with_value<R>(number: u64, show: impl FnOnce(&str) -> R) -> R {
        show(&text(number, VALUE_FILLING))
    }
    fn key_number(key: &String) -> Result<u64, String> {
        number(key, KEY_FILLING)
    }
    fn value_number(value: &String) -> Result<u64, String> {
        number(value, VALUE_FILLING)
    }
}
