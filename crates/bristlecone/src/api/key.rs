//! Types of keys.

use bristlecone_pm::KEY_BYTES_MAX;

use crate::Result;
use crate::index::parts::codec::Codec;

/// A key type. Keys have the order of their type.
///
/// | type | operations take | order | stored as |
/// |---|---|---|---|
/// | `()`, `bool`, `char`, `u8` to `u64`, `i8` to `i64` | the value | by value | a word in the tree |
/// | `f32`, `f64` | the value | as in `total_cmp`: −NaN, −∞, … −0.0, 0.0, … ∞, NaN | a word in the tree |
/// | `u128`, `i128` | the value | by value | a record |
/// | `String`, `&str` | `&str` | bytewise | a record |
/// | `Vec<u8>`, `&[u8]` | `&[u8]` | bytewise | a record |
/// | `[u8; N]` | the array | bytewise | a record |
/// | `Option` of any of these | an `Option` | `None` first | a record |
/// | tuples of 1 to 8 of these | a tuple | by the first element that differs | a record |
/// | structs with `#[derive(Key)]`, feature `derive` | a reference | by the first field that differs | a record |
///
/// A record holds up to 16 KiB. Floats are preserved bit for bit, including NaNs and −0.0; 0.0 and −0.0 are
/// different keys. `usize` and `isize` are not keys, because their size depends on the machine and a pool may be
/// opened on another one. Use `u64` and `i64`.
///
/// `String` and `&'static str` name the same key type, and so do `Vec<u8>` and `&'static [u8]`:
///
/// ```
/// # let pool = bristlecone::Pool::temporary()?;
/// let visits = pool.tree::<(String, i32), u64>("visits by page and year")?;
/// visits.insert(("/about", -44), 1)?;
/// visits.insert(("/about", 2026), 7)?;
/// visits.insert(("/", 2026), 12)?;
/// let years = visits.iter().map(|item| Ok(item?.0.1)).collect::<bristlecone::Result<Vec<i32>>>()?;
/// assert_eq!(years, [2026, -44, 2026]); // of "/", then of "/about"
/// # drop((visits, pool));
/// # Ok::<(), bristlecone::Error>(())
/// ```
///
/// ```compile_fail
/// fn is_key<K: bristlecone::Key>() {}
/// is_key::<usize>();
/// ```
///
/// The library implements the trait for all of these; the derive macro implements it for structs. Its hidden
/// items are private to the library and may change.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the key of a tree",
    note = "keys are `()`, `bool`, `char`, integers but `usize` and `isize`, floats, `String`, `Vec<u8>`, `[u8; N]`, options and tuples of these"
)]
pub trait Key: 'static {
    /// The borrowed form that operations take.
    type Ref<'a>: Copy;
    /// The owned form that iterators return.
    type Owned: Clone + Send + Sync + std::fmt::Debug;
    #[doc(hidden)]
    type Codec: Codec;
    /// What is known of the type at run time only: nothing, except for [`Dynamic`](crate::dynamic::Dynamic).
    #[doc(hidden)]
    type Schema: Clone + Send + Sync + 'static;

    /// Returns the type's name in the pool's directory.
    fn kind() -> String;

    /// Borrows an owned key as an argument for an operation.
    fn lend(key: &Self::Owned) -> Self::Ref<'_>;

    /// Returns the schema of a type that is known when it is compiled.
    #[doc(hidden)]
    fn fixed() -> Result<Self::Schema>;

    /// Returns the name of the keys in the pool's directory.
    #[doc(hidden)]
    fn name(_: &Self::Schema) -> String {
        Self::kind()
    }

    /// Calls `use_it` with the key in stored form, unless it is not of the schema.
    #[doc(hidden)]
    fn with<R>(
        schema: &Self::Schema,
        key: Self::Ref<'_>,
        use_it: impl FnOnce(<Self::Codec as Codec>::Ref<'_>) -> Result<R>,
    ) -> Result<R>;

    /// Returns `None` if this is not a valid key of the type. The next function does the same.
    #[doc(hidden)]
    fn show<R>(
        schema: &Self::Schema,
        key: <Self::Codec as Codec>::Ref<'_>,
        show: impl FnOnce(Self::Ref<'_>) -> R,
    ) -> Option<R> {
        Self::decode(schema, Self::Codec::owned(key)).map(|key| show(Self::lend(&key)))
    }

    #[doc(hidden)]
    fn decode(schema: &Self::Schema, key: <Self::Codec as Codec>::Owned) -> Option<Self::Owned>;
}

/// Checks that a key of this length can be stored, as a tree does before writing.
pub(crate) fn check_len(bytes: usize) -> crate::Result<()> {
    if bytes <= KEY_BYTES_MAX {
        return Ok(());
    }
    Err(crate::Error::TooLong { what: "key", bytes, max_bytes: KEY_BYTES_MAX })
}
