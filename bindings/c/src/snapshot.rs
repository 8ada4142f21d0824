//! Snapshots: all trees of a pool as of one instant.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use bristlecone_rs::Snapshot;

use crate::argument::give;
use crate::entry::{close, in_pool_with_key, open};
use crate::handle::enter;
use crate::iter::{Iter, IterHandle};
use crate::object::InPool;
use crate::pool::PoolHandle;
use crate::range::KeyRange;
use crate::read::{copy_to, there};
use crate::status::call;
use crate::tree::TreeHandle;

/// All trees of a pool as of one instant, for any number of threads. Later changes are retained in DRAM as long as a
/// snapshot needs them. It keeps its pool open.
pub struct SnapshotHandle(());

/// The object of a snapshot handle.
pub type OpenSnapshot = InPool<Arc<Snapshot>>;

/// Takes a snapshot that retains at most about `max_bytes` of DRAM; 0 is unlimited. If more would be needed, the
/// snapshot is dropped, and reading it returns `BRISTLECONE_SNAPSHOT_TOO_OLD`. Waits for the writes in progress; no
/// writer waits for it. After an error there is none, and `*snapshot` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_snapshot_open(
    pool: *const PoolHandle,
    max_bytes: usize,
    snapshot: *mut *mut SnapshotHandle,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        open(pool, snapshot, |inside| {
            let open = inside.get()?;
            let taken = open.pool.snapshot_within(if max_bytes == 0 { usize::MAX } else { max_bytes })?;
            Ok(open.holding(Arc::new(taken)))
        })
    }
}

/// Closes a snapshot; its iterators stay usable. After an error it stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_snapshot_close(snapshot: *mut SnapshotHandle) -> c_int {
    close(snapshot)
}

/// Returns the approximate number of bytes of DRAM retained for a snapshot; 0 if it was dropped. After an error `*kept`
/// is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_snapshot_bytes(
    snapshot: *const SnapshotHandle,
    kept: *mut usize,
) -> c_int {
    call(|| {
        let inside = enter(snapshot)?;
        // SAFETY: as the header says.
        unsafe { give(kept, inside.get()?.begun.bytes()) };
        Ok(())
    })
}

/// Looks up the snapshot's value of a key, and copies it like `bristlecone_get`.
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
    // SAFETY: as the header says.
    unsafe {
        in_pool_with_key(snapshot, tree, (key, key_bytes), |snapshot, tree, key| {
            let held = there(snapshot.tree(tree).get(key)?)?;
            copy_to(tree.value_kind(), &held, value, capacity, value_bytes)
        })
    }
}

/// Opens an iterator over the snapshot's items of a range of keys; null means all keys. It is used and closed like any
/// other, and keeps the snapshot open.
///
/// After an error there is no iterator, and `*iter` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_snapshot_iter_open(
    snapshot: *const SnapshotHandle,
    tree: *const TreeHandle,
    range: *const KeyRange,
    iter: *mut *mut IterHandle,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        open(snapshot, iter, |inside| {
            let (open, of_tree) = (inside.get()?, enter(tree)?);
            Iter::of_snapshot(of_tree.get_of(&open.member)?, open, range)
        })
    }
}
