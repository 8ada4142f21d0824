//! Pools without a name: the caller has the pool's file, and that of its index, as descriptors. They are memfds, files
//! that a service manager keeps, or files received over a socket.
//!
//! A descriptor that was inherited or received shares its open file description with the process that passed it, and the
//! lock belongs to the description. A supervisor would keep the lock of a killed service, and two of its services would
//! not exclude each other. So the file is opened again, through `/proc/self/fd`, with the access that the descriptor has.
//! The kernel releases this lock when the process ends.
//!
//! A pool on a device in device-DAX mode is created in place, too: it has a path, and a fixed size.

use std::fs::{File, Metadata, OpenOptions as FileOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, SealFlags, fcntl_get_seals, fcntl_getfl};

use super::backing::data_or_all;
use super::file_lock::lock;
use super::header::{first_words, read};
use super::layout::{DIRECTORY_OFFSET, MAGIC, SUPERBLOCK_STRIDE, SUPERBLOCK_WORDS, Superblock};
use super::superblock::Contents;
use super::{Access, CHUNK_BYTES, Geometry};
use crate::dax_device::Device;
use crate::medium::is_tmpfs;
use crate::segment::{Holds, holds};
use crate::{Error, Result, failpoint};

/// A file that was passed as a descriptor, opened again and locked. See the module.
#[derive(Debug)]
pub struct Nameless {
    pub(super) file: File,
    /// Stands for the path in errors.
    pub(super) label: PathBuf,
    metadata: Metadata,
    /// Whether the file is sealed against growth.
    pub(super) is_fixed: bool,
    device: Option<Device>,
    /// Whether the label is its path.
    is_named: bool,
}

impl Nameless {
    /// Takes the file of a pool, for reading or for reading and writing.
    ///
    /// # Errors
    ///
    /// [`InUse`](Error::InUse); [`NotAPool`](Error::NotAPool) if it is not a regular file; [`Invalid`](Error::Invalid)
    /// for an index, and if access or seals forbid to write; errors of the system.
    pub fn pool(descriptor: BorrowedFd<'_>, read_only: bool) -> Result<Self> {
        Self::pool_for(descriptor, if read_only { Access::Read } else { Access::Write })
    }

    /// Takes a device in device-DAX mode for a pool, by its path. Returns `None` if it is something else.
    ///
    /// # Errors
    ///
    /// [`InUse`](Error::InUse); [`Invalid`](Error::Invalid) for an alignment beyond 2 MiB, and for reading only, which the
    /// device does not support; errors of the system, such as a missing permission.
    pub fn device(path: &Path, read_only: bool) -> Result<Option<Self>> {
        if !std::fs::metadata(path).is_ok_and(|found| Device::is_possible(&found)) {
            return Ok(None);
        }
        let options = FileOptions::new().read(true).write(!read_only).clone();
        let file = options.open(path).map_err(|error| Error::at_path(path, error))?;
        if Device::of(&file)?.is_none() {
            return Ok(None);
        }
        let access = if read_only { Access::Read } else { Access::Write };
        let taken = Self::take(file.as_fd(), path.to_owned(), access, !read_only)?;
        Ok(Some(Self { is_named: true, ..taken }))
    }

    /// Returns the path, if the file has one.
    pub(super) fn named(&self) -> Option<&Path> {
        self.is_named.then_some(&*self.label)
    }

    /// Takes the file of a pool that another process writes to.
    ///
    /// # Errors
    ///
    /// As [`pool`](Self::pool).
    pub fn followed(descriptor: BorrowedFd<'_>) -> Result<Self> {
        Self::pool_for(descriptor, Access::Follow)
    }

    fn pool_for(descriptor: BorrowedFd<'_>, access: Access) -> Result<Self> {
        let taken = Self::take(descriptor, label_of(descriptor), access, access == Access::Write)?;
        match holds(&taken.file) {
            Holds::Segment(_) => Err(taken.refused("is an index, not a pool: pass the pool first")),
            Holds::Nothing | Holds::Other => Ok(taken),
        }
    }

    /// Takes the file for the index of a pool: an empty one, or the index that the last process left.
    ///
    /// # Errors
    ///
    /// [`InUse`](Error::InUse); [`Invalid`](Error::Invalid) if the file is not in memory, is the pool's own file, cannot
    /// be written or resized, or is neither empty nor an index; errors of the system.
    pub fn index(&self, descriptor: BorrowedFd<'_>, read_only: bool) -> Result<Self> {
        self.index_for(descriptor, if read_only { Access::Read } else { Access::Write })
    }

    /// Takes the file with the index of a pool that another process writes to.
    ///
    /// # Errors
    ///
    /// As [`index`](Self::index).
    pub fn followed_index(&self, descriptor: BorrowedFd<'_>) -> Result<Self> {
        self.index_for(descriptor, Access::Follow)
    }

    fn index_for(&self, descriptor: BorrowedFd<'_>, access: Access) -> Result<Self> {
        let found = metadata_of(descriptor)?;
        if (found.dev(), found.ino()) == (self.metadata.dev(), self.metadata.ino()) {
            return Err(refused(
                &label_of(descriptor),
                "is the pool's own file: its index needs another one",
            ));
        }
        let in_memory = "is not in memory: an index needs a memfd, or a file on tmpfs";
        if !found.is_file() {
            return Err(refused(&label_of(descriptor), in_memory));
        }
        let taken = Self::take(descriptor, label_of(descriptor), access, access != Access::Read)?;
        if !is_tmpfs(&taken.file) {
            return Err(taken.refused(in_memory));
        }
        let resizes = access == Access::Write;
        if resizes && seals(&taken.file).intersects(SealFlags::GROW | SealFlags::SHRINK) {
            return Err(taken.refused("is sealed against changes of its size, which an index needs"));
        }
        match holds(&taken.file) {
            Holds::Other if begins_as_pool(&taken.file) => {
                Err(taken.refused("is a pool, not an index: pass the pool first"))
            }
            Holds::Other => Err(taken.refused("is neither empty nor an index")),
            Holds::Segment(_) | Holds::Nothing => Ok(taken),
        }
    }

    /// Checks that an index is empty, or of the pool with this identity.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid).
    pub fn expect_index_of(&self, pool: Option<u128>) -> Result<()> {
        match holds(&self.file) {
            Holds::Segment(uuid) if pool != Some(u128::from(uuid[1]) << 64 | u128::from(uuid[0])) => {
                Err(self.refused("is the index of another pool: pass its own, or an empty file"))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether no pool is in the file: it is empty or zero, or a process was killed while it created one.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn is_blank(&self) -> Result<bool> {
        let len = self.len()?;
        if len == 0 {
            return Ok(true);
        }
        let copies = first_words(&self.file, &self.label, len)?;
        let is_pool = |copies: [_; 2]| {
            // A newer pool is one, too.
            let found = Contents::of(copies.map(Superblock::from_words), Access::Write);
            !matches!(found, Err(Error::Corrupted { .. } | Error::NotAPool { .. }))
        };
        // The magic number is stored first.
        let is_begun =
            |copy: &[u64; SUPERBLOCK_WORDS]| copy[0] == MAGIC || copy.iter().all(|word| *word == 0);
        if !copies.iter().all(is_begun) || is_pool(copies) {
            return Ok(false);
        }
        let mut buffer = vec![0; 1 << 20];
        for part in data_or_all(&self.file, self.device.is_some(), 0, len) {
            for from in part.clone().step_by(buffer.len()) {
                let buffer = &mut buffer[..(part.end - from).min(1 << 20) as usize];
                read(&self.file, &self.label, buffer, from)?;
                let is_zero = (from..).zip(&*buffer).all(|(at, byte)| *byte == 0 || is_in_superblock(at));
                if !is_zero {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Returns the length of the file, which must hold a pool.
    pub(super) fn expect_pool(&self) -> Result<u64> {
        match self.len()? {
            0 => Err(Error::NotFound { path: self.label.clone() }),
            len if len < DIRECTORY_OFFSET => Err(Error::NotAPool { path: self.label.clone() }),
            len => Ok(len),
        }
    }

    /// Returns the largest maximum of a new pool in the file, if that may not grow.
    pub fn fixed_bytes(&self, chunk_bytes: Option<u64>) -> Result<Option<u64>> {
        let chunk_bytes = chunk_bytes.unwrap_or(CHUNK_BYTES);
        let largest = Geometry::largest(self.len()?, chunk_bytes);
        Ok(self.is_fixed.then(|| largest.map_or(chunk_bytes, |found| found.chunks_max * chunk_bytes)))
    }

    /// Clears what [`is_blank`](Self::is_blank) ignores.
    pub(super) fn clear(&self) -> Result<()> {
        let zeros = vec![0; (2 * SUPERBLOCK_STRIDE).min(self.len()?) as usize];
        if let Some(device) = self.device {
            let zeroed = device.zero(&self.file, 0, zeros.len());
            return zeroed.map_err(|error| Error::at_path(&self.label, error));
        }
        let written = failpoint::check("pwrite").map_err(std::io::Error::from);
        let written = written.and_then(|()| self.file.write_all_at(&zeros, 0));
        written.map_err(|error| Error::at_path(&self.label, error))
    }

    pub(super) fn len(&self) -> Result<u64> {
        if let Some(device) = self.device {
            return Ok(device.bytes);
        }
        self.file.metadata().map(|file| file.len()).map_err(|error| Error::at_path(&self.label, error))
    }

    /// Opens the file of a descriptor again, and locks it.
    fn take(descriptor: BorrowedFd<'_>, label: PathBuf, access: Access, writes: bool) -> Result<Self> {
        let metadata = metadata_of(descriptor)?;
        if !metadata.is_file() && !Device::is_possible(&metadata) {
            return Err(Error::NotAPool { path: label });
        }
        let flags = fcntl_getfl(descriptor).map_err(|error| Error::at_path(&label, error.into()))?;
        let mode = flags & OFlags::RWMODE;
        let is_enough = if writes { mode == OFlags::RDWR } else { mode != OFlags::WRONLY };
        if flags.contains(OFlags::PATH) || !is_enough {
            let needs = if writes { "reading and writing" } else { "reading" };
            return Err(refused(&label, &format!("is not open for {needs}")));
        }
        let mut options = FileOptions::new();
        options.read(true).write(writes).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let opened = failpoint::check("openat").map_err(std::io::Error::from);
        let file = opened
            .and_then(|()| options.open(&path))
            .map_err(|error| Error::io(format!("opening {} again through {path}", label.display()), error))?;
        let found = file.metadata().map_err(|error| Error::at_path(&label, error))?;
        if (found.dev(), found.ino()) != (metadata.dev(), metadata.ino()) {
            return Err(refused(&label, &format!("is another file than {path}")));
        }
        let device = Device::of(&file)?;
        if !metadata.is_file() && device.is_none() {
            return Err(Error::NotAPool { path: label });
        }
        if device.is_some() && access != Access::Write {
            return Err(refused(&label, "is a device, which can be opened for writing only"));
        }
        if access != Access::Follow {
            lock(&file, access)?;
        }
        let seals = seals(&file);
        let is_fixed = device.is_some() || seals.contains(SealFlags::GROW);
        let taken = Self { file, label, metadata, is_fixed, device, is_named: false };
        if writes && seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(taken.refused("is sealed against writing: open it for reading only"));
        }
        Ok(taken)
    }

    fn refused(&self, what: &str) -> Error {
        refused(&self.label, what)
    }

    /// Returns the file with its description.
    pub(super) fn into_parts(self) -> (File, PathBuf) {
        (self.file, self.label)
    }
}

fn refused(label: &Path, what: &str) -> Error {
    Error::invalid(format!("{} {what}", label.display()))
}

fn label_of(descriptor: BorrowedFd<'_>) -> PathBuf {
    format!("descriptor {}", descriptor.as_raw_fd()).into()
}

fn metadata_of(descriptor: BorrowedFd<'_>) -> Result<Metadata> {
    let label = label_of(descriptor);
    let duplicate = descriptor.try_clone_to_owned().map_err(|error| Error::at_path(&label, error))?;
    File::from(duplicate).metadata().map_err(|error| Error::at_path(&label, error))
}

/// Returns the seals of a file. Only files in memory can have any.
fn seals(file: &File) -> SealFlags {
    fcntl_get_seals(file).unwrap_or(SealFlags::empty())
}

fn begins_as_pool(file: &File) -> bool {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 0).is_ok() && u64::from_le_bytes(word) == MAGIC
}

/// Returns whether a byte is one of a superblock, of which a killed process may have written a part.
fn is_in_superblock(at: u64) -> bool {
    at < 2 * SUPERBLOCK_STRIDE && at % SUPERBLOCK_STRIDE < 8 * SUPERBLOCK_WORDS as u64
}
