//! Keys and values whose kind is known at run time.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::Kind;
use super::kind::for_words;
use crate::Expiry;
use crate::api::kinds::composed::tuple_kind;
use crate::api::kinds::words::Word;

/// A key or a value of some [`Kind`]. It may borrow its text or bytes; [`into_owned`](Self::into_owned) makes
/// it owned.
///
/// Data of one kind have the order of its keys, floats in total order. The order between different kinds is
/// unspecified.
///
/// ```
/// use bristlecone::dynamic::Datum;
///
/// let key = Datum::from(("/about", 2026u32));
/// assert!(key > Datum::from(("/", 2027u32)));
/// let (page, year): (String, u32) = key.try_into()?;
/// assert_eq!((page.as_str(), year), ("/about", 2026));
/// assert!(u64::try_from(Datum::from(7u32)).is_err());
/// # Ok::<(), bristlecone::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Datum<'a> {
    /// Of kind `()`.
    Unit,
    /// Of kind `bool`.
    Bool(bool),
    /// Of kind `char`.
    Char(char),
    /// Of kind `u8`.
    U8(u8),
    /// Of kind `u16`.
    U16(u16),
    /// Of kind `u32`.
    U32(u32),
    /// Of kind `u64`.
    U64(u64),
    /// Of kind `u128`.
    U128(u128),
    /// Of kind `i8`.
    I8(i8),
    /// Of kind `i16`.
    I16(i16),
    /// Of kind `i32`.
    I32(i32),
    /// Of kind `i64`.
    I64(i64),
    /// Of kind `i128`.
    I128(i128),
    /// Of kind `f32`.
    F32(f32),
    /// Of kind `f64`.
    F64(f64),
    /// Of kind `str`.
    Str(Cow<'a, str>),
    /// Of kind `bytes`, or of `[u8; N]` if the length is N.
    Bytes(Cow<'a, [u8]>),
    /// Of kind `Option<…>`.
    Option(Option<Box<Self>>),
    /// Of kind `(…, …)`.
    Tuple(Vec<Self>),
    /// Of kind `json`: a JSON text.
    Json(Cow<'a, str>),
    /// Of kind `postcard`.
    Postcard(Cow<'a, [u8]>),
    /// Of kind `Expiring<…>`: a value, and when it expires.
    Expiring(Box<Self>, Expiry),
}

macro_rules! word_names {
    (($datum:expr, $else:expr) $($variant:ident $type:ty),+) => {
        match $datum {
            Datum::Unit => <()>::NAME.to_owned(),
            $(Datum::$variant(_) => <$type>::NAME.to_owned(),)+
            _ => $else,
        }
    };
}

impl<'a> Datum<'a> {
    /// Returns the datum as an owned value.
    pub fn into_owned(self) -> Datum<'static> {
        match self {
            Self::Str(text) => Datum::Str(text.into_owned().into()),
            Self::Bytes(bytes) => Datum::Bytes(bytes.into_owned().into()),
            Self::Json(text) => Datum::Json(text.into_owned().into()),
            Self::Postcard(bytes) => Datum::Postcard(bytes.into_owned().into()),
            Self::Expiring(value, expiry) => Datum::Expiring(Box::new(value.into_owned()), expiry),
            Self::Option(inner) => Datum::Option(inner.map(|inner| Box::new(inner.into_owned()))),
            Self::Tuple(elements) => Datum::Tuple(elements.into_iter().map(Datum::into_owned).collect()),
            Self::Unit => Datum::Unit,
            Self::Bool(it) => Datum::Bool(it),
            Self::Char(it) => Datum::Char(it),
            Self::U8(it) => Datum::U8(it),
            Self::U16(it) => Datum::U16(it),
            Self::U32(it) => Datum::U32(it),
            Self::U64(it) => Datum::U64(it),
            Self::U128(it) => Datum::U128(it),
            Self::I8(it) => Datum::I8(it),
            Self::I16(it) => Datum::I16(it),
            Self::I32(it) => Datum::I32(it),
            Self::I64(it) => Datum::I64(it),
            Self::I128(it) => Datum::I128(it),
            Self::F32(it) => Datum::F32(it),
            Self::F64(it) => Datum::F64(it),
        }
    }

    /// Returns the datum with its text or bytes borrowed.
    pub fn borrowed(&self) -> Datum<'_> {
        match self {
            Self::Str(text) => Datum::Str(Cow::Borrowed(text)),
            Self::Bytes(bytes) => Datum::Bytes(Cow::Borrowed(bytes)),
            Self::Json(text) => Datum::Json(Cow::Borrowed(text)),
            Self::Postcard(bytes) => Datum::Postcard(Cow::Borrowed(bytes)),
            Self::Expiring(value, expiry) => Datum::Expiring(Box::new(value.borrowed()), *expiry),
            Self::Option(inner) => Datum::Option(inner.as_ref().map(|inner| Box::new(inner.borrowed()))),
            Self::Tuple(elements) => Datum::Tuple(elements.iter().map(Datum::borrowed).collect()),
            word => word.clone(),
        }
    }

    /// Describes the datum for messages: its kind, as far as it is known.
    pub(super) fn describe(&self, expected: &Kind) -> String {
        for_words!(word_names!(self, self.describe_record(expected)))
    }

    fn describe_record(&self, expected: &Kind) -> String {
        match (self, expected) {
            (Self::Bytes(bytes), Kind::Array(_)) => format!("[u8; {}]", bytes.len()),
            (Self::Option(Some(inner)), Kind::Option(kind)) => format!("Option<{}>", inner.describe(kind)),
            (Self::Tuple(elements), Kind::Tuple(kinds)) if elements.len() == kinds.len() => {
                let elements: Vec<_> =
                    elements.iter().zip(kinds).map(|(it, kind)| it.describe(kind)).collect();
                tuple_kind(&elements)
            }
            (Self::Expiring(value, _), Kind::Expiring(kind)) => format!("Expiring<{}>", value.describe(kind)),
            (Self::Expiring(..), _) => "a value that expires".to_owned(),
            (Self::U128(_), _) => "u128".to_owned(),
            (Self::I128(_), _) => "i128".to_owned(),
            (Self::Str(_), _) => "str".to_owned(),
            (Self::Bytes(_), _) => "bytes".to_owned(),
            (Self::Json(_), _) => "json".to_owned(),
            (Self::Postcard(_), _) => "postcard".to_owned(),
            (Self::Option(_), _) => "an option".to_owned(),
            (Self::Tuple(elements), _) => format!("a tuple of {}", elements.len()),
            _ => "something else".to_owned(),
        }
    }

    /// Returns a number that differs between variants.
    fn variant(&self) -> u8 {
        match self {
            Self::Unit => 0,
            Self::Bool(_) => 1,
            Self::Char(_) => 2,
            Self::U8(_) => 3,
            Self::U16(_) => 4,
            Self::U32(_) => 5,
            Self::U64(_) => 6,
            Self::U128(_) => 7,
            Self::I8(_) => 8,
            Self::I16(_) => 9,
            Self::I32(_) => 10,
            Self::I64(_) => 11,
            Self::I128(_) => 12,
            Self::F32(_) => 13,
            Self::F64(_) => 14,
            Self::Str(_) => 15,
            Self::Bytes(_) => 16,
            Self::Option(_) => 17,
            Self::Tuple(_) => 18,
            Self::Json(_) => 19,
            Self::Postcard(_) => 20,
            Self::Expiring(..) => 21,
        }
    }
}

impl Ord for Datum<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Char(a), Self::Char(b)) => a.cmp(b),
            (Self::U8(a), Self::U8(b)) => a.cmp(b),
            (Self::U16(a), Self::U16(b)) => a.cmp(b),
            (Self::U32(a), Self::U32(b)) => a.cmp(b),
            (Self::U64(a), Self::U64(b)) => a.cmp(b),
            (Self::U128(a), Self::U128(b)) => a.cmp(b),
            (Self::I8(a), Self::I8(b)) => a.cmp(b),
            (Self::I16(a), Self::I16(b)) => a.cmp(b),
            (Self::I32(a), Self::I32(b)) => a.cmp(b),
            (Self::I64(a), Self::I64(b)) => a.cmp(b),
            (Self::I128(a), Self::I128(b)) => a.cmp(b),
            (Self::F32(a), Self::F32(b)) => a.total_cmp(b),
            (Self::F64(a), Self::F64(b)) => a.total_cmp(b),
            (Self::Str(a), Self::Str(b)) | (Self::Json(a), Self::Json(b)) => a.cmp(b),
            (Self::Bytes(a), Self::Bytes(b)) | (Self::Postcard(a), Self::Postcard(b)) => a.cmp(b),
            (Self::Option(a), Self::Option(b)) => a.cmp(b),
            (Self::Tuple(a), Self::Tuple(b)) => a.cmp(b),
            (Self::Expiring(a, since), Self::Expiring(b, until)) => {
                a.cmp(b).then(since.as_millis().cmp(&until.as_millis()))
            }
            _ => self.variant().cmp(&other.variant()),
        }
    }
}

impl PartialOrd for Datum<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Datum<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Datum<'_> {}
