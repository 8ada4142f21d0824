//! The journal in the public interface.

use std::sync::Arc;

use bristlecone_pm::{Domain, Error, Result};

use super::changes::Changes;
use super::cursor::{self, Cursor, JournalCursor};
use super::inspect::JournalFiles;
use super::tail::{Durable, Tail};
use crate::Pool;

impl Pool {
    /// Makes everything durable that has been acknowledged so far. Only pools with the domain [`Domain::Journal`] and
    /// another durability than [`Durability::Commit`](crate::Durability::Commit) need this: in other pools each write is
    /// durable when it returns.
    ///
    /// # Errors
    ///
    /// [`Error::DurabilityLost`] if the journal could not be written, now or before: reopen the pool;
    /// [`Error::Forked`].
    pub fn sync(&self) -> Result<()> {
        self.0.file.here()?;
        self.0.journal.get().map_or(Ok(()), |journal| journal.sync())
    }

    /// Writes all items to a new checkpoint in the journal, and frees the space of the entries before it. Readers and
    /// writers go on.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a pool without a journal; [`Error::DurabilityLost`]; [`Error::MediumFull`], and errors of
    /// the system: the journal then keeps its last checkpoint and all entries behind it.
    pub fn checkpoint(&self) -> Result<()> {
        self.0.file.writable()?;
        match self.0.journal.get() {
            Some(journal) => journal.checkpoint(self),
            None => {
                Err(Error::invalid(format!("only pools of the domain {} have checkpoints", Domain::Journal)))
            }
        }
    }
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
        let lsn = self.durable_lsn(lsn)?;
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
        let lsn = self.durable_lsn(Some(lsn))?;
        Cursor::open(&self.storage, self.manifest.uuid, name)?.advance(lsn)
    }

    /// Returns an LSN up to which the journal is durable, or the durable end for `None`.
    fn durable_lsn(&self, lsn: Option<u64>) -> Result<u64> {
        let end = Durable::new(Arc::clone(&self.storage), self.manifest.pool, self.sizes.0).lsn()?;
        match lsn {
            Some(lsn) if lsn > end => {
                Err(Error::invalid(format!("LSN {lsn} is beyond the durable end of the journal, LSN {end}")))
            }
            lsn => Ok(lsn.unwrap_or(end)),
        }
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
    /// of the pool; to continue later, keep the [`next_lsn`](crate::JournalEntry::next_lsn) of the last entry. The stream has each
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
