//! Bristlecone for C: `include/bristlecone.h` is generated from this crate, and documents each call.
//!
//! The implementation of trees is in [`bristlecone_rs::dynamic`]. This crate adds what C needs: handles that may
//! be null, closed or of another kind ([`handle`]), bytes for data ([`data`]), and status codes with messages
//! ([`status`]). No call unwinds into C.

#![allow(clippy::missing_safety_doc, reason = "what holds of every pointer stands in `argument`, once")]

use std::ffi::c_int;

mod argument;
mod batch;
mod changes;
mod data;
mod entry;
mod exclusive;
mod expiring;
mod handle;
mod inside;
mod iter;
mod journal;
mod many;
mod object;
mod pool;
mod range;
mod read;
mod snapshot;
mod status;
mod ticket;
mod transaction;
mod tree;
mod words;
mod write;

/// The version of this interface: a program compiled with another one must not use the library. It is also the
/// number in the name of the shared library.
pub const BRISTLECONE_ABI_VERSION: i32 = 1;

/// Returns the version of the library's interface: `BRISTLECONE_ABI_VERSION` of its header.
#[unsafe(no_mangle)]
pub extern "C" fn bristlecone_abi_version() -> c_int {
    BRISTLECONE_ABI_VERSION
}

/// Returns the version of the library, such as "0.1.0". The string is valid as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn bristlecone_version() -> *const std::ffi::c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
