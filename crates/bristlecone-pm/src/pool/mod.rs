//! The pool: one file with several named trees, used by one process at a time.

mod backing;
mod chunks;
mod commits;
mod create;
mod directory;
pub(crate) mod file_lock;
mod follow;
mod geometry;
mod header;
mod intent;
mod layout;
mod nameless;
mod names;
pub(crate) mod new_file;
mod open;
mod pages;
mod salvage;
mod segment;
mod set_aside;
mod spec;
mod superblock;
mod trim;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::sync::AtomicU64;

pub use self::chunks::Chunk;
use self::chunks::FreeChunks;
pub use self::commits::CommitSpace;
use self::commits::Commits;
pub use self::create::Unnamed;
pub use self::geometry::Geometry;
pub(crate) use self::layout::TREES_LIMIT;
use self::layout::{CHUNK_BYTES_LEAST, VERSION};
pub use self::layout::{Part, PartOf, SlotKind, kind_of_descriptor};
pub use self::nameless::Nameless;
use self::names::Names;
use self::open::Found;
pub use self::open::Glance;
use self::pages::Pages;
pub use self::salvage::Damaged;
pub use self::set_aside::SetAside;
pub use self::spec::{TreeEntry, TreeId, TreeSpec};
use self::superblock::Contents;
use crate::segment::Segment;
use crate::sync::wait;
use crate::{Domain, Error, Events, LINE_BYTES, Medium, Opener, Persistent, Region, Result, Word};

/// Default size of a chunk in bytes: a huge page.
pub const CHUNK_BYTES: u64 = 2 << 20;
/// Trees whose directory entries the header has.
pub(crate) const TREES_MAX: u64 = 256;

/// Options for creating a pool.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Maximum size in bytes, at most 2^48; rounded up to whole chunks.
    pub max_bytes: u64,
    /// The persistence domain; detected if `None`.
    pub domain: Option<Domain>,
    /// Bytes of a chunk: a power of two from 4 KiB to 2 MiB; [`CHUNK_BYTES`] if `None`.
    pub chunk_bytes: Option<u64>,
}

/// Options for opening a pool for writing.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// The persistence domain; detected if `None`.
    pub domain: Option<Domain>,
    /// New maximum size in bytes; ignored if the present maximum is larger.
    pub max_bytes: Option<u64>,
}

/// How a pool is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// For everything, by one process.
    Write,
    /// Without changing the file; any number of processes may read it.
    Read,
    /// Without changing the file, while another process writes to it.
    Follow,
}

/// An inconsistency found by `check`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Issue {
    /// Its location.
    pub location: String,
    /// Its description.
    pub what: String,
}

impl Issue {
    /// Returns an issue.
    pub fn new(location: impl Into<String>, what: impl Into<String>) -> Self {
        Self { location: location.into(), what: what.into() }
    }
}

/// Information about an open pool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolInfo {
    /// Path of the file; `None` for a pool in memory.
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
    /// Whether trees restored an index that the last user saved in shared memory.
    pub index_was_kept: bool,
    /// Whether it is open for reading only.
    pub read_only: bool,
    /// Whether another process writes to it, which this one follows.
    pub following: bool,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Maximum size in bytes.
    pub max_bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks of the file without an owner.
    pub chunks_free: u64,
    /// Chunks of the file.
    pub chunks: u64,
    /// Damage found at open that does not affect data. In a pool that is open for writing it is repaired.
    pub issues: Vec<Issue>,
}

/// An open pool. If dropped without [`close`](Self::close) it counts as crashed: the next open finds the mark and all
/// acknowledged data.
#[derive(Debug)]
pub struct PoolFile<M> {
    region: Region,
    medium: M,
    geometry: Geometry,
    contents: Mutex<Contents>,
    was_clean: bool,
    /// Shared memory of the trees, and the number with which it was saved.
    segment: OnceLock<Arc<Segment>>,
    seal: u64,
    /// The number of this opening, by which the next one recognizes the segment after a kill; 0: none.
    opening: u64,
    /// The writer of a pool that is followed.
    followed: OnceLock<follow::Followed>,
    access: Access,
    detected: Domain,
    path: Option<PathBuf>,
    /// Damage found at open that does not affect data.
    damage: Vec<Issue>,
    /// Held while the directory changes.
    directory: Mutex<Names>,
    pages: Pages,
    commits: Mutex<Commits>,
    chunks: Mutex<FreeChunks>,
    /// Chunks to which the file may grow in this process, beside its maximum.
    limit: AtomicU64,
    /// The result of `chunks_available`.
    chunks_available: AtomicU64,
    events: Events,
}

impl<M: Medium> PoolFile<M> {
    /// Returns the medium.
    #[inline(always)]
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// Returns whether faults in the pool's mapping are handled here: see [`At`](crate::At).
    pub fn handles_faults(&self) -> bool {
        self.region.is_watched()
    }

    /// Returns the events since the pool was opened.
    #[inline]
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Returns the domain in force.
    pub fn domain(&self) -> Domain {
        self.lock_contents().domain
    }

    /// Returns whether the last user closed the pool.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// Returns whether the pool was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.access != Access::Write
    }

    /// Checks that this process may write to the pool.
    ///
    /// # Errors
    ///
    /// [`ReadOnly`](Error::ReadOnly) or [`Forked`](Error::Forked).
    pub fn writable(&self) -> Result<()> {
        self.here()?;
        if self.is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Returns the process that opened the pool.
    pub fn opener(&self) -> &Opener {
        self.region.opener()
    }

    /// Checks that this is the process that opened the pool; a child must not use it.
    ///
    /// # Errors
    ///
    /// [`Forked`](Error::Forked).
    #[inline]
    pub fn here(&self) -> Result<()> {
        if self.opener().is_here() { Ok(()) } else { Err(self.forked()) }
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::Forked { path: self.path.clone(), pid: self.opener().pid() }
    }

    /// Closes the pool's file in a child of the opener, and nothing else: the child releases its share
    /// of the lock. Does nothing in the opener.
    pub fn abandon(&self) {
        self.region.abandon();
        self.segment.get().into_iter().for_each(|segment| segment.abandon());
    }

    /// Checks that the medium never failed to make data durable.
    ///
    /// # Errors
    ///
    /// [`DurabilityLost`](Error::DurabilityLost).
    #[inline(always)]
    pub fn health(&self) -> Result<()> {
        if self.medium.failed() { Err(Error::DurabilityLost) } else { Ok(()) }
    }

    /// Returns the value at an offset.
    ///
    /// # Panics
    ///
    /// If it lies outside the pool's reservation or is misaligned: a bug of the caller, who must check offsets read
    /// from the medium when it opens a tree.
    #[inline(always)]
    pub fn at<T: Persistent>(&self, offset: u64) -> &T {
        let fits = offset <= self.region.reserved() - size_of::<T>() as u64;
        assert!(fits && offset.is_multiple_of(align_of::<T>() as u64), "an offset outside the pool");
        // SAFETY: the range lies in the mapping and is aligned (asserted; the base is aligned to
        // 2 MiB); a `Persistent` type consists of atomics, for which any bytes are valid and
        // concurrent change is allowed. The mapping lives as long as `self`.
        unsafe { &*self.region.base().wrapping_add(offset as usize).cast::<T>() }
    }

    /// Returns the maximum size in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.geometry.max_bytes()
    }

    /// Returns whether the file contains these bytes, aligned to words: for offsets read from the medium.
    #[inline]
    pub fn holds(&self, offset: u64, bytes: u64) -> bool {
        let fits = |len: u64| bytes <= len && offset <= len - bytes;
        let begins = offset.is_multiple_of(8) && offset >= self.geometry.header_bytes();
        begins && (fits(self.region.len()) || self.is_followed() && fits(self.region.len_now()))
    }

    /// Returns the words from an offset to the end of the file, if the file has it: for offsets read from the medium.
    #[inline(always)]
    pub fn words_from(&self, offset: u64) -> Option<&[Word]> {
        if !offset.is_multiple_of(8) || offset < CHUNK_BYTES_LEAST {
            return None;
        }
        let len = self.region.len();
        let end = if offset < len || !self.is_followed() { len } else { self.region.len_now() };
        let words = end.checked_sub(offset)? as usize / 8;
        // SAFETY: as in `at`; the file is not longer than the reservation.
        Some(unsafe {
            std::slice::from_raw_parts(self.region.base().wrapping_add(offset as usize).cast(), words)
        })
    }

    /// Returns words from an offset on. Panics as [`at`](Self::at) does.
    #[inline(always)]
    pub fn words(&self, offset: u64, words: usize) -> &[Word] {
        self.slice(offset, words)
    }

    /// Prefetches the line at an offset. Any offset is allowed.
    #[inline(always)]
    pub fn prefetch(&self, offset: u64) {
        self.medium().prefetch(self.region.base().wrapping_add(offset as usize));
    }

    /// Prefetches the line of an offset for writing.
    #[inline(always)]
    pub fn prefetch_to_write(&self, offset: u64) {
        crate::prefetch_to_write(self.region.base().wrapping_add(offset as usize));
    }

    /// Prefetches all lines of a range that begins with a line. Any offset is allowed.
    #[inline(always)]
    pub fn prefetch_lines(&self, offset: u64, bytes: usize) {
        (0..bytes as u64).step_by(LINE_BYTES).for_each(|line| self.prefetch(offset.wrapping_add(line)));
    }

    /// Returns `count` adjacent structures.
    ///
    /// # Panics
    ///
    /// As [`at`](Self::at).
    #[inline(always)]
    pub fn slice<T: Persistent>(&self, offset: u64, len: usize) -> &[T] {
        let bytes = (len * size_of::<T>()) as u64;
        let fits = bytes <= self.region.reserved() && offset <= self.region.reserved() - bytes;
        assert!(fits && offset.is_multiple_of(align_of::<T>() as u64), "an offset outside the pool");
        // SAFETY: as in `at`.
        unsafe { std::slice::from_raw_parts(self.region.base().wrapping_add(offset as usize).cast(), len) }
    }

    /// Returns information about the pool.
    pub fn info(&self) -> PoolInfo {
        let contents = *self.lock_contents();
        let uuid = u128::from(contents.uuid[1]) << 64 | u128::from(contents.uuid[0]);
        let (chunks_free, chunks, _) = self.chunk_counts();
        let info = PoolInfo {
            path: self.path.clone(),
            uuid: format!("{uuid:032x}"),
            version: VERSION,
            domain: contents.domain,
            detected: self.detected,
            was_clean: self.was_clean,
            index_was_kept: self.segment.get().is_some_and(|segment| segment.was_found()),
            read_only: self.is_read_only(),
            following: false,
            file_bytes: self.region.len(),
            max_bytes: self.geometry.max_bytes(),
            chunk_bytes: self.geometry.chunk_bytes,
            chunks_free,
            chunks,
            issues: self.damage.clone(),
        };
        if self.is_followed() { self.info_followed(info) } else { info }
    }

    /// Returns how many bytes are mapped by huge pages: see [`Region::huge_bytes`].
    pub fn huge_bytes(&self) -> u64 {
        self.region.huge_bytes()
    }

    /// Verifies superblock, directory and descriptors as open does, and adds the issues of open. In a pool that is
    /// followed, checks the directory only, because the writer changes the others meanwhile.
    pub fn check(&self) -> Vec<Issue> {
        let mut issues = self.damage.clone();
        let mut note = |location: &str, result: Result<()>| {
            issues.extend(result.err().map(|error| Issue::new(location, error.to_string())));
        };
        note("directory", self.trees().map(drop));
        if self.is_followed() {
            return issues;
        }
        note("superblock", self.lock_contents().verify(&self.region, &self.medium, self.access));
        let stray = self.stray_chunks();
        issues.extend(stray.iter().map(|id| Issue::new(format!("chunk {id}"), "its owner is no tree")));
        issues
    }

    fn lock_contents(&self) -> MutexGuard<'_, Contents> {
        wait::lock(&self.contents)
    }

    fn lock_directory(&self) -> MutexGuard<'_, Names> {
        wait::lock(&self.directory)
    }

    fn lock_chunks(&self) -> MutexGuard<'_, FreeChunks> {
        wait::lock(&self.chunks)
    }
}

#[cfg(test)]
mod commits_tests;
#[cfg(test)]
mod intent_tests;
#[cfg(test)]
mod limits_tests;
#[cfg(test)]
mod opening_tests;
#[cfg(test)]
mod pages_tests;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod trim_tests;
