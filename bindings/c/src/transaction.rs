//! Transactions, from begin to commit.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use bristlecone_rs::{Pool, Transaction};

use crate::argument::{bytes, give, place};
use crate::data::{self, KEY, VALUE};
use crate::exclusive::Exclusive;
use crate::handle::{self, enter};
use crate::object::{Object, OpenTree};
use crate::pool::PoolHandle;
use crate::range::{KeyRange, bounds};
use crate::read::copy_to;
use crate::status::{BRISTLECONE_ABSENT, Failure, Outcome, call};
use crate::tree::TreeHandle;

/// A transaction under way: it reads all trees of a pool as they were at one moment, with what it wrote itself, and its
/// changes are made together, if nothing that it read has changed meanwhile. One thread uses it at a time. It keeps its
/// pool open, and what others change in DRAM: end it soon.
pub struct TransactionHandle(());

/// What a transaction handle leads to.
pub struct OpenTransaction {
    pub transaction: Exclusive<Transaction>,
    pub pool: Pool,
    member: Arc<()>,
}

/// Is shown an item, whose bytes live as long as the call; returns 0 to see the next one. What holds of `bristlecone_show`
/// holds of it.
pub type ShowItem = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        key: *const c_void,
        key_bytes: usize,
        value: *const c_void,
        value_bytes: usize,
    ) -> c_int,
>;

/// Begins a transaction. After an error there is none, and `*transaction` is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_begin(
    pool: *const PoolHandle,
    transaction: *mut *mut TransactionHandle,
) -> c_int {
    call(|| {
        let (inside, to) = (enter(pool)?, place(transaction)?);
        let open = inside.pool()?;
        let (pool, member) = (open.pool.clone(), Arc::clone(&open.members));
        let made = OpenTransaction { transaction: Exclusive::new(pool.begin_transaction()?), pool, member };
        let handle = handle::put(Object::Transaction(Box::new(made)))?;
        // SAFETY: as the header says.
        unsafe { give(to, handle) };
        Ok(())
    })
}

/// Calls `work` with a transaction and a tree of its pool.
fn with(
    transaction: *const TransactionHandle,
    tree: *const TreeHandle,
    work: impl FnOnce(&Transaction, &OpenTree) -> Outcome,
) -> c_int {
    call(|| {
        let (inside, of_tree) = (enter(transaction)?, enter(tree)?);
        let open = inside.transaction()?;
        let tree = of_tree.tree_of(&open.member)?;
        open.transaction.alone(|transaction| work(transaction, tree))
    })
}

/// Looks up a key as the transaction sees it, and copies its value as `bristlecone_get` does. After an error the transaction
/// goes on.
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
    with(transaction, tree, |transaction, open| {
        let tree = &open.tree;
        // SAFETY: as the header says.
        let key = KEY.read(tree.key_kind(), unsafe { bytes("key", key, key_bytes) }?)?;
        let held = transaction.get(tree, key)?.ok_or(Failure::Plain(BRISTLECONE_ABSENT))?;
        // SAFETY: as the header says.
        unsafe { copy_to(tree, &held, value, capacity, value_bytes) }
    })
}

/// Has a transaction write a key's value. After an error it goes on without this change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_put(
    transaction: *const TransactionHandle,
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    with(transaction, tree, |transaction, open| {
        let tree = &open.tree;
        // SAFETY: as the header says.
        let key = KEY.read(tree.key_kind(), unsafe { bytes("key", key, key_bytes) }?)?;
        // SAFETY: as the header says.
        let value = VALUE.read(tree.value_kind(), unsafe { bytes("value", value, value_bytes) }?)?;
        Ok(transaction.insert(tree, key, value)?)
    })
}

/// Has a transaction remove a key, if it is there. After an error it goes on without this change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_remove(
    transaction: *const TransactionHandle,
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
) -> c_int {
    with(transaction, tree, |transaction, open| {
        // SAFETY: as the header says.
        let key = KEY.read(open.tree.key_kind(), unsafe { bytes("key", key, key_bytes) }?)?;
        Ok(transaction.remove(&open.tree, key)?)
    })
}

/// Looks up a key of a tree of `u64` keys and values as the transaction sees it. After any error `*value` is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_get_u64(
    transaction: *const TransactionHandle,
    tree: *const TreeHandle,
    key: u64,
    value: *mut u64,
) -> c_int {
    with(transaction, tree, |transaction, open| {
        let held = transaction.get(open.words()?, key)?.ok_or(Failure::Plain(BRISTLECONE_ABSENT))?;
        // SAFETY: as the header says.
        unsafe { give(value, held) };
        Ok(())
    })
}

/// Has a transaction write a key's value, in a tree of `u64` keys and values. After an error it goes on without this change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_put_u64(
    transaction: *const TransactionHandle,
    tree: *const TreeHandle,
    key: u64,
    value: u64,
) -> c_int {
    with(transaction, tree, |transaction, open| Ok(transaction.insert(open.words()?, key, value)?))
}

/// Has a transaction remove a key, if it is there, of a tree of `u64` keys and values. After an error it goes on without
/// this change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_remove_u64(
    transaction: *const TransactionHandle,
    tree: *const TreeHandle,
    key: u64,
) -> c_int {
    with(transaction, tree, |transaction, open| Ok(transaction.remove(open.words()?, key)?))
}

/// Shows the items of a range as the transaction sees them, ascending, until `show` returns anything but 0. The callback
/// must not use the transaction. Damage ends it early, and then the commit returns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_scan(
    transaction: *const TransactionHandle,
    tree: *const TreeHandle,
    range: *const KeyRange,
    show: ShowItem,
    context: *mut c_void,
) -> c_int {
    with(transaction, tree, |transaction, open| {
        let tree = &open.tree;
        // SAFETY: as the header says.
        let range = unsafe { bounds(tree.key_kind(), range) }?;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (key, value) in transaction.range(tree, range.keys) {
            keys.clear();
            values.clear();
            let key = data::write(tree.key_kind(), &key, &mut keys);
            let value = data::write(tree.value_kind(), &value, &mut values);
            let Some(show) = show else { break };
            // SAFETY: as the header says.
            let enough =
                unsafe { show(context, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len()) };
            if enough != 0 {
                break;
            }
        }
        Ok(())
    })
}

fn is_transaction(object: &Object) -> Outcome {
    match object {
        Object::Transaction(open) => Ok(open.pool.opened_here()?),
        other => Err(other.is_no("a transaction")),
    }
}

/// Makes the changes of a transaction in one step, if nothing that it read has changed meanwhile, and closes it.
///
/// After `BRISTLECONE_OK` they are durable, and after a crash all of them are made or none. After an error nothing has
/// changed, but for `BRISTLECONE_DURABILITY_LOST`, which leaves that open: `BRISTLECONE_CONFLICT` if others were faster, and
/// the whole transaction is to be done again from its begin. The handle is closed then, too, except after
/// `BRISTLECONE_IN_USE` (another thread is in a call on it), `BRISTLECONE_FORKED` and for what is no transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_commit(transaction: *mut TransactionHandle) -> c_int {
    call(|| {
        // In a child nothing is to be committed: the handle stays what it is.
        enter(transaction)?.transaction()?;
        let mut done = Ok(());
        handle::close(transaction, is_transaction, |object| match object {
            Object::Transaction(open) => {
                done = open.transaction.into_inner().commit().map_err(Failure::from);
                Ok(())
            }
            other => {
                let why = other.is_no("a transaction");
                Err((other, why))
            }
        })?;
        done
    })
}

/// Forgets a transaction: nothing changes. After an error it is open as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_transaction_rollback(transaction: *mut TransactionHandle) -> c_int {
    call(|| handle::close(transaction, is_transaction, |_| Ok(())))
}
