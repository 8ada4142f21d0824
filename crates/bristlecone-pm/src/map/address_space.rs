//! Reserving address space before anything is mapped into it.

use std::ops::RangeInclusive;

use rustix::mm::{MapFlags, ProtFlags};

use super::HUGE_BYTES;
use crate::{Error, Result, failpoint};

/// Reserves address space like [`reserve`], with as many bytes as possible: tries the maximum, then
/// halves it down to the minimum.
pub(super) fn reserve_within(bytes: RangeInclusive<u64>) -> Result<((*mut u8, usize), *mut u8, u64)> {
    let (least, mut asked) = bytes.into_inner();
    loop {
        match reserve(asked) {
            Ok((whole, base)) => return Ok((whole, base, asked)),
            Err(error) if asked == least => return Err(error),
            Err(_) => asked = (asked / 2 / HUGE_BYTES * HUGE_BYTES).max(least),
        }
    }
}

/// Reserves address space aligned to a huge page: (the whole mapping, the aligned start).
pub(super) fn reserve(bytes: u64) -> Result<((*mut u8, usize), *mut u8)> {
    let reserved = failpoint::check("mmap").and_then(|()| address_space(bytes as usize));
    let doing = || format!("reserving {bytes} bytes of address space, which `ulimit -v` may forbid");
    reserved.map_err(|error| Error::io(doing(), error))
}

/// Maps inaccessible address space aligned to a huge page: (the whole mapping, the aligned start).
pub(crate) fn address_space(bytes: usize) -> rustix::io::Result<((*mut u8, usize), *mut u8)> {
    let whole = bytes + HUGE_BYTES as usize;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address chosen by the kernel overlaps no other.
    let start =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::empty(), flags)? };
    let start = start.cast::<u8>();
    Ok(((start, whole), start.map_addr(|addr| addr.next_multiple_of(HUGE_BYTES as usize))))
}
