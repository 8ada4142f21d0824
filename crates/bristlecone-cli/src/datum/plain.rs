//! Text of keys and values of simple kinds.

use std::fmt;
use std::str::FromStr;

use super::escape::{escape, quoted, unescape};
use super::{Datum, Kind};

/// Which escapes a text contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Verbatim text: arguments and CSV fields. Only `bytes` have escapes.
    Plain,
    /// Fields of lines: `\t`, `\n`, `\r` and `\\` are escapes in `str` and `char`, too.
    Line,
}

/// Parses text as a datum of a simple kind, as in Rust, without quotes; bytes have escapes.
pub fn parse(kind: &Kind, text: &[u8], form: Form) -> Result<Datum, String> {
    Ok(match kind {
        Kind::Unit => match text {
            b"" | b"()" => Datum::Unit,
            other => return Err(format!("{} is not (), the only value of its kind", quoted(other))),
        },
        Kind::Bool => Datum::Bool(match text {
            b"true" => true,
            b"false" => false,
            other => return Err(format!("{} is not true or false", quoted(other))),
        }),
        Kind::U8 => Datum::U8(number(text, "0 to 255")?),
        Kind::U16 => Datum::U16(number(text, "0 to 65535")?),
        Kind::U32 => Datum::U32(number(text, "0 to 2^32 - 1")?),
        Kind::U64 => Datum::U64(number(text, "0 to 2^64 - 1")?),
        Kind::U128 => Datum::U128(number(text, "0 to 2^128 - 1")?),
        Kind::I8 => Datum::I8(number(text, "-128 to 127")?),
        Kind::I16 => Datum::I16(number(text, "-32768 to 32767")?),
        Kind::I32 => Datum::I32(number(text, "-2^31 to 2^31 - 1")?),
        Kind::I64 => Datum::I64(number(text, "-2^63 to 2^63 - 1")?),
        Kind::I128 => Datum::I128(number(text, "-2^127 to 2^127 - 1")?),
        Kind::F32 => {
            Datum::F32(float(text, |bits| u32::try_from(bits).ok().map(f32::from_bits), f32::is_nan)?)
        }
        Kind::F64 => Datum::F64(float(text, |bits| Some(f64::from_bits(bits)), f64::is_nan)?),
        Kind::Char => {
            let text = string(text, form)?;
            let mut characters = text.chars();
            match (characters.next(), characters.next()) {
                (Some(only), None) => Datum::Char(only),
                _ => return Err(format!("{} is not one character", quoted(text.as_bytes()))),
            }
        }
        Kind::Str => Datum::Str(string(text, form)?.into()),
        Kind::Bytes => Datum::Bytes(unescape(text)?.into()),
        Kind::Array(len) => Datum::Bytes(array(unescape(text)?, *len)?.into()),
        Kind::Postcard => Datum::Postcard(unescape(text)?.into()),
        other => return Err(format!("this version of the tool cannot read values of kind {other}")),
    })
}

/// Returns the bytes if their number is that of the kind.
pub fn array(bytes: Vec<u8>, len: usize) -> Result<Vec<u8>, String> {
    if bytes.len() == len { Ok(bytes) } else { Err(format!("it has {} bytes, not {len}", bytes.len())) }
}

fn number<N: FromStr>(text: &[u8], range: &str) -> Result<N, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| format!("{} is not a number of {range}", quoted(text)))
}

/// Parses a number, `inf`, `-inf`, `NaN`, or a particular NaN by its bits:
/// `NaN:0x7ff8000000000001`.
fn float<N: FromStr + Copy>(
    text: &[u8],
    of_bits: impl Fn(u64) -> Option<N>,
    is_nan: impl Fn(N) -> bool,
) -> Result<N, String> {
    let text = std::str::from_utf8(text).map(str::trim).unwrap_or_default();
    let number = match text.strip_prefix("NaN:0x") {
        Some(bits) => u64::from_str_radix(bits, 16).ok().and_then(of_bits).filter(|number| is_nan(*number)),
        None => text.parse().ok(),
    };
    number
        .ok_or_else(|| format!("{} is not a number such as 1.5, -2e-7, inf or NaN", quoted(text.as_bytes())))
}

/// Returns text without the escapes of its form.
pub fn string(text: &[u8], form: Form) -> Result<String, String> {
    let bytes = if form == Form::Line { unescape(text)? } else { text.to_vec() };
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8: a tree of kind bytes could hold it".to_owned())
}

/// Appends text that [`parse`] can read; returns `false` if the kind is not simple.
pub fn write(datum: &Datum, form: Form, to: &mut Vec<u8>) -> bool {
    let string = |text: &str, to: &mut Vec<u8>| match form {
        Form::Plain => to.extend_from_slice(text.as_bytes()),
        Form::Line => escape(text.as_bytes(), false, to),
    };
    match datum {
        Datum::Str(text) | Datum::Json(text) => string(text, to),
        Datum::Char(character) => string(character.encode_utf8(&mut [0; 4]), to),
        Datum::Bytes(bytes) | Datum::Postcard(bytes) => escape(bytes, true, to),
        Datum::Option(_) | Datum::Tuple(_) | Datum::Expiring(..) => return false,
        simple => to.extend_from_slice(simple_text(simple).as_bytes()),
    }
    true
}

/// Returns the text of a datum that needs neither quotes nor escapes.
fn simple_text(datum: &Datum) -> String {
    match datum {
        Datum::Bool(truth) => truth.to_string(),
        Datum::U8(number) => number.to_string(),
        Datum::U16(number) => number.to_string(),
        Datum::U32(number) => number.to_string(),
        Datum::U64(number) => number.to_string(),
        Datum::U128(number) => number.to_string(),
        Datum::I8(number) => number.to_string(),
        Datum::I16(number) => number.to_string(),
        Datum::I32(number) => number.to_string(),
        Datum::I64(number) => number.to_string(),
        Datum::I128(number) => number.to_string(),
        Datum::F32(number) => {
            float_text(number, number.to_bits() == f32::NAN.to_bits(), number.to_bits().into())
        }
        Datum::F64(number) => float_text(number, number.to_bits() == f64::NAN.to_bits(), number.to_bits()),
        _ => "()".to_owned(),
    }
}

/// Returns the shortest text that is parsed as the same bits.
fn float_text(number: &impl fmt::Debug, is_usual_nan: bool, bits: u64) -> String {
    let text = format!("{number:?}");
    if text != "NaN" || is_usual_nan { text } else { format!("NaN:{bits:#x}") }
}
