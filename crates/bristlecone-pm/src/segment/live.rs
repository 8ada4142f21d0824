//! State shared by a writer and its followers besides the extents: a *board* in extent 0.
//!
//! ```text
//! board    head (a page) | a page for each tree, with its manifest for followers
//! readers  number of rows begun (a page) | rows: a page for each follower, a line for each of its threads
//! ```
//!
//! The writer changes the board, and followers map it for reading. The readers' part consists of rows: each follower
//! writes the row that it has locked. The writer reads the rows and may evict a thread from its line.
//!
//! **Epochs.** An object that the writer removes from a tree gets the next epoch once no thread of the writer can read
//! it ([`Released`](super::Released)). A follower's thread announces the epoch before it reads anything. The object is
//! reused when every announced epoch is at least as high. A thread that falls behind for [`PATIENCE`] loses its line:
//! it may continue to read, detects the eviction at the end, and retries.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::time::Duration;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::mm::ProtFlags;

use super::announce::{Announced, EVICTED, IDLE};
use super::mapping::Mapping;
use super::owner::{self, Lock};
use super::place::has_page;
use crate::sync::GlobalFence;
use crate::{LINE_BYTES, PAGE_BYTES, failpoint};

/// Offset of the board in extent 0.
const BOARD_AT: u64 = 1 << 36;
const PAGE_WORDS: usize = PAGE_BYTES / 8;
/// Maximum number of trees of a pool.
const TREES: usize = crate::pool::TREES_LIMIT as usize;
/// Maximum number of followers of a pool.
pub(super) const ROWS: usize = 256;
/// Number of threads of a follower that have a line of their own; all others share the last one.
pub(super) const LINES: usize = PAGE_BYTES / LINE_BYTES;
const BOARD_PAGES: usize = 1 + TREES;
const PAGES: usize = BOARD_PAGES + 1 + ROWS;
/// Words for the manifest on a tree's page.
pub(super) const MANIFEST_MAX: usize = PAGE_WORDS - 4;
/// Number of attempts of a follower to read a page that is being changed.
const LOOKS: usize = 1000;
/// Upper limit of epochs. An epoch beyond it is damaged.
const EPOCH_MAX: u64 = 1 << 62;
/// How long a follower's thread may delay the reuse of what the writer removed from a tree.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// How long a close waits for followers that are in a lookup.
pub(super) const END: Duration = Duration::from_millis(100);

/// Phase of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Phase {
    /// It is opening the pool.
    Opening = 1,
    /// It has opened the pool: trees can be followed.
    Live,
    /// It is closing or has closed the pool.
    Closed,
}

/// State that a follower checks at every lookup, in one word: the writer's [`Phase`], whether it has [`LOST`] anything,
/// and how often the segment was opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriterState(u64);

const PHASE: u64 = 0b11;
const LOST: u64 = 0b100;
const LIFE: u64 = 0b1000;

impl WriterState {
    /// Returns the phase of the writer; `None` if no writer has existed yet.
    pub fn phase(self) -> Option<Phase> {
        [Phase::Opening, Phase::Live, Phase::Closed].into_iter().find(|phase| *phase as u64 == self.0 & PHASE)
    }

    /// Returns whether data that followers need is stored outside the segment.
    pub fn is_lost(self) -> bool {
        self.0 & LOST != 0
    }
}

/// The first page.
#[repr(C)]
pub(super) struct Head {
    /// See [`WriterState`].
    state: AtomicU64,
    /// Whether followers must fence themselves.
    fences: AtomicU64,
    /// Bytes of cells begun, which stay begun after a kill.
    cells: AtomicU64,
    _rest: [AtomicU64; 5],
    epoch: AtomicU64,
}

/// The page of a tree.
#[repr(C)]
struct TreePage {
    /// Odd while the page changes.
    sequence: AtomicU64,
    /// Words of the manifest; 0: the tree is not open.
    words: AtomicU64,
    /// CRC-32C of the manifest.
    checksum: AtomicU64,
    /// The life of the writer in which the tree was shared.
    life: AtomicU64,
    manifest: [AtomicU64; MANIFEST_MAX],
}

/// A line of a row.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Line {
    pub word: Announced,
    /// Number of lookups of its thread.
    pub looks: AtomicU64,
    _rest: [AtomicU64; 6],
}

/// The row of a follower.
pub(super) type Row = [Line; LINES];

const _: () = assert!(size_of::<TreePage>() == PAGE_BYTES && size_of::<Row>() == PAGE_BYTES);

/// The board, mapped. See the module.
#[derive(Debug)]
pub(super) struct Live {
    /// Mapping of the board; all its contents are atomic.
    mapping: Mapping,
    barrier: GlobalFence,
}

impl Live {
    /// Extends the file beyond the board and maps the board for the writer, with a new life. Returns `None` if
    /// followers are impossible.
    pub fn write(file: &File) -> Option<Self> {
        let end = BOARD_AT + (PAGES * PAGE_BYTES) as u64;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        // Beyond a limit the kernel would send a signal that ends the process.
        (limit.is_none_or(|limit| end <= limit)).then_some(())?;
        if file.metadata().ok()?.len() < end {
            failpoint::call("ftruncate", || rustix::fs::ftruncate(file.as_fd(), end)).ok()?;
        }
        // Previously shared trees are withdrawn. Reading a hole of shared memory allocates a page, so no tree's page is
        // read.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (start, bytes) = (BOARD_AT + PAGE_BYTES as u64, (TREES * PAGE_BYTES) as u64);
        failpoint::call("fallocate", || fallocate(file, flags, start, bytes)).ok()?;
        let live = Self::map(file, ProtFlags::READ | ProtFlags::WRITE)?;
        live.back(0)?;
        live.back(BOARD_PAGES)?;
        live.begin_life();
        Some(live)
    }

    /// Maps the board of a writer that was killed for the next one, with a new life: followers do not see the trees
    /// that were shared before. Returns `None` if a part of the index was outside the segment.
    pub fn write_again(file: &File) -> Option<Self> {
        let is_made = [0, BOARD_PAGES].iter().all(|&page| has_page(file, offset_of(page)));
        let live = is_made.then(|| Self::map(file, ProtFlags::READ | ProtFlags::WRITE))??;
        let was_lost = live.state().is_lost();
        live.begin_life();
        (!was_lost).then_some(live)
    }

    fn begin_life(&self) {
        let head = self.head();
        head.fences.store(u64::from(!self.barrier.is_by_kernel()), Relaxed);
        // No follower reads anything that is reused: the caller ensures this, or removes the file.
        let epoch = head.epoch.load(Relaxed);
        head.epoch.store(if (1..EPOCH_MAX).contains(&epoch) { epoch } else { 1 }, Relaxed);
        // No other process writes to it.
        let next_life = (head.state.load(Relaxed) & !(PHASE | LOST)).wrapping_add(LIFE);
        head.state.store(next_life | Phase::Opening as u64, Release);
    }

    /// Returns how many bytes of cells were begun.
    pub fn cells(&self) -> &AtomicU64 {
        &self.head().cells
    }

    /// Returns the trees that a killed writer had shared, in any of its lives, with their manifests. A page that was
    /// being changed is not among them.
    pub fn left(&self, file: &File) -> Vec<(u32, Vec<u64>)> {
        let end = offset_of(1 + TREES);
        let mut left = Vec::new();
        let mut at = offset_of(1);
        while at < end
            && let Ok(data) = seek(file, SeekFrom::Data(at))
            && data < end
        {
            let hole = seek(file, SeekFrom::Hole(data)).unwrap_or(end).min(end);
            let pages =
                (data - offset_of(1)) / PAGE_BYTES as u64..(hole - offset_of(1)).div_ceil(PAGE_BYTES as u64);
            left.extend(pages.filter_map(|tree| {
                let words = Self::consistent(self.page(tree as usize))?.2;
                Some((tree as u32, words))
            }));
            at = hole;
        }
        left
    }

    fn life(&self) -> u64 {
        self.head().state.load(Relaxed) & !(PHASE | LOST)
    }

    /// Maps the board for reading. Returns `None` if no writer has created it, for lack of memory.
    pub fn read(file: &File) -> Option<Self> {
        let end = BOARD_AT + (PAGES * PAGE_BYTES) as u64;
        let is_made = file.metadata().ok()?.len() >= end
            && [0, BOARD_PAGES].iter().all(|&page| has_page(file, offset_of(page)));
        is_made.then(|| Self::map(file, ProtFlags::READ))?
    }

    /// Makes unreadable pages of a follower's mapping read as zeros: see [`Mapping::watch`].
    pub fn watch(&mut self, path: &Path, patched: &Arc<AtomicBool>) {
        self.mapping.watch(path, patched);
    }

    fn map(file: &File, prot: ProtFlags) -> Option<Self> {
        let mapping = Mapping::of(file, BOARD_AT, PAGES * PAGE_BYTES, prot)?;
        Some(Self { mapping, barrier: GlobalFence::detect() })
    }

    /// Allocates a page of the file, so that touching it cannot fail.
    fn back(&self, page: usize) -> Option<()> {
        self.mapping.back(page * PAGE_BYTES, PAGE_BYTES)
    }

    #[inline(always)]
    fn at<T>(&self, page: usize) -> &T {
        assert!(page < PAGES && size_of::<T>() <= PAGE_BYTES);
        // SAFETY: within the mapping (asserted), aligned to a page; the types used here consist of atomics.
        unsafe { &*self.mapping.base().wrapping_add(page * PAGE_BYTES).cast() }
    }

    #[inline(always)]
    fn head(&self) -> &Head {
        self.at(0)
    }

    #[inline(always)]
    fn page(&self, tree: usize) -> &TreePage {
        self.at(1 + tree)
    }

    /// Returns how many rows were begun.
    fn begun(&self) -> &AtomicU64 {
        self.at(BOARD_PAGES)
    }

    fn row(&self, row: usize) -> &Row {
        self.at(BOARD_PAGES + 1 + row)
    }

    pub fn set_phase(&self, phase: Phase) {
        let set = |state: u64| Some(state & !PHASE | phase as u64);
        // Pairs with `state`: a follower that sees the pool live also sees the state that makes it so.
        let _ = self.head().state.fetch_update(Release, Relaxed, set);
    }

    /// Records that data that followers need is stored outside the segment.
    pub fn lose(&self) {
        self.head().state.fetch_or(LOST, SeqCst);
    }

    /// Returns the state of the writer.
    #[inline(always)]
    pub fn state(&self) -> WriterState {
        WriterState(self.head().state.load(Acquire))
    }

    pub fn has_fences(&self) -> bool {
        self.head().fences.load(Relaxed) != 0
    }

    /// Returns whether the kernel fences on behalf of the threads of this process.
    pub fn fences_by_kernel(&self) -> bool {
        self.barrier.is_by_kernel()
    }

    /// Returns the epoch for a follower's thread to announce.
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.head().epoch.load(Acquire)
    }

    /// Publishes the manifest of a tree to followers. Returns `false` if there is no space.
    pub fn publish(&self, tree: u32, words: &[u64]) -> bool {
        let has_room =
            !words.is_empty() && words.len() <= MANIFEST_MAX && self.back(1 + tree as usize).is_some();
        if has_room {
            self.change(tree, |page| {
                page.manifest.iter().zip(words).for_each(|(cell, word)| cell.store(*word, Relaxed));
                page.checksum.store(checksum(words), Relaxed);
                page.life.store(self.life(), Relaxed);
                page.words.store(words.len() as u64, Relaxed);
            });
        }
        has_room
    }

    /// Withdraws a tree that [`publish`](Self::publish) has shared.
    pub fn withdraw(&self, tree: u32) {
        self.change(tree, |page| page.words.store(0, Relaxed));
    }

    /// Changes the page of a tree; only one thread may do so.
    fn change(&self, tree: u32, change: impl FnOnce(&TreePage)) {
        let page = self.page(tree as usize);
        let sequence = page.sequence.load(Relaxed) | 1;
        page.sequence.store(sequence, Relaxed);
        fence(Release);
        change(page);
        page.sequence.store(sequence + 1, Release);
    }

    /// Returns the manifest of a tree and the number of this state; `None` if the writer does not share it, or the manifest
    /// are damaged.
    pub fn manifest(&self, file: &File, tree: u32) -> Option<(u64, Vec<u64>)> {
        let tree = usize::try_from(tree).ok().filter(|tree| *tree < TREES)?;
        has_page(file, offset_of(1 + tree)).then_some(())?;
        let page = self.page(tree);
        for _ in 0..LOOKS {
            if let Some((sequence, life, manifest)) = Self::consistent(page) {
                return (life == self.life()).then_some((sequence, manifest));
            }
            if page.sequence.load(Acquire).is_multiple_of(2) {
                return None;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        None
    }

    /// Returns the number of a page's state, the life in which it was shared, and its manifest. Returns `None` if it is
    /// being changed, empty or damaged.
    fn consistent(page: &TreePage) -> Option<(u64, u64, Vec<u64>)> {
        let sequence = page.sequence.load(Acquire);
        let words = (page.words.load(Relaxed) as usize).min(MANIFEST_MAX);
        let manifest: Vec<u64> = page.manifest[..words].iter().map(|word| word.load(Relaxed)).collect();
        let (sum, life) = (page.checksum.load(Relaxed), page.life.load(Relaxed));
        fence(Acquire);
        let is_stable = sequence.is_multiple_of(2) && page.sequence.load(Relaxed) == sequence;
        (is_stable && words > 0 && sum == checksum(&manifest)).then_some((sequence, life, manifest))
    }

    /// Returns the number of the present state of a tree's page.
    #[inline(always)]
    pub fn sequence(&self, tree: u32) -> u64 {
        self.page(tree as usize).sequence.load(Acquire)
    }

    /// Returns whether followers ever existed in this file.
    #[inline(always)]
    pub fn had_followers(&self) -> bool {
        self.begun().load(Relaxed) != 0
    }

    /// Begins an epoch: what left its tree before is free once this epoch has [`passed`](Self::passed).
    pub fn begin_epoch(&self) -> u64 {
        self.head().epoch.fetch_add(1, AcqRel) + 1
    }

    /// Returns the epoch up to which no follower's thread can read what left its tree before. With `file`, dead
    /// followers do not count, which costs a system call for each that seems to read.
    pub fn passed(&self, file: Option<&File>) -> u64 {
        self.oldest(file, |word| word == EVICTED)
    }

    /// Returns the same, but an evicted thread counts as still reading: for memory that must not change while it is
    /// read.
    pub fn passed_by_all(&self, file: &File) -> u64 {
        self.oldest(Some(file), |_| false)
    }

    fn oldest(&self, file: Option<&File>, is_through: impl Fn(u64) -> bool) -> u64 {
        let latest = self.head().epoch.load(Relaxed);
        // Pairs with the follower's fence: either its announcement is seen here, or it sees the removals.
        self.barrier.heavy();
        let rows = (self.begun().load(Acquire) as usize).min(ROWS);
        let mut oldest = latest;
        for at in 0..rows {
            let row = self.row(at);
            let words = || row.iter().map(|line| line.word.get()).filter(|&word| word != IDLE);
            if words().next().is_none() {
                continue;
            }
            // A follower that takes over the row clears it, and sees all earlier removals.
            if file.is_some_and(|file| !owner::is_held(file, Lock::Row(at))) {
                continue;
            }
            let looking = words().filter(|&word| !is_through(word));
            oldest = looking.map(|word| if word == EVICTED { 0 } else { word }).fold(oldest, u64::min);
        }
        oldest
    }

    /// Evicts threads that have announced an epoch before this one.
    pub fn evict(&self, epoch: u64) {
        let rows = (self.begun().load(Acquire) as usize).min(ROWS);
        for line in (0..rows).flat_map(|at| self.row(at)) {
            line.word.evict(epoch);
        }
    }

    /// Returns whether a thread of a living follower reads anything.
    pub fn is_looked_at(&self, file: &File) -> bool {
        self.begin_epoch();
        self.passed_by_all(file) < self.head().epoch.load(Relaxed)
    }

    /// Waits until no thread of a follower reads anything, at most for `patience`; returns whether that was reached.
    pub fn wait_until_unread(&self, file: &File, patience: Duration) -> bool {
        let begun = std::time::Instant::now();
        while self.had_followers() && self.is_looked_at(file) {
            if begun.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    }

    /// Returns the file offsets of the page with the number of rows and of a follower's row.
    pub fn places(row: usize) -> [u64; 2] {
        [BOARD_PAGES, BOARD_PAGES + 1 + row].map(offset_of)
    }
}

/// Returns the file offset of a page of the board.
fn offset_of(page: usize) -> u64 {
    BOARD_AT + (page * PAGE_BYTES) as u64
}

/// Returns the checksum of a tree's manifest.
fn checksum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| crc32c::crc32c_append(sum, &word.to_le_bytes())).into()
}
