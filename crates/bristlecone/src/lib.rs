//! Crash-safe ordered key-value indexes: concurrent B+-trees in byte-addressable memory. Data survives `kill -9` and,
//! where the medium allows it, power failure. Reopening takes milliseconds.
//!
//! ```
//! use bristlecone::Pool;
//!
//! let pool = Pool::temporary()?;
//! let ages = pool.tree::<&str, u64>("ages")?;
//! ages.insert("Methuselah", 4857)?; // durable when it returns
//! ages.insert("Prometheus", 4900)?;
//! assert_eq!(ages.get("Methuselah")?, Some(4857));
//! for item in ages.range("M".."N") {
//!     let (name, age) = item?;
//!     println!("{name}: {age}");
//! }
//! # drop((ages, pool));
//! # Ok::<(), bristlecone::Error>(())
//! ```
//!
//! # Guarantees
//!
//! - **Durability**: a write that has returned `Ok` survives a crash, and readers see only durable data. The [`Domain`]
//!   in force defines which crashes: see `docs/durability.md`.
//! - **Atomicity**: a write of one key is atomic, for other threads and across crashes. So is a [`Batch`] or a
//!   [`transaction`](Pool::transaction) over any trees of a pool. Two separate writes are two independent steps:
//!   `examples/secondary_index.rs` shows the consequences. A [`Snapshot`] shows all trees at one point in time.
//! - **Errors**: after `Err` nothing has changed. There are two exceptions: [`Error::DurabilityLost`], and an
//!   [`Error::Corrupted`] that reports that the replaced value cannot be decoded. Errors of conditional writes
//!   ([`TryInsertError`], [`CasError`]) carry the value that was found instead; `?` converts them to [`Error`].
//!
//! # Getting started
//!
//! [`Pool::options`] opens a pool, and [`Pool::tree`] opens a tree in it. [`Tree`] has the operations, named as in
//! `BTreeMap`. [`Pool::tree_options`] selects a [`Design`]: `docs/designs/README.md` compares the designs and their
//! space per item. The `examples/` folder of the crate covers expiring sessions, counters, time series, a secondary
//! index, transfers between accounts, a killed process, a full pool, and values of a new type.
//!
//! [`Key`](trait@Key) and [`Value`] list the supported types. [`dynamic`] has trees whose types are known only at run
//! time.
//!
//! # Threads and processes
//!
//! [`Pool`], [`Tree`] and their options are `Send` and `Sync`, and no operation takes `&mut self`. A pool has one
//! writing process at a time, or any number of reading processes. Another process that opens it gets [`Error::InUse`]
//! immediately. In a forked child, operations on the pool return errors.
//!
//! # Features
//!
//! - `sstree`, `nbtree`, `cclbtree`, `lodgetree`, `wotree`: the designs, all on by default. A build opens only trees of
//!   the designs it includes: `default-features = false, features = ["nbtree"]` compiles in less than half the time.
//!
//! The other features are off by default. The first two add dependencies.
//!
//! - `derive`: `#[derive(Key)]` makes structs usable as keys.
//! - `serde`: `Postcard<T>` and `Json<T>` store values of any type that serde supports.
//! - `metrics`: [`Pool::metrics`] also counts operations, flushes and fences; each count costs a few instructions.
//! - `tracing`: emits `tracing` events, with durations, when a pool is opened or closed, when a tree is recovered,
//!   created, cleared or dropped, and when a pool grows or is copied, scrubbed or trimmed. It also reports writes that
//!   waited for their tree's log or for space for a millisecond or more. A subscriber must not use the pool: its thread
//!   may be in the middle of an operation.
//! - `lab`: plug-in interfaces for external designs and media, for measurement and exploration. They are not part of
//!   the product and may change at any time.

mod api;
mod archive;
pub mod dynamic;
mod index;
mod journal;
mod transaction;

pub use api::backup::{Backup, BackupOptions, BackupProgress};
pub use api::close::CloseError;
pub use api::conditional::{CasError, TryInsertError};
#[cfg(feature = "derive")]
#[doc(hidden)]
pub use api::derived;
pub use api::entry::Entry;
pub use api::expiring_tree::{ExpiredRemoval, ExpiringRange, ExpiringTree};
pub use api::iter::Range;
pub use api::key::Key;
pub use api::kinds::Element;
#[cfg(feature = "serde")]
pub use api::kinds::encoded::{Json, Postcard};
pub use api::kinds::expiring::{Expiring, Expiry};
pub use api::load::Loader;
pub use api::many::ManyError;
pub use api::metrics::{Metrics, Operations};
pub use api::near::{Keys, Values};
pub use api::options::PoolOptions;
pub use api::pool::Pool;
pub use api::prefix::Prefix;
pub use api::removal::Drain;
pub use api::salvage::{Salvage, SalvagedTree};
pub use api::scrub::{Scrub, ScrubOptions, ScrubProgress};
pub use api::size::parse_size;
pub use api::tree::Tree;
pub use api::tree_options::TreeOptions;
pub use api::usage::TreeUsage;
pub use api::value::Value;
pub use archive::{ArchiveStatus, Archiver, Keep, RestoreTo, Restored, Standby, StandbyStatus};
/// Implements `Key` for a struct, ordered by its fields in declaration order, as `derive(Ord)` does.
///
/// The kind of the struct is that of the tuple of its fields. A tree of the struct can therefore also be opened with
/// such tuples, and by programs that do not know the struct. With `#[key(transparent)]`, a struct of one field has the
/// kind of that field, which may be a word.
///
/// Operations take a reference to the struct and return the struct, which must be `Clone`, `Debug`, `Send` and `Sync`.
/// Fields must be key types that own their data: `String`, not `&str`. The struct may be a field of another one, and an
/// element of tuples and options.
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
/// # let pool = bristlecone::Pool::temporary()?;
/// let readings = pool.tree::<Reading, f64>("readings")?;
/// let reading = |sensor: &str, at| Reading { sensor: sensor.to_owned(), at };
/// readings.insert(&reading("north", 1_700_000_000), 21.5)?;
/// readings.insert(&reading("north", -5), 3.25)?;
/// readings.insert(&reading("east", 7), 20.0)?;
/// assert_eq!(readings.first_key_value()?, Some((reading("east", 7), 20.0)));
/// let north = readings.range(&reading("north", i64::MIN)..=&reading("north", i64::MAX));
/// assert_eq!(north.map(|item| Ok(item?.0.at)).collect::<bristlecone::Result<Vec<_>>>()?, [-5, 1_700_000_000]);
/// # drop(readings);
/// let tuples = pool.tree::<(String, i64), f64>("readings")?;
/// assert_eq!(tuples.get(("east", 7))?, Some(20.0));
/// # drop((tuples, pool));
/// # Ok::<(), bristlecone::Error>(())
/// ```
///
/// A newtype of a number is still stored as a word in the tree:
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
/// # Unsupported types
///
/// Enums, because their order could change when a variant is added:
///
/// ```compile_fail
/// #[derive(Clone, Debug, bristlecone::Key)]
/// enum Shape {
///     Circle,
/// }
/// ```
///
/// Generic structs, because a kind names one type:
///
/// ```compile_fail
/// #[derive(Clone, Debug, bristlecone::Key)]
/// struct Pair<T>(T, T);
/// ```
///
/// Structs without fields or with more than 8 fields, and fields that borrow or are not keys:
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
#[cfg(feature = "derive")]
pub use bristlecone_derive::Key;
pub use bristlecone_pm::{
    Domain, Error, Issue, KEY_BYTES_MAX, KeepIndex, PoolInfo, Result, TreeEntry, TreeId, TreeSpec,
    VALUE_BYTES_MAX,
};
#[cfg(feature = "lab")]
#[doc(hidden)]
pub use bristlecone_pm::{Medium, Native};
pub use index::{Allowed, Design, OptionInfo, TreeStats};
#[cfg(feature = "lab")]
#[doc(hidden)]
pub use index::{parts, plugin as lab};
pub use journal::{
    Changed, Changes, Durability, JournalChange, JournalChanges, JournalCounts, JournalCursor, JournalEntry,
    JournalFile, JournalFiles, JournalStatus, Stopper, SyncTimes, Ticket,
};
pub use transaction::{Batch, Snapshot, SnapshotRange, SnapshotTree, Transaction, TransactionRange};
#[cfg(feature = "lab")]
#[doc(hidden)]
pub use transaction::{leave_in_part, leave_range_in_part};

/// Compile-time check: handles and iterators are `Send` and `Sync` for all key and value types.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Pool>();
    is_shared::<PoolOptions>();
    is_shared::<TreeOptions>();
    is_shared::<CloseError>();
    is_shared::<Error>();
    const fn of_items<K: Key, V: Value>() {
        is_shared::<Tree<K, V>>();
        is_shared::<ExpiringTree<K, V>>();
        is_shared::<Range<'static, K, V>>();
        is_shared::<TryInsertError<V::Owned>>();
        is_shared::<CasError<V::Owned>>();
    }
    of_items::<u64, &'static str>();
};
