//! Address space that nothing stands in yet.

use std::ops::RangeInclusive;

use rustix::mm::{MapFlags, ProtFlags};

use super::HUGE_BYTES;
use crate::{Error, Result, failpoint};

/// Reserves address space as [`reserve`] does, with as many bytes as there are: halves of the most, or the least.
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

/// Reserves address space that begins at a huge page: (all of it, the aligned begin).
pub(super) fn reserve(bytes: u64) -> Result<((*mut u8, usize), *mut u8)> {
    let reserved = failpoint::check("mmap").and_then(|()| address_space(bytes as usize));
    let doing = || format!("reserving {bytes} bytes of address space, which `ulimit -v` may forbid");
    reserved.map_err(|error| Error::io(doing(), error))
}

/// Maps address space that nothing stands in, and that begins at a huge page: (all of it, the aligned begin).
pub(crate) fn address_space(bytes: usize) -> rustix::io::Result<((*mut u8, usize), *mut u8)> {
    let whole = bytes + HUGE_BYTES as usize;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs no other.
    let start =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::empty(), flags)? };
    let start = start.cast::<u8>();
    Ok(((start, whole), start.map_addr(|addr| addr.next_multiple_of(HUGE_BYTES as usize))))
}
