//! Lookups by bytes.

use std::ffi::{c_int, c_void};

use bristlecone_rs::dynamic::{Datum, Tree};

use crate::argument::give;
use crate::data;
use crate::entry::with_key;
use crate::status::{BRISTLECONE_ABSENT, BRISTLECONE_TOO_SMALL, Failure, Outcome};
use crate::tree::TreeHandle;

/// Is shown a value, which lives as long as the call. It may use the library, but not close the handle that the
/// call is on, and it must return: neither `longjmp` nor a C++ exception may leave it. May be null: nothing is shown.
pub type Show = Option<unsafe extern "C" fn(context: *mut c_void, value: *const c_void, value_bytes: usize)>;

/// Shows a value of a tree.
///
/// # Safety
///
/// The function takes this context.
pub unsafe fn show_to(show: Show, context: *mut c_void, tree: &Tree, value: &Datum<'_>) {
    if let Some(show) = show {
        let mut buffer = Vec::new();
        let bytes = data::write(tree.value_kind(), value, &mut buffer);
        // SAFETY: as the caller says.
        unsafe { show(context, bytes.as_ptr().cast(), bytes.len()) };
    }
}

/// Copies a value of a tree to where C wants it.
///
/// # Safety
///
/// The buffer may be written, and so may the length unless it is null.
pub unsafe fn copy_to(
    tree: &Tree,
    value: &Datum<'_>,
    to: *mut c_void,
    capacity: usize,
    len: *mut usize,
) -> Outcome {
    let mut buffer = Vec::new();
    let bytes = data::write(tree.value_kind(), value, &mut buffer);
    // SAFETY: as the caller says.
    unsafe { give(len, bytes.len()) };
    if bytes.len() > capacity || (to.is_null() && !bytes.is_empty()) {
        return Err(Failure::Plain(BRISTLECONE_TOO_SMALL));
    }
    if !bytes.is_empty() {
        // SAFETY: not null, with room for so many bytes, as the caller says.
        unsafe { std::ptr::copy(bytes.as_ptr(), to.cast(), bytes.len()) };
    }
    Ok(())
}

/// Returns what was found, if anything was.
pub fn there<T>(found: Option<T>) -> Outcome<T> {
    found.ok_or(Failure::Plain(BRISTLECONE_ABSENT))
}

/// Looks a key up, and copies its value to a buffer of `capacity` bytes. `*value_bytes`, which may be null, is the length
/// of the value, whether it fits or not: it is `BRISTLECONE_TOO_SMALL` if not, and nothing is copied then.
///
/// Returns `BRISTLECONE_ABSENT` if the key is not there, `BRISTLECONE_CORRUPTED` if its value is nothing of the
/// tree's kind. The buffer is as it was after any error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_get(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *mut c_void,
    capacity: usize,
    value_bytes: *mut usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_key(tree, (key, key_bytes), |tree, key| {
            there(tree.get_with(key, |held| copy_to(tree, &held, value, capacity, value_bytes))?)?
        })
    }
}

/// Looks a key up as `bristlecone_get` does, with its record and those of the keys beside it compared with their
/// checksums: slower, and `BRISTLECONE_CORRUPTED` for what `bristlecone_get` returns as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_get_checked(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *mut c_void,
    capacity: usize,
    value_bytes: *mut usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_key(tree, (key, key_bytes), |tree, key| {
            copy_to(tree, &there(tree.try_get(key)?)?, value, capacity, value_bytes)
        })
    }
}

/// Looks a key up, and shows its value without copying it: strings and bytes as they are in the pool. Nothing is
/// locked meanwhile.
///
/// Returns `BRISTLECONE_ABSENT` if the key is not there, `BRISTLECONE_CORRUPTED` if its value is nothing of the
/// tree's kind. Nothing was shown after any error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_get_with(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
    show: Show,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        with_key(tree, (key, key_bytes), |tree, key| {
            there(tree.get_with(key, |held| show_to(show, context, tree, &held))?)
        })
    }
}

/// Looks whether a key is there: `BRISTLECONE_OK`, or `BRISTLECONE_ABSENT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_contains(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { with_key(tree, (key, key_bytes), |tree, key| there(tree.contains_key(key)?.then_some(()))) }
}
