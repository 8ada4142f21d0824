//! Keys and values as text: parsed from arguments and files, printed for people and files.

use std::ffi::OsStr;
use std::fmt;

use bristlecone_cli::failure::{Failure, Outcome};

use super::json::{self, Json};
use super::plain::{self, Form};
use super::{Datum, Kind};

/// Parses text as a datum of a kind.
///
/// Options, tuples, values that expire and values of kind `json` are JSON; bytes have escapes; everything else is written as in Rust,
/// without quotes.
pub fn parse(kind: &Kind, text: &[u8], form: Form) -> Result<Datum, String> {
    match kind {
        Kind::Option(_) | Kind::Tuple(_) | Kind::Expiring(_) => json::parse(kind, text),
        Kind::Json => Ok(Datum::Json(json::verified(plain::string(text, form)?)?.into())),
        simple => plain::parse(simple, text, form),
    }
}

/// Parses an argument.
pub fn argument(kind: &Kind, text: &OsStr) -> Outcome<Datum> {
    use std::os::unix::ffi::OsStrExt;
    parse(kind, text.as_bytes(), Form::Plain).map_err(Failure::usage)
}

/// Appends text that [`parse`] can read.
pub fn write(datum: &Datum, form: Form, to: &mut Vec<u8>) {
    if !plain::write(datum, form, to) && serde_json::to_writer(to, &Json(datum)).is_err() {
        unreachable!("writing to memory cannot fail");
    }
}

/// A datum as one line of text.
pub struct Shown<'a>(pub &'a Datum);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        write(self.0, Form::Line, &mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}
