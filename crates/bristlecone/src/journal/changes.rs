//! The changes of a pool in the order of their LSNs, as a stream that a consumer can follow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bristlecone_pm::{Error, Result, Storage};

use super::aside;
use super::clock;
use super::cursor::Cursor;
use super::entry::{self, Kind as EntryKind, broken};
use super::manifest::read_manifest;
use super::stream_entry::{Body, JournalEntry, What, aside_of, directory};
use super::tail::{Durable, Tail};
use super::trees::Trees;

/// Shortest and longest time between two looks for new changes.
const PAUSES: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(1)];
/// Time between two looks whether the cursor is still there.
const CURSOR_EVERY: Duration = Duration::from_millis(100);

/// A stream of the durable changes of a pool, whole commits at a time: see [`Pool::changes`](crate::Pool::changes).
///
/// As an iterator it ends at the last durable entry, and may return more when it is asked again later.
/// [`next_within`](Self::next_within) waits for more.
pub struct Changes {
    storage: Arc<dyn Storage>,
    tail: Tail,
    durable: Durable,
    /// The LSN up to which entries are known to be durable, and the openings that were noticed by then.
    limit: u64,
    seen: u64,
    trees: Trees,
    /// Entries before this one are skipped, and those before the other one do not count for the trees either.
    from: u64,
    skipped: u64,
    /// LSN of the next entry.
    next: u64,
    /// The rest of the entries of a block, and its time.
    entries: Vec<u8>,
    at: usize,
    time: u64,
    cursor: Option<Cursor>,
    cursor_seen: Instant,
    stop: Arc<AtomicBool>,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").field("next_lsn", &self.next).finish_non_exhaustive()
    }
}

/// Ends what waits or repeats, from any thread: see [`Changes::stopper`], [`Archiver::stopper`](crate::Archiver::stopper)
/// and [`Standby::stopper`](crate::Standby::stopper).
#[derive(Clone, Debug)]
pub struct Stopper(Arc<AtomicBool>);

impl Stopper {
    pub(crate) fn new(stop: &Arc<AtomicBool>) -> Self {
        Self(Arc::clone(stop))
    }

    /// Returns whether it was ended.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Ends it: [`Changes::next_within`] returns `None` from now on without waiting, and within milliseconds if it waits.
    pub fn stop(&self) {
        self.0.store(true, Relaxed);
    }
}

impl Iterator for Changes {
    type Item = Result<JournalEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl Changes {
    pub(super) fn begin(
        storage: Arc<dyn Storage>,
        ring_bytes: u64,
        from: Option<u64>,
        cursor: Option<Cursor>,
    ) -> Result<Self> {
        let manifest = read_manifest(&*storage)?;
        let from = cursor.as_ref().map(Cursor::lsn).or(from).unwrap_or(manifest.kept);
        let mut durable = Durable::new(Arc::clone(&storage), manifest.pool, ring_bytes);
        let limit = durable.lsn()?;
        if from > limit {
            return Err(Error::invalid(format!(
                "LSN {from} is beyond the durable end of the journal in {}, LSN {limit}: it is not one of this journal",
                storage.describe()
            )));
        }
        let (tail, skipped, past) = Tail::begin(&storage, from)?;
        let (seen, stop, entries) = (durable.changes(), Arc::default(), Vec::new());
        let (trees, time, cursor_seen) = (past.trees, past.time, Instant::now());
        let (next, at) = (from, 0);
        Ok(Self {
            storage,
            tail,
            durable,
            limit,
            seen,
            trees,
            from,
            skipped: skipped.unwrap_or(0),
            next,
            entries,
            at,
            time,
            cursor,
            cursor_seen,
            stop,
        })
    }

    /// Returns the LSN of the next entry: a later stream continues from there.
    pub fn next_lsn(&self) -> u64 {
        self.next
    }

    /// Waits for the next entry; returns `None` if none became durable within a time, or once the stream is stopped.
    ///
    /// # Errors
    ///
    /// [`Error::Pruned`] if a checkpoint has removed the next entry, which a cursor prevents; [`Error::CursorDropped`] if
    /// the cursor of the stream held back too much; [`Error::Corrupted`] for damage; errors of the system.
    pub fn next_within(&mut self, time: Duration) -> Result<Option<JournalEntry>> {
        let end = Instant::now().checked_add(time);
        let mut pause = PAUSES[0];
        loop {
            if self.stop.load(Relaxed) {
                return Ok(None);
            }
            if let Some(entry) = self.read()? {
                return Ok(Some(entry));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            std::thread::sleep(left.map_or(pause, |left| left.min(pause)));
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// Returns a handle that ends the waiting of [`next_within`](Self::next_within).
    pub fn stopper(&self) -> Stopper {
        Stopper::new(&self.stop)
    }

    /// Moves the cursor of the stream to an LSN, durably: usually the [`next_lsn`](JournalEntry::next_lsn) of the last entry
    /// whose effects are durable. After a crash, the next stream of this cursor begins there.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a stream without a cursor, and for an LSN before that of the cursor or behind the entries
    /// that the stream has returned; [`Error::CursorDropped`]; errors of the system.
    pub fn advance(&mut self, lsn: u64) -> Result<()> {
        let next = self.next;
        let Some(cursor) = &mut self.cursor else {
            return Err(Error::invalid("the stream has no cursor: begin it with changes_of"));
        };
        if lsn > next {
            return Err(Error::invalid(format!(
                "the stream has returned entries before LSN {next} only, not {lsn}"
            )));
        }
        cursor.advance(lsn)
    }

    /// Returns the next entry, if there is a durable one.
    fn read(&mut self) -> Result<Option<JournalEntry>> {
        let read = self.read_on();
        match (&read, &self.cursor) {
            (Err(Error::Pruned { .. }), Some(cursor)) => cursor.expect().and(read),
            _ => read,
        }
    }

    fn read_on(&mut self) -> Result<Option<JournalEntry>> {
        loop {
            while self.at < self.entries.len() {
                if let Some(entry) = self.take()? {
                    return Ok(Some(entry));
                }
            }
            if !self.read_block()? {
                return Ok(None);
            }
        }
    }

    /// Reads the next durable block; returns whether there is one.
    fn read_block(&mut self) -> Result<bool> {
        self.at = 0;
        self.entries.clear();
        for is_current in [false, true] {
            if let Some((block, entries)) = self.tail.next(self.limit)? {
                self.entries.extend_from_slice(entries);
                self.time = self.time.max(block.time);
                return Ok(true);
            }
            if is_current {
                break;
            }
            self.limit = self.limit.max(self.durable.lsn()?);
            self.look_at_cursor()?;
            if self.seen != self.durable.changes() {
                self.tail.reopen()?;
                self.seen = self.durable.changes();
            }
        }
        Ok(false)
    }

    fn look_at_cursor(&mut self) -> Result<()> {
        if let Some(cursor) = &self.cursor
            && self.cursor_seen.elapsed() > CURSOR_EVERY
        {
            cursor.expect()?;
            self.cursor_seen = Instant::now();
        }
        Ok(())
    }

    /// Takes an entry off the block; returns `None` if it changed nothing, or is not wanted.
    fn take(&mut self) -> Result<Option<JournalEntry>> {
        let mut rest = &self.entries[self.at..];
        let entry::Entry { head, lsn, body } = entry::take(&mut rest).ok_or_else(broken)?;
        self.at = self.entries.len() - rest.len();
        let next_lsn = lsn + head.bytes();
        if head.counts == 0 || lsn < self.skipped {
            self.next = self.next.max(next_lsn);
            return Ok(None);
        }
        let is_directory = !matches!(head.kind, EntryKind::Each | EntryKind::All);
        let what = if is_directory {
            let long = if head.aside { Some(aside::read(&*self.storage, &aside_of(body)?)?) } else { None };
            directory(head.kind, long.as_deref().unwrap_or(body), &mut self.trees)?
        } else {
            let some = if head.kind == EntryKind::Each { usize::from(head.counts) } else { usize::MAX };
            let wanted = lsn >= self.from;
            let body = match head.aside {
                true => Body::File(aside_of(body)?),
                false => Body::Inline(if wanted { body.into() } else { Arc::default() }),
            };
            What::Keys { body, some }
        };
        if lsn < self.from {
            return Ok(None);
        }
        self.next = next_lsn;
        let time = clock::at(self.time);
        let (trees, storage) = (self.trees.clone(), Arc::clone(&self.storage));
        Ok(Some(JournalEntry { lsn, next_lsn, time, what, trees, storage }))
    }
}
