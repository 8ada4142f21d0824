//! Creating, opening and closing: a file is taken by one process, validated, and marked.

use std::fs::{File, OpenOptions as FileOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use rustix::fs::{FlockOperation, flock, major, minor};

use super::layout::DIRECTORY_OFFSET;
use super::superblock::Contents;
use super::{Access, CHUNK_BYTES, CreateOptions, Geometry, PoolFile, TREES_MAX, header};
use crate::{Domain, Error, Medium, Region, Result, fault};

/// Room for the kernel's table of locks, so that few reads take it, and how often it is read.
const LOCKS_BYTES: usize = 64 << 10;
const LOOKS: usize = 3;

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

    pub(super) fn assemble(
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
    pub(super) fn begin(path: &Path, access: Access) -> Result<(File, u64)> {
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
}

pub(super) fn detect(region: &Region) -> Domain {
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
    let of = file.metadata().ok()?;
    // Where the table takes several reads, the kernel goes on by number from one to the next, and others give
    // locks back meanwhile.
    (0..LOOKS).find_map(|_| {
        let mut table = String::with_capacity(LOCKS_BYTES);
        File::open("/proc/locks").and_then(|mut locks| locks.read_to_string(&mut table)).ok()?;
        holder_among(&table, of.dev(), of.ino())
    })
}

fn holder_among(table: &str, device: u64, inode: u64) -> Option<u32> {
    let device = [major(device), minor(device)].map(Some);
    let holders = table.lines().filter_map(|line| {
        // Those who wait have an arrow before the kind of lock.
        let mut words = line.split_whitespace().skip(1);
        let (kind, _, _) = (words.next()?, words.next()?, words.next()?);
        let pid: u32 = words.next()?.parse().ok()?;
        let mut place = words.next()?.splitn(3, ':');
        let device = [place.next()?, place.next()?].map(|part| u32::from_str_radix(part, 16).ok());
        let theirs: u64 = place.next()?.parse().ok()?;
        (kind == "FLOCK" && theirs == inode).then_some((device, pid))
    });
    // Where a file system stands on another one, files and locks name different devices: then the inode tells, if
    // it tells of only one.
    let holders: Vec<_> = holders.collect();
    let here = holders.iter().find(|(theirs, _)| *theirs == device);
    here.or(holders.first().filter(|_| holders.len() == 1)).map(|(_, pid)| *pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_by_device_and_inode() {
        let table = "1: FLOCK  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 12 00:1b:77 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 13 00:1b:77 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 14 00:1b:77 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 15 00:1b:78 0 EOF\n\
                     5: FLOCK";
        let in_memory = rustix::fs::makedev(0, 0x1b);
        assert_eq!(holder_among(table, in_memory, 77), Some(13));
        assert_eq!(holder_among(table, rustix::fs::makedev(0xfe, 0), 77), Some(11));
        assert_eq!(holder_among(table, rustix::fs::makedev(9, 9), 78), Some(15), "the only one");
        assert_eq!(holder_among(table, rustix::fs::makedev(9, 9), 77), None, "either of two");
        assert_eq!(holder_among(table, in_memory, 79), None);
    }
}
