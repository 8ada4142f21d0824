//! Ranges of keys, as passed by C.

use std::ffi::c_void;
use std::ops::Bound;

use bristlecone_rs::dynamic::{Datum, Kind};

use crate::argument::{Versioned, options};
use crate::data::KEY;
use crate::entry::Passed;
use crate::status::{Failure, Outcome};

/// Excludes the first bound from the range.
pub const BRISTLECONE_FROM_EXCLUDED: u32 = 1;
/// Includes the last bound in the range.
pub const BRISTLECONE_TO_INCLUDED: u32 = 2;

/// The keys of an iterator: those from `from` up to, but without, `to`. A null bound is unbounded; an empty key as a
/// bound has a pointer that is not null, and no length. Begin with `BRISTLECONE_RANGE_INIT`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct KeyRange {
    /// Size of this struct in bytes.
    pub struct_bytes: usize,
    /// The first key.
    pub from: *const c_void,
    /// Its length.
    pub from_bytes: usize,
    /// The key behind the last one.
    pub to: *const c_void,
    /// Its length.
    pub to_bytes: usize,
    /// Any of `BRISTLECONE_FROM_EXCLUDED` and `BRISTLECONE_TO_INCLUDED`.
    pub flags: u32,
}

// SAFETY: numbers and pointers, and its size first.
unsafe impl Versioned for KeyRange {}

/// A range of keys of a kind.
pub struct Bounds<'a> {
    from: Bound<Datum<'a>>,
    to: Bound<Datum<'a>>,
}

impl Bounds<'_> {
    /// Returns the range as calls of the library take it.
    pub fn keys(&self) -> (Bound<&Datum<'_>>, Bound<&Datum<'_>>) {
        (self.from.as_ref(), self.to.as_ref())
    }
}

/// Converts a range passed by C.
///
/// # Safety
///
/// The pointer must be null, or point to a range whose pointers are valid for their lengths.
pub unsafe fn bounds<'a>(kind: &Kind, range: *const KeyRange) -> Outcome<Bounds<'a>> {
    // SAFETY: as the caller says.
    let range = unsafe { options(range) }?;
    let known = BRISTLECONE_FROM_EXCLUDED | BRISTLECONE_TO_INCLUDED;
    if range.flags & !known != 0 {
        return Err(Failure::usage(format!(
            "flags of a range that there are not: {:#x}",
            range.flags & !known
        )));
    }
    let bound = |key: Passed, included: bool| {
        // SAFETY: as the caller says.
        let key = unsafe { KEY.passed_or_absent(kind, key) }?;
        Ok::<_, Failure>(key.map_or(Bound::Unbounded, |key| {
            if included { Bound::Included(key) } else { Bound::Excluded(key) }
        }))
    };
    let from = bound((range.from, range.from_bytes), range.flags & BRISTLECONE_FROM_EXCLUDED == 0)?;
    let to = bound((range.to, range.to_bytes), range.flags & BRISTLECONE_TO_INCLUDED != 0)?;
    Ok(Bounds { from, to })
}
