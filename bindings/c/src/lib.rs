//! Bristlecone for C: `include/bristlecone.h` is made of this crate, and says what each call does.
//!
//! Nothing here knows how a tree works: [`bristlecone_rs::dynamic`] does. What is here is what C needs besides:
//! handles that may be null, closed or of another kind ([`handle`]), bytes for data ([`data`]), and status codes with
//! messages ([`status`]). No call unwinds into C.

#![allow(clippy::missing_safety_doc, reason = "what holds of every pointer stands in `argument`, once")]

use std::ffi::c_int;

mod argument;
mod batch;
mod data;
mod entry;
mod exclusive;
mod handle;
mod inside;
mod iter;
mod many;
mod object;
mod pool;
mod range;
mod read;
mod snapshot;
mod status;
mod transaction;
mod tree;
mod words;
mod write;

/// The version of this interface: a program that was compiled with another one must not use the library. It is the
/// number behind the name of the shared library, too.
pub const BRISTLECONE_ABI_VERSION: i32 = 1;

/// Returns the version of the interface that the library has: `BRISTLECONE_ABI_VERSION` of its header.
#[unsafe(no_mangle)]
pub extern "C" fn bristlecone_abi_version() -> c_int {
    BRISTLECONE_ABI_VERSION
}

/// Returns the version of the library, such as "0.1.0". The string lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn bristlecone_version() -> *const std::ffi::c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
