//! Conversions between data and the types that they represent.

use bristlecone_pm::{Error, Result};

use super::{Datum, Kind};
use crate::Expiring;

/// Returns the error for a conversion to another kind.
fn unlike(datum: &Datum<'_>, kind: &str) -> Error {
    Error::invalid(format!("{} is not {kind}", datum.describe(&Kind::Unit)))
}

macro_rules! numbers {
    ($($variant:ident $type:ty),+) => {$(
        impl From<$type> for Datum<'_> {
            fn from(it: $type) -> Self {
                Self::$variant(it)
            }
        }

        impl TryFrom<Datum<'_>> for $type {
            type Error = Error;

            fn try_from(datum: Datum<'_>) -> Result<$type> {
                match datum {
                    Datum::$variant(it) => Ok(it),
                    other => Err(unlike(&other, stringify!($type))),
                }
            }
        }
    )+};
}

numbers!(
    Bool bool, Char char, U8 u8, U16 u16, U32 u32, U64 u64, U128 u128, I8 i8, I16 i16, I32 i32, I64 i64, I128 i128,
    F32 f32, F64 f64
);

macro_rules! from_texts {
    ($($variant:ident $type:ty),+) => {$(
        impl<'a> From<$type> for Datum<'a> {
            fn from(it: $type) -> Self {
                Self::$variant(it.into())
            }
        }
    )+};
}

from_texts!(Str &'a str, Str &'a String, Str String, Bytes &'a [u8], Bytes &'a Vec<u8>, Bytes Vec<u8>);

impl<const N: usize> From<[u8; N]> for Datum<'_> {
    fn from(bytes: [u8; N]) -> Self {
        Self::Bytes(bytes.to_vec().into())
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Datum<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Bytes(bytes[..].into())
    }
}

impl<'a> From<&'a Datum<'_>> for Datum<'a> {
    fn from(datum: &'a Datum<'_>) -> Self {
        datum.borrowed()
    }
}

impl From<()> for Datum<'_> {
    fn from((): ()) -> Self {
        Self::Unit
    }
}

impl<'a, T: Into<Datum<'a>>> From<Option<T>> for Datum<'a> {
    fn from(option: Option<T>) -> Self {
        Self::Option(option.map(|inner| Box::new(inner.into())))
    }
}

impl TryFrom<Datum<'_>> for () {
    type Error = Error;

    fn try_from(datum: Datum<'_>) -> Result<()> {
        if datum == Datum::Unit { Ok(()) } else { Err(unlike(&datum, "()")) }
    }
}

impl TryFrom<Datum<'_>> for String {
    type Error = Error;

    fn try_from(datum: Datum<'_>) -> Result<Self> {
        match datum {
            Datum::Str(text) | Datum::Json(text) => Ok(text.into_owned()),
            other => Err(unlike(&other, "str")),
        }
    }
}

impl TryFrom<Datum<'_>> for Vec<u8> {
    type Error = Error;

    fn try_from(datum: Datum<'_>) -> Result<Self> {
        match datum {
            Datum::Bytes(bytes) | Datum::Postcard(bytes) => Ok(bytes.into_owned()),
            other => Err(unlike(&other, "bytes")),
        }
    }
}

impl<const N: usize> TryFrom<Datum<'_>> for [u8; N] {
    type Error = Error;

    fn try_from(datum: Datum<'_>) -> Result<Self> {
        match &datum {
            Datum::Bytes(bytes) => (**bytes).try_into().ok(),
            _ => None,
        }
        .ok_or_else(|| unlike(&datum, &format!("[u8; {N}]")))
    }
}

impl<'a, T: TryFrom<Datum<'a>, Error = Error>> TryFrom<Datum<'a>> for Option<T> {
    type Error = Error;

    fn try_from(datum: Datum<'a>) -> Result<Self> {
        match datum {
            Datum::Option(inner) => inner.map(|inner| T::try_from(*inner)).transpose(),
            other => Err(unlike(&other, "an option")),
        }
    }
}

impl<'a, T: Into<Datum<'a>>> From<Expiring<T>> for Datum<'a> {
    fn from(entry: Expiring<T>) -> Self {
        Self::Expiring(Box::new(entry.value.into()), entry.expiry)
    }
}

impl<'a, T: TryFrom<Datum<'a>, Error = Error>> TryFrom<Datum<'a>> for Expiring<T> {
    type Error = Error;

    fn try_from(datum: Datum<'a>) -> Result<Self> {
        match datum {
            Datum::Expiring(value, expiry) => T::try_from(*value).map(|value| Self { value, expiry }),
            other => Err(unlike(&other, "a value that expires")),
        }
    }
}

macro_rules! tuples {
    ($count:literal: $($element:ident $name:ident),+) => {
        impl<'a, $($element: Into<Datum<'a>>),+> From<($($element,)+)> for Datum<'a> {
            fn from(($($name,)+): ($($element,)+)) -> Self {
                Self::Tuple(vec![$($name.into()),+])
            }
        }

        impl<'a, $($element: TryFrom<Datum<'a>, Error = Error>),+> TryFrom<Datum<'a>> for ($($element,)+) {
            type Error = Error;

            fn try_from(datum: Datum<'a>) -> Result<Self> {
                let expected = concat!("a tuple of ", $count);
                let Datum::Tuple(elements) = datum else { return Err(unlike(&datum, expected)) };
                let elements: [Datum<'a>; $count] =
                    elements.try_into().map_err(|other| unlike(&Datum::Tuple(other), expected))?;
                let [$($name),+] = elements;
                Ok(($($element::try_from($name)?,)+))
            }
        }
    };
}

tuples!(1: A a);
tuples!(2: A a, B b);
tuples!(3: A a, B b, C c);
tuples!(4: A a, B b, C c, D d);
tuples!(5: A a, B b, C c, D d, E e);
tuples!(6: A a, B b, C c, D d, E e, F f);
tuples!(7: A a, B b, C c, D d, E e, F f, G g);
tuples!(8: A a, B b, C c, D d, E e, F f, G g, H h);

#[cfg(test)]
mod tests {
    use super::*;

    /// Verifies that a datum converts to its own type and back, and to no other type.
    fn converts<T>(it: T, described: &str)
    where
        T: Into<Datum<'static>>
            + TryFrom<Datum<'static>, Error = Error>
            + Clone
            + PartialEq
            + std::fmt::Debug,
    {
        let datum: Datum<'static> = it.clone().into();
        assert_eq!(datum.describe(&Kind::Unit), described);
        assert_eq!(datum.borrowed().into_owned(), datum);
        assert_eq!(T::try_from(datum).unwrap(), it);
    }

    #[test]
    fn data_come_from_types_and_become_them() {
        converts((), "()");
        converts(true, "bool");
        converts('x', "char");
        converts(1u8, "u8");
        converts(1u16, "u16");
        converts(1u32, "u32");
        converts(1u64, "u64");
        converts(1u128, "u128");
        converts(-1i8, "i8");
        converts(-1i16, "i16");
        converts(-1i32, "i32");
        converts(-1i64, "i64");
        converts(-1i128, "i128");
        converts(-1.5f32, "f32");
        converts(-1.5f64, "f64");
        converts("x".to_owned(), "str");
        converts(vec![1u8], "bytes");
        converts([1u8, 2], "bytes");
        converts(Some(1u8), "an option");
        converts(None::<String>, "an option");
        converts((1u8,), "a tuple of 1");
        converts((1u8, "x".to_owned(), (None::<u8>, [0u8; 0])), "a tuple of 3");
        converts((1u8, 2i8, 3u16, 4i16, 5u32, 6i32, 7u64, 8i64), "a tuple of 8");
    }

    #[test]
    fn data_are_not_taken_for_what_they_are_not() {
        let told = |error: Error| error.to_string();
        assert_eq!(told(u64::try_from(Datum::from(7u32)).unwrap_err()), "u32 is not u64");
        assert_eq!(told(String::try_from(Datum::from(b"x")).unwrap_err()), "bytes is not str");
        assert_eq!(told(<[u8; 2]>::try_from(Datum::from(b"x")).unwrap_err()), "bytes is not [u8; 2]");
        assert_eq!(told(Option::<u8>::try_from(Datum::from(7u8)).unwrap_err()), "u8 is not an option");
        assert_eq!(
            told(<(u8, u8)>::try_from(Datum::from((7u8,))).unwrap_err()),
            "a tuple of 1 is not a tuple of 2"
        );
        assert_eq!(told(<(u8, u8)>::try_from(Datum::from((7u8, 7i8))).unwrap_err()), "i8 is not u8");
    }

    #[test]
    fn data_order_as_keys_do() {
        let ascending: Vec<Datum<'_>> =
            vec![(-f64::NAN).into(), (-1.0).into(), (-0.0).into(), 0.0.into(), 1.0.into(), f64::NAN.into()];
        assert!(ascending.is_sorted());
        assert!(Datum::from(-0.0) != Datum::from(0.0) && Datum::from(f64::NAN) == Datum::from(f64::NAN));
        assert!(Datum::from(None::<&str>) < Datum::from(Some("")));
        assert!(Datum::from(("a", 2u8)) < Datum::from(("ab", 1u8)));
    }
}
