//! Lookups by bytes.

use std::ffi::{c_int, c_void};

use bristlecone_rs::dynamic::{Datum, Kind};

use crate::argument::give;
use crate::data;
use crate::entry::with_key;
use crate::status::{BRISTLECONE_ABSENT, BRISTLECONE_TOO_SMALL, Failure, Outcome};
use crate::tree::TreeHandle;

/// Callback that receives a value, which is valid during the call. It may use the library, but must not close the
/// handle that the call is on. It must return: neither `longjmp` nor a C++ exception may leave it. May be null.
pub type Show = Option<unsafe extern "C" fn(context: *mut c_void, value: *const c_void, value_bytes: usize)>;

/// Passes a value of a kind to a callback.
///
/// # Safety
///
/// The function must accept this context.
pub unsafe fn show_to(show: Show, context: *mut c_void, kind: &Kind, value: &Datum<'_>) {
    if let Some(show) = show {
        let mut buffer = Vec::new();
        let bytes = data::write(kind, value, &mut buffer);
        // SAFETY: as the caller says.
        unsafe { show(context, bytes.as_ptr().cast(), bytes.len()) };
    }
}

/// Copies a value of a kind to a buffer of C.
///
/// # Safety
///
/// The buffer must be writable, and so must the length unless it is null.
pub unsafe fn copy_to(
    kind: &Kind,
    value: &Datum<'_>,
    to: *mut c_void,
    capacity: usize,
    len: *mut usize,
) -> Outcome {
    let mut buffer = Vec::new();
    let bytes = data::write(kind, value, &mut buffer);
    // SAFETY: as the caller says.
    unsafe { give(len, bytes.len()) };
    if bytes.len() > capacity || (to.is_null() && !bytes.is_empty()) {
        return Err(Failure::Plain(BRISTLECONE_TOO_SMALL));
    }
    if !bytes.is_empty() {
        // SAFETY: not null, with space for this many bytes, as the caller says.
        unsafe { std::ptr::copy(bytes.as_ptr(), to.cast(), bytes.len()) };
    }
    Ok(())
}

/// Returns the found value, or an error if there is none.
pub fn there<T>(found: Option<T>) -> Outcome<T> {
    found.ok_or(Failure::Plain(BRISTLECONE_ABSENT))
}

/// Looks a key up, and copies its value to a buffer of `capacity` bytes. `*value_bytes`, which may be null, is the
/// length of the value, even if it does not fit: then the result is `BRISTLECONE_TOO_SMALL`, and nothing is copied.
///
/// Returns `BRISTLECONE_ABSENT` if the key does not exist, `BRISTLECONE_CORRUPTED` if its record is damaged or
/// its value is invalid for the tree's kind, or if damage may affect the key. The buffer is unchanged after any error.
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
            there(tree.get_with(key, |held| copy_to(tree.value_kind(), held, value, capacity, value_bytes))?)?
        })
    }
}

/// Looks a key up, and passes its value to the callback without copying it: strings and bytes in place in the pool.
/// Nothing is locked meanwhile.
///
/// Returns `BRISTLECONE_ABSENT` if the key does not exist, `BRISTLECONE_CORRUPTED` if its record is damaged or
/// its value is invalid for the tree's kind, or if damage may affect the key. The callback is not called after any error.
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
            there(tree.get_with(key, |held| show_to(show, context, tree.value_kind(), held))?)
        })
    }
}

/// Returns `BRISTLECONE_OK` if a key exists, or `BRISTLECONE_ABSENT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_contains(
    tree: *const TreeHandle,
    key: *const c_void,
    key_bytes: usize,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { with_key(tree, (key, key_bytes), |tree, key| there(tree.contains(key)?.then_some(()))) }
}
