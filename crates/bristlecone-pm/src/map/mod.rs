//! The bytes of a pool in this process: one range of address space, reserved once. A file (or anonymous memory) fills
//! it from the front as it grows, so that no byte ever moves.

mod address_space;
mod device;
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
use crate::dax_device::Device;
use crate::medium::is_memory;
use crate::{Error, Opener, PAGE_BYTES, Result, failpoint};

/// Path of a pool's file, and whether SIGBUS faults in its mapping are handled here.
///
/// They are handled unless [`At::unhandled`] is used: a process with its own handler for `SIGBUS` keeps it.
#[derive(Clone, Copy, Debug)]
pub struct At<'p> {
    pub(crate) path: &'p Path,
    pub(crate) handled: bool,
}

impl<'p> At<'p> {
    /// Returns a path whose faults are not handled: no handler is installed for `SIGBUS`.
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
    /// The reserved range before alignment; null if the memory belongs to `owner`.
    whole: (*mut u8, usize),
    /// Keeps memory alive that the region does not own.
    owner: Option<Arc<dyn Any + Send + Sync>>,
    len: AtomicU64,
    file: Option<File>,
    /// Whether stores reach the file.
    shared: bool,
    in_memory: bool,
    dax: bool,
    /// The device that the file is.
    device: Option<Device>,
    /// Reports the location if a byte of the file is missing when it is touched.
    watch: Option<Watch>,
    opener: Opener,
    /// Whether a child of the opener has closed the file in its own process.
    abandoned: AtomicBool,
}

// SAFETY: the region is an address range; its contents are accessed through atomics only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Returns zeroed anonymous memory of `bytes`: for tests and simulators.
    ///
    /// # Errors
    ///
    /// [`Io`](Error::Io) if the system cannot provide the address space.
    pub fn memory(bytes: u64) -> Result<Self> {
        let (whole, base) = reserve(bytes)?;
        let region = Self::over(whole, base, bytes, bytes);
        region.allow(bytes)?;
        Ok(region)
    }

    /// Creates a region without a file.
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
            device: None,
            watch: None,
            opener: Opener::this(),
            abandoned: AtomicBool::new(false),
        }
    }

    /// Makes the first `bytes` of the reservation accessible.
    fn allow(&self, bytes: u64) -> Result<()> {
        let prot = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
        // SAFETY: the range lies in the reservation, and no access right is removed.
        let allowed = unsafe { rustix::mm::mprotect(self.base.cast(), bytes as usize, prot) };
        allowed.map_err(|error| Error::io("reserving memory", error))
    }

    /// Returns a region on memory that `owner` manages, such as a simulator's, of which `len` bytes count as existing.
    ///
    /// # Safety
    ///
    /// `base` must point to `reserved` readable and writable bytes, aligned to a line. They must exist as long as
    /// `owner` does and be accessed through atomics only.
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

    /// Maps `file` at its path, of which `len` bytes exist and `reserved` may come to exist: reserves as many as the
    /// address space allows.
    pub(crate) fn file(file: File, at: At<'_>, len: u64, reserved: RangeInclusive<u64>) -> Result<Self> {
        let device = Device::of(&file)?;
        if let Some(align) =
            device.map(|device| device.align).filter(|align| !reserved.end().is_multiple_of(*align))
        {
            let what = format!("a pool on this device needs chunks that are multiples of {align} bytes");
            return Err(Error::invalid(what));
        }
        let (whole, base, reserved) = reserve_within(reserved)?;
        let (dax, prot) = (device.is_none() && is_dax(&file), ProtFlags::READ | ProtFlags::WRITE);
        let mapped = map_shared(base, reserved, prot, dax, &file);
        let mut region = Self::over(whole, base, reserved, len);
        (region.shared, region.device) = (true, device);
        region.in_memory = device.is_none() && is_memory(&file);
        region.dax = device.map_or(dax, |device| device.is_persistent);
        region.watch = at.handled.then(|| Watch::new(base, reserved, at.path));
        region.file = Some(file);
        mapped.map_err(|error| Error::io("mapping the pool", error))?;
        region.keep_from_children();
        Ok(region)
    }

    /// Maps the `len` bytes of `file` at its path for reading: stores and growth of the region stay in this process.
    pub(crate) fn private(file: File, at: At<'_>, len: u64, reserved: RangeInclusive<u64>) -> Result<Self> {
        let (whole, base, reserved) = reserve_within(reserved)?;
        let private = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let mapped = failpoint::check("mmap").and_then(|()| {
            // SAFETY: replaces part of the reservation made above, which no other code uses.
            unsafe { rustix::mm::mmap(base.cast(), len as usize, prot, private, &file, 0) }
        });
        let mut region = Self::over(whole, base, reserved, len);
        (region.in_memory, region.dax) = (is_memory(&file), is_dax(&file));
        region.watch = at.handled.then(|| Watch::new(base, len, at.path));
        region.file = Some(file);
        mapped.map_err(|error| Error::io("mapping the pool", error))?;
        region.keep_from_children();
        Ok(region)
    }

    /// Maps `file` at its path, which another process writes to, for reading. Sets `patched` if that process truncates
    /// a page away.
    pub(crate) fn follow(
        file: File,
        at: At<'_>,
        len: u64,
        reserved: RangeInclusive<u64>,
        patched: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let (whole, base, reserved) = reserve_within(reserved)?;
        let mut region = Self::over(whole, base, reserved, len);
        (region.in_memory, region.dax) = (is_memory(&file), is_dax(&file));
        let mapped = map_shared(base, reserved, ProtFlags::READ, region.dax, &file);
        region.file = Some(file);
        region.watch = at.handled.then(|| Watch::patching(base, reserved, at.path, patched));
        mapped.map_err(|error| Error::io("mapping the pool", error))?;
        region.keep_from_children();
        Ok(region)
    }

    /// Excludes the mapping from what a child inherits, so that the child cannot reach the pool. If the kernel
    /// refuses, the child inherits the mapping but does not touch it.
    fn keep_from_children(&self) {
        // SAFETY: the whole reservation, whose contents this does not change.
        unsafe { libc::madvise(self.whole.0.cast(), self.whole.1, libc::MADV_DONTFORK) };
    }

    /// Returns the process that opened the region, which alone may use it.
    pub(crate) fn opener(&self) -> &Opener {
        &self.opener
    }

    /// Closes the file in a child of the opener, so that the child does not keep the lock after the opener exits. Does
    /// nothing else, because the child may have other handles to the region.
    pub(crate) fn abandon(&self) {
        if let Some(file) = &self.file
            && !self.opener.is_here()
            && !self.abandoned.swap(true, Ordering::Relaxed)
        {
            // SAFETY: the child does nothing with the file from now on, nor does it close it again.
            unsafe { libc::close(file.as_raw_fd()) };
        }
    }

    /// Replaces whole pages that are missing in the file, or unreadable, by zeros.
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

    /// Returns whether the file is in memory, where even a read of a hole allocates a page.
    pub(crate) fn in_memory(&self) -> bool {
        self.in_memory
    }

    /// Returns whether faults in the mapping are handled here.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Returns the start address of the bytes in this process.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the size of the address space in bytes.
    #[inline]
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Returns the number of bytes that exist.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Returns the number of bytes that exist now, where another process grows the file.
    #[cold]
    pub(crate) fn len_now(&self) -> u64 {
        let found = self.file.as_ref().and_then(|file| file.metadata().ok());
        let len = found.map_or(0, |file| file.len().min(self.reserved));
        self.len.store(len, Ordering::Release);
        len
    }

    /// Returns whether no bytes exist yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn dax(&self) -> bool {
        self.dax
    }

    pub(crate) fn as_file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Returns the device that the file is.
    pub(crate) fn device(&self) -> Option<Device> {
        self.device
    }

    /// Returns the file, if it can have holes.
    pub(crate) fn sparse_file(&self) -> Option<&File> {
        self.file.as_ref().filter(|_| self.device.is_none())
    }

    /// Returns the file, if stores reach it and it can be resized.
    fn shared_file(&self) -> Option<&File> {
        self.sparse_file().filter(|_| self.shared)
    }

    /// Makes the first `len` bytes exist. The caller must prevent other threads from growing the region meanwhile.
    pub(crate) fn grow(&self, len: u64) -> Result<()> {
        assert!(len <= self.reserved, "a region beyond its reservation");
        if len <= self.len() {
            return Ok(());
        }
        if self.device.is_some() {
            return Err(Error::MediumFull { bytes: len });
        }
        if let Some(file) = self.shared_file() {
            // Beyond the limit the kernel would send a signal that ends the process.
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

    /// Releases a range of the file to the file system, durably: it reads as zeros from now on. Returns `false` if the
    /// file system does not support this.
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

    /// Truncates the file to `len` bytes, at most its length. No thread may touch the bytes behind them, and the
    /// caller must prevent growth meanwhile. Returns `false` if the file has a fixed size.
    pub(crate) fn shrink(&self, len: u64) -> Result<bool> {
        assert!(len <= self.len(), "a region is not cut off behind its end");
        let Some(file) = self.shared_file() else { return Ok(self.device.is_none()) };
        match failpoint::call("ftruncate", || rustix::fs::ftruncate(file.as_fd(), len)) {
            Ok(()) => {}
            Err(Errno::PERM) => return Ok(false),
            Err(error) => return Err(Error::io("cutting off the pool", error)),
        }
        self.len.store(len, Ordering::Release);
        Ok(true)
    }

    /// Returns the bytes that the file system has allocated to the file, if stores reach it.
    pub(crate) fn backed_bytes(&self) -> u64 {
        self.shared_file().and_then(|file| file.metadata().ok()).map_or(0, |file| file.blocks() * 512)
    }

    /// Writes a range that begins with a page back to the file.
    pub(crate) fn sync_range(&self, offset: u64, bytes: u64) -> Result<()> {
        assert!(offset + bytes <= self.len(), "a range of the region");
        if self.shared_file().is_none() {
            return Ok(());
        }
        let (start, bytes) = (self.base.wrapping_add(offset as usize), bytes as usize);
        let synced = failpoint::call_msync(start.addr(), bytes, || {
            // SAFETY: pages of the mapping, whose contents this does not change.
            unsafe { rustix::mm::msync(start.cast(), bytes, rustix::mm::MsyncFlags::SYNC) }
        });
        synced.map_err(|error| Error::io("syncing the pool", error))
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
        // First: another mapping may use the addresses as soon as they are unmapped.
        self.watch = None;
        if !self.opener.is_here() {
            // Another mapping of this process may use the addresses, and the lock is the opener's.
            if self.abandoned.load(Ordering::Relaxed) {
                std::mem::forget(self.file.take());
            }
            return;
        }
        // SAFETY: this is the whole reservation, and no thread can reach it any more. A failure only leaks address
        // space.
        let _ = unsafe { rustix::mm::munmap(self.whole.0.cast(), self.whole.1) };
        if let Some(file) = &self.file {
            // A child that was forked meanwhile holds the file, and with it the lock, until it executes another
            // program: closing the file here would not release the lock.
            let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
        }
    }
}

/// Returns whether a file is on a DAX medium. Asks at an address that the kernel chooses: a mapping with a fixed address
/// that fails may leave its range unmapped, where the kernel then places a mapping of another thread.
fn is_dax(file: &File) -> bool {
    let sync = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    // SAFETY: a new mapping at an address chosen by the kernel overlaps no other, and is unmapped.
    unsafe {
        let asked = rustix::mm::mmap(std::ptr::null_mut(), PAGE_BYTES, ProtFlags::READ, sync, file, 0);
        asked.is_ok_and(|page| rustix::mm::munmap(page, PAGE_BYTES).is_ok())
    }
}

/// Maps a file over a reservation.
fn map_shared(
    base: *mut u8,
    reserved: u64,
    prot: ProtFlags,
    dax: bool,
    file: &File,
) -> rustix::io::Result<()> {
    failpoint::check("mmap")?;
    let flags = if dax { MapFlags::SHARED_VALIDATE | MapFlags::SYNC } else { MapFlags::SHARED };
    // SAFETY: replaces part of the reservation of the caller, which no other code uses.
    let mapped =
        unsafe { rustix::mm::mmap(base.cast(), reserved as usize, prot, flags | MapFlags::FIXED, file, 0) };
    mapped.map(drop)
}

fn full_or(error: rustix::io::Errno, bytes: u64) -> Error {
    match error {
        // A populate that runs into a full tmpfs returns EFAULT; a store would have raised SIGBUS. A file that is sealed
        // against growth returns EPERM.
        Errno::NOSPC | Errno::DQUOT | Errno::FAULT | Errno::NOMEM | Errno::PERM => {
            Error::MediumFull { bytes }
        }
        error => Error::io(format!("growing the pool to {bytes} bytes"), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 64 << 20;

    /// Maps memory as large as a region's reservation, and writes to all of its pages; panics if another mapping took
    /// one of them.
    fn use_memory() {
        let (whole, prot) = ((BYTES + HUGE_BYTES) as usize, ProtFlags::READ | ProtFlags::WRITE);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address chosen by the kernel, which only this function uses, and unmaps.
        unsafe {
            let memory = rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, prot, flags).unwrap();
            let words: Vec<_> =
                (0..whole).step_by(1 << 20).map(|at| memory.byte_add(at).cast::<u64>()).collect();
            words.iter().for_each(|word| word.write_volatile(word.addr() as u64));
            assert!(
                words.iter().all(|word| word.read_volatile() == word.addr() as u64),
                "memory of a thread"
            );
            rustix::mm::munmap(memory, whole).unwrap();
        }
    }

    #[test]
    fn mapping_of_a_file_takes_no_address_of_another_thread() {
        // The folder of the build is on a disk as a rule; on other media the race did not exist.
        let folder = std::env::current_exe().unwrap();
        let path = folder.with_file_name(format!("bristlecone-map-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = || (0..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(|_| use_memory());
            let others = [scope.spawn(other), scope.spawn(other)];
            let map = |_| Region::file(file.try_clone().unwrap(), At::unhandled(&path), 0, BYTES..=BYTES);
            let mapped = (0..5000).try_for_each(|number| map(number).map(drop));
            is_over.store(true, Ordering::Relaxed);
            mapped.unwrap();
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }
}
