//! The pool: one file with several named trees in it, used by one process at a time.

mod chunks;
mod directory;
mod header;
mod layout;
mod salvage;
mod superblock;

use std::fs::{File, OpenOptions as FileOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::{FlockOperation, flock};

pub use self::chunks::Chunk;
use self::chunks::FreeChunks;
pub use self::directory::{TreeEntry, TreeId, TreeSpec};
use self::layout::{DIRECTORY_OFFSET, VERSION};
pub use self::layout::{Geometry, Part, SlotKind, part_of_descriptor};
use self::superblock::Contents;
use crate::{Domain, Error, Medium, Persistent, Region, Result, Word, fault, wait};

/// Bytes of a chunk unless a pool is created otherwise: a huge page.
pub const CHUNK_BYTES: u64 = 2 << 20;
const TREES_MAX: u64 = 256;

/// How a pool is created.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Bytes that the pool may grow to, at most 2^48; rounded up to whole chunks.
    pub max_bytes: u64,
    /// The persistence domain; detected if `None`.
    pub domain: Option<Domain>,
}

/// What is done with a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Everything, by one process.
    Write,
    /// The file is not changed; any number of processes may look at it.
    Read,
}

/// Something that `check` found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub location: String,
    /// What.
    pub what: String,
}

impl Finding {
    /// A finding.
    pub fn new(location: impl Into<String>, what: impl Into<String>) -> Self {
        Self { location: location.into(), what: what.into() }
    }
}

/// What is known about an open pool.
#[derive(Clone, Debug)]
pub struct PoolInfo {
    /// Where the file is; `None` for a pool in memory.
    pub path: Option<PathBuf>,
    /// The pool's identity.
    pub uuid: String,
    /// Version of the format.
    pub version: u64,
    /// The domain in force.
    pub domain: Domain,
    /// The domain that the medium offers.
    pub detected: Domain,
    /// Whether the last user closed the pool.
    pub was_clean: bool,
    /// Whether it is open for reading only.
    pub read_only: bool,
    /// Bytes that the file has.
    pub file_bytes: u64,
    /// Bytes that it may grow to.
    pub max_bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks that no tree owns, among those that the file has.
    pub chunks_free: u64,
    /// Chunks that the file has.
    pub chunks: u64,
    /// Bytes that are mapped by huge pages.
    pub huge_bytes: u64,
}

/// An open pool. Dropped without [`close`](Self::close) it counts as crashed: the next open finds
/// the mark and everything that was acknowledged.
#[derive(Debug)]
pub struct PoolFile<M> {
    region: Region,
    medium: M,
    geometry: Geometry,
    contents: Mutex<Contents>,
    was_clean: bool,
    access: Access,
    detected: Domain,
    path: Option<PathBuf>,
    directory: Mutex<()>,
    chunks: Mutex<FreeChunks>,
    /// Chunks that are neither free nor yet to come.
    chunks_taken: AtomicU64,
}

impl<M: Medium> PoolFile<M> {
    /// Creates a pool in a new file that only its owner may read and write. `make_medium` gets
    /// the domain in force.
    pub fn create(
        path: &Path,
        options: &CreateOptions,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        let chunks_max = options.max_bytes.div_ceil(CHUNK_BYTES);
        let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max, trees_max: TREES_MAX };
        if !geometry.is_valid() || geometry.max_bytes() > 1 << 48 {
            let what = format!("a pool of {} bytes: 1 byte to 256 TiB are possible", options.max_bytes);
            return Err(Error::invalid(what));
        }
        let file = FileOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| open_error(path, error))?;
        let made = Self::create_on(file, path, geometry, options.domain, make_medium);
        if made.is_err() {
            // Half a pool is of use to nobody; if it cannot be removed the error stands anyway.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn create_on(
        file: File,
        path: &Path,
        geometry: Geometry,
        domain: Option<Domain>,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        lock(&file, Access::Write)?;
        let region = Region::file(file, path, 0, geometry.max_bytes())?;
        region.grow(geometry.header_bytes())?;
        region.populate(0, geometry.descriptors_offset().next_multiple_of(4096))?;
        let detected = detect(&region);
        let medium = make_medium(domain.unwrap_or(detected));
        let pool = Self::format(region, geometry, medium, domain.unwrap_or(detected), detected, Some(path));
        pool.region.sync()?;
        Ok(pool)
    }

    /// Creates a pool in anonymous memory, for tests and simulators.
    pub fn create_in(region: Region, geometry: Geometry, domain: Domain, medium: M) -> Result<Arc<Self>> {
        if !geometry.is_valid() || geometry.max_bytes() > region.len() {
            return Err(Error::invalid("the region is too small for this geometry"));
        }
        Ok(Self::format(region, geometry, medium, domain, domain, None))
    }

    fn format(
        region: Region,
        geometry: Geometry,
        medium: M,
        domain: Domain,
        detected: Domain,
        path: Option<&Path>,
    ) -> Arc<Self> {
        let mut uuid = [0; 16];
        if path.is_some() {
            // Without entropy the pool is nameless, which nothing depends on. In memory it has no
            // name, so that simulations repeat exactly.
            let _ = rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty());
        }
        let uuid = u128::from_le_bytes(uuid);
        let mut contents = Contents {
            uuid: [uuid as u64, (uuid >> 64) as u64],
            geometry,
            sequence: 0,
            domain,
            clean: false,
        };
        contents.write(&region, &medium);
        contents.sequence = 1;
        contents.write(&region, &medium);
        Self::assemble(region, medium, contents, true, detected, path, Access::Write)
    }

    fn assemble(
        region: Region,
        medium: M,
        contents: Contents,
        was_clean: bool,
        detected: Domain,
        path: Option<&Path>,
        access: Access,
    ) -> Arc<Self> {
        Arc::new(Self {
            region,
            medium,
            geometry: contents.geometry,
            contents: Mutex::new(contents),
            was_clean,
            access,
            detected,
            path: path.map(Path::to_owned),
            directory: Mutex::new(()),
            chunks: Mutex::default(),
            chunks_taken: AtomicU64::new(0),
        })
    }

    /// Opens a pool file. Nothing in it is trusted; what a crash interrupted in the pool itself
    /// is finished, and the pool is marked as in use.
    pub fn open(
        path: &Path,
        domain: Option<Domain>,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        let access = Access::Write;
        let (file, len) = Self::begin(path, access)?;
        let contents = header::probe(&file, path, len, access)?;
        let max_bytes = contents.geometry.max_bytes();
        let region = Region::file(file, path, len.min(max_bytes), max_bytes)?;
        let detected = detect(&region);
        let domain = domain.unwrap_or(detected);
        Self::open_on(region, domain, detected, make_medium(domain), Some(path), access)
    }

    /// Opens a pool file without ever writing to it. Recovery is done as always, on a copy of the
    /// pages that it changes: they stay in this process. Other readers may have the pool open at
    /// the same time, a writer may not.
    pub fn open_read_only(path: &Path, make_medium: impl FnOnce(Domain) -> M) -> Result<Arc<Self>> {
        let access = Access::Read;
        let (file, len) = Self::begin(path, access)?;
        let contents = header::probe(&file, path, len, access)?;
        let max_bytes = contents.geometry.max_bytes();
        let region = Region::private(file, path, len.min(max_bytes), max_bytes)?;
        let detected = detect(&region);
        Self::open_on(region, contents.domain, detected, make_medium(Domain::Process), Some(path), access)
    }

    /// Opens and locks the file, which may be a pool: it, and its length.
    fn begin(path: &Path, access: Access) -> Result<(File, u64)> {
        let options = FileOptions::new().read(true).write(access == Access::Write).clone();
        let file = options.open(path).map_err(|error| open_error(path, error))?;
        let not_a_pool = || Error::NotAPool { path: path.to_owned() };
        let failed = |error| Error::io(path.display().to_string(), error);
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(not_a_pool());
        }
        lock(&file, access)?;
        // Only now: whoever had the pool before may have grown it.
        let len = file.metadata().map_err(failed)?.len();
        if len < DIRECTORY_OFFSET {
            return Err(not_a_pool());
        }
        Ok((file, len))
    }

    /// Opens a pool in anonymous memory, exactly as [`open`](Self::open) opens a file.
    pub fn open_in(region: Region, domain: Domain, medium: M) -> Result<Arc<Self>> {
        Self::open_on(region, domain, domain, medium, None, Access::Write)
    }

    fn open_on(
        region: Region,
        domain: Domain,
        detected: Domain,
        medium: M,
        path: Option<&Path>,
        access: Access,
    ) -> Result<Arc<Self>> {
        let contents = Contents::read(&region, &medium, access)?;
        if contents.geometry.header_bytes() > region.len() {
            return Err(Error::corrupted("the pool ends within its header: truncated", "superblock"));
        }
        let pool = Self::assemble(region, medium, contents, contents.clean, detected, path, access);
        pool.recover_chunks()?;
        pool.recover_directory()?;
        if let Some(stray) = pool.stray_chunks().first() {
            return Err(Error::corrupted(
                "a chunk whose owner is no tree",
                format!("descriptor of chunk {stray}"),
            ));
        }
        pool.mark(domain, false)?;
        Ok(pool)
    }

    /// Closes the pool in good order: durably marked as clean. Handles still held elsewhere keep
    /// the file open.
    pub fn close(&self) -> Result<()> {
        self.health()?;
        let domain = self.lock_contents().domain;
        self.mark(domain, true)?;
        if domain == Domain::Msync { self.region.sync() } else { Ok(()) }
    }

    fn mark(&self, domain: Domain, clean: bool) -> Result<()> {
        let mut contents = self.lock_contents();
        contents.domain = domain;
        contents.clean = clean;
        contents.sequence += 1;
        contents.write(&self.region, &self.medium);
        self.health()
    }

    /// The medium.
    #[inline(always)]
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// The domain in force.
    pub fn domain(&self) -> Domain {
        self.lock_contents().domain
    }

    /// Whether the last user closed the pool.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// Whether the pool was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.access == Access::Read
    }

    /// `Err` if the pool was opened for reading only.
    pub fn writable(&self) -> Result<()> {
        if self.is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// `Err` once the medium refused to make something durable.
    #[inline(always)]
    pub fn health(&self) -> Result<()> {
        if self.medium.failed() { Err(Error::DurabilityLost) } else { Ok(()) }
    }

    /// The value at an offset.
    ///
    /// # Panics
    ///
    /// If it would lie outside the pool's reservation or astride its alignment: a defect of the
    /// caller, who checks what it reads from the medium when it opens a tree.
    #[inline(always)]
    pub fn at<T: Persistent>(&self, offset: u64) -> &T {
        let fits = offset <= self.region.reserved() - size_of::<T>() as u64;
        assert!(fits && offset.is_multiple_of(align_of::<T>() as u64), "an offset outside the pool");
        // SAFETY: the range lies in the mapping and is aligned (asserted; the base is aligned to
        // 2 MiB); a `Persistent` type consists of atomics, for which any bytes are valid and
        // concurrent change is allowed. The mapping lives as long as `self`.
        unsafe { &*self.region.base().wrapping_add(offset as usize).cast::<T>() }
    }

    /// Bytes that the pool may grow to.
    pub fn max_bytes(&self) -> u64 {
        self.geometry.max_bytes()
    }

    /// Whether the file has these bytes, and words begin there: for offsets that the medium holds.
    #[inline]
    pub fn holds(&self, offset: u64, bytes: u64) -> bool {
        let len = self.region.len();
        offset.is_multiple_of(8)
            && offset >= self.geometry.header_bytes()
            && bytes <= len
            && offset <= len - bytes
    }

    /// Words from an offset on. Panics as [`at`](Self::at) does.
    #[inline(always)]
    pub fn words(&self, offset: u64, words: usize) -> &[Word] {
        self.slice(offset, words)
    }

    /// So many structures one behind the other. Panics as [`at`](Self::at) does.
    #[inline(always)]
    pub fn slice<T: Persistent>(&self, offset: u64, len: usize) -> &[T] {
        let bytes = (len * size_of::<T>()) as u64;
        let fits = bytes <= self.region.reserved() && offset <= self.region.reserved() - bytes;
        assert!(fits && offset.is_multiple_of(align_of::<T>() as u64), "an offset outside the pool");
        // SAFETY: as in `at`.
        unsafe { std::slice::from_raw_parts(self.region.base().wrapping_add(offset as usize).cast(), len) }
    }

    /// What is known about the pool.
    pub fn info(&self) -> PoolInfo {
        let contents = *self.lock_contents();
        let uuid = u128::from(contents.uuid[1]) << 64 | u128::from(contents.uuid[0]);
        let (chunks_free, chunks, _) = self.chunk_counts();
        PoolInfo {
            path: self.path.clone(),
            uuid: format!("{uuid:032x}"),
            version: VERSION,
            domain: contents.domain,
            detected: self.detected,
            was_clean: self.was_clean,
            read_only: self.is_read_only(),
            file_bytes: self.region.len(),
            max_bytes: self.geometry.max_bytes(),
            chunk_bytes: self.geometry.chunk_bytes,
            chunks_free,
            chunks,
            huge_bytes: self.region.huge_bytes(),
        }
    }

    /// Verifies superblock, directory and descriptors as opening does.
    pub fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut note = |location: &str, result: Result<()>| {
            findings.extend(result.err().map(|error| Finding::new(location, error.to_string())));
        };
        note("superblock", Contents::read(&self.region, &self.medium, self.access).map(drop));
        note("directory", self.trees().map(drop));
        let stray = self.stray_chunks();
        findings.extend(stray.iter().map(|id| Finding::new(format!("chunk {id}"), "its owner is no tree")));
        findings
    }

    fn lock_contents(&self) -> MutexGuard<'_, Contents> {
        wait::lock(&self.contents)
    }

    fn lock_directory(&self) -> MutexGuard<'_, ()> {
        wait::lock(&self.directory)
    }

    fn lock_chunks(&self) -> MutexGuard<'_, FreeChunks> {
        wait::lock(&self.chunks)
    }
}

fn detect(region: &Region) -> Domain {
    region.as_file().map_or(Domain::Process, |file| Domain::detect(file, region.dax()))
}

fn open_error(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::NotFound { path: path.to_owned() },
        ErrorKind::AlreadyExists => Error::Exists { path: path.to_owned() },
        ErrorKind::ReadOnlyFilesystem => Error::ReadOnly,
        ErrorKind::StorageFull => Error::MediumFull { bytes: 0 },
        _ => Error::io(path.display().to_string(), error),
    }
}

/// Takes the pool for this handle alone, or for it and other readers.
fn lock(file: &File, access: Access) -> Result<()> {
    let operation = match access {
        Access::Write => FlockOperation::NonBlockingLockExclusive,
        Access::Read => FlockOperation::NonBlockingLockShared,
    };
    fault::check("flock").and_then(|()| flock(file, operation)).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => Error::InUse { pid: holder(file) },
        error => Error::io("locking the pool", error),
    })
}

/// Who holds the lock, from the kernel's table of locks.
fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "FLOCK")?;
        let theirs = words.get(at + 4)?.rsplit(':').next()?.parse::<u64>().ok()?;
        (theirs == inode).then(|| words.get(at + 3)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests;
