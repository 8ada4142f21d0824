//! Trees whose values expire.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use bristlecone_rs::dynamic::Datum;
use bristlecone_rs::{CasError, Error, Expiry, TryInsertError};

use crate::argument::give;
use crate::data::VALUE;
use crate::entry::{open, with, with_item, with_key};
use crate::object::OpenTree;
use crate::read::{Show, show_to, there};
use crate::status::{BRISTLECONE_DIFFERS, BRISTLECONE_PRESENT, Failure, Outcome};
use crate::tree::TreeHandle;

/// A value that does not expire.
pub const BRISTLECONE_NEVER_EXPIRES: u64 = 0;
/// The expiry of the tree: `expire_after_ms` from now on, or never.
pub const BRISTLECONE_DEFAULT_EXPIRY: u64 = u64::MAX;

fn expiry_of(millis: u64) -> Option<Expiry> {
    match millis {
        BRISTLECONE_DEFAULT_EXPIRY => None,
        BRISTLECONE_NEVER_EXPIRES => Some(Expiry::NEVER),
        time => Some(Expiry::from_millis(time)),
    }
}

/// Opens another handle to a tree with values of a kind "Expiring<V>". It takes and shows "V"s, and for its calls an
/// entry whose time has come is absent: lookups, writes of one key and iterators. Close it like every handle to a tree.
///
/// A write has the expiry of the tree, `expire_after_ms`; `bristlecone_expiring_put` and the like name another one.
/// `bristlecone_tree_len` counts expired entries, too, until they are removed. Calls of many keys, removals of ranges,
/// batches, transactions and snapshots need the tree itself, whose values have their times, and return
/// `BRISTLECONE_USAGE`.
///
/// A tree of another kind returns `BRISTLECONE_USAGE`. After an error there is no handle, and `*expiring` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_tree_expiring(
    tree: *const TreeHandle,
    expiring: *mut *mut TreeHandle,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        open(tree, expiring, |inside| {
            let open = inside.get()?;
            let (tree, member) = (open.tree.clone(), Arc::clone(&open.member));
            Ok(OpenTree { live: Some(Box::new(tree.clone().try_expiring()?)), tree, member })
        })
    }
}

/// Writes a key's value, which expires at a time in milliseconds since 1970, or never, or as the tree says:
/// `BRISTLECONE_NEVER_EXPIRES`, `BRISTLECONE_DEFAULT_EXPIRY`. Otherwise like `bristlecone_put`.
///
/// The handle must be one of `bristlecone_tree_expiring`, for this and the next calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_expiring_put(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    expires_ms: u64,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_expiring(tree, (key, key_bytes), (value, value_bytes), |tree, key, value| {
            Ok(tree.upsert(key, value, expiry_of(expires_ms))?)
        })
    }
}

/// Calls `work` with a tree of live values, and a key and a value of it.
///
/// # Safety
///
/// The pointers must point to as many bytes as their lengths say.
unsafe fn with_expiring(
    tree: *const TreeHandle,
    key: (*const c_void, usize),
    value: (*const c_void, usize),
    work: impl FnOnce(&OpenTree, &Datum<'_>, &Datum<'_>) -> Outcome,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        with_item(tree, key, value, |tree, key, value| {
            tree.expiring()?;
            work(tree, key, value)
        })
    }
}

/// Writes a key's value with its expiry, and passes the previous value to the callback, unless it has expired. Otherwise
/// like `bristlecone_exchange`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_expiring_exchange(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    expires_ms: u64,
    show: Show,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_expiring(tree, (key, key_bytes), (value, value_bytes), |tree, key, value| {
            if let Some(held) = tree.insert(key, value, expiry_of(expires_ms))? {
                show_to(show, context, tree.value_kind(), &held);
            }
            Ok(())
        })
    }
}

/// Inserts a key that is absent or has expired, with its expiry. Otherwise like `bristlecone_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_expiring_insert(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    expires_ms: u64,
    show: Show,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_expiring(tree, (key, key_bytes), (value, value_bytes), |tree, key, value| {
            match tree.try_insert(key, value, expiry_of(expires_ms)) {
                Err(TryInsertError::Present(held)) => {
                    show_to(show, context, tree.value_kind(), &held);
                    Err(Failure::Plain(BRISTLECONE_PRESENT))
                }
                done => Ok(done.map_err(Error::from)?),
            }
        })
    }
}

/// Replaces the value of a key that exists and has not expired, and its expiry. Otherwise like `bristlecone_update`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_expiring_update(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    expires_ms: u64,
    show: Show,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_expiring(tree, (key, key_bytes), (value, value_bytes), |tree, key, value| {
            let held = there(tree.update(key, value, expiry_of(expires_ms))?)?;
            show_to(show, context, tree.value_kind(), &held);
            Ok(())
        })
    }
}

/// Changes a key from `expected` to `wanted` with its expiry atomically. An expired value counts as absent, and the
/// expiry that the key had does not count. Otherwise like `bristlecone_compare_and_swap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_expiring_compare_and_swap(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    expected: *const c_void,
    expected_bytes: usize,
    wanted: *const c_void,
    wanted_bytes: usize,
    expires_ms: u64,
    show: Show,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_key(tree, (key, key_bytes), |tree, key| {
            tree.expiring()?;
            let value = |passed| VALUE.passed_or_absent(tree.value_kind(), passed);
            let (expected, wanted) = (value((expected, expected_bytes))?, value((wanted, wanted_bytes))?);
            match tree.compare_and_swap(key, expected.as_ref(), wanted.as_ref(), expiry_of(expires_ms)) {
                Err(CasError::Found(held)) => {
                    if let Some(held) = held {
                        show_to(show, context, tree.value_kind(), &held);
                    }
                    Err(Failure::Plain(BRISTLECONE_DIFFERS))
                }
                done => Ok(done.map_err(Error::from)?),
            }
        })
    }
}

/// Writes when a key expires: milliseconds since 1970, or `BRISTLECONE_NEVER_EXPIRES`.
///
/// Returns `BRISTLECONE_ABSENT` if the key does not exist. After an error `*expires_ms` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_expiry(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    expires_ms: *mut u64,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_key(tree, (key, key_bytes), |tree, key| {
            give(expires_ms, there(tree.expiring()?.expiry(key)?)?.as_millis());
            Ok(())
        })
    }
}

/// Sets when a key expires, and keeps its value; `BRISTLECONE_NEVER_EXPIRES` makes it permanent, and
/// `BRISTLECONE_DEFAULT_EXPIRY` renews it. `*previous_ms`, which may be null, is the previous expiry. Durable when it
/// returns `BRISTLECONE_OK`.
///
/// Returns `BRISTLECONE_ABSENT` if the key does not exist. After an error nothing has changed, except after
/// `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_set_expiry(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    expires_ms: u64,
    previous_ms: *mut u64,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_key(tree, (key, key_bytes), |tree, key| {
            let previous = there(tree.expiring()?.set_expiry(key, expiry_of(expires_ms))?)?;
            give(previous_ms, previous.as_millis());
            Ok(())
        })
    }
}

/// Reads up to `budget` entries of a tree and removes the expired ones among them. The next call on this handle continues
/// behind them. `*examined` and `*removed` are their numbers, and `*complete` is 1 if the end of the tree was reached,
/// where the next call begins again, or 0. Each pointer may be null.
///
/// A renewed entry is never removed. After an error any of the expired entries are removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_remove_expired(
    tree: *const TreeHandle,
    budget: u64,
    examined: *mut u64,
    removed: *mut u64,
    complete: *mut c_int,
) -> c_int {
    with(tree, |tree| {
        let pass = tree.expiring()?.remove_expired(budget)?;
        // SAFETY: as the header says.
        unsafe {
            give(examined, pass.examined);
            give(removed, pass.removed);
            give(complete, c_int::from(pass.is_complete));
        }
        Ok(())
    })
}
