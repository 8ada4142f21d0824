//! The kinds of keys and values, with their names in the pool's directory.

use std::fmt;
use std::str::FromStr;

use bristlecone_pm::{Error, Result, TreeSpec};

use crate::api::kinds::composed::{TUPLE_MAX, tuple_kind};
use crate::api::kinds::words::Word;

/// Calls a macro with the variant and the type of every kind stored as a word, except `()`.
macro_rules! for_words {
    ($call:ident!($($more:tt)*)) => {
        $call! {
            ($($more)*)
            Bool bool, Char char, U8 u8, U16 u16, U32 u32, U64 u64, I8 i8, I16 i16, I32 i32, I64 i64,
            F32 f32, F64 f64
        }
    };
}
pub(super) use for_words;

/// A kind of keys or values, named by [`Key::kind`](crate::Key::kind) and
/// [`Value::kind`](crate::Value::kind).
///
/// ```
/// use bristlecone::dynamic::Kind;
///
/// let kind: Kind = "(str, Option<u64>)".parse()?;
/// assert_eq!(kind, Kind::Tuple(vec![Kind::Str, Kind::Option(Box::new(Kind::U64))]));
/// assert_eq!(kind.to_string(), "(str, Option<u64>)");
/// assert!("usize".parse::<Kind>().is_err());
/// # Ok::<(), bristlecone::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// `()`.
    Unit,
    /// `bool`.
    Bool,
    /// `char`.
    Char,
    /// `u8`.
    U8,
    /// `u16`.
    U16,
    /// `u32`.
    U32,
    /// `u64`.
    U64,
    /// `u128`.
    U128,
    /// `i8`.
    I8,
    /// `i16`.
    I16,
    /// `i32`.
    I32,
    /// `i64`.
    I64,
    /// `i128`.
    I128,
    /// `f32`, in total order.
    F32,
    /// `f64`, in total order.
    F64,
    /// `str`: UTF-8.
    Str,
    /// `bytes`.
    Bytes,
    /// `[u8; N]`.
    Array(usize),
    /// `Option<…>` of a key kind.
    Option(Box<Self>),
    /// `(…, …)`: 1 to 8 key kinds.
    Tuple(Vec<Self>),
    /// `json`: a value as JSON.
    Json,
    /// `Expiring<…>`: a value of any kind, with the time at which it expires.
    Expiring(Box<Self>),
    /// `postcard`: a value in Postcard encoding, readable only by its own type.
    Postcard,
}

/// Kinds with a fixed name.
const NAMED: &[Kind] = &[
    Kind::Unit,
    Kind::Bool,
    Kind::Char,
    Kind::U8,
    Kind::U16,
    Kind::U32,
    Kind::U64,
    Kind::U128,
    Kind::I8,
    Kind::I16,
    Kind::I32,
    Kind::I64,
    Kind::I128,
    Kind::F32,
    Kind::F64,
    Kind::Str,
    Kind::Bytes,
    Kind::Json,
    Kind::Postcard,
];

/// Maximum length of a name in the directory: see [`TreeSpec`](crate::TreeSpec).
const NAME_BYTES_MAX: usize = 48;

macro_rules! word_name {
    (($kind:expr, $else:expr) $($variant:ident $type:ty),+) => {
        match $kind {
            Kind::Unit => <() as Word>::NAME,
            $(Kind::$variant => <$type as Word>::NAME,)+
            _ => $else,
        }
    };
}

impl Kind {
    /// Returns whether keys and values of this kind are stored as words instead of records.
    pub fn is_word(&self) -> bool {
        !self.word_name().is_empty()
    }

    /// Returns whether this kind is valid for keys, and for elements of options and tuples. Every kind is
    /// valid for values.
    pub fn is_key(&self) -> bool {
        !matches!(self, Self::Json | Self::Postcard | Self::Expiring(_))
    }

    /// Returns whether every word, or every byte string, decodes as this kind.
    pub(crate) fn is_everything(&self) -> bool {
        matches!(self, Self::U64 | Self::I64 | Self::F64 | Self::Bytes | Self::Postcard)
    }

    /// Returns the kind with this name in the pool's directory.
    ///
    /// # Errors
    ///
    /// [`Error::Newer`] for a name that this version does not know.
    pub(crate) fn of_directory(name: &str) -> Result<Self> {
        name.parse().map_err(|_| Error::Newer { needs: format!("the kind {name:?}") })
    }

    /// Returns whether the keys, and the values, of a tree are stored as words.
    ///
    /// # Errors
    ///
    /// [`Error::Newer`] for a kind that this version does not know.
    pub(crate) fn are_words(tree: &TreeSpec) -> Result<(bool, bool)> {
        let is_word = |name: &str| Self::of_directory(name).map(|kind| kind.is_word());
        Ok((is_word(&tree.key_kind)?, is_word(&tree.value_kind)?))
    }

    /// Verifies that trees with such keys or values are possible.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a tuple without elements or with too many, or for an element of a tuple or an
    /// option that is not a key kind; [`Error::TooLong`] for a name that exceeds the limit of the directory.
    pub(super) fn expect_possible(&self, what: &'static str) -> Result<()> {
        let name = self.to_string();
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::TooLong { what, bytes: name.len(), max_bytes: NAME_BYTES_MAX });
        }
        match name.parse::<Self>() {
            Ok(kind) if kind == *self => Ok(()),
            _ => Err(Error::invalid(format!(
                "invalid {what} {name}: tuples have 1 to {TUPLE_MAX} elements, and tuples and options contain key kinds"
            ))),
        }
    }

    fn word_name(&self) -> &'static str {
        for_words!(word_name!(self, ""))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::U128 => "u128",
            Self::I128 => "i128",
            Self::Str => "str",
            Self::Bytes => "bytes",
            Self::Json => "json",
            Self::Postcard => "postcard",
            Self::Array(len) => return f.pad(&format!("[u8; {len}]")),
            Self::Expiring(kind) => return f.pad(&format!("Expiring<{kind}>")),
            Self::Option(kind) => return f.pad(&format!("Option<{kind}>")),
            Self::Tuple(kinds) => {
                let kinds: Vec<_> = kinds.iter().map(Self::to_string).collect();
                return f.pad(&tuple_kind(&kinds));
            }
            word => word.word_name(),
        })
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let mut rest = name;
        // The length limit on names bounds the nesting depth of kinds.
        let kind = if name.len() > NAME_BYTES_MAX { None } else { take(&mut rest) };
        kind.filter(|_| rest.is_empty()).ok_or_else(|| {
            let named: Vec<_> = NAMED.iter().map(Self::to_string).collect();
            Error::invalid(format!(
                "unknown kind {name:?}; expected one of {}, [u8; N], Option<…>, Expiring<…>, (…, …)",
                named.join(", ")
            ))
        })
    }
}

/// Takes a kind from the front of a name.
fn take(from: &mut &str) -> Option<Kind> {
    if let Some(rest) = from.strip_prefix("[u8; ") {
        let (digits, rest) = rest.split_once(']')?;
        *from = rest;
        // Each kind has exactly one name.
        return digits.parse().ok().filter(|len: &usize| len.to_string() == digits).map(Kind::Array);
    }
    if let Some(rest) = from.strip_prefix("Option<") {
        *from = rest;
        let kind = take(from).filter(Kind::is_key)?;
        *from = from.strip_prefix('>')?;
        return Some(Kind::Option(Box::new(kind)));
    }
    if let Some(rest) = from.strip_prefix("Expiring<") {
        *from = rest;
        let kind = take(from)?;
        *from = from.strip_prefix('>')?;
        return Some(Kind::Expiring(Box::new(kind)));
    }
    if let Some(rest) = from.strip_prefix('(').filter(|rest| !rest.starts_with(')')) {
        *from = rest;
        return take_tuple(from);
    }
    let end = from.find(|c: char| !c.is_ascii_alphanumeric() && c != '(').unwrap_or(from.len());
    let end = if from.starts_with("()") { 2 } else { end };
    let (name, rest) = from.split_at(end);
    *from = rest;
    NAMED.iter().find(|kind| kind.to_string() == name).cloned()
}

/// Takes the elements of a tuple, and its end.
fn take_tuple(from: &mut &str) -> Option<Kind> {
    let mut kinds = Vec::new();
    while kinds.len() < TUPLE_MAX {
        kinds.push(take(from).filter(Kind::is_key)?);
        let end = if kinds.len() == 1 { ",)" } else { ")" };
        if let Some(rest) = from.strip_prefix(end) {
            *from = rest;
            return Some(Kind::Tuple(kinds));
        }
        *from = from.strip_prefix(", ")?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_as_types_are() {
        let names = [
            "()",
            "bool",
            "char",
            "u8",
            "u16",
            "u32",
            "u64",
            "u128",
            "i8",
            "i16",
            "i32",
            "i64",
            "i128",
            "f32",
            "f64",
            "str",
            "bytes",
            "json",
            "postcard",
            "[u8; 0]",
            "[u8; 16]",
            "Option<()>",
            "Option<Option<str>>",
            "Expiring<u64>",
            "Expiring<json>",
            "Expiring<(str, u64)>",
            "(u8,)",
            "((),)",
            "((), ())",
            "(str, Option<(u64, [u8; 4])>)",
            "(u8, u8, u8, u8, u8, u8, u8, u8)",
        ];
        for name in names {
            let kind: Kind = name.parse().unwrap();
            assert_eq!(kind.to_string(), name);
            assert!(kind.expect_possible("key type").is_ok(), "{name}");
        }
        let types = [
            <((), String) as crate::Key>::kind(),
            <(Option<i128>,) as crate::Key>::kind(),
            <[u8; 7] as crate::Key>::kind(),
            <f32 as crate::Key>::kind(),
        ];
        for name in types {
            assert_eq!(name.parse::<Kind>().unwrap().to_string(), name);
        }
        let words: Vec<_> = NAMED.iter().filter(|kind| kind.is_word()).map(Kind::to_string).collect();
        let expected =
            ["()", "bool", "char", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f32", "f64"];
        assert_eq!(words, expected);
    }

    #[test]
    fn names_of_no_kind_are_refused() {
        let deep = "(".repeat(1 << 20);
        let names = [
            "",
            " ",
            "usize",
            "u63",
            "u64 ",
            "(",
            ")",
            "(u8)",
            "(u8, )",
            "(u8,u8)",
            "(u8, u8",
            "(u8, u8,)",
            "(json,)",
            "Option<json>",
            "Option<Expiring<u64>>",
            "(Expiring<u64>,)",
            "Expiring<>",
            "Expiring<u64",
            "Option<>",
            "Option<u8",
            "Option<u8>>",
            "[u8; 4",
            "[u8; 04]",
            "[u8; -1]",
            "[u16; 4]",
            "[u8; ]",
            "(u8, u8, u8, u8, u8, u8, u8, u8, u8)",
            "()u8",
            "ü",
            "(ü, u8)",
            &deep,
        ];
        for name in names {
            let refused = name.parse::<Kind>().unwrap_err().to_string();
            assert!(refused.starts_with("unknown kind"), "{refused}");
        }
    }

    #[test]
    fn impossible_kinds_are_refused() {
        let nested = Kind::Tuple(vec![Kind::Json, Kind::U64]);
        let nine = Kind::Tuple(vec![Kind::U8; 9]);
        for kind in [Kind::Tuple(Vec::new()), nine, nested, Kind::Option(Box::new(Kind::Postcard))] {
            assert!(matches!(kind.expect_possible("key type"), Err(Error::Invalid { .. })), "{kind}");
        }
        let long = Kind::Tuple(vec![Kind::Option(Box::new(Kind::Bytes)); 4]).expect_possible("key type");
        assert_eq!(long.unwrap_err().to_string(), "a key type of 60 bytes is too long: at most 48 bytes");
    }
}
