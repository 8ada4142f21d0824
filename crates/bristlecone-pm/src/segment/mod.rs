//! The volatile half of a pool's trees, kept in shared memory beside the pool: the *segment*.
//!
//! What trees keep in DRAM (inner nodes, descriptors, buffers) consists of atomics, begins as zeros and names its
//! parts by number. So it need not be memory of one process: here it is a file on tmpfs, named by the pool's UUID,
//! that holds no pointer. A clean close leaves it behind, and the next open maps it and goes on, where it would
//! otherwise build everything anew from the leaves.
//!
//! ```text
//! extent 0   header (a page) | what trees left behind: notes | 2^35 B: posts | 2^36 B: the board, and followers' rows
//! extent 1.. the arenas of trees, each in a range of 2^38 B of which it has as many as it uses
//! ```
//!
//! While it is in use, other processes can read the pool by it: see `live`, `follow` and `posted`.
//!
//! **What makes it valid** is a number drawn at the close, which the superblock has together with the mark of a clean close. Any
//! open for writing replaces it, by whatever process and wherever that sees shared memory: so a segment fits the
//! pool in the state in which both were left, or it is not used. It is never trusted after a crash, since only a
//! clean close writes that number, and it does not survive the machine's.
//!
//! # Close
//! 1. Each tree leaves its notes when its last handle goes.
//! 2. The header gets notes, with checksums of all that trees left in their extents, and the number.
//! 3. The superblock gets the same number and the mark of a clean close. *A crash before that: the pool was not
//!    closed, and the next open discards the segment.*
//!
//! # Open
//! 1. The superblock loses mark and number, durably. *From here on a crash finds a pool in use.*
//! 2. The header loses its number; trees take over what their notes say, if the checksums of their extents still hold. A tree
//!    of which a bit has changed is built again from its leaves.
//!
//! Where there is no room for the segment, memory of the process takes its place, writes go on, and nothing is
//! left behind at the close.

mod announce;
mod extent;
mod follow;
mod header;
mod kept;
mod live;
mod mapping;
mod notes;
mod owner;
mod place;
mod posted;
mod released;
mod shown;
mod sums;
mod sweep;
#[cfg(test)]
mod tests;
mod waste;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, Permissions};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};

pub use self::extent::Extent;
pub use self::follow::Follower;
pub(crate) use self::follow::waits;
use self::header::Header;
pub(crate) use self::header::NUMBER_BITS;
use self::kept::Kept;
use self::live::{Live, Phase};
pub use self::notes::{Notes, NotesReader};
use self::owner::Lock;
use self::place::{open_own, path_of};
pub use self::posted::{Posted, Zeroed};
pub use self::released::Released;
use self::waste::{Posts, Waste};
use crate::medium::is_memory;
use crate::sync::wait::lock;
use crate::{Opener, failpoint};

/// Bytes of address space, and of the file, that an extent has.
pub(crate) const EXTENT_BYTES: u64 = 1 << 38;
/// Extents of a segment: as many as a file can have.
const EXTENTS_MAX: u32 = 1 << 24;
/// How often an open asks for a segment that is locked.
const LOCK_LOOKS: usize = 5;

/// Whether the volatile half of a pool's trees outlives a clean close.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepIndex {
    /// If building it anew would take more than some milliseconds.
    #[default]
    Auto,
    /// Whatever its size.
    Always,
    /// Never: it is memory of this process.
    Never,
}

/// What is done with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// By the one process that writes to the pool.
    Write,
    /// By one that reads the pool: what it stores stays in that process.
    Read,
    /// By one that reads the pool while another one writes to it: it stores nothing.
    Follow,
}

#[derive(Debug, Default)]
struct State {
    /// By number.
    trees: BTreeMap<u32, Kept>,
    /// Trees that are open, or about to leave something behind.
    open: BTreeSet<u32>,
    /// Trees that followers are shown.
    shown: BTreeSet<u32>,
    /// Extents below this were handed out at some time.
    begun: u32,
    /// Those of them that are not in use.
    free: Vec<u32>,
    posts: Posts,
    /// What followers may still look at, and since which epoch nothing leads there.
    waste: Vec<(u64, Waste)>,
}

/// The segment of an open pool. See the module.
#[derive(Debug)]
pub struct Segment {
    file: File,
    path: PathBuf,
    mode: Mode,
    keep: KeepIndex,
    header: Header,
    state: Mutex<State>,
    /// A tree is closed.
    closed: Condvar,
    /// Whether a clean close had left it behind, and all that was used of it was as it was left.
    found: AtomicBool,
    /// What followers see; `None`: there can be none.
    live: Option<Live>,
    /// Set for good when a page that another process took away was replaced by zeros, or a follower sees that the writer is gone.
    over: Arc<AtomicBool>,
    /// Whether all that trees have in their extents stands in the file.
    whole: AtomicBool,
    sealed: AtomicBool,
    opener: Opener,
    abandoned: AtomicBool,
}

/// Where a tree has what is not persistent: in the pool's segment, if it has one, or in memory of this process.
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

    /// Returns a value that begins as zeros, where followers see it if they can see anything.
    pub fn post<T: Zeroed>(&self) -> Posted<T> {
        self.0.as_ref().and_then(Posted::fresh).unwrap_or_default()
    }

    /// Returns a value that begins as it is given.
    pub fn post_value<T: Zeroed>(&self, value: T) -> Posted<T> {
        self.post::<T>().beginning(value)
    }

    /// Returns the segment, if there ever were followers.
    #[inline(always)]
    fn followed(&self) -> Option<&Segment> {
        self.0.as_deref().filter(|segment| segment.live.as_ref().is_some_and(Live::had_followers))
    }

    /// Returns whether it is memory of this process.
    pub fn is_private(&self) -> bool {
        self.0.is_none()
    }

    /// Returns an extent of up to `bytes` bytes, all zeros, of which none is usable yet.
    ///
    /// # Errors
    ///
    /// If there is no address space left.
    pub fn extent(&self, bytes: usize) -> crate::Result<Extent> {
        let shared = self.0.as_ref().and_then(|segment| Extent::fresh(segment, bytes));
        shared.map_or_else(|| Extent::private(bytes), Ok)
    }
}

/// What identifies the segment of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity<'p> {
    pub uuid: [u64; 2],
    /// The number with which the pool was closed; 0 if it was not.
    pub seal: u64,
    /// The library that wrote it: what trees leave behind has the layout that its compiler knew.
    pub build: u64,
    pub pool: &'p Path,
}

impl Segment {
    /// Takes over the segment that a clean close left behind, or makes an empty one. `None`: there can be none, and it
    /// is no error, since everything can be built anew.
    pub(crate) fn open(identity: &Identity<'_>, keep: KeepIndex, read_only: bool) -> Option<Arc<Self>> {
        let mode = if read_only { Mode::Read } else { Mode::Write };
        let found = Self::resume(identity, keep, mode);
        if found.is_some() || read_only || keep == KeepIndex::Never {
            return found.map(Arc::new);
        }
        sweep::sweep();
        Self::create(identity, keep).map(Arc::new)
    }

    /// Takes over what is there, if it fits the pool. Where the pool is to be written, what does not fit it is removed.
    fn resume(identity: &Identity<'_>, keep: KeepIndex, mode: Mode) -> Option<Self> {
        let path = path_of(identity.uuid);
        let file = open_own(&path)?;
        let operation = match mode {
            Mode::Write => FlockOperation::NonBlockingLockExclusive,
            Mode::Read | Mode::Follow => FlockOperation::NonBlockingLockShared,
        };
        // In use by a process that opened a copy of this pool, or by a child of one; or looked at by a sweep.
        let is_locked = || failpoint::call("flock", || flock(&file, operation)).is_ok();
        (is_locked()
            || (1..LOCK_LOOKS).any(|_| {
                std::thread::sleep(Duration::from_micros(200));
                is_locked()
            }))
        .then_some(())?;
        let fits = || {
            let header = Header::read(&file).filter(|header| header.fits(identity))?;
            let trees = kept::read(&header.read_notes(&file)?)?;
            // A file that was cut off is not what was left.
            let len = file.metadata().ok()?.len();
            (trees.0 == 1 || len == u64::from(trees.0) * EXTENT_BYTES).then_some((header, trees))
        };
        let is_unread = || {
            // A follower that stands still amid a lookup since the last writer was there: it keeps what it looks at.
            mode == Mode::Read
                || Live::read(&file)
                    .is_none_or(|live| !(live.had_followers() && live.passed_by_all(&file) < live.epoch()))
        };
        let Some((header, (begun, trees))) = fits().filter(|_| keep != KeepIndex::Never && is_unread())
        else {
            if mode == Mode::Write {
                // Followers of a writer that is gone learn that from here on they do not read the pool any more.
                Live::write(&file).into_iter().for_each(|live| live.set_phase(Phase::Closed));
                let _ = std::fs::remove_file(&path);
            }
            return None;
        };
        let used: BTreeSet<u32> = trees.values().flat_map(|kept| kept.extents.iter().copied()).collect();
        let live = if mode == Mode::Write { Live::write(&file) } else { None };
        let posts = Posts::begin(&file, live.is_some());
        let state = State { trees, begun, posts, ..State::default() };
        let segment = Self::over(file, (path, mode, keep), header, (state, live));
        // Zeros, whatever was left in them.
        (1..begun).filter(|extent| !used.contains(extent)).for_each(|extent| segment.give_back(extent));
        // What it says from here on would not fit any more.
        (mode == Mode::Read || segment.header.unseal().write(&segment.file, &[]).is_ok()).then_some(segment)
    }

    fn create(identity: &Identity<'_>, keep: KeepIndex) -> Option<Self> {
        let path = path_of(identity.uuid);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = failpoint::check("open").ok().and_then(|()| options.open(&path).ok())?;
        let made = || {
            is_memory(&file).then_some(())?;
            // Whatever the mask of new files is.
            file.set_permissions(Permissions::from_mode(0o600)).ok()?;
            failpoint::call("flock", || flock(&file, FlockOperation::NonBlockingLockExclusive)).ok()?;
            let header = Header::new(identity)?;
            header.write(&file, &[]).ok()?;
            Some(header)
        };
        let Some(header) = made() else {
            let _ = std::fs::remove_file(&path);
            return None;
        };
        let live = Live::write(&file);
        let state = State { begun: 1, posts: Posts::begin(&file, live.is_some()), ..State::default() };
        Some(Self::over(file, (path, Mode::Write, keep), header, (state, live)))
    }

    /// Returns whether a clean close had left it behind, and all that was used of it so far was as it was left.
    pub(crate) fn was_found(&self) -> bool {
        self.found.load(Relaxed)
    }

    fn over(
        file: File,
        (path, mode, keep): (PathBuf, Mode, KeepIndex),
        header: Header,
        (state, live): (State, Option<Live>),
    ) -> Self {
        // Followers ask for it to see whether the writer is there.
        let live = live.filter(|_| mode != Mode::Write || owner::take(&file, Lock::Writer));
        Self {
            file,
            path,
            mode,
            keep,
            header,
            found: AtomicBool::new(!state.trees.is_empty()),
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

    /// Returns whether all that trees have stands in the file.
    fn is_whole(&self) -> bool {
        self.whole.load(Relaxed)
    }

    /// Notes that something stands elsewhere: nothing can be left behind.
    fn give_up(&self) {
        self.whole.store(false, Relaxed);
        self.live.iter().for_each(Live::lose);
    }

    /// Hands out an extent of zeros, and lets the file reach so far.
    fn take_extent(&self) -> Option<u32> {
        if self.mode != Mode::Write || !self.is_whole() || !self.opener.is_here() {
            return None;
        }
        self.clear_waste();
        let mut state = self.state();
        if let Some(extent) = state.free.pop() {
            return Some(extent);
        }
        let extent = state.begun;
        let len = (u64::from(extent) + 1) * EXTENT_BYTES;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        // Beyond a limit the kernel would answer with a signal that ends the process.
        let is_forbidden = limit.is_some_and(|limit| len > limit);
        let grow = || rustix::fs::ftruncate(self.file.as_fd(), len);
        if is_forbidden || extent == EXTENTS_MAX || failpoint::call("ftruncate", grow).is_err() {
            self.give_up();
            return None;
        }
        state.begun += 1;
        Some(extent)
    }

    /// Takes an extent back: it is zeros again, and takes no memory.
    fn give_back(&self, extent: u32) {
        if self.mode == Mode::Write && !self.waste(Waste::Extent(extent)) {
            self.clear_extent(extent);
        }
    }

    /// Zeroes an extent that no thread of any process looks at.
    fn clear_extent(&self, extent: u32) {
        if self.punch(extent, 0..EXTENT_BYTES as usize) {
            self.state().free.push(extent);
        }
    }

    /// Takes the memory of some bytes of an extent back; returns whether they are zeros now.
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

    /// Closes the file in a child of the opener, so that the child does not hold the lock when the opener is gone.
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
                let _ = std::fs::remove_file(&self.path);
            }
        }
        // A child that was forked meanwhile holds the file, and with it the lock: closing it would not be enough.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}
