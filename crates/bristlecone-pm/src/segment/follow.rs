//! A process that reads a pool while another one writes to it.
//!
//! It maps the segment for reading, all but its own row, in which its threads announce the epoch before they look at
//! anything: see [`live`](super::live). What a thread has read counts if, after it has read,
//!
//! 1. its line still says what it announced: the writer has waited for it;
//! 2. the writer's life is the one that it began in, and the pool is open;
//! 3. no page was replaced by zeros.

use std::any::Any;
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::mm::ProtFlags;

use super::announce::IDLE;
use super::header::Header;
use super::live::{LINES, Line, Live, Phase, ROWS, Row, WriterState};
use super::mapping::Mapping;
use super::owner::{self, Lock};
use super::place::{open_own, path_of};
use super::waste::Posts;
use super::{Identity, KeepIndex, Memory, Mode, NotesReader, Segment, State};
use crate::sync::wait::lock;
use crate::{Error, Opener, PAGE_BYTES, Result};

/// Looks of a thread between two at whether the writer is there: so many may see what one left that is gone.
const LOOKS_A_LOOK: u64 = 1 << 10;
/// Rounds that a thread waits between two looks at whether the writer is there.
const ROUNDS_A_LOOK: u32 = 1 << 10;

/// What a thread throws that waits for a writer that is gone: caught where it began to read.
struct WriterGone;

thread_local! {
    /// What the thread follows just now.
    static FOLLOWED: Cell<*const Follower> = const { Cell::new(std::ptr::null()) };
}

/// A follower of a pool's writer. See the module.
#[derive(Debug)]
pub struct Follower {
    segment: Arc<Segment>,
    live: Live,
    row: Mapping,
    at: usize,
    /// What the writer did when this came.
    found: WriterState,
    /// Whether threads fence for themselves.
    fences: bool,
    /// Held by threads that have no line of their own.
    last_line: Mutex<()>,
    /// How often a thread was not waited for.
    expelled: AtomicU64,
    /// Set for good when the writer is seen to be gone, or a page that cannot be read was replaced by zeros.
    over: Arc<AtomicBool>,
    opener: Opener,
}

/// A thread of a follower that looks at a pool.
#[derive(Debug)]
struct Pinned<'f> {
    follower: &'f Follower,
    line: &'f Line,
    _last: Option<MutexGuard<'f, ()>>,
}

impl Follower {
    /// Attaches to the writer of a pool.
    ///
    /// # Errors
    ///
    /// [`NoWriter`](Error::NoWriter), with what keeps the caller from following.
    pub(crate) fn attach(identity: &Identity<'_>) -> Result<Self> {
        let no_writer = |why: &str| Error::NoWriter { path: identity.pool.to_owned(), why: why.to_owned() };
        let path = path_of(identity.uuid);
        let file = open_own(&path)
            .ok_or_else(|| no_writer("no process writes to it that keeps its index in shared memory"))?;
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
        let posts = Posts::follow(&file).ok_or_else(|| no_writer("its index cannot be mapped"))?;
        let fences = live.has_fences() || !live.fences_by_kernel();
        let (at, row) = Self::take_row(&file).map_err(no_writer)?;
        let state = State { begun: 1, posts, ..State::default() };
        let mut segment = Segment::over(file, (path, Mode::Follow, KeepIndex::Never), header, (state, None));
        segment.watch_posts();
        live.watch(&segment.path, &segment.over);
        let follower = Self {
            over: Arc::clone(&segment.over),
            segment: Arc::new(segment),
            live,
            row,
            at,
            found,
            fences,
            last_line: Mutex::new(()),
            expelled: AtomicU64::new(0),
            opener: Opener::this(),
        };
        // The writer reckons with the row from here on, if it is the same one.
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
            // The writer looks at the rows before this one, too, whose followers may not have had the memory.
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

    /// Returns what is set when nothing counts any more that is read: see the field.
    pub(crate) fn over(&self) -> &Arc<AtomicBool> {
        &self.over
    }

    /// Returns where trees have what is not persistent.
    pub fn memory(&self) -> Memory {
        Memory::of(Some(&self.segment))
    }

    /// Calls `follow` with what the writer shows of a tree; returns what it makes of it, with the number of this state of the
    /// tree. `None`: the writer does not have it open.
    pub fn follow_tree<T>(
        &self,
        tree: u32,
        follow: impl FnOnce(&mut NotesReader<'_>) -> Option<T>,
    ) -> Option<(u64, T)> {
        let (sequence, words) = self.live.notes(&self.segment.file, tree)?;
        let mut reader = NotesReader::live(&self.segment, &words);
        let followed = follow(&mut reader).filter(|_| reader.is_at_end())?;
        Some((sequence, followed))
    }

    /// Returns whether a tree is still the one that was shown with this number.
    #[inline(always)]
    pub fn shows(&self, tree: u32, sequence: u64) -> bool {
        self.live.sequence(tree) == sequence
    }

    /// Returns whether the writer has the pool open as it had when this follower came.
    #[inline(always)]
    pub fn is_current(&self) -> bool {
        self.live.state() == self.found && !self.over.load(Relaxed)
    }

    /// Returns whether the writer is there. Some system calls.
    #[cold]
    pub fn has_writer(&self) -> bool {
        let is_there = self.is_current()
            && owner::is_held(&self.segment.file, Lock::Writer)
            && self.segment.file.metadata().is_ok_and(|file| file.nlink() > 0);
        if !is_there {
            self.over.store(true, Relaxed);
        }
        is_there
    }

    /// Returns how often what a thread had read did not count, since the writer had not waited for it.
    pub fn expelled(&self) -> u64 {
        self.expelled.load(Relaxed)
    }

    /// Calls `look` with the epoch of the calling thread, which has this number, announced, unless the writer does not show the
    /// tree with that number any more. `None`: it does not, or what was seen does not count, of which `is_same_writer` has a say.
    #[inline(always)]
    pub(crate) fn look<R>(
        &self,
        thread: Option<usize>,
        (tree, number): (u32, u64),
        look: impl FnOnce() -> R,
        is_same_writer: impl FnOnce() -> bool,
    ) -> Option<R> {
        let pinned = self.pin(thread);
        // What the tree had is zeros by now, if it had gone before.
        if !(self.is_current() && self.shows(tree, number)) {
            return None;
        }
        let seen = pinned.run(look)?;
        (pinned.end() && self.shows(tree, number) && is_same_writer()).then_some(seen)
    }

    /// Announces that the calling thread looks: what the writer takes out of the pool from now on stays what it is.
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

    /// Counts that a thread was not waited for.
    #[cold]
    fn note_expelled(&self) {
        self.expelled.fetch_add(1, Relaxed);
    }
}

impl Pinned<'_> {
    /// Runs `look`, which may wait for the writer. `None`: it waited, and the writer is gone; or it panicked over what was
    /// not what it was any more. Other panics go on.
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

    /// Returns whether what was read so far counts.
    #[inline(always)]
    fn counts(&self) -> bool {
        !self.line.word.is_expelled() && self.follower.is_current()
    }

    /// Counts the look; returns whether what was read meanwhile counts.
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

/// Leaves, called by a thread that waits for another one again and again, a lookup that would wait for ever.
#[cold]
pub(crate) fn waits(round: u32) {
    if !round.is_multiple_of(ROUNDS_A_LOOK) {
        return;
    }
    let followed = FOLLOWED.try_with(Cell::get).unwrap_or(std::ptr::null());
    // SAFETY: set while a `Pinned` of this thread borrows the follower.
    if unsafe { followed.as_ref() }.is_some_and(|follower| !follower.has_writer()) {
        std::panic::resume_unwind(Box::new(WriterGone));
    }
}
