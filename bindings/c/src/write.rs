//! Writes by bytes, each of them atomic.

use std::ffi::{c_int, c_void};

use bristlecone_rs::{CasError, Error, TryInsertError};

use crate::argument::give;
use crate::data::VALUE;
use crate::entry::{with, with_item, with_key};
use crate::range::{KeyRange, bounds};
use crate::read::{Show, show_to, there};
use crate::status::{BRISTLECONE_DIFFERS, BRISTLECONE_PRESENT, Failure};
use crate::tree::TreeHandle;

/// Writes a key's value, whether or not the key exists. Durable when it returns `BRISTLECONE_OK`.
///
/// After an error nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_put(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    let (key, value) = ((key, key_bytes), (value, value_bytes));
    // SAFETY: as the header says.
    unsafe { with_item(tree, key, value, |tree, key, value| Ok(tree.upsert(key, value, None)?)) }
}

/// Writes a key's value, whether or not the key exists, and passes the previous value, if any, to the callback. Durable
/// when it returns `BRISTLECONE_OK`.
///
/// After an error nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown. A
/// previous value that is invalid for the tree's kind is replaced, and not passed: it counts as absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_exchange(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    show: Show,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_item(tree, (key, key_bytes), (value, value_bytes), |tree, key, value| {
            if let Some(held) = tree.insert(key, value, None)? {
                show_to(show, context, tree.value_kind(), &held);
            }
            Ok(())
        })
    }
}

/// Inserts an absent key. Durable when it returns `BRISTLECONE_OK`.
///
/// Returns `BRISTLECONE_PRESENT` if the key exists, and passes its value to the callback. After an error nothing has
/// changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_insert(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    show: Show,
    context: *mut c_void,
) -> c_int {
    let (key, value) = ((key, key_bytes), (value, value_bytes));
    // SAFETY: as the header says.
    unsafe {
        with_item(tree, key, value, |tree, key, value| match tree.try_insert(key, value, None) {
            Err(TryInsertError::Present(held)) => {
                show_to(show, context, tree.value_kind(), &held);
                Err(Failure::Plain(BRISTLECONE_PRESENT))
            }
            done => Ok(done.map_err(Error::from)?),
        })
    }
}

/// Replaces the value of an existing key, and passes the previous value to the callback. Durable when it returns
/// `BRISTLECONE_OK`.
///
/// Returns `BRISTLECONE_ABSENT` if the key does not exist. After an error nothing has changed, except after
/// `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown. A previous value that is invalid for the tree's kind is
/// replaced, and counts as absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_update(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    show: Show,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_item(tree, (key, key_bytes), (value, value_bytes), |tree, key, value| {
            let held = there(tree.update(key, value, None)?)?;
            show_to(show, context, tree.value_kind(), &held);
            Ok(())
        })
    }
}

/// Removes a key, and passes the previous value to the callback. Durable when it returns `BRISTLECONE_OK`.
///
/// Returns `BRISTLECONE_ABSENT` if the key does not exist. After an error nothing has changed, except after
/// `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown. A previous value that is invalid for the tree's kind is
/// removed, and counts as absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_remove(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    show: Show,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_key(tree, (key, key_bytes), |tree, key| {
            let held = there(tree.remove(key)?)?;
            show_to(show, context, tree.value_kind(), &held);
            Ok(())
        })
    }
}

/// Removes all items whose keys lie within a range in one step; a null range is that of all keys. `*removed`, which may be
/// null, is their number. Durable when it returns `BRISTLECONE_OK`.
///
/// After an error nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown: all items
/// are removed or none. Lookups and iterators of other threads may see a part of the removal, and writers of the tree wait
/// until it ends. Snapshots and transactions see all or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_remove_range(
    tree: *const TreeHandle,
    range: *const KeyRange,
    removed: *mut u64,
) -> c_int {
    with(tree, |tree| {
        // SAFETY: as the header says.
        let (tree, range) = (tree.entries()?, unsafe { bounds(tree.tree.key_kind(), range) }?);
        let count = tree.remove_range(range.keys())?;
        // SAFETY: as the header says.
        unsafe { give(removed, count) };
        Ok(())
    })
}

/// Removes all items whose keys have a prefix, of a tree whose keys are "str", "bytes" or arrays; otherwise like
/// `bristlecone_remove_range`. Other trees return `BRISTLECONE_USAGE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_remove_prefix(
    tree: *const TreeHandle,
    prefix: *const c_void,
    prefix_bytes: usize,
    removed: *mut u64,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_key(tree, (prefix, prefix_bytes), |tree, prefix| {
            let tree = tree.entries()?;
            give(removed, tree.remove_within(&tree.prefix_bounds(prefix)?)?);
            Ok(())
        })
    }
}

/// Changes a key from `expected` to `wanted` atomically; a null pointer without a length means an absent key, and an
/// empty value has a pointer that is not null. So it inserts (`expected` null), replaces, removes (`wanted` null), or
/// only compares (both null). Durable when it returns `BRISTLECONE_OK`.
///
/// Returns `BRISTLECONE_DIFFERS` if the key is not as expected, and passes its value, unless it is absent, to the
/// callback. After an error nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is
/// unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_compare_and_swap(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    expected: *const c_void,
    expected_bytes: usize,
    wanted: *const c_void,
    wanted_bytes: usize,
    show: Show,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_key(tree, (key, key_bytes), |tree, key| {
            let value = |passed| VALUE.passed_or_absent(tree.value_kind(), passed);
            let (expected, wanted) = (value((expected, expected_bytes))?, value((wanted, wanted_bytes))?);
            match tree.compare_and_swap(key, expected.as_ref(), wanted.as_ref(), None) {
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
