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
//! 2. The header gets notes and number.
//! 3. The superblock gets the same number and the mark of a clean close. *A crash before that: the pool was not
//!    closed, and the next open discards the segment.*
//!
//! # Open
//! 1. The superblock loses mark and number, durably. *From here on a crash finds a pool in use.*
//! 2. The header loses its number; trees take over what their notes say.
//!
//! Where there is no room for the segment, memory of the process takes its place, writes go on, and nothing is
//! left behind at the close.

mod announce;
mod extent;
mod follow;
mod header;
mod live;
mod notes;
mod owner;
mod posted;
mod released;
#[cfg(test)]
mod tests;
mod waste;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, Permissions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;

pub use self::extent::Extent;
pub use self::follow::Follower;
pub(crate) use self::follow::waits;
pub(crate) use self::header::NUMBER_BITS;
use self::header::{Header, PoolFileId};
use self::live::{Live, Phase};
pub use self::notes::{Notes, NotesReader};
use self::owner::Lock;
pub use self::posted::{Posted, Zeroed};
pub use self::released::Released;
use self::waste::{Posts, Waste};
use crate::medium::is_memory;
use crate::sync::wait::lock;
use crate::{Opener, failpoint};

/// Where segments are.
const FOLDER: &str = "/dev/shm";
/// What their names begin with.
const PREFIX: &str = "bristlecone-";
/// Bytes of address space, and of the file, that an extent has.
pub(crate) const EXTENT_BYTES: u64 = 1 << 38;
/// Extents of a segment: as many as a file can have.
const EXTENTS_MAX: u32 = 1 << 24;
/// Bytes that a segment has at least to be left behind, unless it is asked for: building less takes a few milliseconds.
const WORTHWHILE_BYTES: u64 = 1 << 20;
/// Other pools' segments that an open looks at.
const LOOKS: usize = 64;
/// How long a close waits for followers that are amid a lookup.
const END: Duration = Duration::from_millis(100);
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

/// What a tree left behind.
#[derive(Debug)]
struct Kept {
    extents: Vec<u32>,
    words: Vec<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// By number.
    trees: BTreeMap<u32, Kept>,
    /// Trees that are open, or about to leave something behind.
    open: BTreeSet<u32>,
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
    /// Whether a clean close had left it behind.
    found: bool,
    /// What followers see; `None`: there can be none.
    live: Option<Live>,
    /// Whether a page that another process took away was replaced by zeros.
    patched: Arc<AtomicBool>,
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
        sweep();
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
            let trees = read_trees(&header.read_notes(&file)?)?;
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

    /// Returns whether a clean close had left it behind.
    pub(crate) fn was_found(&self) -> bool {
        self.found
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
            found: !state.trees.is_empty(),
            state: Mutex::new(state),
            closed: Condvar::new(),
            live,
            patched: Arc::default(),
            whole: AtomicBool::new(true),
            sealed: AtomicBool::new(false),
            opener: Opener::this(),
            abandoned: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Notes that a tree is open.
    pub(crate) fn enter(&self, tree: u32) {
        self.state().open.insert(tree);
    }

    /// Notes that a tree is closed, and has left behind what it will.
    pub(crate) fn leave(&self, tree: u32) {
        self.state().open.remove(&tree);
        self.closed.notify_all();
    }

    /// Waits for a tree whose last handle has gone, but which is not closed yet: what it leaves behind is for the open
    /// that comes next.
    fn wait_for(&self, tree: u32) {
        let mut state = self.state();
        while state.open.contains(&tree) {
            state = self.closed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the notes that a tree left behind, and with them its extents, of which those that `resume` does not take up
    /// are free again.
    pub(crate) fn resume_tree<T>(
        self: &Arc<Self>,
        tree: u32,
        resume: impl FnOnce(&mut NotesReader<'_>) -> Option<T>,
    ) -> Option<T> {
        self.wait_for(tree);
        let kept = match self.mode {
            Mode::Write => self.state().trees.remove(&tree),
            // Each handle of a reader takes them up anew.
            Mode::Read | Mode::Follow => {
                let state = self.state();
                let kept = state.trees.get(&tree);
                kept.map(|kept| Kept { extents: kept.extents.clone(), words: kept.words.clone() })
            }
        }?;
        let mut reader = NotesReader::new(self, &kept.words);
        let resumed = resume(&mut reader).filter(|_| reader.is_at_end());
        let taken = reader.into_taken();
        for extent in kept.extents.into_iter().filter(|extent| !taken.contains(extent)) {
            self.give_back(extent);
        }
        resumed
    }

    /// Keeps what a tree leaves behind, as `suspend` notes it; nothing if that says `None`.
    pub(crate) fn suspend_tree(&self, tree: u32, suspend: impl FnOnce(&mut Notes) -> Option<()>) {
        self.forget(tree);
        if self.mode != Mode::Write || !self.is_whole() || !self.opener.is_here() {
            return;
        }
        let mut notes = Notes::default();
        let suspended = suspend(&mut notes);
        let (extents, words) = notes.into_parts();
        if suspended.is_none() {
            // Their holders go without giving them back.
            return extents.into_iter().for_each(|extent| self.give_back(extent));
        }
        self.state().trees.insert(tree, Kept { extents, words });
    }

    /// Forgets what a tree left behind.
    pub(crate) fn forget(&self, tree: u32) {
        if self.mode == Mode::Write {
            let kept = self.state().trees.remove(&tree);
            kept.into_iter().flat_map(|kept| kept.extents).for_each(|extent| self.give_back(extent));
        }
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
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punch = || fallocate(&self.file, flags, u64::from(extent) * EXTENT_BYTES, EXTENT_BYTES);
        if failpoint::call("fallocate", punch).is_ok() {
            self.state().free.push(extent);
        }
    }

    /// Leaves everything behind for the next open, sealed with the number that this returns; 0 if nothing is left. The
    /// trees that are not among `live` are forgotten.
    pub(crate) fn seal(&self, live: &[u32]) -> u64 {
        if self.mode != Mode::Write || !self.opener.is_here() || !self.is_whole() {
            return 0;
        }
        let gone: Vec<u32> = self.state().trees.keys().filter(|tree| !live.contains(tree)).copied().collect();
        gone.into_iter().for_each(|tree| self.forget(tree));
        let words = write_trees(&self.state());
        let is_worthwhile = || match self.keep {
            KeepIndex::Always => true,
            KeepIndex::Auto => self.bytes() >= WORTHWHILE_BYTES,
            KeepIndex::Never => false,
        };
        if self.state().trees.is_empty() || !is_worthwhile() {
            return 0;
        }
        let Some(header) = self.header.seal(&words) else { return 0 };
        if header.write(&self.file, &words).is_err() {
            return 0;
        }
        self.sealed.store(true, Relaxed);
        header.number()
    }

    /// Takes the seal back: the pool was not closed.
    pub(crate) fn unseal(&self) {
        if self.sealed.swap(false, Relaxed) {
            // If this fails, no superblock has the number that stays.
            let _ = self.header.unseal().write(&self.file, &[]);
        }
    }

    /// Returns the bytes of memory that the file takes.
    fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |file| file.blocks() * 512)
    }

    fn live(&self) -> Option<&Live> {
        self.live.as_ref()
    }

    fn file(&self) -> &File {
        &self.file
    }

    fn set_phase(&self, phase: Phase) {
        if self.mode == Mode::Write {
            self.live.iter().for_each(|live| live.set_phase(phase));
        }
    }

    /// Lets followers in: the pool is open.
    pub(crate) fn begin(&self) {
        self.set_phase(Phase::Live);
    }

    /// Keeps followers out, and waits a moment for those that read just now. `false`: some may be reading still.
    pub(crate) fn end(&self) -> bool {
        self.set_phase(Phase::Closed);
        self.live.as_ref().is_none_or(|live| live.wait_until_unread(&self.file, END))
    }

    /// Shows followers a tree by what `share` notes of it; not if that says `None`.
    pub(crate) fn share_tree(&self, tree: u32, share: impl FnOnce(&mut Notes) -> Option<()>) {
        let Some(live) = self.live.as_ref().filter(|_| self.mode == Mode::Write && self.is_whole()) else {
            return;
        };
        let mut notes = Notes::live();
        if share(&mut notes).is_some() {
            live.publish(tree, &notes.into_parts().1);
        }
    }

    /// Ends what followers see of a tree.
    pub(crate) fn withdraw_tree(&self, tree: u32) {
        if self.mode == Mode::Write && self.opener.is_here() {
            self.live.iter().for_each(|live| live.withdraw(tree));
        }
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

/// Returns where the segment of a pool is.
fn path_of(uuid: [u64; 2]) -> PathBuf {
    let uuid = u128::from(uuid[1]) << 64 | u128::from(uuid[0]);
    Path::new(FOLDER).join(format!("{PREFIX}{uuid:032x}"))
}

/// Opens a file that this user made, and no other can read or write. Anything else is left alone.
fn open_own(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = failpoint::check("open").ok().and_then(|()| options.open(path).ok())?;
    let metadata = file.metadata().ok()?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o77 == 0;
    (metadata.is_file() && is_own && metadata.nlink() == 1).then_some(file)
}

/// Removes segments of pools that are not there any more.
fn sweep() {
    let Ok(folder) = std::fs::read_dir(FOLDER) else { return };
    let segments = folder.filter_map(Result::ok).filter(|entry| {
        entry.file_name().to_str().is_some_and(|name| name.strip_prefix(PREFIX).is_some_and(is_uuid))
    });
    for entry in segments.take(LOOKS) {
        let path = entry.path();
        let Some(file) = open_own(&path) else { continue };
        // One that a process has open is its own business.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && Header::read(&file).is_none_or(|header| !header.pool().is_some_and(PoolFileId::is_there))
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Writes down how many extents were begun, and what trees left behind.
fn write_trees(state: &State) -> Vec<u64> {
    let mut words = vec![u64::from(state.begun), state.trees.len() as u64];
    for (&tree, kept) in &state.trees {
        words.extend([u64::from(tree), kept.extents.len() as u64, kept.words.len() as u64]);
        words.extend(kept.extents.iter().map(|&extent| u64::from(extent)));
        words.extend(&kept.words);
    }
    words
}

/// Reads what [`write_trees`] wrote.
fn read_trees(words: &[u64]) -> Option<(u32, BTreeMap<u32, Kept>)> {
    let mut rest = words.iter().copied();
    let mut next = || rest.next();
    let begun = u32::try_from(next()?).ok().filter(|begun| (1..=EXTENTS_MAX).contains(begun))?;
    let mut trees = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for _ in 0..next()? {
        let tree = u32::try_from(next()?).ok()?;
        let (extents, words) = (next()?, next()?);
        let extents = (0..extents).map(|_| u32::try_from(next()?).ok()).collect::<Option<Vec<u32>>>()?;
        let words = (0..words).map(|_| next()).collect::<Option<Vec<u64>>>()?;
        for &extent in &extents {
            ((1..begun).contains(&extent) && taken.insert(extent)).then_some(())?;
        }
        trees.insert(tree, Kept { extents, words }).is_none().then_some(())?;
    }
    rest.next().is_none().then_some((begun, trees))
}

/// Reads so many bytes at a place of a file.
fn read_at(file: &File, bytes: usize, offset: u64) -> Option<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    failpoint::check("pread").ok()?;
    file.read_exact_at(&mut buffer, offset).ok()?;
    Some(buffer)
}

/// Writes bytes at a place of a file.
fn write_at(file: &File, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    failpoint::check("pwrite")?;
    file.write_all_at(bytes, offset).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
