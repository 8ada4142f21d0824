//! Opening and closing: a process locks, validates and marks the file.

use std::fs::{File, Metadata, OpenOptions as FileOptions};
use std::ops::RangeInclusive;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use super::file_lock::lock;
use super::layout::DIRECTORY_OFFSET;
use super::new_file;
use super::pages::Pages;
use super::superblock::Contents;
use super::{Access, Geometry, Issue, Nameless, OpenOptions, PoolFile, backing, header};
use crate::segment::new_number;
use crate::sync::AtomicU64;
use crate::{At, Domain, Error, Events, Flushed, Medium, Region, Result};

/// The minimum by which a pool can grow after open, unless its maximum is lower.
const GROWTH_BYTES: u64 = 64 << 20;
/// Number of attempts to read a file that others change meanwhile.
const LOOKS: usize = 3;

/// The contents of a superblock.
pub(super) struct Found {
    pub contents: Contents,
    pub was_clean: bool,
    /// The number of the segment that the close saved, or that the opening used which did not end.
    pub seal: u64,
    /// The damage to one copy.
    pub damage: Option<Issue>,
}

/// What the file of a pool says about it, before it is opened.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    /// The pool's identity.
    pub uuid: u128,
    /// The domain last used.
    pub domain: Domain,
    /// Whether the last user closed the pool.
    pub was_clean: bool,
    /// Number of changes of the superblock.
    pub sequence: u64,
    /// Sizes of the pool.
    pub geometry: Geometry,
    /// Device and inode of the file.
    pub inode: (u64, u64),
}

impl<M: Medium> PoolFile<M> {
    pub(super) fn assemble(
        region: Region,
        medium: M,
        found: Found,
        detected: Domain,
        path: Option<&Path>,
        access: Access,
    ) -> Arc<Self> {
        Arc::new(Self {
            region,
            medium,
            geometry: found.contents.geometry,
            contents: Mutex::new(found.contents),
            was_clean: found.was_clean,
            segment: OnceLock::new(),
            seal: found.seal,
            opening: found.contents.seal,
            followed: OnceLock::new(),
            access,
            detected,
            path: path.map(Path::to_owned),
            damage: found.damage.into_iter().collect(),
            directory: Mutex::default(),
            pages: Pages::new(&found.contents.geometry),
            commits: Mutex::default(),
            chunks: Mutex::default(),
            limit: AtomicU64::new(u64::MAX),
            chunks_available: AtomicU64::new(found.contents.geometry.chunks_max),
            events: Events::default(),
        })
    }

    /// Opens a pool file. Nothing in it is trusted. Interrupted operations of the pool itself are finished, and the
    /// pool is marked as in use.
    ///
    /// # Errors
    ///
    /// [`NotFound`](Error::NotFound), [`NotAPool`](Error::NotAPool), [`InUse`](Error::InUse), [`Newer`](Error::Newer),
    /// [`Corrupted`](Error::Corrupted), [`MediumFull`](Error::MediumFull), [`MaximumFixed`](Error::MaximumFixed), and
    /// errors of the system. The pool is then unchanged.
    pub fn open<'p>(
        at: impl Into<At<'p>>,
        options: &OpenOptions,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        Self::open_if(at, options, make_medium, |_| Ok(()))
    }

    /// Opens a pool file as [`open`](Self::open) does, if `may` agrees. It is called before anything is mapped or
    /// changed, while the file is locked.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and those of `may`.
    pub fn open_if<'p>(
        at: impl Into<At<'p>>,
        options: &OpenOptions,
        make_medium: impl FnOnce(Domain) -> M,
        may: impl FnOnce(&Glance) -> Result<()>,
    ) -> Result<Arc<Self>> {
        let at = at.into();
        let file = Self::begin(at.path, Access::Write)?;
        Self::open_locked(file, (at, Some(at.path)), options, make_medium, may)
    }

    /// Opens a pool whose file was passed as a descriptor, as [`open_if`](Self::open_if) does. `handled` is the one of
    /// [`At`].
    ///
    /// # Errors
    ///
    /// As [`open_if`](Self::open_if); [`NotFound`](Error::NotFound) if there is no pool in the file.
    pub fn open_nameless(
        nameless: Nameless,
        handled: bool,
        options: &OpenOptions,
        make_medium: impl FnOnce(Domain) -> M,
        may: impl FnOnce(&Glance) -> Result<()>,
    ) -> Result<Arc<Self>> {
        let (len, is_named) = (nameless.expect_pool()?, nameless.named().is_some());
        let (file, label) = nameless.into_parts();
        let at = At { path: &label, handled };
        Self::open_locked((file, len), (at, is_named.then_some(&*label)), options, make_medium, may)
    }

    fn open_locked(
        (file, len): (File, u64),
        (at, named): (At<'_>, Option<&Path>),
        options: &OpenOptions,
        make_medium: impl FnOnce(Domain) -> M,
        may: impl FnOnce(&Glance) -> Result<()>,
    ) -> Result<Arc<Self>> {
        let (path, access) = (at.path, Access::Write);
        let contents = header::probe(&file, path, len, access)?;
        may(&Glance::of(&contents, &file, path)?)?;
        let max_bytes = raised(contents.geometry, options.max_bytes)?.max_bytes();
        let len = len.min(max_bytes);
        let region = Region::file(file, at, len, reservation(len, max_bytes))?;
        backing::back_header(&region, &contents.geometry)?;
        let detected = detect(&region);
        // A journal is never detected: a pool keeps its own.
        let own = (contents.domain == Domain::Journal).then_some(Domain::Journal);
        let domain = options.domain.or(own).unwrap_or(detected);
        expect_possible(&region, domain)?;
        let is_new = !contents.clean && domain != Domain::Process && region.device().is_none();
        if let Some(path) = named.filter(|_| is_new) {
            // The process that created the file may have been killed before its name was durable.
            new_file::sync_name(path)?;
        }
        let in_force = OpenOptions { domain: Some(domain), ..*options };
        Self::open_on(region, &in_force, detected, make_medium(domain), named, access)
    }

    /// Opens a pool file without ever writing to it. Recovery works on a private copy of the pages that it changes.
    /// Other readers may have the pool open at the same time, a writer may not.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_read_only<'p>(
        at: impl Into<At<'p>>,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        let at = at.into();
        let file = Self::begin(at.path, Access::Read)?;
        Self::open_locked_read_only(file, (at, Some(at.path)), make_medium)
    }

    /// Opens a pool whose file was passed as a descriptor, as [`open_read_only`](Self::open_read_only) does. `handled` is
    /// the one of [`At`].
    ///
    /// # Errors
    ///
    /// As [`open_nameless`](Self::open_nameless).
    pub fn open_nameless_read_only(
        nameless: Nameless,
        handled: bool,
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        let len = nameless.expect_pool()?;
        let (file, label) = nameless.into_parts();
        Self::open_locked_read_only((file, len), (At { path: &label, handled }, None), make_medium)
    }

    fn open_locked_read_only(
        (file, len): (File, u64),
        (at, named): (At<'_>, Option<&Path>),
        make_medium: impl FnOnce(Domain) -> M,
    ) -> Result<Arc<Self>> {
        let (path, access) = (at.path, Access::Read);
        let contents = header::probe(&file, path, len, access)?;
        let max_bytes = contents.geometry.max_bytes();
        let region = Region::private(file, at, len.min(max_bytes), reservation(len, max_bytes))?;
        backing::blank_holes(&region, &contents.geometry)?;
        let detected = detect(&region);
        let options = OpenOptions { domain: Some(contents.domain), max_bytes: None };
        Self::open_on(region, &options, detected, make_medium(Domain::Process), named, access)
    }

    /// Opens and locks the file; returns it and its length.
    pub(super) fn begin(path: &Path, access: Access) -> Result<(File, u64)> {
        for _ in 0..LOOKS {
            let file = open_regular(path, access)?;
            lock(&file, access)?;
            // Only after locking: the last holder may have grown it, or removed it before it released the lock.
            let metadata = |of: std::io::Result<Metadata>| of.map_err(|error| Error::at_path(path, error));
            let (own, named) = (metadata(file.metadata())?, metadata(std::fs::metadata(path))?);
            if (own.dev(), own.ino()) != (named.dev(), named.ino()) {
                continue;
            }
            if own.len() < DIRECTORY_OFFSET {
                return Err(Error::NotAPool { path: path.to_owned() });
            }
            return Ok((file, own.len()));
        }
        Err(Error::InUse { pid: None })
    }

    /// Opens a pool in anonymous memory in the same way as [`open`](Self::open) opens a file.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_in(region: Region, domain: Domain, medium: M) -> Result<Arc<Self>> {
        let options = OpenOptions { domain: Some(domain), max_bytes: None };
        Self::open_in_with(region, &options, medium)
    }

    /// Opens a pool in memory with options: see [`open_in`](Self::open_in).
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_in_with(region: Region, options: &OpenOptions, medium: M) -> Result<Arc<Self>> {
        let domain = options.domain.unwrap_or(Domain::Process);
        Self::open_on(region, options, domain, medium, None, Access::Write)
    }

    /// Opens the mapped pool. Raising the maximum takes two superblock writes, and so does ending a change of the
    /// directory: after a crash between them the newer copy counts.
    fn open_on(
        region: Region,
        options: &OpenOptions,
        detected: Domain,
        medium: M,
        path: Option<&Path>,
        access: Access,
    ) -> Result<Arc<Self>> {
        let (mut contents, damage) = Contents::read(&region, &medium, access)?;
        let as_found = contents;
        contents.geometry = raised(as_found.geometry, options.max_bytes)?;
        if contents.geometry.max_bytes() > region.reserved() && region.as_file().is_none() {
            return Err(Error::invalid("the region is too small for this geometry"));
        }
        if contents.geometry.header_bytes() > region.len() {
            return Err(Error::corrupted("the pool ends within its header: truncated", "superblock"));
        }
        let mut found = Found { contents, was_clean: contents.clean, seal: contents.seal, damage };
        // Simulations repeat exactly: a pool in memory has no segment.
        let is_numbered = region.as_file().is_some() && access == Access::Write;
        found.contents.seal = if is_numbered { new_number().unwrap_or(0) } else { 0 };
        let pool = Self::assemble(region, medium, found, detected, path, access);
        pool.recover_chunks()?;
        pool.back_owned_chunks()?;
        let flushed = pool.recover_directory()?;
        if let Some(stray) = pool.stray_chunks().first() {
            return Err(Error::corrupted(
                "a chunk owned by a missing tree",
                format!("descriptor of chunk {stray}"),
            ));
        }
        let mark = |contents: &mut Contents| {
            contents.domain = options.domain.unwrap_or(detected);
            (contents.clean, contents.seal) = (false, pool.opening);
        };
        pool.write_contents_after(flushed, mark)?;
        if pool.geometry != as_found.geometry || as_found.intent {
            pool.write_contents(|_| {})?;
        }
        if pool.domain() == Domain::Journal {
            // Otherwise a power failure could leave the mark of the last close beside later changes.
            pool.region.sync_range(0, DIRECTORY_OFFSET)?;
        }
        Ok(pool)
    }

    /// Marks the pool durably as cleanly closed. The file stays open until the last handle is dropped, and nothing may
    /// be written to the pool until then.
    ///
    /// # Errors
    ///
    /// [`DurabilityLost`](Error::DurabilityLost), [`Forked`](Error::Forked), and errors of the system; the pool then
    /// stays in use.
    pub fn close(&self) -> Result<()> {
        self.here()?;
        self.health()?;
        self.release_commits()?;
        // Space that a follower may read must not be released.
        if self.end_following() {
            self.trim_at_close();
        }
        let seal = self.seal_segment();
        let closed = self.write_contents(|contents| {
            (contents.clean, contents.commits, contents.seal) = (true, false, seal);
        });
        let is_file = matches!(self.domain(), Domain::Msync | Domain::Journal);
        let synced = if is_file { self.region.sync() } else { Ok(()) };
        closed.and(synced).inspect_err(|_| {
            // The close failed: later writes must not be those of a closed pool.
            self.segment.get().into_iter().for_each(|segment| segment.unseal());
            self.begin_following();
            let _ = self.write_contents(|contents| (contents.clean, contents.seal) = (false, self.opening));
        })
    }

    /// Writes everything back to the medium.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn sync(&self) -> Result<()> {
        self.region.sync()
    }

    /// Gives the pool the domain [`Journal`](Domain::Journal) with the next change of its superblock. The journal must be
    /// complete by then.
    pub fn adopt_journal(&self) {
        self.lock_contents().domain = Domain::Journal;
    }

    /// Returns what the file of the pool says about it.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn glance(&self) -> Result<Glance> {
        let contents = *self.lock_contents();
        let path = self.path.as_deref().unwrap_or(Path::new("the pool"));
        let glance = self.region.as_file().map(|file| Glance::of(&contents, file, path)).transpose()?;
        Ok(Glance { was_clean: self.was_clean, ..glance.unwrap_or(Glance::of_contents(&contents)) })
    }

    /// Changes the superblock, durably: the older copy is overwritten.
    pub(super) fn write_contents(&self, change: impl FnOnce(&mut Contents)) -> Result<()> {
        self.write_contents_after(Flushed::none(), change)
    }

    /// Writes the superblock. Earlier flushes are durable before the superblock counts.
    pub(super) fn write_contents_after(
        &self,
        before: Flushed,
        change: impl FnOnce(&mut Contents),
    ) -> Result<()> {
        let mut contents = self.lock_contents();
        change(&mut contents);
        contents.sequence += 1;
        contents.update(&self.region, &self.medium, before);
        self.health()
    }
}

impl Glance {
    fn of_contents(contents: &Contents) -> Self {
        let uuid = u128::from(contents.uuid[1]) << 64 | u128::from(contents.uuid[0]);
        let &Contents { domain, clean: was_clean, sequence, geometry, .. } = contents;
        Self { uuid, domain, was_clean, sequence, geometry, inode: (0, 0) }
    }

    fn of(contents: &Contents, file: &File, path: &Path) -> Result<Self> {
        let found = file.metadata().map_err(|error| Error::at_path(path, error))?;
        Ok(Self { inode: (found.dev(), found.ino()), ..Self::of_contents(contents) })
    }
}

/// Returns the address space of a pool whose file has `len` bytes. With little address space the pool opens, and its
/// growth is limited.
pub(super) fn reservation(len: u64, max_bytes: u64) -> RangeInclusive<u64> {
    len.saturating_add(GROWTH_BYTES).min(max_bytes)..=max_bytes
}

/// Returns the sizes of a pool whose maximum is at least `max_bytes` bytes.
fn raised(found: Geometry, max_bytes: Option<u64>) -> Result<Geometry> {
    let chunks_max = max_bytes.unwrap_or(0).div_ceil(found.chunk_bytes);
    if chunks_max <= found.chunks_max {
        return Ok(found);
    }
    let possible = found.chunk_bytes_possible();
    let raised = found.with_chunks_max(chunks_max).filter(|_| chunks_max <= possible / found.chunk_bytes);
    raised.ok_or_else(|| Error::MaximumFixed { asked: max_bytes.unwrap_or(0), possible })
}

pub(super) fn detect(region: &Region) -> Domain {
    if region.device().is_some_and(|device| !device.is_persistent) {
        return Domain::Process;
    }
    region.as_file().map_or(Domain::Process, |file| Domain::detect(file, region.dax()))
}

/// Checks that the medium of a region supports a domain: a device cannot be synced.
pub(super) fn expect_possible(region: &Region, domain: Domain) -> Result<()> {
    match domain {
        Domain::Msync | Domain::Journal if region.device().is_some() => {
            Err(Error::invalid(format!("a device in device-DAX mode cannot have the domain {domain}")))
        }
        _ => Ok(()),
    }
}

/// Opens a file for reading, or for reading and writing. Anything but a regular file is rejected without blocking.
pub(super) fn open_regular(path: &Path, access: Access) -> Result<File> {
    let not_a_pool = || Error::NotAPool { path: path.to_owned() };
    let mut options = FileOptions::new();
    options.read(true).write(access == Access::Write).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        // A directory, a socket, a device without a driver.
        Some(libc::EISDIR | libc::ENXIO | libc::ENODEV) => not_a_pool(),
        _ => Error::at_path(path, error),
    })?;
    let metadata = file.metadata().map_err(|error| Error::at_path(path, error))?;
    if metadata.is_file() { Ok(file) } else { Err(not_a_pool()) }
}
