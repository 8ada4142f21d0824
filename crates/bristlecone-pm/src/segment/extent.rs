//! Address space that is filled from the front: with memory of this process, or of a segment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use super::{EXTENT_BYTES, EXTENTS_MAX, Mode, Segment};
use crate::map::{HUGE_BYTES, Watch, address_space, collapse};
use crate::{Error, Opener, PAGE_BYTES, Result, failpoint};

/// Pages are added in steps of this size up to the size of a huge page.
const FIRST_STEPS_BYTES: usize = 64 << 10;
const HUGE: usize = HUGE_BYTES as usize;

/// A range of address space whose bytes are initially zero and never move. See the module.
#[derive(Debug)]
pub struct Extent {
    base: *mut u8,
    reserved: usize,
    whole: (*mut u8, usize),
    shared: Option<Shared>,
    opener: Opener,
}

/// The segment that owns the memory, if it is not private.
#[derive(Debug)]
struct Shared {
    segment: Arc<Segment>,
    number: u32,
    /// Whether it stays when its holder is dropped.
    kept: AtomicBool,
    /// A follower's: unreadable pages read as zeros.
    _watch: Option<Watch>,
}

// SAFETY: an address range, whose contents its holder accesses.
unsafe impl Send for Extent {}
// SAFETY: as above.
unsafe impl Sync for Extent {}

impl Extent {
    /// Returns address space for up to `bytes` bytes of memory of this process. If address space is limited, it is for
    /// less, and at most half of what is left: a tree has several extents, and the process needs some itself.
    ///
    /// # Errors
    ///
    /// If there is no address space left.
    pub fn private(bytes: usize) -> Result<Self> {
        let (mut reserved, mut is_limited) = (bytes, false);
        loop {
            match address_space(reserved) {
                Ok((whole, _)) if is_limited && reserved > HUGE => {
                    // SAFETY: the whole reservation, which nothing uses.
                    let _ = unsafe { rustix::mm::munmap(whole.0.cast(), whole.1) };
                    (reserved, is_limited) = (reserved / 2, false);
                }
                Ok((whole, base)) => {
                    return Ok(Self { base, reserved, whole, shared: None, opener: Opener::this() });
                }
                Err(_) if reserved > HUGE => (reserved, is_limited) = (reserved / 2, true),
                Err(error) => {
                    return Err(Error::io("finding address space for the index in DRAM", error));
                }
            }
        }
    }

    /// Returns a new zeroed extent of a segment.
    pub(super) fn fresh(segment: &Arc<Segment>, bytes: usize) -> Option<Self> {
        let number = segment.take_extent()?;
        let mapped = Self::map(segment, number, bytes);
        if mapped.is_none() {
            segment.give_back(number);
        }
        mapped
    }

    /// Returns an extent of which a tree had used `usable` bytes.
    pub(super) fn again(segment: &Arc<Segment>, number: u32, bytes: usize, usable: usize) -> Option<Self> {
        let fits = (1..EXTENTS_MAX).contains(&number) && usable <= bytes.min(EXTENT_BYTES as usize);
        fits.then(|| Self::map(segment, number, bytes))?
    }

    /// Maps an extent of a segment; if that fails, the segment keeps it.
    fn map(segment: &Arc<Segment>, number: u32, bytes: usize) -> Option<Self> {
        let reserved = bytes.min(EXTENT_BYTES as usize);
        let (whole, base) = failpoint::check("mmap").and_then(|()| address_space(reserved)).ok()?;
        let flags = if segment.mode == Mode::Read { MapFlags::PRIVATE } else { MapFlags::SHARED };
        let flags = flags | MapFlags::FIXED | MapFlags::NORESERVE;
        let is_followed = segment.mode == Mode::Follow;
        let prot = if is_followed { ProtFlags::READ } else { ProtFlags::READ | ProtFlags::WRITE };
        let offset = u64::from(number) * EXTENT_BYTES;
        // SAFETY: replaces the reservation made above, which no other code uses.
        if unsafe { rustix::mm::mmap(base.cast(), reserved, prot, flags, &segment.file, offset) }.is_err() {
            // SAFETY: the whole reservation, which is unused.
            let _ = unsafe { rustix::mm::munmap(whole.0.cast(), whole.1) };
            return None;
        }
        // SAFETY: the whole reservation, whose contents this does not change. A child does not touch it.
        unsafe { libc::madvise(whole.0.cast(), whole.1, libc::MADV_DONTFORK) };
        let watch =
            is_followed.then(|| Watch::patching(base, reserved as u64, segment.place.path(), &segment.over));
        let shared =
            Shared { segment: Arc::clone(segment), number, kept: AtomicBool::new(false), _watch: watch };
        Some(Self { base, reserved, whole, shared: Some(shared), opener: Opener::this() })
    }

    /// Returns the start address.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the size of the address space in bytes.
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// Returns whether it is memory of this process.
    pub fn is_private(&self) -> bool {
        self.shared.is_none()
    }

    /// Makes the first `bytes` bytes usable, of which `usable` already are, and returns the new
    /// number.
    ///
    /// # Errors
    ///
    /// If there is no address space or memory for them.
    pub fn extend(&self, usable: usize, bytes: usize) -> Result<usize> {
        if bytes <= usable {
            return Ok(usable);
        }
        let step = if self.is_private() || bytes > HUGE { HUGE } else { FIRST_STEPS_BYTES };
        let end = bytes.next_multiple_of(step);
        if end > self.reserved {
            return Err(Error::io("finding address space for the index in DRAM", Errno::NOMEM));
        }
        let (start, len) = (self.base.wrapping_add(usable), end - usable);
        match &self.shared {
            Some(shared) if shared.segment.is_whole() => {
                if self.populate(usable, end).is_err() {
                    // The segment has no space, but this process has. Existing contents stay
                    // available to the pool.
                    shared.segment.give_up();
                    let replaced = self.replace(usable);
                    shared.segment.punch(shared.number, usable..end);
                    replaced?;
                }
            }
            Some(_) => self.replace(usable)?,
            None => {
                // SAFETY: the range lies in the reservation, beyond what is in use.
                unsafe {
                    rustix::mm::mprotect(start.cast(), len, MprotectFlags::READ | MprotectFlags::WRITE)
                }
                .map_err(|error| Error::io("finding memory for the index in DRAM", error))?;
                if usable > 0 {
                    // SAFETY: as above; advice changes no contents, and its failure only costs speed.
                    let _ = unsafe { rustix::mm::madvise(start.cast(), len, Advice::LinuxHugepage) };
                }
            }
        }
        Ok(end)
    }

    /// Makes the bytes of any range usable: for an extent that is never extended otherwise.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub fn back(&self, at: usize, bytes: usize) -> Result<()> {
        assert!(at + bytes <= self.reserved, "bytes beyond the extent");
        let (from, end) = (at / PAGE_BYTES * PAGE_BYTES, (at + bytes).next_multiple_of(PAGE_BYTES));
        let Some(shared) = &self.shared else {
            let start = self.base.wrapping_add(from);
            // SAFETY: the range lies in the reservation; no access right is removed.
            let allowed = unsafe {
                rustix::mm::mprotect(start.cast(), end - from, MprotectFlags::READ | MprotectFlags::WRITE)
            };
            return allowed.map_err(|error| Error::io("finding memory for the index in DRAM", error));
        };
        if shared.segment.mode != Mode::Write || self.write_pages(from, end).is_ok() {
            return Ok(());
        }
        // The segment has no space, but this process has. A page of the segment stays.
        shared.segment.give_up();
        (from..end).step_by(PAGE_BYTES).try_for_each(|page| match self.write_pages(page, page + PAGE_BYTES) {
            Ok(()) => Ok(()),
            Err(_) => self.replace_range(page, PAGE_BYTES),
        })
    }

    /// Allocates memory of the segment for a range: huge pages, if it is at least as long as one.
    fn populate(&self, from: usize, end: usize) -> rustix::io::Result<()> {
        let huge = from.next_multiple_of(HUGE);
        if huge + HUGE <= end {
            self.write_pages(from, huge)?;
            return (huge..end).step_by(HUGE).try_for_each(|from| {
                // One page first: a range that consists only of holes does not collapse.
                self.write_pages(from, from + FIRST_STEPS_BYTES)?;
                if collapse(self.base.wrapping_add(from), HUGE) {
                    Ok(())
                } else {
                    self.write_pages(from, from + HUGE)
                }
            });
        }
        self.write_pages(from, end)
    }

    fn write_pages(&self, from: usize, end: usize) -> rustix::io::Result<()> {
        if from == end { Ok(()) } else { populate(self.base.wrapping_add(from), end - from) }
    }

    /// Replaces all unused pages by memory of this process.
    fn replace(&self, usable: usize) -> Result<()> {
        self.replace_range(usable, self.reserved - usable)
    }

    /// Replaces unused pages of a range by memory of this process.
    fn replace_range(&self, from: usize, bytes: usize) -> Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let (start, prot) = (self.base.wrapping_add(from), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: pages of this mapping that no thread has seen: the usable part ends at a page
        // boundary.
        unsafe { rustix::mm::mmap_anonymous(start.cast(), bytes, prot, flags) }
            .map(drop)
            .map_err(|error| Error::io("finding memory for the index in DRAM", error))
    }

    /// Returns its number in its segment.
    pub(super) fn number(&self) -> Option<u32> {
        self.shared.as_ref().filter(|shared| shared.segment.is_whole()).map(|shared| shared.number)
    }

    /// Makes the extent stay in its segment when this is dropped; returns its number.
    pub(super) fn keep(&self) -> Option<u32> {
        let shared = self.shared.as_ref().filter(|shared| shared.segment.is_whole())?;
        shared.kept.store(true, Relaxed);
        Some(shared.number)
    }

    /// Zeroes the first `bytes` bytes, which must be usable.
    ///
    /// # Safety
    ///
    /// No reference to them may exist.
    pub unsafe fn zero(&self, bytes: usize) {
        debug_assert!(bytes <= self.reserved, "bytes beyond the extent");
        // SAFETY: the caller's promise.
        unsafe { self.base.write_bytes(0, bytes) };
    }
}

/// Allocates the pages of a mapped range.
pub(super) fn populate(start: *mut u8, bytes: usize) -> rustix::io::Result<()> {
    failpoint::call("populate", || {
        // SAFETY: no byte of the range changes, wherever it is.
        let done = unsafe { libc::madvise(start.cast(), bytes, libc::MADV_POPULATE_WRITE) };
        if done == 0 {
            Ok(())
        } else {
            Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
        }
    })
}

impl Drop for Extent {
    fn drop(&mut self) {
        if !self.opener.is_here() && !self.is_private() {
            // A child does not have the mapping, and the segment is not its own.
            return;
        }
        // SAFETY: the whole reservation, which no thread can reach any more. A failure only leaks
        // address space.
        let _ = unsafe { rustix::mm::munmap(self.whole.0.cast(), self.whole.1) };
        if let Some(shared) = &self.shared
            && !shared.kept.load(Relaxed)
        {
            shared.segment.give_back(shared.number);
        }
    }
}
