//! Snapshots: all trees of a pool as of one moment.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use bristlecone_rs::{Pool, Snapshot};

use crate::argument::{bytes, give, place};
use crate::data::KEY;
use crate::handle::{self, enter};
use crate::iter::{Iter, IterHandle};
use crate::object::Object;
use crate::pool::PoolHandle;
use crate::range::KeyRange;
use crate::read::copy_to;
use crate::status::{BRISTLECONE_ABSENT, Failure, Outcome, call};
use crate::tree::TreeHandle;

/// All trees of a pool as they were at one moment, for any number of threads. What is changed afterwards is kept in DRAM
/// as long as a snapshot needs it. It keeps its pool open.
pub struct SnapshotHandle(());

/// What a snapshot handle leads to.
pub struct OpenSnapshot {
    pub snapshot: Arc<Snapshot>,
    pub pool: Pool,
    pub member: Arc<()>,
}

/// Takes a snapshot, for which at most about `max_bytes` of DRAM are kept; 0 is no bound. Once more would be needed it is
/// given up, and reading it is `BRISTLECONE_SNAPSHOT_TOO_OLD`. Waits for the writes that are under way, and no writer
/// waits for it. After an error there is none, and `*snapshot` is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_snapshot_open(
    pool: *const PoolHandle,
    max_bytes: usize,
    snapshot: *mut *mut SnapshotHandle,
) -> c_int {
    call(|| {
        let (inside, to) = (enter(pool)?, place(snapshot)?);
        let open = inside.pool()?;
        let taken = open.pool.snapshot_within(if max_bytes == 0 { usize::MAX } else { max_bytes })?;
        let (pool, member) = (open.pool.clone(), Arc::clone(&open.members));
        let handle = handle::put(Object::Snapshot(OpenSnapshot { snapshot: Arc::new(taken), pool, member }))?;
        // SAFETY: as the header says.
        unsafe { give(to, handle) };
        Ok(())
    })
}

/// Closes a snapshot; iterators over it go on. After an error it is open as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_snapshot_close(snapshot: *mut SnapshotHandle) -> c_int {
    let is_snapshot = |object: &Object| match object {
        Object::Snapshot(open) => Ok(open.pool.opened_here()?),
        other => Err(other.is_no("a snapshot")),
    };
    call(|| handle::close(snapshot, is_snapshot, |_| Ok(())))
}

/// Says how many bytes of DRAM are kept for a snapshot, about; 0 if it was given up. After an error `*kept` is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_snapshot_bytes(
    snapshot: *const SnapshotHandle,
    kept: *mut usize,
) -> c_int {
    call(|| {
        let inside = enter(snapshot)?;
        // SAFETY: as the header says.
        unsafe { give(kept, inside.snapshot()?.snapshot.bytes()) };
        Ok(())
    })
}

/// Looks up what a key of a tree had, and copies it as `bristlecone_get` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_snapshot_get(
    snapshot: *const SnapshotHandle,
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *mut c_void,
    capacity: usize,
    value_bytes: *mut usize,
) -> c_int {
    call(|| {
        let (inside, of_tree) = (enter(snapshot)?, enter(tree)?);
        let open = inside.snapshot()?;
        let tree = &of_tree.tree_of(&open.member)?.tree;
        // SAFETY: as the header says.
        let key = KEY.read(tree.key_kind(), unsafe { bytes("key", key, key_bytes) }?)?;
        let held = open.snapshot.tree(tree).try_get(key)?;
        // SAFETY: as the header says.
        unsafe {
            copy_to(tree, &held.ok_or(Failure::Plain(BRISTLECONE_ABSENT))?, value, capacity, value_bytes)
        }
    })
}

/// Looks up what a key of a tree of `u64` keys and values had. After any error `*value` is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_snapshot_get_u64(
    snapshot: *const SnapshotHandle,
    tree: *const TreeHandle,
    key: u64,
    value: *mut u64,
) -> c_int {
    call(|| {
        let (inside, of_tree) = (enter(snapshot)?, enter(tree)?);
        let open = inside.snapshot()?;
        of_tree.tree_of(&open.member)?;
        let held = open.snapshot.tree(of_tree.words()?).try_get(key)?;
        // SAFETY: as the header says.
        unsafe { give(value, held.ok_or(Failure::Plain(BRISTLECONE_ABSENT))?) };
        Ok(())
    })
}

/// Opens an iterator over what a range of keys had; null is all of them. It is used, and closed, like any other, shows
/// damage as if `BRISTLECONE_CHECKED` were set, and keeps the snapshot.
///
/// After an error there is no iterator, and `*iter` is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_snapshot_iter_open(
    snapshot: *const SnapshotHandle,
    tree: *const TreeHandle,
    range: *const KeyRange,
    iter: *mut *mut IterHandle,
) -> c_int {
    call(|| -> Outcome {
        let (inside, of_tree, to) = (enter(snapshot)?, enter(tree)?, place(iter)?);
        let open = inside.snapshot()?;
        // SAFETY: as the header says.
        let made = unsafe { Iter::of_snapshot(of_tree.tree_of(&open.member)?, open, range) }?;
        let handle = handle::put(Object::Iter(Box::new(made)))?;
        // SAFETY: as the header says.
        unsafe { give(to, handle) };
        Ok(())
    })
}
