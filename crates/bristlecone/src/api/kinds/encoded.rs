//! Values of any serde type, encoded as Postcard or JSON.

use std::fmt::Debug;
use std::marker::PhantomData;

use bristlecone_pm::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Buffer;
use crate::Value;
use crate::index::parts::codec::Record;

/// Values of any serde type `T` in the format of [Postcard](https://postcard.jamesmunns.com), which is compact but not
/// self-describing. Feature `serde`.
///
/// Operations take a `&T` and return a `T`. Each access decodes the value, including
/// [`get_with`](crate::Tree::get_with), which passes the decoded value instead of the bytes in the tree.
///
/// A value that does not decode, because it is damaged or was written as another type, is
/// [`Error::Corrupted`](crate::Error) in each read. So it is in writes that would return it, although they have
/// replaced or removed it. [`contains_key`](crate::Tree::contains_key) and [`upsert`](crate::Tree::upsert) do not decode it.
/// Compare-and-swap compares the encodings of values.
///
/// The pool's directory stores the kind `postcard`, but not the type. Postcard does not store field names either. New
/// variants may be added behind a type's last one; any other change requires a new tree. [`Json`] is more flexible.
///
/// ```
/// use bristlecone::{Pool, Postcard};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
/// struct Tree {
///     name: String,
///     age: Option<u32>,
/// }
///
/// # let pool = bristlecone::Pool::temporary()?;
/// let trees = pool.tree::<u64, Postcard<Tree>>("trees")?;
/// let methuselah = Tree { name: "Methuselah".into(), age: Some(4857) };
/// trees.insert(1, &methuselah)?;
/// assert_eq!(trees.get(1)?, Some(methuselah));
/// assert_eq!(trees.get_with(1, |tree| tree.name.len())?, Some(10));
/// # drop((trees, pool));
/// # Ok::<(), bristlecone::Error>(())
/// ```
///
/// Writes return [`Error::Invalid`](crate::Error) if the type's `Serialize` refuses a value, or if Postcard cannot
/// encode it, for example a sequence of unknown length.
#[derive(Debug)]
pub struct Postcard<T>(PhantomData<fn() -> T>);

/// Values of any serde type `T` as JSON: text that other programs can read and write, and that the tool shows. Feature
/// `serde`.
///
/// The description of [`Postcard`] also applies here, except that the type may change as JSON allows: fields with
/// `#[serde(default)]` may be added, and fields may be removed. A [`dynamic::Tree`](crate::dynamic::Tree) reads the
/// text, and accepts any valid JSON.
///
/// ```
/// use bristlecone::{Json, Pool};
///
/// # let pool = bristlecone::Pool::temporary()?;
/// let settings = pool.tree::<&str, Json<Vec<String>>>("settings")?;
/// settings.insert("languages", &vec!["de".into(), "rw".into()])?;
/// let shown = pool.dynamic_tree("settings")?.get(&"languages".into())?;
/// assert_eq!(shown, Some(bristlecone::dynamic::Datum::Json(r#"["de","rw"]"#.into())));
/// # drop((settings, pool));
/// # Ok::<(), bristlecone::Error>(())
/// ```
///
/// JSON cannot encode maps whose keys are not strings, numbers or unit variants. Infinities and NaN are written as
/// `null`.
#[derive(Debug)]
pub struct Json<T>(PhantomData<fn() -> T>);

macro_rules! encoded {
    ($format:ident, $kind:literal, $encode:expr, $decode:expr) => {
        impl<T> Value for $format<T>
        where
            T: Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        {
            type Ref<'a> = &'a T;
            type Owned = T;
            type Codec = Record;
            type Schema = ();

            fn kind() -> String {
                $kind.to_owned()
            }
            fn fixed() -> Result<()> {
                Ok(())
            }
            fn lend(value: &T) -> &T {
                value
            }
            fn with<R>((): &(), value: &T, use_it: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
                let mut buffer = Buffer::new();
                match $encode(value, &mut buffer) {
                    Ok(()) => use_it(&buffer),
                    Err(error) => Err(Error::invalid(format!(
                        concat!("the value cannot be written as ", $kind, ": {}"),
                        error
                    ))),
                }
            }
            fn view<R>((): &(), value: &[u8], show: impl FnOnce(&T) -> R) -> Option<R> {
                Self::decode(&(), value).map(|value| show(&value))
            }
            fn decode((): &(), value: &[u8]) -> Option<T> {
                $decode(value)
            }
            fn in_entry<'a>((): &(), stored: &'a [u8]) -> Option<&'a [u8]> {
                Some(stored)
            }
        }
    };
}

encoded!(Postcard, "postcard", to_postcard, whole_postcard);
encoded!(Json, "json", to_json, |value| serde_json::from_slice(value).ok());

fn to_postcard<T: Serialize>(value: &T, to: &mut Buffer) -> postcard::Result<()> {
    postcard::to_extend(value, Appended(to)).map(drop)
}

/// Decodes a value that must use all of the bytes.
fn whole_postcard<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

fn to_json<T: Serialize>(value: &T, to: &mut Buffer) -> serde_json::Result<()> {
    serde_json::to_writer(Appended(to), value)
}

/// A writer that appends to a buffer.
struct Appended<'a>(&'a mut Buffer);

impl Extend<u8> for Appended<'_> {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        self.0.extend(bytes);
    }
}

impl std::io::Write for Appended<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
