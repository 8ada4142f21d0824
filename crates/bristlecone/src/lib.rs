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
//! # What holds
//!
//! - **Durability**: what a write has returned `Ok` for is there after a crash, and readers are shown nothing less
//!   durable. A crash of what, is a matter of the [`Domain`] in force: see `docs/DURABILITY.md`.
//! - **Atomicity**: a write of one key happened wholly or not at all, for other threads as for a crash, and so did a
//!   [`Batch`] or a [`transaction`](Pool::transaction) of any trees of a pool. Two writes without these are two steps:
//!   `examples/secondary_index.rs` shows what follows from that. A [`Snapshot`] shows all trees as of one moment.
//! - **Errors**: after `Err` nothing has changed, but for [`Error::DurabilityLost`], and for an
//!   [`Error::Corrupted`] that says that what was replaced cannot be shown. Errors of conditional writes
//!   ([`TryInsertError`], [`CasError`]) say what was there instead; `?` makes an [`Error`] of them.
//!
//! # Where to begin
//!
//! [`Pool::options`] opens a pool, [`Pool::tree`] a tree in it; [`Tree`] has the operations, named as those of
//! `BTreeMap`. [`Pool::tree_options`] chooses a [`Design`]: `docs/designs/README.md` says which one, and how many bytes
//! an item takes. The folder `examples/` of the crate has sessions that expire, counters, time series, a secondary
//! index, transfers between accounts, a process that is killed, a pool that is full, and values of a new type.
//!
//! [`Key`](trait@Key) and [`Value`] say which types there are. [`dynamic`] has trees whose types are known at run time only.
//!
//! # Threads and processes
//!
//! Trees work on anything a `Tree` can be shared with: [`Pool`], [`Tree`] and their options are `Send` and `Sync`, and
//! no operation takes `&mut self`. A pool has one writing process at a time, or any number of reading ones; another
//! process that opens it gets [`Error::InUse`] at once. A child that was forked gets errors, and not the pool.
//!
//! # Features
//!
//! - `sstree`, `nbtree`, `cclbtree`, `lodgetree`, `wotree`: the designs, all on by default. A build opens trees of the designs
//!   that it has: `default-features = false, features = ["nbtree"]` compiles in less than half the time.
//!
//! The others are off by default; the first two add crates to compile.
//!
//! - `derive`: `#[derive(Key)]` makes keys of structs.
//! - `serde`: `Postcard<T>` and `Json<T>` make values of any type that serde knows.
//! - `metrics`: [`Pool::metrics`] counts operations, flushes and fences, too; each costs some instructions more.
//! - `tracing`: events of the crate `tracing` when a pool is opened or closed, when a tree is recovered, created, cleared or
//!   dropped, when a pool grows, is copied, scrubbed or trimmed, when a write has waited for its tree's log or for room for a
//!   millisecond or more; with the time that each took. A subscriber must not use the pool: its thread may be amid an operation.
//! - `lab`: where designs and media from outside plug in, to be measured and explored. Not part of the product; what it
//!   makes public may change at any time.

mod api;
pub mod dynamic;
mod index;
mod transaction;

pub use api::backup::{Backup, BackupOptions, BackupProgress};
pub use api::close::CloseError;
pub use api::conditional::{CasError, TryInsertError};
#[cfg(feature = "derive")]
#[doc(hidden)]
pub use api::derived;
pub use api::entry::Entry;
pub use api::iter::{CheckedRange, Range};
pub use api::key::Key;
pub use api::kinds::Element;
#[cfg(feature = "serde")]
pub use api::kinds::encoded::{Json, Postcard};
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
#[cfg(feature = "derive")]
pub use bristlecone_derive::Key;
pub use bristlecone_pm::{
    Domain, Error, Finding, KEY_BYTES_MAX, KeepIndex, PoolInfo, Result, TreeEntry, TreeId, TreeSpec,
    VALUE_BYTES_MAX,
};
#[cfg(feature = "lab")]
#[doc(hidden)]
pub use bristlecone_pm::{Medium, Native};
pub use index::{Allowed, Design, OptionInfo, TreeStats};
#[cfg(feature = "lab")]
#[doc(hidden)]
pub use index::{parts, plugin as lab};
#[cfg(feature = "lab")]
#[doc(hidden)]
pub use transaction::leave_in_part;
pub use transaction::{
    Batch, CheckedSnapshotRange, Snapshot, SnapshotRange, SnapshotTree, Transaction, TransactionRange,
    TreeHandle,
};

/// Handles and iterators go to other threads, whatever the keys and values are.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Pool>();
    is_shared::<PoolOptions>();
    is_shared::<TreeOptions>();
    is_shared::<CloseError>();
    is_shared::<Error>();
    const fn of_items<K: Key, V: Value>() {
        is_shared::<Tree<K, V>>();
        is_shared::<Range<'static, K, V>>();
        is_shared::<CheckedRange<'static, K, V>>();
        is_shared::<TryInsertError<V::Owned>>();
        is_shared::<CasError<V::Owned>>();
    }
    of_items::<u64, &'static str>();
};
