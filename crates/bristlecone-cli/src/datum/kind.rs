//! Keys and values of kinds that are known at run time.

use std::fmt;
use std::str::FromStr;

/// A kind of key or value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Unit,
    Bool,
    U8,
    U16,
    U32,
    U64,
    U128,
    I8,
    I16,
    I32,
    I64,
    I128,
    F32,
    F64,
    Char,
    Str,
    Bytes,
    Array(usize),
    Option(Box<Kind>),
    Tuple(Vec<Kind>),
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
        match self {
            Self::U64 => f.pad("u64"),
            Self::Str => f.pad("str"),
            Self::Bytes => f.pad("bytes"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// A key or a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    Unit,
    Bool(bool),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    U128(u128),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    I128(i128),
    F32(f32),
    F64(f64),
    Char(char),
    Str(String),
    Bytes(Vec<u8>),
    Array(Vec<u8>),
    Option(Option<Box<Datum>>),
    Tuple(Vec<Datum>),
}
