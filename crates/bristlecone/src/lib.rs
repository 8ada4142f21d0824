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
//!
//! # Features
//!
//! - `lab`: where designs and media from outside plug in, to be measured and explored. Not part of the product; what it
//!   makes public may change at any time.

pub mod dynamic;
mod handle;
mod iter;
mod key;
mod kinds;
#[cfg(feature = "lab")]
#[doc(hidden)]
pub mod lab;
mod pool;
mod salvage;
#[doc(hidden)]
pub mod shared;
mod tree;
mod trees;
mod usage;
mod value;

pub use bristlecone_pm::{
    Domain, Error, Finding, KEY_BYTES_MAX, Medium, Native, PoolInfo, Result, TreeEntry, TreeSpec,
    VALUE_BYTES_MAX,
};
pub use iter::{CheckedRange, Range};
pub use key::Key;
pub use kinds::Element;
pub use pool::{Pool, PoolOptions, TreeOptions};
pub use salvage::{Salvage, SalvagedTree};
pub use tree::Tree;
pub use trees::{Allowed, Design, OptionInfo, TreeStats};
pub use usage::TreeUsage;
pub use value::Value;
