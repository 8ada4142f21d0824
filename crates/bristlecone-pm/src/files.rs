//! Files beside a pool: a folder of them, and memory that they share with the next process.
//!
//! A journal reaches its files through these traits alone, so that a simulator can stand in for the disk: it decides
//! which unsynced sectors, lengths and names a power failure keeps. [`Folder`] is the real one.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::pool::Access;
use crate::pool::file_lock::lock;
use crate::pool::new_file::{sync_directory, sync_name};
use crate::{Error, Result, failpoint};

/// Bytes written by one call while a new file is filled with zeros.
const ZEROS: usize = 1 << 20;

/// A folder of files.
///
/// Names and contents are durable only after the matching call of [`Storage::sync`] and [`StoredFile::sync`].
pub trait Storage: Send + Sync + 'static {
    /// Creates a file of `bytes` zeros, all of them allocated, in place of any file of this name.
    ///
    /// # Errors
    ///
    /// [`MediumFull`](Error::MediumFull), and errors of the system. A part of the file may remain.
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn StoredFile>>;

    /// Opens a file for reading and writing; returns `None` if there is none of this name.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    fn open(&self, name: &str) -> Result<Option<Arc<dyn StoredFile>>>;

    /// Gives a file another name, in place of any file that has it.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Gives a file another name, unless a file has it; returns whether it has the name now.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    fn rename_new(&self, from: &str, to: &str) -> Result<bool>;

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// Errors of the system. A missing file is none.
    fn remove(&self, name: &str) -> Result<()>;

    /// Makes all names durable.
    ///
    /// # Errors
    ///
    /// Errors of the system: names may then be lost by a power failure, whatever later calls return.
    fn sync(&self) -> Result<()>;

    /// Returns the names of all files.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    fn list(&self) -> Result<Vec<String>>;

    /// Maps a file of `bytes` bytes as words that survive the process. A file that is missing, or of another size, is
    /// created with zeros.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    fn share(&self, name: &str, bytes: u64) -> Result<Arc<dyn SharedWords>>;

    /// Maps a file of `bytes` bytes for reading; returns `None` if it is missing, or of another size.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    fn shared(&self, name: &str, bytes: u64) -> Result<Option<Arc<dyn SharedWords>>>;

    /// Returns an identity of the running kernel, which differs after each start of the machine; `None` if unknown.
    fn boot(&self) -> Option<u128>;

    /// Describes the folder in messages.
    fn describe(&self) -> String;
}

/// An open file of a [`Storage`].
pub trait StoredFile: Send + Sync {
    /// Returns the length in bytes.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    fn bytes(&self) -> Result<u64>;

    /// Fills the buffer from an offset on; returns the number of bytes that the file has there.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// Writes bytes at an offset.
    ///
    /// # Errors
    ///
    /// [`MediumFull`](Error::MediumFull), and errors of the system. Any part of the bytes may be written then.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Has the disk begin to write some bytes, which nothing reads soon. This makes nothing durable.
    fn begin_writing(&self, offset: u64, bytes: u64) {
        let _ = (offset, bytes);
    }

    /// Makes all contents durable.
    ///
    /// # Errors
    ///
    /// Errors of the system: contents may then be lost by a power failure, whatever later calls return.
    fn sync(&self) -> Result<()>;

    /// Locks the file against other callers of this function, until it is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`], and errors of the system.
    fn lock(&self) -> Result<()>;
}

/// Words that another process finds again if this one dies.
pub trait SharedWords: Send + Sync {
    /// Returns the words. Only those of [`Storage::share`] may be stored to.
    fn words(&self) -> &[AtomicU64];
}

/// Returns the error of a call on a path.
fn failed(doing: &str, path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::MediumFull { bytes: 0 },
        _ => Error::io(format!("{doing} {}", path.display()), error),
    }
}

/// A folder of the file system.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Returns the folder at `path`, which must exist.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn open(path: &Path) -> Result<Self> {
        let is_folder = std::fs::metadata(path).map(|found| found.is_dir());
        match is_folder {
            Ok(true) => Ok(Self(path.to_owned())),
            Ok(false) => {
                Err(Error::io(path.display().to_string(), std::io::Error::from(ErrorKind::NotADirectory)))
            }
            Err(error) => Err(Error::io(path.display().to_string(), error)),
        }
    }

    /// Creates the folder at `path`, durably, unless it exists. Only its owner may enter it.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn create(path: &Path) -> Result<Self> {
        let made = failpoint::check("mkdirat").map_err(std::io::Error::from);
        let made = made.and_then(|()| {
            std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(path)
        });
        match made {
            // The process that created it may have been killed before its name was durable.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(|error| Error::io(format!("creating {}", path.display()), error))?,
        }
        sync_name(path)?;
        Self::open(path)
    }

    /// Locks the folder against other callers of this function, until the result is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`], and errors of the system.
    pub fn lock(&self) -> Result<File> {
        let folder = File::open(&self.0).map_err(|error| self.failed("opening", "", error))?;
        lock(&folder, Access::Write).map(|()| folder)
    }

    fn failed(&self, doing: &str, name: &str, error: impl Into<std::io::Error>) -> Error {
        failed(doing, &self.0.join(name), error.into())
    }

    fn map(&self, file: &File, name: &str, bytes: u64, prot: ProtFlags) -> Result<Arc<dyn SharedWords>> {
        let mapped = Mapped::new(file, bytes, prot).map_err(|error| self.failed("mapping", name, error))?;
        Ok(Arc::new(mapped))
    }

    fn file(&self, name: &str, create: bool) -> std::io::Result<File> {
        failpoint::check("openat")?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).truncate(create).mode(0o600);
        options.open(self.0.join(name))
    }
}

impl Storage for Folder {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn StoredFile>> {
        let file = self.file(name, true).map_err(|error| self.failed("creating", name, error))?;
        let file = FileOf { file, path: self.0.join(name) };
        // Written zeros, not a hole or an unwritten extent: a sync of later contents then writes no metadata.
        let zeros = vec![0; ZEROS.min(bytes as usize)];
        let mut offset = 0;
        while offset < bytes {
            let some = (bytes - offset).min(zeros.len() as u64);
            file.write(offset, &zeros[..some as usize])?;
            offset += some;
        }
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> Result<Option<Arc<dyn StoredFile>>> {
        match self.file(name, false) {
            Ok(file) => Ok(Some(Arc::new(FileOf { file, path: self.0.join(name) }))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("opening", name, error)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let rename = || rustix::fs::rename(self.0.join(from), self.0.join(to));
        failpoint::call("rename", rename).map_err(|error| self.failed("renaming", from, error))
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<bool> {
        let (old, new) = (self.0.join(from), self.0.join(to));
        let rename = || renameat_with(CWD, &old, CWD, &new, RenameFlags::NOREPLACE);
        match failpoint::call("rename", rename) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            // A file system without such a rename.
            Err(Errno::INVAL | Errno::NOSYS) => {
                match failpoint::call("link", || rustix::fs::link(&old, &new)) {
                    Ok(()) => self.remove(from).map(|()| true),
                    Err(Errno::EXIST) => Ok(false),
                    Err(error) => Err(self.failed("linking", from, error)),
                }
            }
            Err(error) => Err(self.failed("renaming", from, error)),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        match failpoint::call("unlink", || rustix::fs::unlink(self.0.join(name))) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.failed("removing", name, error)),
        }
    }

    fn sync(&self) -> Result<()> {
        sync_directory(&self.0)
    }

    fn list(&self) -> Result<Vec<String>> {
        let failed = |error| self.failed("listing", "", error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.0).map_err(failed)? {
            names.extend(entry.map_err(failed)?.file_name().into_string());
        }
        Ok(names)
    }

    fn share(&self, name: &str, bytes: u64) -> Result<Arc<dyn SharedWords>> {
        let found = match self.file(name, false) {
            Ok(file) => Some(file).filter(|file| file.metadata().is_ok_and(|found| found.len() == bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(self.failed("opening", name, error)),
        };
        let file = match found {
            Some(file) => file,
            None => {
                self.create(name, bytes)?;
                self.file(name, false).map_err(|error| self.failed("opening", name, error))?
            }
        };
        self.map(&file, name, bytes, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn shared(&self, name: &str, bytes: u64) -> Result<Option<Arc<dyn SharedWords>>> {
        let opened = failpoint::check("openat").map_err(std::io::Error::from);
        match opened.and_then(|()| File::open(self.0.join(name))) {
            Ok(file) if file.metadata().is_ok_and(|found| found.len() == bytes) => {
                self.map(&file, name, bytes, ProtFlags::READ).map(Some)
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("opening", name, error)),
        }
    }

    fn boot(&self) -> Option<u128> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
    }

    fn describe(&self) -> String {
        self.0.display().to_string()
    }
}

/// A file of the file system.
struct FileOf {
    file: File,
    path: PathBuf,
}

impl FileOf {
    fn failed(&self, doing: &str, error: impl Into<std::io::Error>) -> Error {
        failed(doing, &self.path, error.into())
    }
}

impl StoredFile for FileOf {
    fn bytes(&self) -> Result<u64> {
        self.file.metadata().map(|found| found.len()).map_err(|error| self.failed("reading", error))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            let read = failpoint::check("pread")
                .map_err(std::io::Error::from)
                .and_then(|()| self.file.read_at(&mut into[done..], offset + done as u64));
            match read {
                Ok(0) => break,
                Ok(some) => done += some,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("reading", error)),
            }
        }
        Ok(done)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = failpoint::check("pwrite").map_err(std::io::Error::from);
        let written = written.and_then(|()| self.file.write_all_at(bytes, offset));
        written.map_err(|error| self.failed("writing", error))
    }

    fn begin_writing(&self, offset: u64, bytes: u64) {
        let bytes = std::num::NonZeroU64::new(bytes);
        // Advice: without it, the sync has more to write.
        let _ = rustix::fs::fadvise(self.file.as_fd(), offset, bytes, rustix::fs::Advice::DontNeed);
    }

    fn sync(&self) -> Result<()> {
        let synced = failpoint::call("fdatasync", || rustix::fs::fdatasync(self.file.as_fd()));
        synced.map_err(|error| self.failed("syncing", error))
    }

    fn lock(&self) -> Result<()> {
        lock(&self.file, Access::Write)
    }
}

/// A mapped file.
struct Mapped {
    base: *mut AtomicU64,
    bytes: usize,
}

// SAFETY: an address range that is accessed through atomics only.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(file: &File, bytes: u64, prot: ProtFlags) -> rustix::io::Result<Self> {
        failpoint::check("mmap")?;
        let bytes = bytes as usize;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, file, 0)? };
        // A child has no access to the pool either. SAFETY: the mapping made above, whose contents this keeps.
        let _ = unsafe { rustix::mm::madvise(base, bytes, rustix::mm::Advice::LinuxDontFork) };
        Ok(Self { base: base.cast(), bytes })
    }
}

impl SharedWords for Mapped {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is aligned to a page, has this many words, lives as long as `self`, and is accessed
        // through atomics only.
        unsafe { std::slice::from_raw_parts(self.base, self.bytes / size_of::<u64>()) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which no reference outlives. A failure only leaks address space.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
    }
}
