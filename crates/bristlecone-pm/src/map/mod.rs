//! The bytes of a pool in this process: one stretch of address space, reserved once, that a file
//! (or anonymous memory) fills from the front as it grows, so that nothing ever moves.

mod address_space;
pub(crate) mod numa;
mod pages;
mod sigbus;

use std::any::Any;
use std::fs::File;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

pub(crate) use self::address_space::address_space;
use self::address_space::{reserve, reserve_within};
pub(crate) use self::pages::{HUGE_BYTES, collapse};
pub(crate) use self::sigbus::Watch;
use crate::medium::is_memory;
use crate::{Error, Opener, PAGE_BYTES, Result, failpoint};

/// Where a pool's file is, and whether faults in its mapping are handled here.
///
/// They are, unless [`At::unhandled`] says otherwise: a process that has a handler of its own for `SIGBUS`
/// keeps it.
#[derive(Clone, Copy, Debug)]
pub struct At<'p> {
    pub(crate) path: &'p Path,
    pub(crate) handled: bool,
}

impl<'p> At<'p> {
    /// Returns a place whose faults are not handled: no handler is installed for `SIGBUS`.
    pub fn unhandled(path: &'p Path) -> Self {
        Self { path, handled: false }
    }
}

impl<'p, P: AsRef<Path> + ?Sized> From<&'p P> for At<'p> {
    fn from(path: &'p P) -> Self {
        Self { path: path.as_ref(), handled: true }
    }
}

/// A pool's bytes. See the module.
#[derive(Debug)]
pub struct Region {
    base: *mut u8,
    reserved: u64,
    /// What was reserved, before alignment; null if the bytes are not ours.
    whole: (*mut u8, usize),
    /// Keeps bytes that are not ours.
    owner: Option<Arc<dyn Any + Send + Sync>>,
    len: AtomicU64,
    file: Option<File>,
    /// Whether stores reach the file.
    shared: bool,
    in_memory: bool,
    dax: bool,
    /// Tells where, should a byte of the file not be there when it is touched.
    watch: Option<Watch>,
    opener: Opener,
    /// Whether a child of the opener has closed the file for itself.
    abandoned: AtomicBool,
}

// SAFETY: the region is an address range; what is in it is reached through atomics only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Returns anonymous memory of `bytes`, all zero: for tests and simulators.
    ///
    /// # Errors
    ///
    /// [`Io`](Error::Io) if the system has no such address space.
    pub fn memory(bytes: u64) -> Result<Self> {
        let (whole, base) = reserve(bytes)?;
        let region = Self::over(whole, base, bytes, bytes);
        region.allow(bytes)?;
        Ok(region)
    }

    /// Makes a region that has no file yet.
    fn over(whole: (*mut u8, usize), base: *mut u8, reserved: u64, len: u64) -> Self {
        Self {
            base,
            reserved,
            whole,
            owner: None,
            len: AtomicU64::new(len),
            file: None,
            shared: false,
            in_memory: true,
            dax: false,
            watch: None,
            opener: Opener::this(),
            abandoned: AtomicBool::new(false),
        }
    }

    /// Lets the first `bytes` of the reservation be used.
    fn allow(&self, bytes: u64) -> Result<()> {
        let prot = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
        // SAFETY: the range lies in the reservation, and takes no right away.
        let allowed = unsafe { rustix::mm::mprotect(self.base.cast(), bytes as usize, prot) };
        allowed.map_err(|error| Error::io("reserving memory", error))
    }

    /// Returns memory that `owner` looks after, such as a simulator's, of which `len` bytes count as existing.
    ///
    /// # Safety
    ///
    /// `base` points to `reserved` readable and writable bytes, aligned to a line, that exist as long
    /// as `owner` does and are reached through atomics only.
    pub unsafe fn owned_by(
        owner: Arc<dyn Any + Send + Sync>,
        base: *mut u8,
        reserved: u64,
        len: u64,
    ) -> Self {
        let mut region = Self::over((std::ptr::null_mut(), 0), base, reserved, len);
        region.owner = Some(owner);
        region
    }

    /// Maps `file`, found there, of which `len` bytes exist and `reserved` may come to exist: as many of these as
    /// there is address space for.
    pub(crate) fn file(file: File, at: At<'_>, len: u64, reserved: RangeInclusive<u64>) -> Result<Self> {
        let (whole, base, reserved) = reserve_within(reserved)?;
        let map = |flags: MapFlags| {
            failpoint::check("mmap")?;
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: replaces part of the reservation made above, which no other code uses.
            unsafe {
                rustix::mm::mmap(base.cast(), reserved as usize, prot, flags | MapFlags::FIXED, &file, 0)
            }
        };
        let dax = map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC).is_ok();
        let mapped = if dax { Ok(()) } else { map(MapFlags::SHARED).map(drop) };
        let mut region = Self::over(whole, base, reserved, len);
        (region.shared, region.in_memory, region.dax) = (true, is_memory(&file), dax);
        region.watch = at.handled.then(|| Watch::new(base, reserved, at.path));
        region.file = Some(file);
        mapped.map_err(|error| Error::io("mapping the pool", error))?;
        region.keep_from_children();
        Ok(region)
    }

    /// Maps the `len` bytes of `file`, found there, for reading: stores, and what the region
    /// grows by, stay in this process.
    pub(crate) fn private(file: File, at: At<'_>, len: u64, reserved: RangeInclusive<u64>) -> Result<Self> {
        let (whole, base, reserved) = reserve_within(reserved)?;
        let private = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let mapped = failpoint::check("mmap").and_then(|()| {
            // SAFETY: replaces part of the reservation made above, which no other code uses.
            unsafe { rustix::mm::mmap(base.cast(), len as usize, prot, private, &file, 0) }
        });
        let sync = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
        // SAFETY: a new mapping at an address of the kernel's choice. It is mapped to see
        // whether it can be had, and unmapped.
        let dax = unsafe {
            let asked = rustix::mm::mmap(std::ptr::null_mut(), PAGE_BYTES, ProtFlags::READ, sync, &file, 0);
            asked.is_ok_and(|page| rustix::mm::munmap(page, PAGE_BYTES).is_ok())
        };
        let mut region = Self::over(whole, base, reserved, len);
        (region.in_memory, region.dax) = (is_memory(&file), dax);
        region.watch = at.handled.then(|| Watch::new(base, len, at.path));
        region.file = Some(file);
        mapped.map_err(|error| Error::io("mapping the pool", error))?;
        region.keep_from_children();
        Ok(region)
    }

    /// Maps `file`, found there, which another process writes to, for reading; `patched` is set if that takes a page away.
    pub(crate) fn follow(
        file: File,
        at: At<'_>,
        len: u64,
        reserved: RangeInclusive<u64>,
        patched: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let (whole, base, reserved) = reserve_within(reserved)?;
        let mut region = Self::over(whole, base, reserved, len);
        (region.in_memory, region.file) = (is_memory(&file), Some(file));
        let map = |flags: MapFlags, file: &File| {
            failpoint::check("mmap")?;
            // SAFETY: replaces part of the reservation made above, which no other code uses.
            unsafe {
                rustix::mm::mmap(
                    base.cast(),
                    reserved as usize,
                    ProtFlags::READ,
                    flags | MapFlags::FIXED,
                    file,
                    0,
                )
            }
        };
        let file = region.file.as_ref().expect("set above");
        let dax = map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC, file).is_ok();
        let mapped = if dax { Ok(()) } else { map(MapFlags::SHARED, file).map(drop) };
        region.dax = dax;
        region.watch = at.handled.then(|| Watch::patching(base, reserved, at.path, patched));
        mapped.map_err(|error| Error::io("mapping the pool", error))?;
        region.keep_from_children();
        Ok(region)
    }

    /// Leaves the mapping out of what a child inherits: whatever the child does, it does not reach the
    /// pool. If the kernel refuses, a child has bytes that it does not touch.
    fn keep_from_children(&self) {
        // SAFETY: the whole reservation, whose contents this does not change.
        unsafe { libc::madvise(self.whole.0.cast(), self.whole.1, libc::MADV_DONTFORK) };
    }

    /// Returns the process that opened the region, to which alone it belongs.
    pub(crate) fn opener(&self) -> &Opener {
        &self.opener
    }

    /// Closes the file in a child of the opener, so that the child does not hold the lock when the
    /// opener is gone. Nothing else is done: there may be other handles to the region in the child.
    pub(crate) fn abandon(&self) {
        if let Some(file) = &self.file
            && !self.opener.is_here()
            && !self.abandoned.swap(true, Ordering::Relaxed)
        {
            // SAFETY: the child does nothing with the file from now on, nor does it close it again.
            unsafe { libc::close(file.as_raw_fd()) };
        }
    }

    /// Replaces whole pages that the file does not have, or cannot be read from, by zeros.
    pub(crate) fn blank(&self, offset: u64, bytes: u64) -> Result<()> {
        let end = self.len().next_multiple_of(PAGE_BYTES as u64);
        assert!(!self.shared && offset + bytes <= end, "pages of the region");
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let (start, prot) = (self.base.wrapping_add(offset as usize), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: replaces pages of a private mapping, to which no reference exists yet.
        let blank = unsafe { rustix::mm::mmap_anonymous(start.cast(), bytes as usize, prot, flags) };
        blank.map_err(|error| Error::io("mapping the pool", error))?;
        self.keep_from_children();
        Ok(())
    }

    /// Returns whether the file lies in memory, where even a read of a hole takes a page.
    pub(crate) fn in_memory(&self) -> bool {
        self.in_memory
    }

    /// Returns whether faults in the mapping are handled here.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Returns where the bytes begin in this process.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns bytes of address space.
    #[inline]
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Returns bytes that exist.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Returns the bytes that exist by now, where another process makes more of them exist.
    #[cold]
    pub(crate) fn len_now(&self) -> u64 {
        let found = self.file.as_ref().and_then(|file| file.metadata().ok());
        let len = found.map_or(0, |file| file.len().min(self.reserved));
        self.len.store(len, Ordering::Release);
        len
    }

    /// Returns whether nothing exists yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn dax(&self) -> bool {
        self.dax
    }

    pub(crate) fn as_file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Returns the file, if stores reach it.
    fn shared_file(&self) -> Option<&File> {
        self.file.as_ref().filter(|_| self.shared)
    }

    /// Makes the first `len` bytes exist. The caller lets no other thread grow the region meanwhile.
    pub(crate) fn grow(&self, len: u64) -> Result<()> {
        assert!(len <= self.reserved, "a region beyond its reservation");
        if len <= self.len() {
            return Ok(());
        }
        if let Some(file) = self.shared_file() {
            // Beyond the limit the kernel would answer with a signal that ends the process.
            let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
            let allowed = if limit.is_some_and(|limit| len > limit) { Err(Errno::FBIG) } else { Ok(()) };
            let grow = || rustix::fs::ftruncate(file.as_fd(), len);
            let grown = allowed.and_then(|()| failpoint::call("ftruncate", grow));
            grown.map_err(|error| full_or(error, len))?;
        } else if self.file.is_some() {
            self.allow(len)?;
        }
        // Pairs with `len`: a thread that sees the length may touch the bytes.
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Gives the bytes of a range back to the file system, durably: they are zeros from now on. `false`: it takes none
    /// back.
    pub(crate) fn punch(&self, offset: u64, bytes: u64) -> Result<bool> {
        let Some(file) = self.shared_file() else { return Ok(false) };
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        let punch = || rustix::fs::fallocate(file.as_fd(), flags, offset, bytes);
        match failpoint::call("fallocate", punch) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(error) => Err(Error::io("giving space back to the file system", error)),
        }
    }

    /// Cuts the file off behind `len` bytes, which is no more than it has. No thread touches what lies behind
    /// them, and the caller lets no other thread grow the region meanwhile.
    pub(crate) fn shrink(&self, len: u64) -> Result<()> {
        assert!(len <= self.len(), "a region is not cut off behind its end");
        let Some(file) = self.shared_file() else { return Ok(()) };
        let cut = failpoint::call("ftruncate", || rustix::fs::ftruncate(file.as_fd(), len));
        cut.map_err(|error| Error::io("cutting off the pool", error))?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Returns the bytes that the file system has for the file, if stores reach it.
    pub(crate) fn backed_bytes(&self) -> u64 {
        self.shared_file().and_then(|file| file.metadata().ok()).map_or(0, |file| file.blocks() * 512)
    }

    /// Writes everything back to the file.
    pub(crate) fn sync(&self) -> Result<()> {
        let Some(file) = self.shared_file() else { return Ok(()) };
        failpoint::call("fsync", || rustix::fs::fsync(file.as_fd()))
            .map_err(|error| Error::io("syncing the pool", error))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.owner.is_some() {
            return;
        }
        // First: the addresses may be another mapping's as soon as they are unmapped.
        self.watch = None;
        if !self.opener.is_here() {
            // The addresses may be another mapping's in this process, and the lock is the opener's.
            if self.abandoned.load(Ordering::Relaxed) {
                std::mem::forget(self.file.take());
            }
            return;
        }
        // SAFETY: this is the whole reservation, and no thread can reach it any more. A failure
        // would leave address space behind, which is no reason to stop.
        let _ = unsafe { rustix::mm::munmap(self.whole.0.cast(), self.whole.1) };
        if let Some(file) = &self.file {
            // A child that was forked meanwhile holds the file, and with it the lock, until it
            // runs another program: closing it here would not be enough.
            let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
        }
    }
}

fn full_or(error: rustix::io::Errno, bytes: u64) -> Error {
    match error {
        // A populate that runs into a full tmpfs says "bad address": it would have been a SIGBUS.
        Errno::NOSPC | Errno::DQUOT | Errno::FAULT | Errno::NOMEM => Error::MediumFull { bytes },
        error => Error::io(format!("growing the pool to {bytes} bytes"), error),
    }
}
