//! The volatile half of a pool's trees, kept in shared memory beside the pool: the *segment*.
//!
//! Trees keep inner nodes, descriptors and buffers in DRAM. These consist of atomics, are initially zero and refer to
//! each other by number. So they need not be memory of one process: here they are a file on tmpfs, named by the pool's
//! UUID, that holds no pointer. A clean close saves it, and the next open maps it and continues. Otherwise open would
//! rebuild everything from the leaves.
//!
//! ```text
//! extent 0   header (a page) | saved state of trees: manifest | 2^35 B: cells | 2^36 B: the board, and followers' rows
//! extent 1.. the arenas of trees, each in a range of 2^38 B that is allocated on demand
//! ```
//!
//! While it is in use, other processes can read the pool through it: see `live`, `follow` and `cell`.
//!
//! **Validity** depends on a number chosen at the close, which the superblock stores together with the mark of a clean
//! close. Any open for writing replaces the number, in any process and with any view of shared memory. So a segment is
//! used only if the pool is in the state in which both were closed, or in that of a process that was killed while it used
//! both: see `left`. It does not survive a crash of the machine.
//!
//! # Close
//! 1. Each tree saves its manifest when its last handle is dropped.
//! 2. The header gets a manifest, with checksums of all that trees stored in their extents, and the number.
//! 3. The superblock gets the same number and the mark of a clean close. *A crash before that: the pool was not
//!    closed, and the next open discards the segment, whose header names no opening any more.*
//!
//! # Open
//! 1. The superblock loses the mark, and the opening's number replaces that of the close, durably. *From here on a crash
//!    finds a pool in use.*
//! 2. The header gets the opening's number instead of its own; trees restore the state in their manifest, if the
//!    checksums of their extents match. A tree with a changed bit is rebuilt from its leaves.
//!
//! If there is no space for the segment, memory of the process is used instead. Writes still succeed, but nothing is
//! saved at the close.

mod announce;
mod checksums;
mod extent;
mod follow;
mod header;
mod left;
mod live;
mod manifest;
mod mapping;
mod owner;
mod place;
mod released;
mod retired;
mod saved;
mod shared_cell;
mod shown;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, Permissions};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, fallocate, flock, linkat};

pub use self::extent::Extent;
pub use self::follow::Follower;
use self::header::Header;
pub(crate) use self::header::{Holds, NUMBER_BITS, holds, new_number};
use self::left::Left;
use self::live::{Live, Phase};
pub use self::manifest::{Manifest, ManifestReader};
use self::owner::Lock;
use self::place::{Place, earlier_paths, open_own};
pub use self::released::Released;
use self::retired::{Retired, SharedCells};
use self::saved::SavedTree;
pub use self::shared_cell::{SharedCell, Zeroed};
use crate::medium::is_memory;
use crate::sync::wait::lock;
use crate::{Opener, failpoint};

/// Size of an extent in bytes, in address space and in the file.
pub(crate) const EXTENT_BYTES: u64 = 1 << 38;
/// Maximum number of extents of a segment: as many as a file can have.
const EXTENTS_MAX: u32 = 1 << 24;
/// Number of attempts of an open to lock a segment.
const LOCK_LOOKS: usize = 5;

/// Whether the volatile half of a pool's trees outlives a clean close, or a kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepIndex {
    /// Over a clean close, if rebuilding it would take more than some milliseconds. After a kill it is rebuilt.
    #[default]
    Auto,
    /// As `Auto`, and the next process takes over what a killed one had open, in designs that can.
    AfterKill,
    /// Over a clean close and a kill, regardless of size.
    Always,
    /// Never: it is memory of this process.
    Never,
}

impl KeepIndex {
    /// Returns whether the index outlives a kill.
    fn is_over_kills(self) -> bool {
        matches!(self, Self::AfterKill | Self::Always)
    }
}

/// How a segment is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// By the only process that writes to the pool.
    Write,
    /// By a process that reads the pool: its stores stay in that process.
    Read,
    /// By a process that reads the pool while another one writes to it: it stores nothing.
    Follow,
}

#[derive(Debug, Default)]
struct State {
    /// By number.
    trees: BTreeMap<u32, SavedTree>,
    /// Trees that a killed writer had open and that this one has not opened yet.
    left: BTreeMap<u32, Left>,
    /// Trees that are open, or about to save their state.
    open: BTreeSet<u32>,
    /// Trees that are shared with followers.
    shown: BTreeSet<u32>,
    /// Extents below this number were handed out at some time.
    begun: u32,
    /// Those of them that are not in use.
    free: Vec<u32>,
    cells: SharedCells,
    /// Retired memory that followers may still read, each with the epoch of its removal.
    retired: Vec<(u64, Retired)>,
}

/// The segment of an open pool. See the module.
#[derive(Debug)]
pub struct Segment {
    file: File,
    place: Place,
    mode: Mode,
    keep: KeepIndex,
    header: Header,
    state: Mutex<State>,
    /// Signals that a tree was closed.
    closed: Condvar,
    /// Whether a clean close had saved it, and everything used so far was unchanged.
    found: AtomicBool,
    /// State shared with followers; `None` if followers are impossible.
    live: Option<Live>,
    /// Set permanently when a page that another process took away was replaced by zeros, or a follower finds the writer
    /// dead.
    over: Arc<AtomicBool>,
    /// Whether all extents of the trees are stored in the file.
    whole: AtomicBool,
    sealed: AtomicBool,
    opener: Opener,
    abandoned: AtomicBool,
}

/// Memory for the volatile data of a tree: the pool's segment, if it has one, or memory of this process.
#[derive(Clone, Debug, Default)]
pub struct Memory(Option<Arc<Segment>>);

impl Memory {
    /// Returns memory of this process.
    pub fn private() -> Self {
        Self(None)
    }

    pub(crate) fn of(segment: Option<&Arc<Segment>>) -> Self {
        Self(segment.cloned())
    }

    /// Returns a zeroed value, visible to followers if there can be any.
    pub fn cell<T: Zeroed>(&self) -> SharedCell<T> {
        self.0.as_ref().and_then(SharedCell::fresh).unwrap_or_default()
    }

    /// Returns a value with the given initial contents.
    pub fn cell_of<T: Zeroed>(&self, value: T) -> SharedCell<T> {
        self.cell::<T>().beginning(value)
    }

    /// Returns the segment, if followers ever existed.
    #[inline(always)]
    fn followed(&self) -> Option<&Segment> {
        self.0.as_deref().filter(|segment| segment.live.as_ref().is_some_and(Live::had_followers))
    }

    /// Returns whether it is memory of this process.
    pub fn is_private(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether the next process takes over what is here if this one is killed. Otherwise nothing needs to be
    /// noted for it.
    pub fn outlives_a_kill(&self) -> bool {
        self.0.as_ref().is_some_and(|segment| segment.keep.is_over_kills())
    }

    /// Returns a zeroed extent of up to `bytes` bytes, of which none is usable yet.
    ///
    /// # Errors
    ///
    /// If there is no address space left.
    pub fn extent(&self, bytes: usize) -> crate::Result<Extent> {
        let shared = self.0.as_ref().and_then(|segment| Extent::fresh(segment, bytes));
        shared.map_or_else(|| Extent::private(bytes), Ok)
    }
}

/// Identifies the segment of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity<'p> {
    pub uuid: [u64; 2],
    /// The number of the close or, if there was none, of the last opening; 0: none.
    pub seal: u64,
    /// Whether the pool was closed.
    pub was_clean: bool,
    /// The number of this opening; 0: none.
    pub opening: u64,
    /// A hash of what the layout and the meaning of the state depend on.
    pub layout: u64,
    /// `None`: it has no name.
    pub pool: Option<&'p Path>,
}

/// Removes a segment of this user that no process has open.
fn remove_unused(path: &Path) {
    let file = open_own(path).filter(|file| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok());
    file.iter().for_each(|_| _ = std::fs::remove_file(path));
}

/// Creates a file, which has no name yet if the system can: once it has one, it is locked and has its header, so that no
/// [sweep](sweep::sweep) removes it. Returns whether it has its name.
fn new_file(path: &Path) -> Option<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    failpoint::check("open").ok()?;
    let nameless = options.clone().custom_flags(libc::O_TMPFILE).open(place::FOLDER);
    match nameless.ok().filter(|_| Path::new("/proc/self/fd").exists()) {
        Some(file) => Some((file, false)),
        None => Some((options.create_new(true).custom_flags(libc::O_NOFOLLOW).open(path).ok()?, true)),
    }
}

/// Gives a file its name, unless another one has it.
fn name_file(file: &File, path: &Path) -> Option<()> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = || linkat(CWD, &own, CWD, path, AtFlags::SYMLINK_FOLLOW);
    failpoint::call("linkat", link).ok()
}

impl Segment {
    /// Opens the segment that a clean close saved, or creates an empty one. Returns `None` if neither is possible,
    /// which is not an error, since everything can be rebuilt.
    pub(crate) fn open(identity: &Identity<'_>, keep: KeepIndex, read_only: bool) -> Option<Arc<Self>> {
        let mode = if read_only { Mode::Read } else { Mode::Write };
        let found = Self::resume(identity, keep, mode);
        if found.is_some() || read_only || keep == KeepIndex::Never {
            return found.map(Arc::new);
        }
        sweep::sweep();
        earlier_paths(identity.uuid).for_each(|path| remove_unused(&path));
        Self::create(identity, keep).map(Arc::new)
    }

    /// Opens the segment of a pool without a name in a file that is locked, as [`open`](Self::open) does. The file is of
    /// this pool, or empty.
    pub(crate) fn open_in(
        (file, label): (File, PathBuf),
        identity: &Identity<'_>,
        keep: KeepIndex,
        read_only: bool,
    ) -> Option<Arc<Self>> {
        let mode = if read_only { Mode::Read } else { Mode::Write };
        let place = Place::Given(label);
        let found = Self::resume_in((file.try_clone().ok()?, place.clone()), identity, keep, mode);
        if found.is_some() || read_only {
            return found.map(Arc::new);
        }
        place.remove(&file);
        let header = Header::new(identity)?;
        header.write(&file, &[]).ok()?;
        Some(Arc::new(Self::empty((file, place), header, keep)))
    }

    /// Opens an existing segment in shared memory if it fits the pool. If the pool is open for writing, a segment that
    /// does not fit is removed.
    fn resume(identity: &Identity<'_>, keep: KeepIndex, mode: Mode) -> Option<Self> {
        let place = Place::of(identity.uuid);
        let file = open_own(place.path())?;
        let operation = match mode {
            Mode::Write => FlockOperation::NonBlockingLockExclusive,
            Mode::Read | Mode::Follow => FlockOperation::NonBlockingLockShared,
        };
        // In use by a process that opened a copy of this pool, or by a child of one; or being checked by a sweep.
        let is_locked = || failpoint::call("flock", || flock(&file, operation)).is_ok();
        (is_locked()
            || (1..LOCK_LOOKS).any(|_| {
                std::thread::sleep(Duration::from_micros(200));
                is_locked()
            }))
        .then_some(())?;
        Self::resume_in((file, place), identity, keep, mode)
    }

    fn resume_in(
        (file, place): (File, Place),
        identity: &Identity<'_>,
        keep: KeepIndex,
        mode: Mode,
    ) -> Option<Self> {
        let found = Header::read(&file).filter(|header| keep != KeepIndex::Never && header.fits(identity));
        if !identity.was_clean && mode == Mode::Write {
            let taken = found.filter(|_| keep.is_over_kills());
            let taken = taken.and_then(|header| {
                Self::take_over((file.try_clone().ok()?, place.clone()), &header, identity, keep)
            });
            return taken.or_else(|| Self::discard(&file, &place));
        }
        let fits = || {
            let header = found?;
            let trees = saved::read(&header.read_manifest(&file)?)?;
            // A truncated file does not hold the saved state.
            let len = file.metadata().ok()?.len();
            (trees.0 == 1 || len == u64::from(trees.0) * EXTENT_BYTES).then_some((header, trees))
        };
        let is_unread = || {
            // A follower may have been stopped during a lookup since the last writer: what it reads must stay.
            mode == Mode::Read
                || Live::read(&file)
                    .is_none_or(|live| !(live.had_followers() && live.passed_by_all(&file) < live.epoch()))
        };
        let Some((header, (begun, trees))) = fits().filter(|_| is_unread()) else {
            return if mode == Mode::Write { Self::discard(&file, &place) } else { None };
        };
        let used: BTreeSet<u32> = trees.values().flat_map(|kept| kept.extents.iter().copied()).collect();
        let live = if mode == Mode::Write { Live::write(&file) } else { None };
        let cells = SharedCells::begin(&file, live.is_some());
        let state = State { trees, begun, cells, ..State::default() };
        let header = header.reopened(identity);
        let segment = Self::over(file, (place, mode, keep), header, (state, live));
        // Zeroed, regardless of old contents.
        (1..begun).filter(|extent| !used.contains(extent)).for_each(|extent| segment.give_back(extent));
        // Its seal would not match any more from here on.
        (mode == Mode::Read || segment.header.write(&segment.file, &[]).is_ok()).then_some(segment)
    }

    /// Removes a segment that does not fit.
    fn discard(file: &File, place: &Place) -> Option<Self> {
        // Followers of a dead writer learn from this that they no longer read the pool.
        Live::write(file).into_iter().for_each(|live| live.set_phase(Phase::Closed));
        place.remove(file);
        None
    }

    /// Creates the file of an empty segment in shared memory.
    fn create(identity: &Identity<'_>, keep: KeepIndex) -> Option<Self> {
        let place = Place::of(identity.uuid);
        let (file, has_name) = new_file(place.path())?;
        let made = || {
            is_memory(&file).then_some(())?;
            // Regardless of the umask.
            file.set_permissions(Permissions::from_mode(0o600)).ok()?;
            failpoint::call("flock", || flock(&file, FlockOperation::NonBlockingLockExclusive)).ok()?;
            let header = Header::new(identity)?;
            header.write(&file, &[]).ok()?;
            if has_name { Some(header) } else { name_file(&file, place.path()).map(|()| header) }
        };
        let Some(header) = made() else {
            if has_name {
                place.remove(&file);
            }
            return None;
        };
        Some(Self::empty((file, place), header, keep))
    }

    /// Returns an empty segment in a file that is locked, and has its header.
    fn empty((file, place): (File, Place), header: Header, keep: KeepIndex) -> Self {
        let live = Live::write(&file);
        let state = State { begun: 1, cells: SharedCells::begin(&file, live.is_some()), ..State::default() };
        Self::over(file, (place, Mode::Write, keep), header, (state, live))
    }

    /// Returns whether a clean close had saved it, and everything used so far was unchanged.
    pub(crate) fn was_found(&self) -> bool {
        self.found.load(Relaxed)
    }

    fn over(
        file: File,
        (place, mode, keep): (Place, Mode, KeepIndex),
        header: Header,
        (state, live): (State, Option<Live>),
    ) -> Self {
        // Followers query it to see whether the writer is alive.
        let live = live.filter(|_| mode != Mode::Write || owner::take(&file, Lock::Writer));
        Self {
            file,
            place,
            mode,
            keep,
            header,
            found: AtomicBool::new(!state.trees.is_empty() || !state.left.is_empty()),
            state: Mutex::new(state),
            closed: Condvar::new(),
            live,
            over: Arc::default(),
            whole: AtomicBool::new(true),
            sealed: AtomicBool::new(false),
            opener: Opener::this(),
            abandoned: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns whether all data of the trees is stored in the file.
    fn is_whole(&self) -> bool {
        self.whole.load(Relaxed)
    }

    /// Records that data is stored outside the segment: nothing can be saved.
    fn give_up(&self) {
        self.whole.store(false, Relaxed);
        self.live.iter().for_each(Live::lose);
    }

    /// Allocates a zeroed extent, and extends the file to contain it.
    fn take_extent(&self) -> Option<u32> {
        if self.mode != Mode::Write || !self.is_whole() || !self.opener.is_here() {
            return None;
        }
        self.free_retired();
        let mut state = self.state();
        if let Some(extent) = state.free.pop() {
            return Some(extent);
        }
        let extent = state.begun;
        let len = (u64::from(extent) + 1) * EXTENT_BYTES;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        // Beyond a limit the kernel would send a signal that ends the process.
        let is_forbidden = limit.is_some_and(|limit| len > limit);
        let grow = || rustix::fs::ftruncate(self.file.as_fd(), len);
        if is_forbidden || extent == EXTENTS_MAX || failpoint::call("ftruncate", grow).is_err() {
            self.give_up();
            return None;
        }
        state.begun += 1;
        Some(extent)
    }

    /// Frees an extent: it is zeroed, and takes no memory.
    fn give_back(&self, extent: u32) {
        if self.mode == Mode::Write && !self.retire(Retired::Extent(extent)) {
            self.clear_extent(extent);
        }
    }

    /// Zeroes an extent that no thread of any process reads.
    fn clear_extent(&self, extent: u32) {
        if self.punch(extent, 0..EXTENT_BYTES as usize) {
            self.state().free.push(extent);
        }
    }

    /// Frees the memory of a byte range of an extent; returns whether it is zero now.
    fn punch(&self, extent: u32, bytes: Range<usize>) -> bool {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let start = u64::from(extent) * EXTENT_BYTES + bytes.start as u64;
        let punch = || fallocate(&self.file, flags, start, bytes.len() as u64);
        failpoint::call("fallocate", punch).is_ok()
    }

    fn live(&self) -> Option<&Live> {
        self.live.as_ref()
    }

    fn file(&self) -> &File {
        &self.file
    }

    /// Closes the file in a child of the opener, so that the child does not keep the lock after the opener exits.
    pub(crate) fn abandon(&self) {
        if !self.opener.is_here() && !self.abandoned.swap(true, Relaxed) {
            // SAFETY: the child does nothing with the file from now on, nor does it close it again.
            unsafe { libc::close(self.file.as_raw_fd()) };
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if !self.opener.is_here() {
            return;
        }
        if self.mode == Mode::Write {
            self.set_phase(Phase::Closed);
            owner::give_back(&self.file, Lock::Writer);
            if !self.sealed.load(Relaxed) {
                self.place.remove(&self.file);
            }
        }
        // A child that was forked meanwhile holds the file, and with it the lock: closing the file would not release
        // the lock.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}
