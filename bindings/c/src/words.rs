//! Trees of `u64` keys and values, without conversion to bytes.

use std::ffi::c_int;

use bristlecone_rs::{CasError, TryInsertError};

use crate::argument::give;
use crate::handle::enter;
use crate::read::there;
use crate::status::{BRISTLECONE_DIFFERS, BRISTLECONE_PRESENT, Failure, call};
use crate::tree::TreeHandle;

/// Looks a key up: `*value` is its value. Like all calls that end in `_u64`, for trees whose keys and values are `u64`;
/// other trees return `BRISTLECONE_USAGE`.
///
/// Returns `BRISTLECONE_ABSENT` if the key does not exist; after any error `*value` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_get_u64(tree: *const TreeHandle, key: u64, value: *mut u64) -> c_int {
    call(|| {
        let inside = enter(tree)?;
        let found = there(inside.words()?.get(key)?)?;
        // SAFETY: as the header says.
        unsafe { give(value, found) };
        Ok(())
    })
}

/// Writes a key's value, whether or not the key exists. Durable when it returns `BRISTLECONE_OK`.
///
/// After an error nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_put_u64(tree: *const TreeHandle, key: u64, value: u64) -> c_int {
    call(|| Ok(enter(tree)?.words()?.upsert(key, value)?))
}

/// Inserts an absent key. Durable when it returns `BRISTLECONE_OK`.
///
/// Returns `BRISTLECONE_PRESENT` if the key exists: `*found`, which may be null, is then its value. After an error
/// nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_insert_u64(
    tree: *const TreeHandle,
    key: u64,
    value: u64,
    found: *mut u64,
) -> c_int {
    call(|| match enter(tree)?.words()?.try_insert(key, value) {
        Err(TryInsertError::Present(held)) => {
            // SAFETY: as the header says.
            unsafe { give(found, held) };
            Err(Failure::Plain(BRISTLECONE_PRESENT))
        }
        done => Ok(done.map_err(bristlecone_rs::Error::from)?),
    })
}

/// Replaces the value of an existing key; `*old`, which may be null, is the previous value. Durable when it returns
/// `BRISTLECONE_OK`.
///
/// Returns `BRISTLECONE_ABSENT` if the key does not exist. After an error nothing has changed, except after
/// `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_update_u64(
    tree: *const TreeHandle,
    key: u64,
    value: u64,
    old: *mut u64,
) -> c_int {
    call(|| {
        let held = there(enter(tree)?.words()?.update(key, value)?)?;
        // SAFETY: as the header says.
        unsafe { give(old, held) };
        Ok(())
    })
}

/// Removes a key; `*old`, which may be null, is the previous value. Durable when it returns `BRISTLECONE_OK`.
///
/// Returns `BRISTLECONE_ABSENT` if the key does not exist. After an error nothing has changed, except after
/// `BRISTLECONE_DURABILITY_LOST`, where the outcome is unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_remove_u64(tree: *const TreeHandle, key: u64, old: *mut u64) -> c_int {
    call(|| {
        let held = there(enter(tree)?.words()?.remove(key)?)?;
        // SAFETY: as the header says.
        unsafe { give(old, held) };
        Ok(())
    })
}

/// Changes a key from `expected` to `wanted` atomically; null means an absent key. So it inserts (`expected` null),
/// replaces, removes (`wanted` null), or only compares (both null). Durable when it returns `BRISTLECONE_OK`.
///
/// Returns `BRISTLECONE_DIFFERS` if the key is not as expected: `*is_there` says whether it exists, and `*found` is
/// then its value; both may be null. After an error nothing has changed, except after `BRISTLECONE_DURABILITY_LOST`,
/// where the outcome is unknown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_compare_and_swap_u64(
    tree: *const TreeHandle,
    key: u64,
    expected: *const u64,
    wanted: *const u64,
    is_there: *mut i32,
    found: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: null, or live as the header says.
        let (expected, wanted) = unsafe { (expected.as_ref().copied(), wanted.as_ref().copied()) };
        match enter(tree)?.words()?.compare_and_swap(key, expected, wanted) {
            Err(CasError::Found(held)) => {
                // SAFETY: as the header says.
                unsafe {
                    give(is_there, i32::from(held.is_some()));
                    if let Some(held) = held {
                        give(found, held);
                    }
                }
                Err(Failure::Plain(BRISTLECONE_DIFFERS))
            }
            done => Ok(done.map_err(bristlecone_rs::Error::from)?),
        }
    })
}
