//! Batches: atomic changes of several keys.

use std::ffi::{c_int, c_void};

use bristlecone_rs::Batch;

use crate::data::VALUE;
use crate::entry::{close, finish, in_pool_with_key, open};
use crate::exclusive::Exclusive;
use crate::object::InPool;
use crate::pool::PoolHandle;
use crate::status::Outcome;
use crate::tree::TreeHandle;

/// Changes of any trees of one pool that are applied atomically. Until it is committed it is a list in DRAM. Only one
/// thread may use it at a time. It keeps its pool open.
pub struct BatchHandle(());

/// The object of a batch handle.
pub type OpenBatch = InPool<Exclusive<Box<Batch>>>;

/// Begins a batch. After an error there is none, and `*batch` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_begin(
    pool: *const PoolHandle,
    batch: *mut *mut BatchHandle,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        open(pool, batch, |inside| {
            let open = inside.get()?;
            Ok(open.holding(Exclusive::new(Box::new(open.pool.batch()))))
        })
    }
}

/// Adds a change or a condition to a batch, unless another thread uses it.
fn note(batch: &Exclusive<Box<Batch>>, change: impl FnOnce(&mut Batch) -> &mut Batch) -> Outcome {
    batch.alone(|batch| {
        change(batch);
        Ok(())
    })
}

/// Adds a write of a key's value to a batch, whether or not the key exists. Of several changes of a key the last one
/// counts. After an error the batch continues without this change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_put(
    batch: *const BatchHandle,
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        in_pool_with_key(batch, tree, (key, key_bytes), |batch, tree, key| {
            let value = VALUE.passed(tree.value_kind(), (value, value_bytes))?;
            note(batch, |batch| batch.insert(tree, key, &value))
        })
    }
}

/// Adds the removal of a key, if it exists, to a batch. After an error the batch continues without this change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_remove(
    batch: *const BatchHandle,
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        in_pool_with_key(batch, tree, (key, key_bytes), |batch, tree, key| {
            note(batch, |batch| batch.remove(tree, key))
        })
    }
}

/// Adds a condition to a batch: before it, the key has this value, or is absent if `value` is null (an empty value has
/// a pointer that is not null). If the condition does not hold, the commit returns `BRISTLECONE_CONFLICT`. After an
/// error the batch continues without this condition.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_expect(
    batch: *const BatchHandle,
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        in_pool_with_key(batch, tree, (key, key_bytes), |batch, tree, key| {
            let expected = VALUE.passed_or_absent(tree.value_kind(), (value, value_bytes))?;
            note(batch, |batch| batch.expect(tree, key, expected.as_ref()))
        })
    }
}

/// Applies all changes of a batch atomically, if all its conditions hold, and closes it.
///
/// After `BRISTLECONE_OK` the changes are durable; after a crash either all of them are applied or none. Returns
/// `BRISTLECONE_CONFLICT` if a condition does not hold. After an error nothing has changed, except after
/// `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown. An error closes the handle, too, except
/// `BRISTLECONE_IN_USE` (another thread is in a call on it), `BRISTLECONE_FORKED`, and errors of an invalid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_commit(batch: *mut BatchHandle) -> c_int {
    finish(batch, |open| Ok(open.begun.into_inner().commit()?))
}

/// Discards a batch, and closes it. After an error it stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_discard(batch: *mut BatchHandle) -> c_int {
    close(batch)
}
