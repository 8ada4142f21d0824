//! The changes of a pool in the order of their LSNs, as a stream that a consumer can follow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bristlecone_pm::{Error, Result, Storage, StoredFile, TreeEntry, TreeId};

use super::aside;
use super::cursor::{self, Cursor, JournalCursor};
use super::entry::{self, Aside, Directory, Kind as EntryKind, broken};
use super::inspect::JournalFiles;
use super::manifest::read_manifest;
use super::tail::{Durable, Tail};
use super::trees::Trees;
use crate::Pool;
use crate::dynamic::encode::{Records, Role, Stored, Words};
use crate::dynamic::{Datum, Kind};
use crate::index::parts::encoded::Encoded;
use crate::transaction::record::{self, Change};

/// Shortest and longest time between two looks for new changes.
const PAUSES: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(1)];
/// Time between two looks whether the cursor is still there.
const CURSOR_EVERY: Duration = Duration::from_millis(100);
/// Bytes of a file that are read together.
const PIECE_BYTES: usize = 1 << 20;

/// A commit in a stream of changes: one write, a group of up to 16 writes of a multi-key call, a batch or transaction, or
/// a change of the directory of trees. See [`Pool::changes`].
#[derive(Clone)]
pub struct JournalEntry {
    lsn: u64,
    next_lsn: u64,
    time: SystemTime,
    what: What,
    /// The trees behind the entry.
    trees: Trees,
    storage: Arc<dyn Storage>,
}

/// What an entry changes.
#[derive(Clone)]
enum What {
    /// The first `some` changes of a body.
    Keys { body: Body, some: usize },
    /// The directory, with the items of a tree that was created with some.
    Directory { change: JournalChange, items: Option<(TreeId, Aside)> },
}

/// Where changes of keys are.
#[derive(Clone)]
enum Body {
    Inline(Arc<[u8]>),
    File(Aside),
}

/// A change in a stream of changes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JournalChange {
    /// The tree, with the name that it had before the change. A tree that is created has its new name.
    pub tree: Arc<TreeEntry>,
    /// What happened to it.
    pub change: Changed,
}

/// What a change did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Changed {
    /// A key got a value.
    Put {
        /// The key.
        key: Datum<'static>,
        /// Its new value.
        value: Datum<'static>,
        /// Whether the key was present before. `None`: the write did not look, as `upsert`; or the commit is longer than a
        /// quarter of the journal's ring (4 MiB); or its process was killed before the commit was complete.
        existed: Option<bool>,
    },
    /// A key was removed.
    Remove {
        /// The key.
        key: Datum<'static>,
        /// Whether it was present before: as for [`Put`](Self::Put).
        existed: Option<bool>,
    },
    /// The tree was created. If it was created with items, they follow in the same entry.
    Create,
    /// The tree was dropped, with all items.
    Drop,
    /// The tree was renamed.
    Rename {
        /// Its new name.
        to: String,
    },
    /// All items of the tree were removed.
    Clear {
        /// The tree's new number.
        id: TreeId,
    },
}

impl std::fmt::Debug for JournalEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lsn, next_lsn, time, .. } = self;
        f.debug_struct("JournalEntry")
            .field("lsn", lsn)
            .field("next_lsn", next_lsn)
            .field("time", time)
            .finish_non_exhaustive()
    }
}

impl JournalEntry {
    /// Returns the LSN of the entry.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Returns the LSN from which on a later stream continues behind this entry.
    pub fn next_lsn(&self) -> u64 {
        self.next_lsn
    }

    /// Returns when the entry was written to the journal, in milliseconds by the clock of the machine. It never is before
    /// that of an earlier entry, even if the clock was set back.
    pub fn time(&self) -> SystemTime {
        self.time
    }

    /// Returns the changes of the entry, at least one, in order. Those of a batch or transaction are in the order of trees
    /// and keys, and were applied together. Changes of a long commit are read from its file while the result is iterated:
    /// all of them need not fit in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`] for damage; [`Error::Pruned`] if the file was removed meanwhile; errors of the system. Items of
    /// the result have the same errors.
    pub fn changes(&self) -> Result<JournalChanges<'_>> {
        let (first, source, left, tree) = match &self.what {
            What::Keys { body: Body::Inline(body), some } => (None, Source::Bytes(body), *some, None),
            What::Keys { body: Body::File(aside), some } => (None, self.file(aside)?, *some, None),
            What::Directory { change, items: None } => (Some(change), Source::Bytes(&[]), 0, None),
            What::Directory { change, items: Some((tree, aside)) } => {
                (Some(change), self.file(aside)?, usize::MAX, Some(*tree))
            }
        };
        Ok(JournalChanges { first: first.cloned(), source, left, tree, trees: &self.trees })
    }

    fn file(&self, aside: &Aside) -> Result<Source<'_>> {
        match aside::verify(&*self.storage, aside) {
            Ok(file) => Ok(Source::File { file, bytes: aside.bytes, offset: 0, buffer: Vec::new(), at: 0 }),
            Err(error) => match read_manifest(&*self.storage)?.kept {
                oldest if oldest > self.lsn => Err(Error::Pruned { oldest }),
                _ => Err(error),
            },
        }
    }
}

/// The changes of an entry: see [`JournalEntry::changes`].
pub struct JournalChanges<'a> {
    first: Option<JournalChange>,
    source: Source<'a>,
    /// Number of changes that are left, if there are as many.
    left: usize,
    /// The tree of all changes, if these do not name it.
    tree: Option<TreeId>,
    trees: &'a Trees,
}

enum Source<'a> {
    Bytes(&'a [u8]),
    File { file: Arc<dyn StoredFile>, bytes: u64, offset: u64, buffer: Vec<u8>, at: usize },
}

impl std::fmt::Debug for JournalChanges<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalChanges").finish_non_exhaustive()
    }
}

impl Source<'_> {
    /// Takes the next change off; returns `None` at the end.
    fn take(&mut self) -> Result<Option<(Change, Option<bool>)>> {
        match self {
            Self::Bytes([]) => Ok(None),
            Self::Bytes(bytes) => record::take_marked(bytes).ok_or_else(broken).map(Some),
            Self::File { file, bytes, offset, buffer, at } => loop {
                let mut rest = &buffer[*at..];
                if let Some(taken) = record::take_marked(&mut rest) {
                    *at = buffer.len() - rest.len();
                    return Ok(Some(taken));
                }
                if offset == bytes {
                    return if *at == buffer.len() { Ok(None) } else { Err(broken()) };
                }
                buffer.drain(..*at);
                *at = 0;
                let (kept, more) = (buffer.len(), (*bytes - *offset).min(PIECE_BYTES as u64));
                buffer.resize(kept + more as usize, 0);
                if (file.read(*offset, &mut buffer[kept..])? as u64) < more {
                    return Err(broken());
                }
                *offset += more;
            },
        }
    }
}

impl Iterator for JournalChanges<'_> {
    type Item = Result<JournalChange>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        self.left = self.left.checked_sub(1)?;
        let taken = self.source.take().transpose()?;
        Some(taken.and_then(|(change, existed)| self.change(change, existed)))
    }
}

impl JournalChanges<'_> {
    fn change(&self, Change { tree, key, value }: Change, existed: Option<bool>) -> Result<JournalChange> {
        // A tree that is created with items was empty.
        let existed = if self.tree.is_some() { Some(false) } else { existed };
        let tree = self.trees.get(self.tree.unwrap_or(tree))?;
        let (key_kind, value_kind) = tree.kinds()?;
        let key = datum(Role::Key, key_kind, key)?;
        let change = match value {
            Some(value) => Changed::Put { key, value: datum(Role::Value, value_kind, value)?, existed },
            None => Changed::Remove { key, existed },
        };
        Ok(JournalChange { tree: Arc::clone(&tree.entry), change })
    }
}

/// Returns a stored key or value of a kind.
fn datum(role: Role, kind: &Kind, stored: Encoded) -> Result<Datum<'static>> {
    let datum = match stored {
        Encoded::Word(word) if kind.is_word() => Words::take(kind, role, word),
        Encoded::Bytes(bytes) if !kind.is_word() => Records::take(kind, role, bytes.into_vec()),
        _ => None,
    };
    datum.ok_or_else(broken)
}

/// A stream of the durable changes of a pool, whole commits at a time: see [`Pool::changes`].
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
    fn begin(
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
        (self.at, self.entries) = (0, std::mem::take(&mut self.entries));
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
        let time = UNIX_EPOCH + Duration::from_millis(self.time);
        let (trees, storage) = (self.trees.clone(), Arc::clone(&self.storage));
        Ok(Some(JournalEntry { lsn, next_lsn, time, what, trees, storage }))
    }
}

fn aside_of(body: &[u8]) -> Result<Aside> {
    Aside::decode(body).ok_or_else(broken)
}

/// Returns what a change of the directory does, and applies it.
fn directory(kind: EntryKind, body: &[u8], trees: &mut Trees) -> Result<What> {
    let (change, rest) = Directory::of(kind, body).ok_or_else(broken)?;
    let (changed, id) = match &change {
        Directory::Create(id, _) => (Changed::Create, *id),
        Directory::Drop(id) => (Changed::Drop, *id),
        Directory::Rename(id, to) => (Changed::Rename { to: to.clone() }, *id),
        Directory::Clear(_, id, _) => (Changed::Clear { id: *id }, *id),
    };
    let items = if rest.is_empty() { None } else { Some((id, aside_of(rest)?)) };
    Ok(What::Directory { change: JournalChange { tree: trees.apply(change)?, change: changed }, items })
}

impl JournalFiles {
    /// Returns the durable changes from an LSN on, as [`Pool::changes`] does. `None` begins with the first entry that the
    /// journal keeps. The pool may be open in any process, or in none.
    ///
    /// # Errors
    ///
    /// Same as [`Pool::changes`].
    ///
    /// ```
    /// use bristlecone::{Changed, Domain, JournalFiles, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-files-changes-{}.pool", std::process::id());
    ///
    /// let pool = Pool::options().domain(Domain::Journal).create(true).open(&path)?;
    /// pool.tree::<&str, u64>("ages")?.insert("Methuselah", 4857)?;
    /// let mut found = Vec::new();
    /// for entry in JournalFiles::open(format!("{path}.journal"))?.changes(None)? {
    ///     for change in entry?.changes()? {
    ///         found.push(change?);
    ///     }
    /// }
    /// assert!(matches!(found[0].change, Changed::Create));
    /// assert_eq!(found[0].tree.spec.name, "ages");
    /// assert!(matches!(&found[1].change, Changed::Put { value, .. } if *value == 4857u64.into()));
    /// # pool.close()?;
    /// # std::fs::remove_file(&path).unwrap();
    /// # std::fs::remove_dir_all(format!("{path}.journal")).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes(&self, from: Option<u64>) -> Result<Changes> {
        Changes::begin(Arc::clone(&self.storage), self.sizes.0, from, None)
    }

    /// Returns the durable changes from the LSN of a cursor on, as [`Pool::changes_of`] does.
    ///
    /// # Errors
    ///
    /// Same as [`Pool::changes_of`].
    pub fn changes_of(&self, cursor: &str) -> Result<Changes> {
        let cursor = Cursor::open(&self.storage, self.manifest.uuid, cursor)?;
        Changes::begin(Arc::clone(&self.storage), self.sizes.0, None, Some(cursor))
    }

    /// Creates a cursor, as [`Pool::create_cursor`] does.
    ///
    /// # Errors
    ///
    /// Same as [`Pool::create_cursor`].
    pub fn create_cursor(&self, name: &str, lsn: Option<u64>) -> Result<u64> {
        let mut durable = Durable::new(Arc::clone(&self.storage), self.manifest.pool, self.sizes.0);
        let end = durable.lsn()?;
        let lsn = lsn.unwrap_or(end);
        if lsn > end {
            return Err(Error::invalid(format!(
                "LSN {lsn} is beyond the durable end of the journal, LSN {end}"
            )));
        }
        // A stream can begin there: otherwise the cursor would be of no use after the next checkpoint.
        if let (_, Some(_), _) = Tail::begin(&self.storage, lsn)? {
            let what = "the journal was written by an older version: open the pool for writing once";
            return Err(Error::invalid(what));
        }
        cursor::create(&*self.storage, name, lsn).map(|()| lsn)
    }

    /// Removes a cursor, as [`Pool::drop_cursor`] does.
    ///
    /// # Errors
    ///
    /// Same as [`Pool::drop_cursor`].
    pub fn drop_cursor(&self, name: &str) -> Result<()> {
        cursor::remove(&*self.storage, name)
    }

    /// Moves a cursor to an LSN, without a stream of its changes: see [`Changes::advance`].
    ///
    /// # Errors
    ///
    /// Same as [`Changes::advance`]; [`Error::NoSuchCursor`]; [`Error::InUse`] while a stream of the cursor exists.
    pub fn advance_cursor(&self, name: &str, lsn: u64) -> Result<()> {
        let end = Durable::new(Arc::clone(&self.storage), self.manifest.pool, self.sizes.0).lsn()?;
        if lsn > end {
            return Err(Error::invalid(format!(
                "LSN {lsn} is beyond the durable end of the journal, LSN {end}"
            )));
        }
        Cursor::open(&self.storage, self.manifest.uuid, name)?.advance(lsn)
    }

    /// Returns the cursors, and those that were dropped because they held back too much.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`], and errors of the system.
    pub fn cursors(&self) -> Result<Vec<JournalCursor>> {
        cursor::list(&*self.storage, self.sizes.1)
    }
}

impl Pool {
    /// Returns the durable changes of the pool from an LSN on, in the order of their LSNs: a [stream](Changes) of commits.
    /// It is an iterator up to the last durable change, and [`Changes::next_within`] waits for more. LSN 0 is the creation
    /// of the pool; to continue later, keep the [`next_lsn`](JournalEntry::next_lsn) of the last entry. The stream has each
    /// commit once, complete, also over restarts of either process.
    ///
    /// It reads the files of the journal. Writers do not wait for it, and it does not keep the pool open.
    /// [`JournalFiles::changes`] does the same in any process.
    ///
    /// A checkpoint removes older entries, unless a [cursor](Self::create_cursor) needs them.
    ///
    /// # Errors
    ///
    /// [`Error::Pruned`], with the LSN of the oldest entry that is kept; [`Error::Invalid`] for a pool without a journal, and
    /// for an LSN beyond the durable end; [`Error::Corrupted`]; errors of the system.
    ///
    /// ```
    /// use std::time::Duration;
    /// use bristlecone::{Changed, Domain, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-changes-{}.pool", std::process::id());
    ///
    /// let pool = Pool::options().domain(Domain::Journal).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// let mut changes = pool.changes(0)?;
    /// assert_eq!(changes.by_ref().count(), 1); // the tree was created
    /// let mut batch = pool.batch();
    /// batch.insert(&ages, "Pando", 14_000).remove(&ages, "Methuselah");
    /// batch.commit()?;
    /// let entry = changes.next_within(Duration::from_secs(10))?.expect("a commit");
    /// for change in entry.changes()? {
    ///     match change?.change {
    ///         Changed::Put { key, value, existed } => {
    ///             assert_eq!((key, value, existed), ("Pando".into(), 14_000u64.into(), Some(false)))
    ///         }
    ///         Changed::Remove { existed, .. } => assert_eq!(existed, Some(false)),
    ///         other => panic!("{other:?}"),
    ///     }
    /// }
    /// # drop(ages);
    /// # pool.close()?;
    /// # std::fs::remove_file(&path).unwrap();
    /// # std::fs::remove_dir_all(format!("{path}.journal")).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes(&self, from_lsn: u64) -> Result<Changes> {
        self.journal_files()?.changes(Some(from_lsn))
    }

    /// Returns the durable changes from the LSN of a cursor on, as [`changes`](Self::changes) does.
    /// [`Changes::advance`] moves the cursor. One stream at a time has the cursor.
    ///
    /// # Errors
    ///
    /// Same as [`changes`](Self::changes); [`Error::NoSuchCursor`]; [`Error::CursorDropped`]; [`Error::InUse`] while
    /// another stream has the cursor.
    pub fn changes_of(&self, cursor: &str) -> Result<Changes> {
        self.journal_files()?.changes_of(cursor)
    }

    /// Creates a named cursor at an LSN, or at the durable end for `None`, durably; returns its LSN. Checkpoints keep the
    /// entries from there on, so that a consumer of [`changes_of`](Self::changes_of) may stop and continue later. When
    /// files that are kept only for a cursor exceed [`cursor_limit_bytes`](crate::PoolOptions::cursor_limit_bytes), the next
    /// checkpoint drops the cursor, and its consumer gets [`Error::CursorDropped`].
    ///
    /// The name has 1 to 64 ASCII letters, digits, dots, hyphens and underscores.
    ///
    /// # Errors
    ///
    /// [`Error::Pruned`] for an LSN whose entry is not kept; [`Error::Invalid`] for a name that is not allowed or exists,
    /// for an LSN beyond the durable end, and for a pool without a journal; errors of the system.
    ///
    /// ```
    /// use bristlecone::{Domain, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-cursor-{}.pool", std::process::id());
    ///
    /// let pool = Pool::options().domain(Domain::Journal).create(true).open(&path)?;
    /// pool.create_cursor("audit", Some(0))?;
    /// pool.tree::<u64, u64>("t")?.insert(1, 2)?;
    /// pool.checkpoint()?; // keeps the entries for the cursor
    /// let mut changes = pool.changes_of("audit")?;
    /// while let Some(entry) = changes.next() {
    ///     let entry = entry?;
    ///     println!("{}: {} changes", entry.lsn(), entry.changes()?.count());
    ///     changes.advance(entry.next_lsn())?;
    /// }
    /// pool.drop_cursor("audit")?;
    /// # pool.close()?;
    /// # std::fs::remove_file(&path).unwrap();
    /// # std::fs::remove_dir_all(format!("{path}.journal")).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_cursor(&self, name: &str, lsn: Option<u64>) -> Result<u64> {
        self.journal_files()?.create_cursor(name, lsn)
    }

    /// Removes a cursor, or what is left of one that was dropped. The next checkpoint removes entries that were kept for it.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchCursor`]; [`Error::Invalid`] for a pool without a journal; errors of the system.
    pub fn drop_cursor(&self, name: &str) -> Result<()> {
        self.journal_files()?.drop_cursor(name)
    }

    /// Returns the files of the journal.
    pub(crate) fn journal_files(&self) -> Result<JournalFiles> {
        self.0.file.here()?;
        match self.0.journal.get() {
            Some(journal) => journal.files(),
            None => Err(Error::invalid("the pool is not open for writing with a journal: use JournalFiles")),
        }
    }
}
