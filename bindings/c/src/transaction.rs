//! Transactions, from begin to commit.

use std::ffi::{c_int, c_void};

use bristlecone_rs::Transaction;
use bristlecone_rs::dynamic::Tree;

use crate::data::{self, VALUE};
use crate::entry::{close, finish, in_pool, in_pool_with_key, open};
use crate::exclusive::Exclusive;
use crate::object::InPool;
use crate::pool::PoolHandle;
use crate::range::{Bounds, KeyRange, bounds};
use crate::read::{copy_to, there};
use crate::status::Outcome;
use crate::tree::TreeHandle;

/// A transaction in progress. It reads all trees of a pool as of one instant, together with its own writes. Its changes
/// are applied atomically if nothing that it read has changed meanwhile. Only one thread may use it at a time. It keeps
/// its pool open, and retains other threads' changes in DRAM: end it soon.
pub struct TransactionHandle(());

/// The object of a transaction handle.
pub type OpenTransaction = InPool<Box<Exclusive<Transaction>>>;

/// Callback that receives an item, whose bytes are valid during the call, under the rules of `bristlecone_show`;
/// returns 0 to continue.
pub type ShowItem = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: *const c_void,
        key_bytes: usize,
        value: *const c_void,
        value_bytes: usize,
    ) -> c_int,
>;

/// Begins a transaction. After an error there is none, and `*transaction` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_begin(
    pool: *const PoolHandle,
    transaction: *mut *mut TransactionHandle,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        open(pool, transaction, |inside| {
            let open = inside.get()?;
            Ok(open.holding(Box::new(Exclusive::new(open.pool.begin_transaction()?))))
        })
    }
}

/// Looks up a key as seen by the transaction, and copies its value like `bristlecone_get`. After an error the
/// transaction continues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_get(
    transaction: *const TransactionHandle,
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *mut c_void,
    capacity: usize,
    value_bytes: *mut usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        in_pool_with_key(transaction, tree, (key, key_bytes), |transaction, tree, key| {
            let held = there(transaction.alone(|transaction| Ok(transaction.get(tree, key)?))?)?;
            copy_to(tree.value_kind(), &held, value, capacity, value_bytes)
        })
    }
}

/// Adds a write of a key's value to a transaction. After an error it continues without this change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_put(
    transaction: *const TransactionHandle,
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        in_pool_with_key(transaction, tree, (key, key_bytes), |transaction, tree, key| {
            let value = VALUE.passed(tree.value_kind(), (value, value_bytes))?;
            transaction.alone(|transaction| Ok(transaction.insert(tree, key, &value)?))
        })
    }
}

/// Adds the removal of a key, if it exists, to a transaction. After an error it continues without this change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_remove(
    transaction: *const TransactionHandle,
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        in_pool_with_key(transaction, tree, (key, key_bytes), |transaction, tree, key| {
            transaction.alone(|transaction| Ok(transaction.remove(tree, key)?))
        })
    }
}

/// Passes the items of a range, as seen by the transaction, to the callback in ascending order, until it returns
/// anything but 0. The callback must not use the transaction. Damage ends the scan early, and then the commit returns
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_scan(
    transaction: *const TransactionHandle,
    tree: *const TreeHandle,
    range: *const KeyRange,
    show: ShowItem,
    context: *mut c_void,
) -> c_int {
    in_pool(transaction, tree, |transaction, open| {
        // SAFETY: as the header says.
        let range = unsafe { bounds(open.tree.key_kind(), range) }?;
        // SAFETY: as the header says.
        transaction.alone(|transaction| unsafe { scan(transaction, &open.tree, &range, show, context) })
    })
}

/// Passes the items of a range to the callback.
///
/// # Safety
///
/// The function must accept this context.
unsafe fn scan(
    transaction: &Transaction,
    tree: &Tree,
    range: &Bounds<'_>,
    show: ShowItem,
    context: *mut c_void,
) -> Outcome {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for item in transaction.range(tree, range.keys()) {
        let (key, value) = item?;
        keys.clear();
        values.clear();
        let key = data::write(tree.key_kind(), &key, &mut keys);
        let value = data::write(tree.value_kind(), &value, &mut values);
        let Some(show) = show else { break };
        // SAFETY: as the caller says.
        let enough =
            unsafe { show(context, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len()) };
        if enough != 0 {
            break;
        }
    }
    Ok(())
}

/// Applies the changes of a transaction atomically, if nothing that it read has changed meanwhile, and closes it.
///
/// After `BRISTLECONE_OK` the changes are durable; after a crash either all of them are applied or none. Returns
/// `BRISTLECONE_CONFLICT` if a concurrent change conflicts: repeat the whole transaction from its begin. After an error
/// nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown. An error closes the
/// handle, too, except `BRISTLECONE_IN_USE` (another thread is in a call on it), `BRISTLECONE_FORKED`, and errors of an
/// invalid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_commit(transaction: *mut TransactionHandle) -> c_int {
    finish(transaction, |open| Ok(open.begun.into_inner().commit()?))
}

/// Discards a transaction: nothing changes. After an error it stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_rollback(transaction: *mut TransactionHandle) -> c_int {
    close(transaction)
}
