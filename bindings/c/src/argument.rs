//! Conversion of arguments from C, according to the contract of the header.
//!
//! Every pointer must be null where that is allowed, or point to as many live bytes as its length or its type
//! says, which no other thread changes during the call. The target of a result must be aligned and writable.
//! Handles are the exception: they are looked up instead of dereferenced, so that any value is allowed.

use std::ffi::{CStr, c_char, c_void};

use crate::status::{Failure, Outcome};

/// Longer data cannot be keys or values of any kind: their pointers are not dereferenced.
const BYTES_MAX: usize = 1 << 20;

/// Returns the bytes of a key or a value. Null has no bytes.
///
/// # Safety
///
/// The pointer must point to `len` bytes: see the module.
#[inline(always)]
pub unsafe fn bytes<'a>(what: &str, data: *const c_void, len: usize) -> Outcome<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() || len > BYTES_MAX {
        return Err(impossible(what, data, len));
    }
    // SAFETY: not null, and as the caller says.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

#[cold]
fn impossible(what: &str, data: *const c_void, len: usize) -> Failure {
    if data.is_null() {
        return Failure::usage(format!("a {what} of {len} bytes at a null pointer"));
    }
    Failure::usage(format!("a {what} of {len} bytes is too long: no kind has more than {BYTES_MAX}"))
}

/// Returns an array of `len` elements.
///
/// # Safety
///
/// The pointer must point to `len` elements: see the module.
pub unsafe fn array<'a, T>(what: &str, first: *const T, len: usize) -> Outcome<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    expect_array(what, first, len)?;
    // SAFETY: not null, aligned, of a possible size, and as the caller says.
    Ok(unsafe { std::slice::from_raw_parts(first, len) })
}

/// Checks that an array of `len` elements is possible at a pointer.
pub fn expect_array<T>(what: &str, first: *const T, len: usize) -> Outcome {
    if len == 0 {
        return Ok(());
    }
    if first.is_null() || !first.is_aligned() {
        return Err(Failure::usage(format!("{len} {what} at a pointer that is null or not aligned")));
    }
    if len > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::usage(format!("{len} {what}: there is no such array")));
    }
    Ok(())
}

/// Returns a string.
///
/// # Safety
///
/// The pointer must be null, or point to a string that ends with a zero.
pub unsafe fn text<'a>(what: &str, text: *const c_char) -> Outcome<&'a str> {
    // SAFETY: as the caller says.
    let text = unsafe { optional_text(what, text) }?;
    text.ok_or_else(|| Failure::usage(format!("{what} is a null pointer")))
}

/// Returns an optional string.
///
/// # Safety
///
/// As [`text`].
pub unsafe fn optional_text<'a>(what: &str, text: *const c_char) -> Outcome<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and as the caller says.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Failure::usage(format!("{what} is not UTF-8")))
}

/// Writes a result, if requested.
///
/// # Safety
///
/// The pointer must be null, or point to a writable place.
#[inline(always)]
pub unsafe fn give<T>(to: *mut T, result: T) {
    if !to.is_null() {
        // SAFETY: not null, and as the caller says.
        unsafe { to.write(result) };
    }
}

/// Returns the target of a new handle.
pub fn place<T>(to: *mut T) -> Outcome<*mut T> {
    if to.is_null() {
        Err(Failure::usage("nowhere to write the handle to: the pointer is null"))
    } else {
        Ok(to)
    }
}

/// A struct of C that begins with its size in bytes, and may become longer in later versions. Zeros must be valid
/// in every version.
///
/// # Safety
///
/// The type must be `repr(C)`, all zeros must be a valid value, and its first member must be a `usize`.
pub unsafe trait Versioned: Copy {}

const SIZE: usize = size_of::<usize>();

/// Maximum size of a struct of a later version.
const STRUCT_BYTES_MAX: usize = 4096;

/// Returns the size that a struct of C has.
///
/// # Safety
///
/// The pointer must be null, or point to a struct.
pub unsafe fn size_of_struct<T: Versioned>(at: *const T) -> Outcome<usize> {
    if at.is_null() || !at.is_aligned() {
        return Err(Failure::usage("a struct at a pointer that is null or not aligned"));
    }
    // SAFETY: aligned and not null, and the first member exists in every version.
    let bytes = unsafe { at.cast::<usize>().read() };
    if !(SIZE..=STRUCT_BYTES_MAX).contains(&bytes) {
        return Err(Failure::usage(format!(
            "a struct of {bytes} bytes: set its first member by its initializer"
        )));
    }
    Ok(bytes)
}

/// Returns a struct of the caller's version. Null means the defaults: zeros.
///
/// # Safety
///
/// The pointer must be null, or point to a struct with as many bytes as its first member says.
pub unsafe fn options<T: Versioned>(from: *const T) -> Outcome<T> {
    // SAFETY: zeros are a valid value.
    let mut own: T = unsafe { std::mem::zeroed() };
    if from.is_null() {
        return Ok(own);
    }
    // SAFETY: as the caller says.
    let bytes = unsafe { size_of_struct(from) }?;
    // SAFETY: the caller has this many bytes, and ours are not longer.
    unsafe {
        let known = bytes.min(size_of::<T>());
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut own).cast::<u8>(), known);
        let beyond = std::slice::from_raw_parts(from.cast::<u8>().add(known), bytes - known);
        if beyond.iter().any(|byte| *byte != 0) {
            return Err(Failure::usage(
                "a struct sets something that this version of the library does not know",
            ));
        }
    }
    Ok(own)
}

/// Writes a struct of the caller's version; its first member is unchanged.
///
/// # Safety
///
/// The pointer must point to a writable struct with as many bytes as its first member says.
pub unsafe fn fill<T: Versioned>(to: *mut T, own: &T) -> Outcome {
    // SAFETY: as the caller says.
    let bytes = unsafe { size_of_struct(to) }?;
    // SAFETY: the caller has this many bytes, and ours are not longer.
    unsafe {
        let known = bytes.min(size_of::<T>());
        let (from, to) = (std::ptr::from_ref(own).cast::<u8>(), to.cast::<u8>());
        std::ptr::copy_nonoverlapping(from.add(SIZE), to.add(SIZE), known - SIZE);
        to.add(known).write_bytes(0, bytes - known);
    }
    Ok(())
}
