//! Values of any type that serde knows, as Postcard or JSON.

use std::fmt::Debug;
use std::marker::PhantomData;

use bristlecone_pm::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Buffer;
use crate::Value;
use crate::index::parts::codec::Record;

/// Values of any type `T` that serde knows, in the format of [Postcard](https://postcard.jamesmunns.com): few bytes,
/// which nothing but the type says how to read. Feature `serde`.
///
/// Operations take a `&T` and give a `T`. A value is decoded each time it is looked at, by
/// [`get_with`](crate::Tree::get_with), too, which shows a decoded value and not the bytes in the tree.
///
/// What does not decode, since it was damaged or was written as another type, is left out by
/// [`get`](crate::Tree::get), [`get_with`](crate::Tree::get_with) and [`range`](crate::Tree::range), as if the
/// key were absent. [`try_get`](crate::Tree::try_get) and [`try_range`](crate::Tree::try_range) return
/// [`Error::Corrupted`](crate::Error) for it; so do writes that would return it, though they have replaced or
/// removed it. [`contains_key`](crate::Tree::contains_key) and [`upsert`](crate::Tree::upsert) do not look at it.
/// Compare-and-swap compares what values encode to.
///
/// The pool's directory has the kind, `postcard`, but not the type. Postcard names no fields either: a type may get
/// variants behind its last one; anything else wants a new tree. [`Json`] is more patient.
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
/// # fn main() -> bristlecone::Result<()> {
/// # let path = format!("/dev/shm/bristlecone-doc-postcard-{}.pool", std::process::id());
/// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
/// let trees = pool.tree::<u64, Postcard<Tree>>("trees")?;
/// let methuselah = Tree { name: "Methuselah".into(), age: Some(4857) };
/// trees.insert(1, &methuselah)?;
/// assert_eq!(trees.get(1), Some(methuselah));
/// assert_eq!(trees.get_with(1, |tree| tree.name.len()), Some(10));
/// # drop((trees, pool));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
///
/// Writes return [`Error::Invalid`](crate::Error) if the type's own `Serialize` refuses a value, or if Postcard has no
/// encoding for it, such as for a sequence whose length is not known.
#[derive(Debug)]
pub struct Postcard<T>(PhantomData<fn() -> T>);

/// Values of any type `T` that serde knows, as JSON: text that other programs can read and write, and the tool shows.
/// Feature `serde`.
///
/// What is said at [`Postcard`] holds here, too, but that the type may change as JSON allows: fields with
/// `#[serde(default)]` may come, and fields may go. A [`dynamic::Tree`](crate::dynamic::Tree) has the text, and
/// takes any text that is JSON.
///
/// ```
/// use bristlecone::{Json, Pool};
///
/// # fn main() -> bristlecone::Result<()> {
/// # let path = format!("/dev/shm/bristlecone-doc-json-{}.pool", std::process::id());
/// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
/// let settings = pool.tree::<&str, Json<Vec<String>>>("settings")?;
/// settings.insert("languages", &vec!["de".into(), "rw".into()])?;
/// let shown = pool.dynamic_tree("settings")?.get("languages")?;
/// assert_eq!(shown, Some(bristlecone::dynamic::Datum::Json(r#"["de","rw"]"#.into())));
/// # drop((settings, pool));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
///
/// JSON has no encoding for maps whose keys are no strings, numbers or unit variants, and none for infinities and NaN,
/// which are written as `null`.
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

            fn kind() -> String {
                $kind.to_owned()
            }
            fn lend(value: &T) -> &T {
                value
            }
            fn with<R>(value: &T, use_it: impl FnOnce(&[u8]) -> R) -> Result<R> {
                let mut buffer = Buffer::new();
                match $encode(value, &mut buffer) {
                    Ok(()) => Ok(use_it(&buffer)),
                    Err(error) => Err(Error::invalid(format!(
                        concat!("the value cannot be written as ", $kind, ": {}"),
                        error
                    ))),
                }
            }
            fn view<R>(value: &[u8], show: impl FnOnce(&T) -> R) -> Option<R> {
                Self::decode(value).map(|value| show(&value))
            }
            fn decode(value: &[u8]) -> Option<T> {
                $decode(value)
            }
        }
    };
}

encoded!(Postcard, "postcard", to_postcard, whole_postcard);
encoded!(Json, "json", to_json, |value| serde_json::from_slice(value).ok());

fn to_postcard<T: Serialize>(value: &T, to: &mut Buffer) -> postcard::Result<()> {
    postcard::to_extend(value, Appended(to)).map(drop)
}

/// Returns the value that these bytes are, no less and no more.
fn whole_postcard<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

fn to_json<T: Serialize>(value: &T, to: &mut Buffer) -> serde_json::Result<()> {
    serde_json::to_writer(Appended(to), value)
}

/// A buffer that bytes are appended to.
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
