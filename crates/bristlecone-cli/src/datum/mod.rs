//! Keys and values of every kind as text and as JSON.

mod escape;
pub mod json;
mod plain;
#[cfg(test)]
mod tests;
pub mod text;

pub use bristlecone::dynamic::Kind;

pub use self::json::Json;
pub use self::plain::Form;
pub use self::text::{Shown, argument, parse, write};

/// A key or a value.
pub type Datum = bristlecone::dynamic::Datum<'static>;

/// One entry as JSON.
#[derive(serde::Serialize)]
pub struct Entry<'a> {
    pub key: Json<'a>,
    pub value: Json<'a>,
}

impl<'a> Entry<'a> {
    /// Borrows an entry.
    pub fn new(key: &'a Datum, value: &'a Datum) -> Self {
        Self { key: Json(key), value: Json(value) }
    }
}

/// Returns the number of content bytes of a key or value, without the overhead of its encoding.
pub fn content_bytes(datum: &Datum) -> u64 {
    match datum {
        Datum::Unit | Datum::Option(None) => 0,
        Datum::Bool(_) | Datum::U8(_) | Datum::I8(_) => 1,
        Datum::U16(_) | Datum::I16(_) => 2,
        Datum::U32(_) | Datum::I32(_) | Datum::F32(_) | Datum::Char(_) => 4,
        Datum::U64(_) | Datum::I64(_) | Datum::F64(_) => 8,
        Datum::U128(_) | Datum::I128(_) => 16,
        Datum::Str(text) => text.len() as u64,
        Datum::Json(text) => text.len() as u64,
        Datum::Bytes(bytes) | Datum::Postcard(bytes) => bytes.len() as u64,
        Datum::Option(Some(inner)) => content_bytes(inner),
        Datum::Expiring(value, _) => 8 + content_bytes(value),
        Datum::Tuple(elements) => elements.iter().map(content_bytes).sum(),
        _ => 0,
    }
}
