//! Types of values.

use bristlecone_pm::{Error, Result, VALUE_BYTES_MAX};

use crate::index::parts::codec::Codec;

/// A type of values: everything that can be a [`Key`](crate::Key) but structs.
///
/// `()`, `bool`, `char`, integers up to 64 bits and floats are words in the tree, the whole domain of
/// them; everything else is written to a record of up to 128 KiB.
///
/// A value whose bytes cannot be one of its type was damaged. [`get`](crate::Tree::get) and
/// [`range`](crate::Tree::range), which have no error to return, leave it out;
/// [`try_get`](crate::Tree::try_get) and [`try_range`](crate::Tree::try_range) report it.
///
/// The library implements the trait; its hidden items are not meant to be implemented elsewhere, and may
/// change.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the value of a tree",
    note = "values are `()`, `bool`, `char`, integers but `usize` and `isize`, floats, `String`, `Vec<u8>`, `[u8; N]`, options and tuples of these"
)]
pub trait Value: 'static {
    /// What operations take, and what is shown without copying where that is possible.
    type Ref<'a>: Copy;
    /// What operations give.
    type Owned: Clone + Send + Sync + std::fmt::Debug;
    #[doc(hidden)]
    type Codec: Codec;

    /// Returns the type's name in the pool's directory.
    fn kind() -> String;

    /// Lends a value that an operation gave to another one.
    fn lend(value: &Self::Owned) -> Self::Ref<'_>;

    /// `Err`: there is no encoding for this value.
    #[doc(hidden)]
    fn with<R>(value: Self::Ref<'_>, use_it: impl FnOnce(<Self::Codec as Codec>::Ref<'_>) -> R) -> Result<R>;

    /// `None`: this cannot be a value of the type. So in the next two.
    #[doc(hidden)]
    fn view<R>(value: <Self::Codec as Codec>::Ref<'_>, show: impl FnOnce(Self::Ref<'_>) -> R) -> Option<R>;

    #[doc(hidden)]
    fn decode(value: <Self::Codec as Codec>::Ref<'_>) -> Option<Self::Owned>;

    #[doc(hidden)]
    #[inline(always)]
    fn take(value: <Self::Codec as Codec>::Owned) -> Option<Self::Owned> {
        Self::decode(<Self::Codec as Codec>::borrow(&value))
    }
}

/// Returns whether a value can be stored, as a tree asks before writing.
pub(crate) fn check_len(bytes: usize) -> Result<()> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::TooLong { what: "value", bytes, max_bytes: VALUE_BYTES_MAX })
}

/// Returns a value that was in a tree.
#[inline(always)]
pub(crate) fn taken<V: Value>(value: <V::Codec as Codec>::Owned) -> Result<V::Owned> {
    V::take(value).ok_or_else(|| undecodable("value", V::kind()))
}

/// Says that a key or value cannot be of the type that its tree has.
#[cold]
pub(crate) fn undecodable(what: &str, kind: impl std::fmt::Display) -> Error {
    Error::corrupted(format!("bytes that are no {kind}"), format!("a {what}"))
}
