//! Trees whose kinds of keys and values are known at run time, by their names in the pool's directory. They
//! serve tools, bindings to other languages, and programs with an external schema.
//!
//! A dynamic tree is a [`crate::Tree`] whose keys and values are [`Datum`]s. Typed handles to the same tree may be open at
//! the same time.
//!
//! ```
//! use bristlecone::Pool;
//! use bristlecone::dynamic::{Datum, Kind};
//!
//! # let pool = bristlecone::Pool::temporary()?;
//! let typed = pool.tree::<(String, u32), u64>("visits")?;
//! typed.insert(("/about", 2026), 7)?;
//!
//! let visits = pool.dynamic_tree("visits")?;
//! assert_eq!(visits.key_kind().to_string(), "(str, u32)");
//! assert_eq!(visits.get(&("/about", 2026u32).into())?, Some(Datum::U64(7)));
//! visits.insert(&("/", 2026u32).into(), &12u64.into())?;
//! for item in visits.range(..) {
//!     let (key, value) = item?;
//!     println!("{key:?}: {value:?}");
//! }
//! let refused = visits.insert(&"/".into(), &12u64.into()).unwrap_err();
//! assert_eq!(refused.to_string(), r#"the tree "visits" has keys of type (str, u32), not str"#);
//!
//! let ages = pool.tree_options("ages").create_dynamic(&"str".parse()?, &Kind::U8)?;
//! ages.insert(&"Methuselah".into(), &255u8.into())?;
//! # drop((typed, visits, ages, pool));
//! # Ok::<(), bristlecone::Error>(())
//! ```
//!
//! # Unknown kinds
//!
//! A newer version of the library may have written a pool with kinds that this one cannot read. Opening
//! such a tree, typed or dynamic, returns [`Error::Newer`](crate::Error). Its bytes are not available in
//! raw form, because it is unknown whether they are words or records.

mod bounds;
mod convert;
mod datum;
pub(crate) mod encode;
mod kind;
mod open;
mod schema;
mod tree;

pub use bounds::Bounds;
pub use datum::Datum;
pub use kind::Kind;
pub use schema::Dynamic;

/// An ordered map in a pool, with the kinds named in the pool's directory.
///
/// In addition to the errors of [`crate::Tree`], its operations return [`Error::Mismatch`](crate::Error) for a key or value
/// of another kind; nothing changes then. An iterator over bounds of another kind yields this error.
pub type Tree = crate::Tree<Dynamic, Dynamic>;

/// A dynamic tree whose entries expire: see [`Tree::try_expiring`].
pub type ExpiringTree = crate::ExpiringTree<Dynamic, Dynamic>;

/// An iterator over the items of a dynamic tree.
pub type Range<'t> = crate::Range<'t, Dynamic, Dynamic>;

/// An iterator over the items of a dynamic tree that have not expired.
pub type ExpiringRange<'t> = crate::ExpiringRange<'t, Dynamic, Dynamic>;

/// An item of a tree: its key and its value.
pub type Item = (Datum<'static>, Datum<'static>);
