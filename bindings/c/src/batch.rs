//! Batches: changes of several keys that are made together.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use bristlecone_rs::{Batch, Pool};

use crate::argument::{bytes, give, place};
use crate::data::{KEY, VALUE};
use crate::exclusive::Exclusive;
use crate::handle::{self, enter};
use crate::object::{Object, OpenTree};
use crate::pool::PoolHandle;
use crate::status::{Failure, Outcome, call};
use crate::tree::TreeHandle;

/// Changes of any trees of one pool that are made together, or not at all. Until it is committed it is a list in DRAM. One
/// thread uses it at a time. It keeps its pool open.
pub struct BatchHandle(());

/// What a batch handle leads to.
pub struct OpenBatch {
    pub batch: Exclusive<Batch>,
    pub pool: Pool,
    member: Arc<()>,
}

/// Begins a batch. After an error there is none, and `*batch` is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_begin(
    pool: *const PoolHandle,
    batch: *mut *mut BatchHandle,
) -> c_int {
    call(|| {
        let (inside, to) = (enter(pool)?, place(batch)?);
        let open = inside.pool()?;
        let (pool, member) = (open.pool.clone(), Arc::clone(&open.members));
        let made = OpenBatch { batch: Exclusive::new(pool.batch()), pool, member };
        let handle = handle::put(Object::Batch(made))?;
        // SAFETY: as the header says.
        unsafe { give(to, handle) };
        Ok(())
    })
}

/// Calls `note` with a batch and a tree.
fn with(
    batch: *const BatchHandle,
    tree: *const TreeHandle,
    note: impl FnOnce(&mut Batch, &OpenTree) -> Outcome,
) -> c_int {
    call(|| {
        let (inside, of_tree) = (enter(batch)?, enter(tree)?);
        let open = inside.batch()?;
        let tree = of_tree.tree_of(&open.member)?;
        open.batch.alone(|batch| note(batch, tree))
    })
}

/// Has a batch write a key's value, whether the key is there or not. Of several changes of a key the last one counts. After
/// an error the batch goes on without this change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_put(
    batch: *const BatchHandle,
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    with(batch, tree, |batch, open| {
        let tree = &open.tree;
        // SAFETY: as the header says.
        let key = KEY.read(tree.key_kind(), unsafe { bytes("key", key, key_bytes) }?)?;
        // SAFETY: as the header says.
        let value = VALUE.read(tree.value_kind(), unsafe { bytes("value", value, value_bytes) }?)?;
        batch.insert(tree, key, value);
        Ok(())
    })
}

/// Has a batch remove a key, if it is there. After an error the batch goes on without this change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_remove(
    batch: *const BatchHandle,
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
) -> c_int {
    with(batch, tree, |batch, open| {
        // SAFETY: as the header says.
        let key = KEY.read(open.tree.key_kind(), unsafe { bytes("key", key, key_bytes) }?)?;
        batch.remove(&open.tree, key);
        Ok(())
    })
}

/// Makes a condition of a batch: before it the key has this value, or is absent if `value` is null (an empty value has a
/// pointer that is not null). If it is not so, the commit is `BRISTLECONE_CONFLICT`. After an error the batch goes on
/// without this condition.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_expect(
    batch: *const BatchHandle,
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    with(batch, tree, |batch, open| {
        let tree = &open.tree;
        // SAFETY: as the header says.
        let key = KEY.read(tree.key_kind(), unsafe { bytes("key", key, key_bytes) }?)?;
        let expected = if value.is_null() && value_bytes == 0 {
            None
        } else {
            // SAFETY: as the header says.
            Some(VALUE.read(tree.value_kind(), unsafe { bytes("value", value, value_bytes) }?)?)
        };
        batch.expect(tree, key, expected);
        Ok(())
    })
}

/// Has a batch write a key's value, in a tree of `u64` keys and values: see `bristlecone_batch_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_put_u64(
    batch: *const BatchHandle,
    tree: *const TreeHandle,
    key: u64,
    value: u64,
) -> c_int {
    with(batch, tree, |batch, open| {
        batch.insert(open.words()?, key, value);
        Ok(())
    })
}

/// Has a batch remove a key, in a tree of `u64` keys and values: see `bristlecone_batch_remove`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_remove_u64(
    batch: *const BatchHandle,
    tree: *const TreeHandle,
    key: u64,
) -> c_int {
    with(batch, tree, |batch, open| {
        batch.remove(open.words()?, key);
        Ok(())
    })
}

/// Makes a condition of a batch, in a tree of `u64` keys and values; null stands for an absent key: see
/// `bristlecone_batch_expect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_expect_u64(
    batch: *const BatchHandle,
    tree: *const TreeHandle,
    key: u64,
    value: *const u64,
) -> c_int {
    with(batch, tree, |batch, open| {
        // SAFETY: null, or live as the header says.
        batch.expect(open.words()?, key, unsafe { value.as_ref() }.copied());
        Ok(())
    })
}

fn is_batch(object: &Object) -> Outcome {
    match object {
        Object::Batch(open) => Ok(open.pool.opened_here()?),
        other => Err(other.is_no("a batch")),
    }
}

/// Makes all changes of a batch in one step, if all its conditions hold, and closes it.
///
/// After `BRISTLECONE_OK` they are durable, and after a crash all of them are made or none. After an error nothing has
/// changed, but for `BRISTLECONE_DURABILITY_LOST`, which leaves that open: `BRISTLECONE_CONFLICT` if a condition does not
/// hold. The handle is closed then, too, except after `BRISTLECONE_IN_USE` (another thread is in a call on it),
/// `BRISTLECONE_FORKED` and for what is no batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_commit(batch: *mut BatchHandle) -> c_int {
    call(|| {
        // In a child nothing is to be committed: the handle stays what it is.
        enter(batch)?.batch()?;
        let mut done = Ok(());
        handle::close(batch, is_batch, |object| match object {
            Object::Batch(open) => {
                done = open.batch.into_inner().commit().map_err(Failure::from);
                Ok(())
            }
            other => {
                let why = other.is_no("a batch");
                Err((other, why))
            }
        })?;
        done
    })
}

/// Forgets a batch, and closes it. After an error it is open as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_batch_discard(batch: *mut BatchHandle) -> c_int {
    call(|| handle::close(batch, is_batch, |_| Ok(())))
}
