//! Types of values.

use bristlecone_pm::{Error, Result, VALUE_BYTES_MAX};

use crate::index::parts::codec::Codec;

/// A value type: every [`Key`](crate::Key) type except structs.
///
/// `()`, `bool`, `char`, integers up to 64 bits and floats are stored as words in the tree, with their
/// whole domain. All other types are stored in a record of up to 128 KiB.
///
/// A value whose bytes do not decode as its type was damaged: reads return
/// [`Error::Corrupted`](crate::Error). [`readable`](crate::Tree::readable) skips it.
///
/// The library implements the trait. Its hidden items are private to the library and may change.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the value of a tree",
    note = "values are `()`, `bool`, `char`, integers but `usize` and `isize`, floats, `String`, `Vec<u8>`, `[u8; N]`, options and tuples of these"
)]
pub trait Value: 'static {
    /// The borrowed form that operations take, and that is shown without copying where possible.
    type Ref<'a>: Copy;
    /// The owned form that operations return.
    type Owned: Clone + Send + Sync + std::fmt::Debug;
    #[doc(hidden)]
    type Codec: Codec;
    /// What is known of the type at run time only: nothing, except for [`Dynamic`](crate::dynamic::Dynamic).
    #[doc(hidden)]
    type Schema: Clone + Send + Sync + 'static;

    /// Returns the type's name in the pool's directory.
    fn kind() -> String;

    /// Borrows an owned value as an argument for an operation.
    fn lend(value: &Self::Owned) -> Self::Ref<'_>;

    /// Returns the schema of a type that is known when it is compiled.
    #[doc(hidden)]
    fn fixed() -> Result<Self::Schema>;

    /// Returns the name of the values in the pool's directory.
    #[doc(hidden)]
    fn name(_: &Self::Schema) -> String {
        Self::kind()
    }

    /// Calls `use_it` with the value in stored form, unless it has none or is not of the schema.
    #[doc(hidden)]
    fn with<R>(
        schema: &Self::Schema,
        value: Self::Ref<'_>,
        use_it: impl FnOnce(<Self::Codec as Codec>::Ref<'_>) -> Result<R>,
    ) -> Result<R>;

    /// Returns `None` if this is not a valid value of the type. The next two functions do the same.
    #[doc(hidden)]
    fn view<R>(
        schema: &Self::Schema,
        value: <Self::Codec as Codec>::Ref<'_>,
        show: impl FnOnce(Self::Ref<'_>) -> R,
    ) -> Option<R>;

    #[doc(hidden)]
    fn decode(schema: &Self::Schema, value: <Self::Codec as Codec>::Ref<'_>) -> Option<Self::Owned>;

    #[doc(hidden)]
    #[inline(always)]
    fn take(schema: &Self::Schema, value: <Self::Codec as Codec>::Owned) -> Option<Self::Owned> {
        Self::decode(schema, <Self::Codec as Codec>::borrow(&value))
    }

    /// Returns a value from the stored form of an entry that expires, behind its time.
    #[doc(hidden)]
    fn in_entry<'a>(schema: &Self::Schema, stored: &'a [u8]) -> Option<<Self::Codec as Codec>::Ref<'a>>;
}

/// Checks that a value of this length can be stored, as a tree does before writing.
pub(crate) fn check_len(bytes: usize) -> Result<()> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::TooLong { what: "value", bytes, max_bytes: VALUE_BYTES_MAX })
}

/// Returns the error for a key or value that does not decode as its tree's type.
#[cold]
pub(crate) fn undecodable(what: &str, kind: impl std::fmt::Display) -> Error {
    Error::corrupted(format!("bytes that are not a valid {kind}"), format!("a {what}"))
}
