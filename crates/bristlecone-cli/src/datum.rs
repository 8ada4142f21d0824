//! Keys and values as text: read from arguments and files, written for people and programs.

use std::fmt;
use std::str::FromStr;

use bristlecone_cli::failure::Failure;
use serde::{Serialize, Serializer};

/// The kinds of key and value that the tool can read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    U64,
    Str,
    Bytes,
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "u64" => Ok(Self::U64),
            "str" => Ok(Self::Str),
            "bytes" => Ok(Self::Bytes),
            _ => Err(format!("unknown kind {name:?}: u64, str or bytes")),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::U64 => "u64",
            Self::Str => "str",
            Self::Bytes => "bytes",
        })
    }
}

/// How text is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it stands: arguments and CSV fields. Only `bytes` have escapes.
    Plain,
    /// Fields of lines: `\t`, `\n`, `\r` and `\\` are escapes in `str`, too.
    Line,
}

/// One key or one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datum<'a> {
    U64(u64),
    Str(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Datum<'a> {
    /// Reads text as a datum of this kind. `scratch` holds what had to be unescaped.
    pub fn parse(kind: Kind, text: &'a [u8], form: Form, scratch: &'a mut Vec<u8>) -> Result<Self, String> {
        match kind {
            Kind::U64 => {
                let number = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
                let said = || format!("{} is not a number of 0 to 2^64 - 1", quoted(text));
                number.map(Datum::U64).ok_or_else(said)
            }
            Kind::Str => {
                let bytes = if form == Form::Line { unescape(text, scratch)? } else { text };
                std::str::from_utf8(bytes)
                    .map(Datum::Str)
                    .map_err(|_| "it is not UTF-8: a tree of kind bytes could hold it".to_owned())
            }
            Kind::Bytes => unescape(text, scratch).map(Datum::Bytes),
        }
    }

    /// Reads an argument.
    pub fn argument(
        kind: Kind,
        text: &'a std::ffi::OsStr,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Self, Failure> {
        use std::os::unix::ffi::OsStrExt;
        Self::parse(kind, text.as_bytes(), Form::Plain, scratch).map_err(Failure::usage)
    }

    /// Appends the text that [`parse`](Self::parse) reads back.
    pub fn write(&self, form: Form, to: &mut Vec<u8>) {
        match self {
            Self::U64(number) => to.extend_from_slice(number.to_string().as_bytes()),
            Self::Str(text) if form == Form::Plain => to.extend_from_slice(text.as_bytes()),
            Self::Str(text) => escape(text.as_bytes(), false, to),
            Self::Bytes(bytes) => escape(bytes, true, to),
        }
    }
}

impl fmt::Display for Datum<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        self.write(Form::Line, &mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

/// Numbers as numbers, the rest as strings; bytes with the escapes of a dump.
impl Serialize for Datum<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::U64(number) => serializer.serialize_u64(*number),
            Self::Str(text) => serializer.serialize_str(text),
            Self::Bytes(_) => serializer.collect_str(self),
        }
    }
}

/// What was given, for an error of one line: the beginning of it, if it is long.
fn quoted(text: &[u8]) -> String {
    const SHOWN: usize = 40;
    let mut shown = text[..text.len().min(SHOWN)].escape_ascii().to_string();
    if let Ok(text) = std::str::from_utf8(text) {
        shown = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    }
    let rest = if text.len() > SHOWN { format!("… ({} bytes)", text.len()) } else { String::new() };
    format!("\"{shown}\"{rest}")
}

/// Writes bytes as printable text. What is valid UTF-8 and printable stands as it is.
fn escape(bytes: &[u8], hexadecimal: bool, to: &mut Vec<u8>) {
    for piece in bytes.utf8_chunks() {
        for character in piece.valid().chars() {
            match character {
                '\t' => to.extend_from_slice(b"\\t"),
                '\n' => to.extend_from_slice(b"\\n"),
                '\r' => to.extend_from_slice(b"\\r"),
                '\\' => to.extend_from_slice(b"\\\\"),
                other if hexadecimal && other.is_control() => {
                    for byte in other.encode_utf8(&mut [0; 4]).bytes() {
                        escape_byte(byte, to);
                    }
                }
                other => to.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for byte in piece.invalid() {
            escape_byte(*byte, to);
        }
    }
}

fn escape_byte(byte: u8, to: &mut Vec<u8>) {
    to.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
}

/// Takes the escapes out; without any, the text itself is the result.
fn unescape<'a>(text: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<&'a [u8], String> {
    if !text.contains(&b'\\') {
        return Ok(text);
    }
    scratch.clear();
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'\\' {
            scratch.push(*byte);
            continue;
        }
        scratch.push(match rest.next() {
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'\\') => b'\\',
            Some(b'x') => {
                let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
                match (digit(rest.next()), digit(rest.next())) {
                    (Some(high), Some(low)) => (high << 4 | low) as u8,
                    _ => return Err("\\x must be followed by two hexadecimal digits".to_owned()),
                }
            }
            Some(other) => {
                let other = char::from(*other);
                return Err(format!("unknown escape \\{other}: \\\\, \\t, \\n, \\r and \\xNN are known"));
            }
            None => return Err("a backslash at the end: write \\\\ for a backslash".to_owned()),
        });
    }
    Ok(scratch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(datum: Datum<'_>, kind: Kind) {
        for form in [Form::Plain, Form::Line] {
            let (mut text, mut scratch) = (Vec::new(), Vec::new());
            datum.write(form, &mut text);
            if form == Form::Line {
                assert!(!text.iter().any(|byte| matches!(byte, b'\t' | b'\n' | b'\r')));
            }
            assert_eq!(Datum::parse(kind, &text, form, &mut scratch), Ok(datum));
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for number in [0, 1, u64::MAX] {
            round_trip(Datum::U64(number), Kind::U64);
        }
        for text in ["", "a", "tab\tline\nback\\slash\r", "\u{7f}\u{85}grüße", "\\x41"] {
            round_trip(Datum::Str(text), Kind::Str);
            round_trip(Datum::Bytes(text.as_bytes()), Kind::Bytes);
        }
        let every: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        round_trip(Datum::Bytes(&every), Kind::Bytes);
    }

    #[test]
    fn text_that_is_none_is_refused() {
        let parse = |kind, text: &[u8]| Datum::parse(kind, text, Form::Line, &mut Vec::new()).map(drop);
        for wrong in ["", "-1", "1.5", "18446744073709551616", "x"] {
            assert!(parse(Kind::U64, wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(parse(Kind::Str, b"\xff").is_err());
        for wrong in ["\\", "\\q", "\\x", "\\x4", "\\xg0"] {
            assert!(parse(Kind::Bytes, wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
