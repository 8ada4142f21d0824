//! Keys and values as bytes: the representation of each kind in C.
//!
//! The header's introduction has the table. Elements within tuples and options are packed: adjacent without
//! gaps, strings and bytes preceded by their length.

use bristlecone_rs::Expiry;
use bristlecone_rs::dynamic::{Datum, Kind};

use crate::argument::bytes;
use crate::entry::Passed;
use crate::status::{Failure, Outcome};

/// Calls a macro with every kind that is a number in C: its variant and its type.
macro_rules! for_numbers {
    ($call:ident!($($more:tt)*)) => {
        $call! {
            ($($more)*)
            U8 u8, U16 u16, U32 u32, U64 u64, U128 u128, I8 i8, I16 i16, I32 i32, I64 i64, I128 i128, F32 f32, F64 f64
        }
    };
}

/// Conversion of keys or values from and to bytes.
pub struct Role {
    pub name: &'static str,
}

/// Keys.
pub const KEY: Role = Role { name: "key" };
/// Values.
pub const VALUE: Role = Role { name: "value" };

impl Role {
    /// Returns the datum passed by C.
    ///
    /// # Safety
    ///
    /// The pointer must point to `len` bytes.
    #[inline(always)]
    pub unsafe fn passed<'a>(&self, kind: &Kind, (data, len): Passed) -> Outcome<Datum<'a>> {
        // SAFETY: as the caller says.
        self.read(kind, unsafe { bytes(self.name, data, len) }?)
    }

    /// Returns the datum passed by C. `None`: a null pointer without a length, which means an absent key.
    ///
    /// # Safety
    ///
    /// As [`passed`](Self::passed).
    pub unsafe fn passed_or_absent<'a>(&self, kind: &Kind, passed: Passed) -> Outcome<Option<Datum<'a>>> {
        if passed.0.is_null() && passed.1 == 0 {
            return Ok(None);
        }
        // SAFETY: as the caller says.
        unsafe { self.passed(kind, passed) }.map(Some)
    }

    /// Parses bytes as a datum.
    #[inline]
    pub fn read<'a>(&self, kind: &Kind, bytes: &'a [u8]) -> Outcome<Datum<'a>> {
        match kind {
            Kind::Bytes | Kind::Array(_) => Ok(Datum::Bytes(bytes.into())),
            Kind::Postcard => Ok(Datum::Postcard(bytes.into())),
            Kind::Str => self.text(kind, bytes).map(|text| Datum::Str(text.into())),
            Kind::Json => self.text(kind, bytes).map(|text| Datum::Json(text.into())),
            _ => {
                let mut rest = bytes;
                let datum = take(kind, &mut rest).filter(|_| rest.is_empty());
                datum.ok_or_else(|| self.unfit(kind, bytes))
            }
        }
    }

    fn text<'a>(&self, kind: &Kind, bytes: &'a [u8]) -> Outcome<&'a str> {
        str::from_utf8(bytes).map_err(|_| self.unfit(kind, bytes))
    }

    #[cold]
    fn unfit(&self, kind: &Kind, bytes: &[u8]) -> Failure {
        let (name, len) = (self.name, bytes.len());
        match (kind, size(kind)) {
            (Kind::Str | Kind::Json, _) => {
                Failure::usage(format!("a {name} that is not UTF-8, where it is {kind}"))
            }
            (_, Some(size)) if size != len => {
                Failure::usage(format!("a {name} of {len} bytes, where {kind} has {size}"))
            }
            _ => Failure::usage(format!("a {name} whose {len} bytes are no {kind}")),
        }
    }
}

/// Returns the size of every datum of a kind, if it is constant.
pub fn size(kind: &Kind) -> Option<usize> {
    macro_rules! size_of_number {
        (($kind:expr, $else:expr) $($variant:ident $type:ty),+) => {
            match $kind {
                $(Kind::$variant => Some(size_of::<$type>()),)+
                _ => $else,
            }
        };
    }
    match kind {
        Kind::Unit => Some(0),
        Kind::Bool => Some(1),
        Kind::Char => Some(4),
        Kind::Array(len) => Some(*len),
        Kind::Tuple(kinds) => kinds.iter().map(size).sum(),
        Kind::Expiring(kind) => size(kind).map(|size| size_of::<u64>() + size),
        number => for_numbers!(size_of_number!(number, None)),
    }
}

fn take_array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*bytes)
}

/// Takes as many bytes as the length before them says.
fn take_counted<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(u64::from_ne_bytes(take_array(from)?)).ok()?;
    let (bytes, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(bytes)
}

/// Takes a packed datum from the front of the remaining bytes.
fn take<'a>(kind: &Kind, from: &mut &'a [u8]) -> Option<Datum<'a>> {
    macro_rules! take_number {
        (($kind:expr, $from:expr) $($variant:ident $type:ty),+) => {
            match $kind {
                $(Kind::$variant => take_array($from).map(|bytes| Datum::$variant(<$type>::from_ne_bytes(bytes))),)+
                _ => None,
            }
        };
    }
    match kind {
        Kind::Unit => Some(Datum::Unit),
        Kind::Bool => match take_array(from)? {
            [bit @ (0 | 1)] => Some(Datum::Bool(bit == 1)),
            _ => None,
        },
        Kind::Char => char::from_u32(u32::from_ne_bytes(take_array(from)?)).map(Datum::Char),
        Kind::Str => str::from_utf8(take_counted(from)?).ok().map(|text| Datum::Str(text.into())),
        Kind::Json => str::from_utf8(take_counted(from)?).ok().map(|text| Datum::Json(text.into())),
        Kind::Bytes => take_counted(from).map(|bytes| Datum::Bytes(bytes.into())),
        Kind::Postcard => take_counted(from).map(|bytes| Datum::Postcard(bytes.into())),
        Kind::Expiring(kind) => {
            let expiry = Expiry::from_millis(u64::from_ne_bytes(take_array(from)?));
            take(kind, from).map(|value| Datum::Expiring(Box::new(value), expiry))
        }
        Kind::Array(len) => {
            let (bytes, rest) = from.split_at_checked(*len)?;
            *from = rest;
            Some(Datum::Bytes(bytes.into()))
        }
        Kind::Option(kind) => match take_array(from)? {
            [0] => Some(Datum::Option(None)),
            [1] => take(kind, from).map(|inner| Datum::Option(Some(Box::new(inner)))),
            _ => None,
        },
        Kind::Tuple(kinds) => {
            let elements: Option<_> = kinds.iter().map(|kind| take(kind, from)).collect();
            elements.map(Datum::Tuple)
        }
        number => for_numbers!(take_number!(number, from)),
    }
}

/// Returns the bytes of a datum of a kind: its own, or those written to `buffer`, which must be empty.
pub fn write<'a>(kind: &Kind, datum: &'a Datum<'_>, buffer: &'a mut Vec<u8>) -> &'a [u8] {
    match datum {
        Datum::Str(text) | Datum::Json(text) => text.as_bytes(),
        Datum::Bytes(bytes) | Datum::Postcard(bytes) => bytes,
        packed => {
            pack(kind, packed, buffer);
            buffer
        }
    }
}

/// Appends a datum of a kind.
fn pack(kind: &Kind, datum: &Datum<'_>, to: &mut Vec<u8>) {
    macro_rules! pack_number {
        (($datum:expr, $to:expr) $($variant:ident $type:ty),+) => {
            match $datum {
                $(Datum::$variant(number) => $to.extend_from_slice(&number.to_ne_bytes()),)+
                // It comes from the tree, whose data all have its own kind.
                _ => unreachable!("a datum of another kind"),
            }
        };
    }
    match (kind, datum) {
        (Kind::Unit, _) => {}
        (_, Datum::Bool(bit)) => to.push(u8::from(*bit)),
        (_, Datum::Char(char)) => to.extend_from_slice(&u32::from(*char).to_ne_bytes()),
        (_, Datum::Str(text) | Datum::Json(text)) => pack_counted(text.as_bytes(), to),
        (Kind::Array(_), Datum::Bytes(bytes)) => to.extend_from_slice(bytes),
        (_, Datum::Bytes(bytes) | Datum::Postcard(bytes)) => pack_counted(bytes, to),
        (Kind::Expiring(kind), Datum::Expiring(value, expiry)) => {
            to.extend_from_slice(&expiry.as_millis().to_ne_bytes());
            pack(kind, value, to);
        }
        (_, Datum::Option(None)) => to.push(0),
        (Kind::Option(kind), Datum::Option(Some(inner))) => {
            to.push(1);
            pack(kind, inner, to);
        }
        (Kind::Tuple(kinds), Datum::Tuple(elements)) => {
            kinds.iter().zip(elements).for_each(|(kind, element)| pack(kind, element, to));
        }
        (_, number) => for_numbers!(pack_number!(number, to)),
    }
}

fn pack_counted(bytes: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(&(bytes.len() as u64).to_ne_bytes());
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_every_kind_come_back() {
        let tuple = Datum::from((1u8, "x", (None::<u8>, *b"ab", b"cde".to_vec()), Some(-2i128)));
        let entry = |value: Datum<'static>| Datum::Expiring(Box::new(value), Expiry::from_millis(7));
        let data: [(&str, Datum<'_>, usize); 15] = [
            ("Expiring<u16>", entry(7u16.into()), 10),
            ("Expiring<json>", entry(Datum::Json("{}".into())), 18),
            ("Expiring<(str, u8)>", entry(("x", 7u8).into()), 18),
            ("()", ().into(), 0),
            ("bool", true.into(), 1),
            ("char", 'ä'.into(), 4),
            ("u16", 7u16.into(), 2),
            ("i64", (-7i64).into(), 8),
            ("u128", 7u128.into(), 16),
            ("f64", (-0.0).into(), 8),
            ("str", "ä".into(), 2),
            ("bytes", b"abc".into(), 3),
            ("[u8; 3]", b"abc".into(), 3),
            ("Option<str>", Some("ä").into(), 11),
            ("(u8, str, (Option<u8>, [u8; 2], bytes), Option<i128>)", tuple, 1 + 9 + (1 + 2 + 11) + 17),
        ];
        for (name, datum, len) in data {
            let kind: Kind = name.parse().or_else(|_| "()".parse()).unwrap();
            let kind = if name.len() > 48 { tuple_kind() } else { kind };
            let mut buffer = Vec::new();
            let bytes = write(&kind, &datum, &mut buffer);
            assert_eq!(bytes.len(), len, "{name}");
            assert_eq!(KEY.read(&kind, bytes).unwrap(), datum, "{name}");
            let fixed = size(&kind);
            assert!(fixed.is_none_or(|fixed| fixed == len), "{name}");
            if fixed.is_some() && !matches!(kind, Kind::Array(_)) {
                let longer = [bytes, &[0]].concat();
                assert!(VALUE.read(&kind, &longer).is_err(), "{name}");
            }
        }
    }

    fn tuple_kind() -> Kind {
        let inner = Kind::Tuple(vec![Kind::Option(Box::new(Kind::U8)), Kind::Array(2), Kind::Bytes]);
        Kind::Tuple(vec![Kind::U8, Kind::Str, inner, Kind::Option(Box::new(Kind::I128))])
    }

    #[test]
    fn bytes_that_are_no_datum_are_refused() {
        let refused = |kind: &str, bytes: &[u8]| KEY.read(&kind.parse().unwrap(), bytes).unwrap_err();
        for (kind, bytes, told) in [
            ("u64", &[0; 4][..], "a key of 4 bytes, where u64 has 8"),
            ("bool", &[2], "a key whose 1 bytes are no bool"),
            ("char", &[0, 0xd8, 0, 0], "a key whose 4 bytes are no char"),
            ("str", &[0xff], "a key that is not UTF-8, where it is str"),
            ("(str,)", &[255; 9], "a key whose 9 bytes are no (str,)"),
            ("Option<u8>", &[0, 0], "a key whose 2 bytes are no Option<u8>"),
        ] {
            let Failure::Said(code, what) = refused(kind, bytes) else { panic!("{kind}") };
            assert_eq!((code, &*what), (crate::status::BRISTLECONE_USAGE, told));
        }
    }
}
