//! Ordered key-value indexes that survive crashes: concurrent B+-trees in byte-addressable
//! memory, complete again milliseconds after a `kill -9` or, where the medium allows, a power cut.
//!
//! ```
//! use bristlecone::Pool;
//!
//! # fn main() -> bristlecone::Result<()> {
//! # let path = format!("/dev/shm/bristlecone-doc-{}.pool", std::process::id());
//! let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
//! let ages = pool.tree::<&str, u64>("ages")?;
//! ages.insert("Methuselah", 4857)?; // durable when it returns
//! ages.insert("Prometheus", 4900)?;
//! assert_eq!(ages.get("Methuselah"), Some(4857));
//! for (name, age) in ages.range("M".."N") {
//!     println!("{name}: {age}");
//! }
//! # drop((ages, pool));
//! # std::fs::remove_file(&path).unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! What survives what is a matter of the [`Domain`] in force: see `docs/DURABILITY.md`.

mod close;
mod conditional;
mod handle;
mod iter;
mod key;
#[cfg(feature = "lab")]
#[doc(hidden)]
pub mod lab;
mod options;
mod pool;
mod salvage;
#[cfg(feature = "lab")]
#[doc(hidden)]
pub mod shared;
#[cfg(not(feature = "lab"))]
mod shared;
mod tree;
mod trees;
mod value;

pub use bristlecone_pm::{
    Domain, Error, Finding, KEY_BYTES_MAX, PoolInfo, Result, TreeEntry, TreeSpec, VALUE_BYTES_MAX,
};
#[cfg(feature = "lab")]
#[doc(hidden)]
pub use bristlecone_pm::{Medium, Native};
pub use close::CloseError;
pub use conditional::{CasError, TryInsertError};
pub use iter::{CheckedRange, Range};
pub use key::{Element, Key};
pub use options::PoolOptions;
pub use pool::{Pool, TreeOptions};
pub use salvage::{Salvage, SalvagedTree};
pub use tree::Tree;
pub use trees::{Allowed, Design, OptionInfo, TreeStats};
pub use value::Value;
