//! Keys and values as JSON.
//!
//! Numbers of up to 64 bits are numbers, wider ones and values without a JSON number are strings; strings
//! and characters are strings; bytes are strings with the escapes of a dump; tuples are arrays; `()` is
//! `null`. An option is `null` or its value; where the value could be `null` itself, it is in an array of
//! one. Values of kind `json` are unchanged except for spaces. A value that expires is an object with `value` and, unless it
//! stays forever, `expires_ms`: milliseconds since 1970.

use bristlecone::Expiry;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::escape::quoted;
use super::plain::{self, Form};
use super::{Datum, Kind};

/// A datum to be written as JSON.
#[derive(Clone, Copy)]
pub struct Json<'a>(pub &'a Datum);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Datum::Unit | Datum::Option(None) => to.serialize_unit(),
            Datum::Bool(truth) => to.serialize_bool(*truth),
            Datum::U8(number) => to.serialize_u8(*number),
            Datum::U16(number) => to.serialize_u16(*number),
            Datum::U32(number) => to.serialize_u32(*number),
            Datum::U64(number) => to.serialize_u64(*number),
            Datum::I8(number) => to.serialize_i8(*number),
            Datum::I16(number) => to.serialize_i16(*number),
            Datum::I32(number) => to.serialize_i32(*number),
            Datum::I64(number) => to.serialize_i64(*number),
            Datum::F32(number) if number.is_finite() => to.serialize_f32(*number),
            Datum::F64(number) if number.is_finite() => to.serialize_f64(*number),
            Datum::Str(text) => to.serialize_str(text),
            Datum::Json(text) => match serde_json::from_str::<Value>(text) {
                Ok(value) => value.serialize(to),
                // Bytes that are invalid JSON are shown as a string.
                Err(_) => to.serialize_str(text),
            },
            Datum::Char(character) => to.serialize_char(*character),
            Datum::Option(Some(inner)) if may_be_null(inner) => [Json(inner)].serialize(to),
            Datum::Option(Some(inner)) => Json(inner).serialize(to),
            Datum::Tuple(elements) => {
                let mut array = to.serialize_seq(Some(elements.len()))?;
                elements.iter().try_for_each(|element| array.serialize_element(&Json(element)))?;
                array.end()
            }
            Datum::Expiring(value, expiry) => {
                let mut object = to.serialize_map(None)?;
                object.serialize_entry("value", &Json(value))?;
                if *expiry != Expiry::NEVER {
                    object.serialize_entry("expires_ms", &expiry.as_millis())?;
                }
                object.end()
            }
            other => {
                let mut text = Vec::new();
                plain::write(other, Form::Line, &mut text);
                to.serialize_str(&String::from_utf8_lossy(&text))
            }
        }
    }
}

fn may_be_null(datum: &Datum) -> bool {
    matches!(datum, Datum::Unit | Datum::Option(_))
}

/// Returns a text if it is valid JSON.
pub fn verified(text: String) -> Result<String, String> {
    let parsed = serde_json::from_str::<serde::de::IgnoredAny>(&text);
    parsed.map_err(|error| format!("{} is not JSON: {error}", quoted(text.as_bytes())))?;
    Ok(text)
}

/// Parses a datum of a kind from JSON text.
pub fn parse(kind: &Kind, text: &[u8]) -> Result<Datum, String> {
    let value = serde_json::from_slice(text).map_err(|error| {
        let error = error.to_string();
        let what = error.split(" at line").next().unwrap_or_default();
        format!(
            "{} is not JSON: {what}; a value of kind {kind} is written like {}",
            quoted(text),
            example(kind)
        )
    })?;
    from_value(kind, value)
}

/// Returns a datum of a kind from a JSON value.
pub fn from_value(kind: &Kind, value: Value) -> Result<Datum, String> {
    let refused = |value: &Value| {
        format!(
            "{} is not of kind {kind}: write it like {}",
            quoted(value.to_string().as_bytes()),
            example(kind)
        )
    };
    match (kind, value) {
        (Kind::Unit, Value::Null) => Ok(Datum::Unit),
        (Kind::Bool, Value::Bool(truth)) => Ok(Datum::Bool(truth)),
        (Kind::Json, value) => Ok(Datum::Json(value.to_string().into())),
        (Kind::Str, Value::String(text)) => Ok(Datum::Str(text.into())),
        (Kind::Char | Kind::Bytes | Kind::Array(_) | Kind::Postcard, Value::String(text)) => {
            plain::parse(kind, text.as_bytes(), Form::Plain)
        }
        (Kind::Option(_), Value::Null) => Ok(Datum::Option(None)),
        (Kind::Option(inner), value) => {
            let value = match (&**inner, value) {
                (Kind::Unit | Kind::Option(_), Value::Array(mut only)) if only.len() == 1 => only.remove(0),
                (Kind::Unit | Kind::Option(_), other) => return Err(refused(&other)),
                (_, other) => other,
            };
            from_value(inner, value).map(|inner| Datum::Option(Some(Box::new(inner))))
        }
        (Kind::Tuple(kinds), Value::Array(values)) if kinds.len() == values.len() => {
            let elements = kinds.iter().zip(values).map(|(kind, value)| from_value(kind, value));
            elements.collect::<Result<_, _>>().map(Datum::Tuple)
        }
        (Kind::Expiring(inner), Value::Object(object)) => match entry(object) {
            Ok((value, expiry)) => Ok(Datum::Expiring(Box::new(from_value(inner, value)?), expiry)),
            Err(object) => Err(refused(&Value::Object(object))),
        },
        (kind, Value::Number(number)) if is_number(kind) => {
            plain::parse(kind, number.to_string().as_bytes(), Form::Plain)
        }
        (kind, Value::String(text)) if is_number(kind) => plain::parse(kind, text.as_bytes(), Form::Plain),
        (_, other) => Err(refused(&other)),
    }
}

/// Returns the members of a value that expires, or the object if it has others.
fn entry(mut object: Map<String, Value>) -> Result<(Value, Expiry), Map<String, Value>> {
    let expiry = match object.get("expires_ms").map(Value::as_u64) {
        None => Some(Expiry::NEVER),
        Some(millis) => millis.filter(|millis| *millis > 0).map(Expiry::from_millis),
    };
    let count = 1 + usize::from(object.contains_key("expires_ms"));
    match expiry.filter(|_| object.len() == count).zip(object.remove("value")) {
        Some((expiry, value)) => Ok((value, expiry)),
        None => Err(object),
    }
}

fn is_number(kind: &Kind) -> bool {
    !matches!(
        kind,
        Kind::Unit
            | Kind::Bool
            | Kind::Char
            | Kind::Str
            | Kind::Bytes
            | Kind::Array(_)
            | Kind::Option(_)
            | Kind::Tuple(_)
            | Kind::Expiring(_)
            | Kind::Json
            | Kind::Postcard
    )
}

/// Returns an example of a value of a kind in JSON.
fn example(kind: &Kind) -> String {
    match kind {
        Kind::Unit => "null".to_owned(),
        Kind::Bool => "true".to_owned(),
        Kind::F32 | Kind::F64 => "1.5".to_owned(),
        Kind::Str => "\"x\"".to_owned(),
        Kind::Char => "\"c\"".to_owned(),
        Kind::Bytes | Kind::Postcard => r#""\\x00""#.to_owned(),
        Kind::Json => "{\"a\":1}".to_owned(),
        Kind::Array(len) => format!("\"{}\"", "x".repeat((*len).min(8))),
        Kind::Option(inner) => match &**inner {
            Kind::Unit | Kind::Option(_) => format!("null or [{}]", example(inner)),
            other => format!("null or {}", example(other)),
        },
        Kind::Tuple(kinds) => format!("[{}]", kinds.iter().map(example).collect::<Vec<_>>().join(", ")),
        Kind::Expiring(inner) => format!("{{\"value\":{},\"expires_ms\":1900000000000}}", example(inner)),
        Kind::U128 | Kind::I128 => "\"7\"".to_owned(),
        _ => "7".to_owned(),
    }
}
