//! The journal: group commit to files, for pools on ordinary disks.
//!
//! While a pool has a journal, its pages are only memory: they survive the process, and nothing relies on them after a
//! power failure. Each change is an entry ([`entry`]) that reaches a file before it is acknowledged.
//!
//! # Write
//!
//! In tracking mode of the write barrier, so that the thread holds the locks of its keys.
//! 1. The thread reserves an LSN and room in the ring by one atomic addition, and stores the entry with its new values
//!    as an intent. *A kill before: nothing has changed.*
//! 2. It changes the trees.
//! 3. It marks the entry as complete, with how many of its changes count: none if the trees refused them. It releases
//!    the locks. *A kill between 1 and 3: the next process completes the entry with the values that the trees have for its
//!    keys. No other thread has changed them since.*
//! 4. It waits until the entry is durable, if its durability asks for that.
//!
//! A thread that has seen a change reserves after it. Therefore every prefix of the entries is a state that existed.
//!
//! # Group commit
//!
//! A thread that waits leads if no other one does:
//! 1. It writes the complete entries that follow the last written one, in one write.
//! 2. It syncs the file, and publishes the LSN up to which entries are durable.
//! 3. It frees their room in the ring, and wakes the others. One of these leads next.
//!
//! A failed write or sync ends the journal: all later writes return [`Error::DurabilityLost`], and reads go on. Nothing is
//! written again, since the kernel may have dropped what it could not write.
//!
//! # Open
//!
//! - After a clean close the pool's pages are durable, and the manifest names the change of the superblock that said so.
//! - After a kill under the same kernel the pages are whole. Once the pool has recovered, the ring is taken over
//!   ([`takeover`]).
//! - Otherwise the pages are worthless. A new file gets the items of the checkpoint and the entries behind it, and then
//!   the name of the pool ([`restore`]).

mod api;
pub(crate) mod aside;
pub(crate) mod changes;
pub(crate) mod checkpoint;
pub(crate) mod clock;
pub(crate) mod cursor;
mod deferral;
mod directory;
pub(crate) mod entry;
mod flusher;
mod group;
pub(crate) mod inspect;
mod log;
pub(crate) mod manifest;
pub(crate) mod mutation;
pub(crate) mod opening;
mod past;
mod presence;
mod prune;
mod reads;
pub(crate) mod restore;
mod ring;
pub(crate) mod segment;
mod setup;
#[cfg(test)]
pub(crate) mod simulated;
mod status;
mod stream_entry;
pub(crate) mod tail;
mod takeover;
#[cfg(test)]
mod tests;
mod ticket;
pub(crate) mod trees;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, Weak};

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::{Error, Issue, Opener, Result, Storage, TreeId};

use self::aside::Asides;
pub(crate) use self::aside::Items;
pub use self::changes::{Changes, Stopper};
use self::checkpoint::{PART_BYTES, Running};
pub use self::cursor::JournalCursor;
use self::entry::{Aside, Head, Kind, entry_bytes, words_of};
pub(crate) use self::entry::{Directory, push_change};
use self::flusher::Flusher;
use self::group::Turn;
pub use self::inspect::{JournalCounts, JournalFile, JournalFiles};
use self::log::Log;
use self::mutation::{Point, reached};
pub(crate) use self::opening::{Begin, Plan, adopt, create, expect_pages, plan};
pub(crate) use self::presence::Done;
use self::ring::Ring;
pub use self::setup::Durability;
pub(crate) use self::setup::{Setup, standby_folder};
use self::status::Figures;
pub use self::status::{JournalStatus, SyncTimes};
pub use self::stream_entry::{Changed, JournalChange, JournalChanges, JournalEntry};
pub use self::ticket::Ticket;
use crate::Pool;
use crate::transaction::record;

/// The part of the ring that one entry may take. The body of a longer one gets a file of its own.
const SHARE: u64 = 4;

/// The journal of an open pool.
pub(crate) struct Journal {
    storage: Arc<dyn Storage>,
    folder: PathBuf,
    ring: Ring,
    figures: Figures,
    /// Held by the thread that writes.
    log: Mutex<Log>,
    turn: Turn,
    /// The LSN up to which entries are durable.
    durable: AtomicU64,
    /// Set once a write or sync has failed, or an entry cannot be completed, and when the pool is closed.
    failed: AtomicBool,
    durability: Durability,
    /// Whether reads wait until what they show is durable.
    durable_reads: bool,
    /// Whether this opening restored the pool, whose last user did not close it.
    pub(crate) restored: bool,
    flusher: Flusher,
    own: Weak<Journal>,
    /// The pool's path, and the process that opened it.
    path: PathBuf,
    opener: Opener,
    asides: Asides,
    /// The checkpoint that writers make part by part.
    checkpointing: Mutex<Option<Running>>,
    /// Bytes of segments behind which writers make a checkpoint.
    checkpoint_bytes: u64,
    /// The LSN from which on the next part of a checkpoint is due.
    due: AtomicU64,
    /// Bytes of segments that are kept for a cursor at most.
    cursor_limit_bytes: u64,
    /// Bytes of the ring and of a segment.
    sizes: (u64, u64),
    /// Cursors that hold back much.
    warnings: Mutex<Vec<Issue>>,
    /// Number of the tree that a checkpoint reads; all ones for none.
    scanned: AtomicU64,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("durable", &self.durable).finish_non_exhaustive()
    }
}

/// An entry whose changes are being applied. If dropped without being completed, it ends the journal: the next process
/// completes it.
pub(crate) struct Pending<'a> {
    journal: &'a Journal,
    lsn: u64,
    head: Head,
    /// Its first word.
    first: &'a AtomicU64,
    is_complete: bool,
}

impl Journal {
    /// Writes an entry whose changes the caller is about to apply. It must hold the locks of their keys, or that of the
    /// directory.
    ///
    /// # Errors
    ///
    /// [`Error::DurabilityLost`], [`Error::Forked`], and for long bodies [`Error::MediumFull`] and errors of the system.
    /// Nothing has changed.
    pub fn begin(&self, kind: Kind, body: &[u8]) -> Result<Pending<'_>> {
        self.here()?;
        self.health()?;
        if entry_bytes(body.len()) > self.ring.bytes() / SHARE {
            let aside = self.asides.write(&*self.storage, body)?;
            let pending = self.put(Head::intent(kind, true, Aside::BYTES), words_of(&aside.encode()))?;
            self.asides.note(aside.file, pending.lsn);
            return Ok(pending);
        }
        self.put(Head::intent(kind, false, body.len()), words_of(body))
    }

    /// Writes the entry of a word's change to a word: see [`begin`](Self::begin).
    #[inline]
    pub fn begin_words(&self, tree: TreeId, key: u64, value: u64) -> Result<Pending<'_>> {
        self.here()?;
        self.health()?;
        let (body, bytes) = record::packed_words(tree, key, value);
        self.put(Head::intent(Kind::Each, false, bytes), body.into_iter())
    }

    #[inline]
    fn put(&self, head: Head, body: impl Iterator<Item = u64>) -> Result<Pending<'_>> {
        let lsn = self.ring.reserve(head.body);
        // From here on the entry must be completed, or the journal ends.
        let entries = self.ring.entries();
        let first = self.ring.at(entries, lsn);
        let pending = Pending { journal: self, lsn, head, first, is_complete: false };
        let end = pending.end();
        if !self.ring.has_room(end) {
            self.make_room(end)?;
        }
        reached(Point::Reserved);
        self.ring.put(entries, lsn, head, body);
        reached(Point::Intended);
        Ok(pending)
    }

    /// Checks that this is the process that opened the pool. A child has neither the ring nor the right to write.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    #[inline]
    fn here(&self) -> Result<()> {
        if self.opener.is_here() { Ok(()) } else { Err(self.forked()) }
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::Forked { path: Some(self.path.clone()), pid: self.opener.pid() }
    }

    /// Returns whether writes are possible.
    ///
    /// # Errors
    ///
    /// [`Error::DurabilityLost`].
    #[inline]
    pub fn health(&self) -> Result<()> {
        if self.failed.load(Relaxed) { Err(Error::DurabilityLost) } else { Ok(()) }
    }

    /// Ends the journal.
    #[cold]
    fn fail(&self) {
        self.failed.store(true, Release);
        self.figures.note_failure();
        self.turn.wake();
    }

    /// Waits for entries up to an LSN as a durability demands, or that of the pool.
    ///
    /// # Errors
    ///
    /// [`Error::DurabilityLost`].
    #[inline]
    pub fn acknowledge(&self, lsn: u64, durability: Option<Durability>) -> Result<()> {
        if self.is_deferred(lsn) {
            return Ok(());
        }
        match durability.unwrap_or(self.durability) {
            Durability::Commit => self.wait_durable(lsn),
            Durability::Interval(time) => self.sync_within(time, lsn),
            Durability::Memory => Ok(()),
        }
    }

    /// Writes a part of a checkpoint if one is due and no other thread does. The caller holds no lock.
    #[inline]
    pub fn checkpoint_if_due(&self, pool: &Pool) {
        if self.ring.reserved() >= self.due.load(Relaxed) {
            self.checkpoint_now(pool);
        }
    }

    #[cold]
    fn checkpoint_now(&self, pool: &Pool) {
        // This thread may be the one that has the lock: it fills a tree. Writers do not wait for a checkpoint.
        if self.opener.is_here() && !pool.is_open_locked() {
            // The next full segment asks again.
            let _ = self.checkpoint_part(pool, PART_BYTES);
        }
    }

    /// Makes all changes that the caller has seen durable.
    ///
    /// # Errors
    ///
    /// [`Error::DurabilityLost`] and [`Error::Forked`].
    pub fn sync(&self) -> Result<()> {
        self.here()?;
        self.wait_durable(self.ring.reserved())
    }

    /// Returns the files.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`], and errors of the system.
    fn files(&self) -> Result<JournalFiles> {
        let files = JournalFiles::on(self.folder.clone(), Arc::clone(&self.storage))?;
        Ok(JournalFiles { sizes: self.sizes, ..files })
    }

    /// Changes nothing on disk any more, and lets no later opening trust the pages of the pool.
    pub fn distrust_pages(&self) {
        self.ring.disown();
    }

    /// Records the change of the superblock by which the pool will be closed, and ends the journal. Everything must be
    /// durable.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn note_close(&self, sequence: u64) -> Result<()> {
        let mut log = lock(&self.log);
        log.change(|manifest| manifest.note_close(sequence))?;
        // Tickets and the flusher may outlive the pool: they must not write to the files of the next process.
        self.failed.store(true, Release);
        self.figures.end();
        Ok(())
    }

    /// Continues after a close that did not succeed.
    pub fn reopen(&self) {
        self.failed.store(false, Release);
        self.figures.publish(self.durability);
    }

    /// Ends the journal of a pool that is left as after a crash.
    pub fn abandon(&self) {
        // With the lock: no other thread writes any more.
        let log = lock(&self.log);
        self.failed.store(true, Release);
        drop(log);
        self.turn.wake();
    }
}

impl Pending<'_> {
    /// Returns the LSN behind the entry.
    #[inline]
    fn end(&self) -> u64 {
        self.lsn + self.head.bytes()
    }

    /// Replaces the first word of the body, before the entry is complete.
    pub fn set_first_word(&self, word: u64) {
        self.journal.ring.patch(self.lsn, 0, word);
    }

    /// Marks the entry as complete; returns the LSN up to which the journal must be durable for it.
    #[inline]
    pub fn complete(mut self, counts: u16) -> u64 {
        reached(Point::Applied);
        self.is_complete = true;
        ring::complete(self.first, self.head, counts);
        reached(Point::Complete);
        self.end()
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_complete {
            self.journal.fail();
        }
    }
}

/// Returns the head of an entry that counts.
fn head_of(kind: Kind, counts: u16, aside: bool, body: usize) -> Head {
    Head { counts, aside, ..Head::complete(kind, body) }
}
