//! Trees whose kinds of keys and values are known at run time, by their names in the pool's directory. They
//! serve tools, bindings to other languages, and programs with an external schema.
//!
//! A [`Tree`] of this module and a [`crate::Tree`] of the same name access one tree, and may be open at the
//! same time.
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
//! assert_eq!(visits.get(("/about", 2026u32))?, Some(Datum::U64(7)));
//! visits.insert(("/", 2026u32), 12u64)?;
//! for item in visits.range(..)? {
//!     let (key, value) = item?;
//!     println!("{key:?}: {value:?}");
//! }
//! let refused = visits.insert("/", 12u64).unwrap_err();
//! assert_eq!(refused.to_string(), r#"the tree "visits" has keys of type (str, u32), not str"#);
//!
//! let ages = pool.tree_options("ages").create_dynamic(&"str".parse()?, &Kind::U8)?;
//! ages.insert("Methuselah", 255u8)?;
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
mod change;
mod convert;
mod datum;
pub(crate) mod encode;
mod expiring;
mod handle;
mod iter;
mod kind;
mod many;
mod near;
mod open;
mod tree;
mod write;

pub use bounds::Bounds;
pub use datum::Datum;
pub use expiring::{ExpiringRange, ExpiringTree};
pub use iter::{Item, Range};
pub use kind::Kind;
pub(crate) use tree::On;
pub use tree::Tree;
