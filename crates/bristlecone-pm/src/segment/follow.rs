//! A process that reads a pool while another process writes to it.
//!
//! It maps the segment for reading, except its own row, in which its threads announce the epoch before they read
//! anything: see [`live`](super::live). A thread's reads are valid if, after them,
//!
//! 1. its line still holds its announcement: the writer has waited for it;
//! 2. the writer's life is the one in which it began, and the pool is open;
//! 3. no page was replaced by zeros.

use std::any::Any;
use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::mm::ProtFlags;

use super::announce::IDLE;
use super::header::Header;
use super::left::Left;
use super::live::{LINES, Line, Live, Phase, ROWS, Row, WriterState};
use super::mapping::Mapping;
use super::owner::{self, Lock};
use super::place::{Place, open_own};
use super::retired::SharedCells;
use super::{Identity, KeepIndex, ManifestReader, Memory, Mode, Segment, State};
use crate::sync::wait::{self, lock};
use crate::{Error, Opener, PAGE_BYTES, Result};

/// Number of lookups of a thread between two checks that the writer is alive. As many lookups may return data of a dead
/// writer.
const LOOKS_A_LOOK: u64 = 1 << 10;
/// Number of rounds that a thread waits between two checks that the writer is alive.
const ROUNDS_A_LOOK: u32 = 1 << 10;

/// Panic payload of a thread that waits for a dead writer: caught where it began to read.
struct WriterGone;

thread_local! {
    /// The follower that the thread reads through.
    static FOLLOWED: Cell<*const Follower> = const { Cell::new(std::ptr::null()) };
}

/// A follower of a pool's writer. See the module.
#[derive(Debug)]
pub struct Follower {
    segment: Arc<Segment>,
    live: Live,
    row: Mapping,
    at: usize,
    /// State of the writer when this follower attached.
    found: WriterState,
    /// Whether threads must fence themselves.
    fences: bool,
    /// Held by threads that have no line of their own.
    last_line: Mutex<()>,
    /// Number of times that a thread was evicted.
    evicted: AtomicU64,
    /// Set permanently when the writer is found dead, or an unreadable page was replaced by zeros.
    over: Arc<AtomicBool>,
    opener: Opener,
}

/// A thread of a follower that reads a pool.
#[derive(Debug)]
struct Pinned<'f> {
    follower: &'f Follower,
    line: &'f Line,
    _last: Option<MutexGuard<'f, ()>>,
}

impl Follower {
    /// Attaches to the writer of a pool, whose index is in shared memory or in a file that is given with its description.
    ///
    /// # Errors
    ///
    /// [`NoWriter`](Error::NoWriter), with the reason that prevents following.
    pub(crate) fn attach(
        pool: &Path,
        identity: &Identity<'_>,
        index: Option<(File, PathBuf)>,
    ) -> Result<Self> {
        let no_writer = |why: &str| Error::NoWriter { path: pool.to_owned(), why: why.to_owned() };
        let named = || {
            let place = Place::of(identity.uuid);
            let file = open_own(place.path())
                .ok_or_else(|| no_writer("no process writes to it that keeps its index in shared memory"))?;
            Ok((file, place))
        };
        let (file, place) = index.map_or_else(named, |(file, label)| Ok((file, Place::Given(label))))?;
        let header = Header::read(&file).ok_or_else(|| no_writer("its index in shared memory is damaged"))?;
        header.is_of(identity).map_err(no_writer)?;
        if !owner::is_held(&file, Lock::Writer) {
            return Err(no_writer("no process writes to it"));
        }
        let mut live = Live::read(&file).ok_or_else(|| no_writer("its writer lets no process follow"))?;
        let found = live.state();
        match found.phase() {
            Some(Phase::Live) => {}
            Some(Phase::Opening) | None => return Err(no_writer("its writer is still opening it")),
            Some(Phase::Closed) => return Err(no_writer("its writer is closing it")),
        }
        if found.is_lost() {
            return Err(no_writer("there was no room for its index in shared memory"));
        }
        let cells = SharedCells::follow(&file).ok_or_else(|| no_writer("its index cannot be mapped"))?;
        let fences = live.has_fences() || !live.fences_by_kernel();
        let (at, row) = Self::take_row(&file).map_err(no_writer)?;
        let state = State { begun: 1, cells, ..State::default() };
        let mut segment = Segment::over(file, (place, Mode::Follow, KeepIndex::Never), header, (state, None));
        segment.watch_cells();
        live.watch(segment.place.path(), &segment.over);
        wait::watch(waits);
        let follower = Self {
            over: Arc::clone(&segment.over),
            segment: Arc::new(segment),
            live,
            row,
            at,
            found,
            fences,
            last_line: Mutex::new(()),
            evicted: AtomicU64::new(0),
            opener: Opener::this(),
        };
        // The writer takes the row into account from here on, if it is still the same writer.
        if follower.is_current() { Ok(follower) } else { Err(no_writer("its writer is closing it")) }
    }

    /// Takes a row that no other follower has.
    fn take_row(file: &File) -> std::result::Result<(usize, Mapping), &'static str> {
        let at =
            (0..ROWS).find(|&at| owner::take(file, Lock::Row(at))).ok_or("it has 256 followers already")?;
        let map = |offset: u64| {
            let mapping = Mapping::of(file, offset, PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE)?;
            mapping.back(0, PAGE_BYTES).map(|()| mapping)
        };
        let mapped = || {
            let [begun_at, row_at] = Live::places(at);
            // The writer also reads the rows before this one, whose followers may have had no memory for them.
            let bytes = (row_at - begun_at) as usize;
            Mapping::of(file, begun_at, bytes, ProtFlags::READ | ProtFlags::WRITE)?.back(0, bytes)?;
            let (begun, row) = (map(begun_at)?, map(row_at)?);
            // SAFETY: the row is this follower's, as is the page with the counter as long as it is mapped; atomics.
            let (begun, lines) = unsafe { (&*begun.base().cast::<AtomicU64>(), &*row.base().cast::<Row>()) };
            lines.iter().for_each(|line| line.word.end());
            begun.fetch_max(at as u64 + 1, AcqRel);
            Some((at, row))
        };
        mapped().ok_or_else(|| {
            owner::give_back(file, Lock::Row(at));
            "there is no room for followers in shared memory"
        })
    }

    #[inline(always)]
    fn row(&self) -> &Row {
        // SAFETY: a page that consists of atomics, mapped as long as `self`.
        unsafe { &*self.row.base().cast() }
    }

    /// Returns the flag that is set when reads are no longer valid: see the field.
    pub(crate) fn over(&self) -> &Arc<AtomicBool> {
        &self.over
    }

    /// Returns the memory of the trees' volatile data.
    pub fn memory(&self) -> Memory {
        Memory::of(Some(&self.segment))
    }

    /// Calls `follow` with the shared manifest of a tree; returns its result, with the number of this state of the tree.
    /// Returns `None` if the writer does not have the tree open.
    pub fn follow_tree<T>(
        &self,
        tree: u32,
        follow: impl FnOnce(&mut ManifestReader<'_>) -> Option<T>,
    ) -> Option<(u64, T)> {
        let (sequence, words) = self.live.manifest(&self.segment.file, tree)?;
        let shared = Left::decode(&words)?;
        let mut reader = ManifestReader::live(&self.segment, &shared.words);
        let followed = follow(&mut reader).filter(|_| reader.is_at_end())?;
        Some((sequence, followed))
    }

    /// Returns whether a tree is still in the shared state with this number.
    #[inline(always)]
    pub fn shows(&self, tree: u32, sequence: u64) -> bool {
        self.live.sequence(tree) == sequence
    }

    /// Returns whether the writer has kept the pool open since this follower attached.
    #[inline(always)]
    pub fn is_current(&self) -> bool {
        self.live.state() == self.found && !self.over.load(Relaxed)
    }

    /// Returns whether the writer is alive. Costs some system calls.
    #[cold]
    pub fn has_writer(&self) -> bool {
        let is_there = self.is_current()
            && owner::is_held(&self.segment.file, Lock::Writer)
            && self.segment.place.is_there(&self.segment.file);
        if !is_there {
            self.over.store(true, Relaxed);
        }
        is_there
    }

    /// Returns how often a thread's reads were invalid because the writer had evicted it.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// Calls `look` while the epoch of the calling thread, which has this number, is announced, provided that the
    /// writer still shares the tree with that number. Returns `None` if it does not, or if the reads are invalid;
    /// `is_same_writer` takes part in that decision.
    #[inline(always)]
    pub(crate) fn look<R>(
        &self,
        thread: Option<usize>,
        (tree, number): (u32, u64),
        look: impl FnOnce() -> R,
        is_same_writer: impl FnOnce() -> bool,
    ) -> Option<R> {
        let pinned = self.pin(thread);
        // If the tree was withdrawn before, its memory may be zero by now.
        if !(self.is_current() && self.shows(tree, number)) {
            return None;
        }
        let seen = pinned.run(look)?;
        (pinned.end() && self.shows(tree, number) && is_same_writer()).then_some(seen)
    }

    /// Announces that the calling thread reads: what the writer removes from the pool from now on stays intact.
    #[inline(always)]
    fn pin(&self, thread: Option<usize>) -> Pinned<'_> {
        let (line, last) = match thread {
            Some(index) if index < LINES - 1 => (&self.row()[index], None),
            _ => (&self.row()[LINES - 1], Some(self.last_line())),
        };
        debug_assert_eq!(line.word.get(), IDLE, "pinned twice");
        line.word.begin(self.live.epoch(), self.fences);
        FOLLOWED.set(self);
        Pinned { follower: self, line, _last: last }
    }

    #[cold]
    fn last_line(&self) -> MutexGuard<'_, ()> {
        lock(&self.last_line)
    }

    /// Counts an eviction.
    #[cold]
    fn note_expelled(&self) {
        self.evicted.fetch_add(1, Relaxed);
    }
}

impl Pinned<'_> {
    /// Runs `look`, which may wait for the writer. Returns `None` if the writer died meanwhile, or if `look` panicked
    /// because of invalid reads. Other panics propagate.
    #[inline(always)]
    fn run<R>(&self, look: impl FnOnce() -> R) -> Option<R> {
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)) {
            Ok(seen) => Some(seen),
            Err(thrown) => {
                self.thrown(thrown);
                None
            }
        }
    }

    #[cold]
    fn thrown(&self, thrown: Box<dyn Any + Send>) {
        if !thrown.is::<WriterGone>() && self.counts() {
            std::panic::resume_unwind(thrown);
        }
    }

    /// Returns whether the reads so far are valid.
    #[inline(always)]
    fn counts(&self) -> bool {
        !self.line.word.is_expelled() && self.follower.is_current()
    }

    /// Counts the lookup; returns whether its reads are valid.
    #[inline(always)]
    fn end(&self) -> bool {
        let looks = self.line.looks.load(Relaxed) + 1;
        self.line.looks.store(looks, Relaxed);
        if self.line.word.is_expelled() {
            self.follower.note_expelled();
            return false;
        }
        self.follower.is_current() && (!looks.is_multiple_of(LOOKS_A_LOOK) || self.follower.has_writer())
    }
}

impl Drop for Pinned<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        FOLLOWED.set(std::ptr::null());
        self.line.word.end();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.opener.is_here() {
            owner::give_back(&self.segment.file, Lock::Row(self.at));
        }
    }
}

/// Aborts a lookup that would wait forever. Called by a thread that repeatedly waits for another one.
#[cold]
fn waits(round: u32) {
    if !round.is_multiple_of(ROUNDS_A_LOOK) {
        return;
    }
    let followed = FOLLOWED.try_with(Cell::get).unwrap_or(std::ptr::null());
    // SAFETY: set while a `Pinned` of this thread borrows the follower.
    if unsafe { followed.as_ref() }.is_some_and(|follower| !follower.has_writer()) {
        std::panic::resume_unwind(Box::new(WriterGone));
    }
}
