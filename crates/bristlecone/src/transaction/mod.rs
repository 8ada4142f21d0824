//! Multi-key operations: batches, transactions and snapshots, layered above the designs.
//!
//! # Write
//!
//! For a single key, in any design.
//! 1. The thread stores in its own slot that it is active, and reads the pool's mode (`write_barrier.rs`). *If there is no
//!    batch, transaction or snapshot, and there was none before the last thousand single-key writes, the thread skips
//!    steps 2 and 3.*
//! 2. It takes the lock of its key's stripe (`stripes.rs`), and waits while a range of the tree is being removed.
//! 3. If there are snapshots, it saves the current value of the key in the map of the current epoch, unless an entry
//!    exists. Then it checks that the epoch is still the current one, and repeats the step otherwise (`epoch.rs`).
//! 4. The design changes the tree.
//! 5. The thread releases the lock, and stores that it is inactive.
//!
//! # Snapshot
//! 1. A new epoch begins, with its own map. The write barrier is in tracking mode, so a writer that begins from now on
//!    sees the epoch.
//! 2. The thread waits until every writer has finished that may not have seen the epoch. *The writes of these are in
//!    the snapshot.*
//! 3. A reader reads the tree, and then the first entry of its key in the maps from the snapshot's epoch on. An entry,
//!    if there is one, is the key's value in the snapshot. *A writer saves before it changes the tree, so a reader that
//!    sees a change also finds the old value.*
//!
//! # Lookup
//!
//! For a transaction without a snapshot. Stripes count the acquisitions and releases of their locks.
//! 1. The thread records the count of the key's stripe when the lock is free.
//! 2. It reads the tree.
//! 3. The stripe must still have that count, and so must the stripes of all keys read before: *then all values are
//!    current at this moment.* Otherwise the transaction is retried with a snapshot.
//!
//! For a range, or after sixteen keys, a transaction takes a snapshot. *The counts are compared once more after that:
//! the snapshot includes the values read by them.*
//!
//! # Commit
//!
//! For a batch or a transaction.
//! 1. The thread takes the locks of all its keys in the global lock order, and verifies the conditions against the
//!    trees. For each key that was read and will be changed, the count must be unchanged, apart from this thread's
//!    lock, or there must be no entry since the transaction's snapshot.
//! 2. The current values of the keys are saved for snapshots, as in step 3 of a write. This also announces the change.
//! 3. The rest of the read set, keys and ranges, must likewise have unchanged counts or no entries. *If two
//!    transactions each change a key that the other one read, both have locked and announced before they check. At
//!    least one of them therefore finds the other's lock or entry. Nothing has been written so far: a conflict needs no
//!    undo.*
//! 4. Space is reserved for the record and for the worst case of the trees, independent of the state of their leaves.
//!    The record is appended to the commit log: one fence. *From here on the batch is committed: after a crash, opening
//!    the pool applies it, and has the space.*
//! 5. The trees are changed, up to sixteen keys of one tree at a time, with one or two fences where the design allows it.
//!    *Lookups may see part of it. Snapshots and transactions do not: they wait for this thread, or find the saved
//!    values.*
//! 6. The record is marked done, durably. *Only then may others change the keys: a record never undoes a later write.*
//!    The locks are released.
//!
//! # Attempt
//!
//! Replaces steps 4 to 6 if the pool lacks the space for a reservation: the trees may have free space of their own.
//! 1. A record with the current values of the keys to be written is appended to the log. *After a crash from here on,
//!    recovery rolls back the writes: it removes keys that were absent, and replaces words in place, which needs no
//!    space. Batches that replace values stored as records are not attempted.*
//! 2. The keys are written. If there is no space for one of them, the earlier writes are rolled back, and the record is
//!    marked done.
//! 3. If keys are removed, a record of the removals is appended to the log, which also invalidates the first record:
//!    one fence. *From here on the batch is committed.*
//! 4. The first record is marked done, durably. *Without removals this step commits the batch.*
//! 5. The keys are removed, which needs no space, and the second record is marked done. *After a crash in between,
//!    recovery removes them once more.*
//!
//! A lookup concurrent with an attempt may see a value that is then rolled back. Snapshots and transactions do not.
//!
//! `range_removal.rs` has the steps of the removal of a range, and the lock of a tree, which it holds.
//!
//! A write checks the epoch again (step 3 of a write) for this reason. If a snapshot shows a write, it must also show each
//! transaction that precedes this write because it read the old value. Such a transaction found no entry, so the write
//! added its last entry after the transaction's check. The epoch of the write is therefore that of the transaction or a
//! later one: a snapshot with the write has both.

mod any_tree;
mod apply;
mod batch;
mod changes;
mod commit;
mod epoch;
mod epochs;
#[cfg(feature = "lab")]
mod in_part;
mod link;
mod merge;
mod range_removal;
mod reads;
pub(crate) mod record;
mod replay;
mod snapshot;
mod snapshot_tree;
mod stripe;
mod stripes;
mod transact;
mod transaction_range;
mod write_barrier;

pub(crate) use self::any_tree::{AnyTree, Scan, hash};
pub use self::batch::Batch;
pub(crate) use self::epochs::Epochs;
pub(crate) use self::link::Link;
pub(crate) use self::range_removal::RangeRemoval;
pub use self::snapshot::{Snapshot, SnapshotRange};
pub use self::snapshot_tree::SnapshotTree;
pub use self::transact::Transaction;
pub use self::transaction_range::TransactionRange;
pub(crate) use self::write_barrier::Entered;
#[cfg(feature = "lab")]
pub use in_part::{leave_in_part, leave_range_in_part};
