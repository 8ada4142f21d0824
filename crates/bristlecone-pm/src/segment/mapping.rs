//! Mappings of parts of the segment's file in this process.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::mm::{MapFlags, ProtFlags};

use super::extent::populate;
use crate::map::Watch;
use crate::{Opener, failpoint};

/// A shared mapping of a part of the file, until this is dropped. A child of the process does not inherit it.
#[derive(Debug)]
pub(super) struct Mapping {
    base: *mut u8,
    bytes: usize,
    opener: Opener,
    /// A follower's: unreadable pages read as zeros.
    watch: Option<Watch>,
}

// SAFETY: an address range, whose contents its holder accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of the file from `offset` on.
    pub fn of(file: &File, offset: u64, bytes: usize, prot: ProtFlags) -> Option<Self> {
        failpoint::check("mmap").ok()?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address chosen by the kernel.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, flags, file, offset) };
        let base = base.ok()?;
        // SAFETY: the mapping created above, whose contents this does not change.
        unsafe { libc::madvise(base, bytes, libc::MADV_DONTFORK) };
        Some(Self { base: base.cast(), bytes, opener: Opener::this(), watch: None })
    }

    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Makes an unreadable page read as zeros, and sets `patched` then: another process may punch a hole into it, and
    /// there may be no memory to fill that.
    pub fn watch(&mut self, path: &Path, patched: &Arc<AtomicBool>) {
        self.watch = Some(Watch::patching(self.base, self.bytes as u64, path, patched));
    }

    /// Allocates a range of the file, so that touching it cannot fail.
    pub fn back(&self, at: usize, bytes: usize) -> Option<()> {
        assert!(at + bytes <= self.bytes, "a range beyond the mapping");
        populate(self.base.wrapping_add(at), bytes).ok()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // First: another mapping may use the addresses as soon as they are unmapped.
        self.watch = None;
        if self.opener.is_here() {
            // SAFETY: the whole mapping, which no thread can reach any more.
            let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
        }
    }
}
