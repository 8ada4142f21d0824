//! Types of values.

use bristlecone_pm::VALUE_BYTES_MAX;

use crate::shared::codec::{Codec, Inline, Record};

/// A type of values: `u64`, `u32`, `i64`, `&str`, `&[u8]`, `[u8; N]`.
///
/// Integers stand in the tree itself, the whole domain of them; everything else is written out
/// of line and may have up to 128 KiB.
pub trait Value: 'static {
    /// What operations take, and what is shown without copying.
    type Ref<'a>: Copy;
    /// What operations give.
    type Owned: Clone + Send + Sync + std::fmt::Debug;
    #[doc(hidden)]
    type Codec: Codec;

    /// The type's name in the pool's directory.
    fn kind() -> String;

    #[doc(hidden)]
    fn with<R>(value: Self::Ref<'_>, use_it: impl FnOnce(<Self::Codec as Codec>::Ref<'_>) -> R) -> R;

    #[doc(hidden)]
    fn view<R>(value: <Self::Codec as Codec>::Ref<'_>, show: impl FnOnce(Self::Ref<'_>) -> R) -> R;

    #[doc(hidden)]
    fn decode(value: <Self::Codec as Codec>::Ref<'_>) -> Self::Owned;

    #[doc(hidden)]
    fn bytes(value: <Self::Codec as Codec>::Ref<'_>) -> usize;
}

macro_rules! integer_value {
    ($type:ty) => {
        impl Value for $type {
            type Ref<'a> = $type;
            type Owned = $type;
            type Codec = Inline;

            fn kind() -> String {
                stringify!($type).to_owned()
            }
            #[inline(always)]
            fn with<R>(value: $type, use_it: impl FnOnce(u64) -> R) -> R {
                use_it(value as u64)
            }
            #[inline(always)]
            fn view<R>(word: u64, show: impl FnOnce($type) -> R) -> R {
                show(word as $type)
            }
            #[inline(always)]
            fn decode(word: u64) -> $type {
                word as $type
            }
            fn bytes(_: u64) -> usize {
                8
            }
        }
    };
}

integer_value!(u64);
integer_value!(u32);
integer_value!(i64);

macro_rules! bytes_value {
    ($type:ty, $ref:ty, $owned:ty, $kind:expr, $encode:expr, $view:expr, $decode:expr) => {
        impl Value for $type {
            type Ref<'a> = &'a $ref;
            type Owned = $owned;
            type Codec = Record;

            fn kind() -> String {
                $kind.to_owned()
            }
            #[inline(always)]
            fn with<R>(value: &$ref, use_it: impl FnOnce(&[u8]) -> R) -> R {
                use_it($encode(value))
            }
            #[inline(always)]
            fn view<R>(bytes: &[u8], show: impl FnOnce(&$ref) -> R) -> R {
                show($view(bytes))
            }
            fn decode(bytes: &[u8]) -> $owned {
                $decode(bytes)
            }
            fn bytes(bytes: &[u8]) -> usize {
                bytes.len()
            }
        }
    };
}

bytes_value!(
    &'static str,
    str,
    String,
    "str",
    str::as_bytes,
    // Only strings are written to a tree of strings; damage shows as an empty one.
    |bytes| std::str::from_utf8(bytes).unwrap_or_default(),
    |bytes| String::from_utf8_lossy(bytes).into_owned()
);
bytes_value!(
    &'static [u8],
    [u8],
    Vec<u8>,
    "bytes",
    std::convert::identity,
    std::convert::identity,
    <[u8]>::to_vec
);

impl<const N: usize> Value for [u8; N] {
    type Ref<'a> = [u8; N];
    type Owned = [u8; N];
    type Codec = Record;

    fn kind() -> String {
        format!("[u8; {N}]")
    }
    #[inline(always)]
    fn with<R>(value: [u8; N], use_it: impl FnOnce(&[u8]) -> R) -> R {
        use_it(&value)
    }
    fn view<R>(bytes: &[u8], show: impl FnOnce([u8; N]) -> R) -> R {
        show(Self::decode(bytes))
    }
    fn decode(bytes: &[u8]) -> [u8; N] {
        <[u8; N]>::try_from(bytes).unwrap_or([0; N])
    }
    fn bytes(bytes: &[u8]) -> usize {
        bytes.len()
    }
}

/// Whether a value can be stored, as a tree asks before writing.
pub(crate) fn check_len(bytes: usize) -> crate::Result<()> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(crate::Error::TooLong { what: "value", bytes, max_bytes: VALUE_BYTES_MAX })
}
