//! Composed kinds: options and tuples.

use super::{Buffer, Element, decode, encode};
use crate::index::parts::codec::Record;
use crate::{Key, Result, Value};

/// The record of a single element, as a key or as a value.
macro_rules! composed {
    ([$($generics:tt)*] $type:ty, $kind:expr, $ref:ty, $owned:ty, $kept:pat => $lent:expr) => {
        impl<$($generics)*> Key for $type {
            type Ref<'a> = $ref;
            type Owned = $owned;
            type Codec = Record;
            type Schema = ();

            fn kind() -> String {
                $kind
            }
            fn fixed() -> Result<()> {
                Ok(())
            }
            fn lend(key: &Self::Owned) -> Self::Ref<'_> {
                let $kept = key;
                $lent
            }
            fn with<R>((): &(), key: Self::Ref<'_>, use_it: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
                encode::<Self, _>(key, use_it)
            }
            fn decode((): &(), key: Box<[u8]>) -> Option<Self::Owned> {
                decode::<Self>(&key)
            }
        }

        impl<$($generics)*> Value for $type {
            type Ref<'a> = $ref;
            type Owned = $owned;
            type Codec = Record;
            type Schema = ();

            fn kind() -> String {
                $kind
            }
            fn fixed() -> Result<()> {
                Ok(())
            }
            fn lend(value: &Self::Owned) -> Self::Ref<'_> {
                let $kept = value;
                $lent
            }
            fn with<R>((): &(), value: Self::Ref<'_>, use_it: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
                encode::<Self, _>(value, use_it)
            }
            fn view<R>((): &(), value: &[u8], show: impl FnOnce(Self::Ref<'_>) -> R) -> Option<R> {
                decode::<Self>(value).map(|value| show(<Self as Value>::lend(&value)))
            }
            fn decode((): &(), value: &[u8]) -> Option<Self::Owned> {
                decode::<Self>(value)
            }
            fn in_entry<'a>((): &(), stored: &'a [u8]) -> Option<&'a [u8]> {
                Some(stored)
            }
        }
    };
}

composed!([T: Element] Option<T>, format!("Option<{}>", T::kind()), Option<T::Ref<'a>>, Option<T::Owned>,
    kept => kept.as_ref().map(T::lend));

/// A presence byte, followed by the element if present.
impl<T: Element> Element for Option<T> {
    fn append(element: Option<T::Ref<'_>>, to: &mut Buffer) {
        to.push(u8::from(element.is_some()));
        if let Some(element) = element {
            T::append(element, to);
        }
    }
    fn take(from: &mut &[u8]) -> Option<Option<T::Owned>> {
        let (is_some, rest) = from.split_first()?;
        *from = rest;
        match is_some {
            0 => Some(None),
            1 => T::take(from).map(Some),
            _ => None,
        }
    }
}

/// Maximum number of elements of a tuple.
pub(crate) const TUPLE_MAX: usize = 8;

/// Returns the name of a tuple in Rust syntax.
pub fn tuple_kind(elements: &[String]) -> String {
    match elements {
        [only] => format!("({only},)"),
        all => format!("({})", all.join(", ")),
    }
}

macro_rules! tuples {
    ($($element:ident $name:ident),+) => {
        composed!([$($element: Element),+] ($($element,)+), tuple_kind(&[$($element::kind()),+]),
            ($($element::Ref<'a>,)+), ($($element::Owned,)+), ($($name,)+) => ($($element::lend($name),)+));

        /// The elements in sequence.
        impl<$($element: Element),+> Element for ($($element,)+) {
            fn append(($($name,)+): Self::Ref<'_>, to: &mut Buffer) {
                $($element::append($name, to);)+
            }
            fn take(from: &mut &[u8]) -> Option<Self::Owned> {
                Some(($($element::take(from)?,)+))
            }
        }
    };
}

tuples!(A a);
tuples!(A a, B b);
tuples!(A a, B b, C c);
tuples!(A a, B b, C c, D d);
tuples!(A a, B b, C c, D d, E e);
tuples!(A a, B b, C c, D d, E e, F f);
tuples!(A a, B b, C c, D d, E e, F f, G g);
tuples!(A a, B b, C c, D d, E e, F f, G g, H h);
