//! The derive macro of Bristlecone, which re-exports it with its feature `derive`.

mod key;

use proc_macro::TokenStream;

/// Makes a struct a type of keys: it orders by its fields as they are declared, as `derive(Ord)` has it.
///
/// Its kind is that of the tuple of its fields: a tree of it can be opened as one of such tuples, too, and by
/// programs that do not know the struct. With `#[key(transparent)]` a struct of one field has the kind of the
/// field itself, which may be a word then.
///
/// Operations take a reference to the struct and give the struct, which must be `Clone`, `Debug`, `Send` and `Sync`.
/// Fields are of types of keys that own what they hold: `String` and not `&str`. The struct may be a field of another
/// one, and an element of tuples and options.
///
/// ```
/// use bristlecone::{Key, Pool};
///
/// #[derive(Clone, Debug, PartialEq, Key)]
/// struct Reading {
///     sensor: String,
///     at: i64,
/// }
///
/// # fn main() -> bristlecone::Result<()> {
/// # let path = format!("/dev/shm/bristlecone-doc-derive-{}.pool", std::process::id());
/// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
/// let readings = pool.tree::<Reading, f64>("readings")?;
/// let reading = |sensor: &str, at| Reading { sensor: sensor.to_owned(), at };
/// readings.insert(&reading("north", 1_700_000_000), 21.5)?;
/// readings.insert(&reading("north", -5), 3.25)?;
/// readings.insert(&reading("east", 7), 20.0)?;
/// assert_eq!(readings.first_key_value(), Some((reading("east", 7), 20.0)));
/// let north = readings.range(&reading("north", i64::MIN)..=&reading("north", i64::MAX));
/// assert_eq!(north.map(|(key, _)| key.at).collect::<Vec<_>>(), [-5, 1_700_000_000]);
/// # drop(readings);
/// let tuples = pool.tree::<(String, i64), f64>("readings")?;
/// assert_eq!(tuples.get(("east", 7)), Some(20.0));
/// # drop((tuples, pool));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
///
/// A number of its own type stays a word in the tree:
///
/// ```
/// use bristlecone::Key;
///
/// #[derive(Clone, Copy, Debug, Key)]
/// #[key(transparent)]
/// struct Account(u64);
///
/// assert_eq!(Account::kind(), "u64");
/// ```
///
/// # What is refused
///
/// Enums have no order that stays when a variant is added:
///
/// ```compile_fail
/// #[derive(Clone, Debug, bristlecone::Key)]
/// enum Shape {
///     Circle,
/// }
/// ```
///
/// Generic structs, since a kind names one type:
///
/// ```compile_fail
/// #[derive(Clone, Debug, bristlecone::Key)]
/// struct Pair<T>(T, T);
/// ```
///
/// Structs without fields, or with more than 8; fields that borrow; fields that are no keys:
///
/// ```compile_fail
/// #[derive(Clone, Debug, bristlecone::Key)]
/// struct Nothing;
/// ```
///
/// ```compile_fail
/// #[derive(Clone, Debug, bristlecone::Key)]
/// struct Name(&'static str);
/// ```
///
/// ```compile_fail
/// #[derive(Clone, Debug, bristlecone::Key)]
/// struct Length(usize);
/// ```
#[proc_macro_derive(Key, attributes(key))]
pub fn derive_key(input: TokenStream) -> TokenStream {
    let expanded = syn::parse(input).and_then(|input| key::expand(&input));
    expanded.unwrap_or_else(|error| error.into_compile_error()).into()
}
