//! Several keys at once: batches, transactions and snapshots, above the designs and for all of them.
//!
//! # Write
//!
//! Of a single key, of any design.
//! 1. The thread stores in its own line that it is under way, and looks at the pool's mode (`gate.rs`). *If there is no batch,
//!    transaction or snapshot, and there was none before the last thousand single writes, that is all: steps 2 and 3 are left out.*
//! 2. It takes the lock of its key's stripe (`stripes.rs`).
//! 3. If there are snapshots, it saves what the key has in the map of the current epoch, unless that is there, and looks
//!    whether the epoch still is the current one; otherwise again (`epoch.rs`).
//! 4. The design changes the tree.
//! 5. The lock is given back, and the thread stores that it is through.
//!
//! # Snapshot
//! 1. A new epoch begins, with a map of its own: the mode is watchful, a writer that begins from now on sees the epoch.
//! 2. The thread waits until every writer is through that may not have seen it. *What these wrote is in the snapshot.*
//! 3. A reader takes what the tree has, and after that the first entry of its key in the maps from the snapshot's epoch
//!    on: if there is one, that is what the key had. *A writer saves before it changes, so that a reader that sees a change
//!    finds what was there before it.*
//!
//! # Lookup
//!
//! Of a transaction without a snapshot. Stripes count how often their locks were taken and given back.
//! 1. The thread takes down the count of the key's stripe, once the lock is free.
//! 2. It reads the tree.
//! 3. The stripe must have that count still, and so must the stripes of all keys that were read before have theirs: *then all of it is
//!    as it is at this moment.* Otherwise the transaction is tried again, with a snapshot.
//!
//! For a range, or after sixteen keys, a transaction takes a snapshot. *The counts are compared once more after that: what was
//! read by them is what the snapshot has.*
//!
//! # Commit
//!
//! Of a batch or a transaction.
//! 1. The locks of all its keys are taken, in one order that all threads keep. Conditions are compared with what the trees
//!    have. What was read and is to be changed must have its count, but for this thread's lock, or no entry since the transaction's
//!    snapshot.
//! 2. What the keys have is saved for snapshots, as in step 3 of a write. That is the announcement, too.
//! 3. What else was read must have its count, or no entry, either, keys and ranges. *Of two transactions that each change what the
//!    other one read, both have locked and announced before they look, so that one of them finds the other's lock or entry at
//!    least. Until here nothing was written: a conflict leaves nothing to undo.*
//! 4. Room for the record and for what the trees may need, whatever their leaves are like, is set aside. The record goes to the
//!    commit log: one fence. *From here on the batch is committed: opening carries it out after a crash, and has the room.*
//! 5. The trees are changed, up to sixteen keys of one at a time, which one fence serves where the design can do so. *Lookups may
//!    see some of it. Snapshots and transactions do not: they wait for this thread, or find what it saved.*
//! 6. The record is done, durably. *Only then others may change the keys: a record never undoes a later write.* The locks are
//!    given back.
//!
//! # Attempt
//!
//! Instead of 4 to 6 where the pool has no room to set aside: the trees may have some of their own.
//! 1. A record of what the keys have that are to be written goes to the log. *A crash from here on takes back what was written:
//!    what was absent is removed, and words are replaced where they stand, which needs no room. Batches that replace values that
//!    are records are not attempted.*
//! 2. The keys are written. If there is no room for one of them, what was written is changed back, and the record is done.
//! 3. If keys are removed, a record of that goes to the log, and says that the first one does not count any more: one fence.
//!    *From here on the batch is committed.*
//! 4. The first record is done, durably. *Without removals this is what commits the batch.*
//! 5. The keys are removed, which needs no room, and the second record is done. *A crash between removes them once more.*
//!
//! A lookup beside an attempt may see a value that is taken back. Snapshots and transactions do not.
//!
//! Why a write looks at the epoch again (step 3): a snapshot that shows a write must not lack a transaction that came before
//! that write, having read what was there. Such a transaction found no entry, so that the write's last entry came after
//! the transaction's look, and the write's epoch is the transaction's or a later one: a snapshot with the write has both.

mod any_tree;
mod apply;
mod batch;
mod changes;
mod commit;
mod epoch;
mod epochs;
mod gate;
mod handle;
mod merge;
mod reads;
pub(crate) mod record;
mod replay;
mod snapshot;
mod snapshot_tree;
mod stripe;
mod stripes;
mod transact;

pub(crate) use self::any_tree::AnyScan;
pub use self::any_tree::AnyTree;
pub use self::batch::Batch;
pub(crate) use self::epochs::Epochs;
pub(crate) use self::handle::ItemOf;
pub(crate) use self::handle::sealed;
pub use self::handle::{Link, TreeHandle};
pub use self::snapshot::{CheckedSnapshotRange, Snapshot, SnapshotRange};
pub use self::snapshot_tree::SnapshotTree;
pub use self::transact::{Transaction, TransactionRange};
#[cfg(feature = "lab")]
pub use replay::leave_in_part;
