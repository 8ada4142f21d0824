//! Opening, creating and following pools.

use std::cell::Cell;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bristlecone_pm::{
    At, CreateOptions, Domain, Error, Glance, Nameless, Native, OpenOptions, PoolFile, Result, trace_span,
};

use super::options::{DEFAULT_BYTES_LEAST, LAYOUT, default_bytes};
use crate::api::pool::LOOKS;
use crate::index::followed::pool::FollowedPool;
use crate::index::followed::{Place, Source};
use crate::journal::{self, Begin, Durability, Journal, Plan};
use crate::{Pool, PoolOptions};

/// An open file, and what to do with its journal.
type Opened = (Arc<PoolFile<Native>>, Option<Plan>);

fn no_journal() -> Error {
    Error::invalid("only a pool with the domain journal has a journal: create it with this domain")
}

impl PoolOptions {
    /// Opens the pool at `path`.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the pool does not exist and is not to be created; [`Error::Exists`] if it must be new;
    /// [`Error::InUse`] while another process or handle has it open; [`Error::NotAPool`], [`Error::Newer`] and
    /// [`Error::Corrupted`] for invalid file contents; [`Error::MaximumFixed`] for a maximum that an existing pool
    /// cannot have; [`Error::Invalid`] for contradictory options; [`Error::MediumFull`], [`Error::ReadOnly`] and
    /// [`Error::Io`] from the system. After any of these an existing pool is unchanged.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        trace_span("a pool is opened", path.as_ref(), || self.open_native(path.as_ref()))
    }

    /// Opens the pool at `path` for reading while another process is writing to it.
    ///
    /// Followers read only durable data, with the same guarantees as the writer's own threads: a lookup is
    /// linearizable, and a range sees each leaf at one point in time. A follower reads the writer's index in shared
    /// memory, so it builds and recovers nothing. The writer must run a library with the same layout of its index under
    /// the same user, and only trees that the writer has open can be opened. Neither side waits for the other: the writer
    /// does not reuse freed memory while a lookup may read it, for at most one second. A lookup that takes longer, because
    /// its process was stopped, is repeated. Any number of threads and up to 256 followers may read.
    ///
    /// A follower thread notices within a thousand lookups that the writer has exited. From then on, reads return
    /// [`Error::NoWriter`]. If a new writer has opened the pool, lookups continue with that one. Writes return
    /// [`Error::ReadOnly`]. Snapshots, transactions and copies of a followed pool return [`Error::Invalid`]. `len`
    /// counts the items of a WO-tree if its writer has not counted them.
    ///
    /// # Errors
    ///
    /// [`Error::NoWriter`] if no process writes to the pool, or if its writer cannot be followed; open it with
    /// [`read_only`](Self::read_only) then. [`Error::Invalid`] for options that only a writer can have; otherwise same
    /// as [`open`](Self::open).
    ///
    /// ```
    /// use bristlecone::{Error, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-follow-{}.pool", std::process::id());
    /// let writer = Pool::create(&path)?;
    /// let ages = writer.tree::<&str, u64>("ages")?;
    ///
    /// let follower = Pool::follow(&path)?; // in any process
    /// let followed = follower.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// assert_eq!(followed.get("Methuselah")?, Some(4857));
    /// assert!(matches!(followed.insert("Pando", 16000), Err(Error::ReadOnly)));
    /// drop(ages);
    /// writer.close()?;
    /// assert!(matches!(followed.get("Methuselah"), Err(Error::NoWriter { .. })));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn follow(&self, path: impl AsRef<Path>) -> Result<Pool> {
        trace_span("a pool is followed", path.as_ref(), || {
            self.follow_at(Place::Path(path.as_ref().to_owned()))
        })
    }

    pub(super) fn follow_at(&self, place: Place) -> Result<Pool> {
        let is_writers = self.create
            || self.create_new
            || self.max_bytes.is_some()
            || self.domain.is_some()
            || self.journal.is_asked();
        if is_writers {
            return Err(Error::invalid("a followed pool must exist and uses the options of its writer"));
        }
        // A lookup may read memory that the writer has reused, and then panic where it checks a bound. It is repeated.
        if cfg!(panic = "abort") {
            return Err(Error::invalid("following a pool requires panic unwinding: set panic = \"unwind\""));
        }
        let source = Source::attach(place, self.leave_sigbus, LAYOUT)?;
        Pool::over_any(Box::new(FollowedPool::new(source)), 1)
    }

    /// Creates a pool in memory, without a file. Its contents are lost when its last handle is dropped, or when the
    /// process ends. It is for tests, caches and intermediate results. No other process can open it.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for options of pools in files: `create`, `create_new` and `read_only`; otherwise same as
    /// [`open`](Self::open).
    ///
    /// ```
    /// use bristlecone::Pool;
    ///
    /// let pool = Pool::options().max_bytes(64 << 20).temporary()?;
    /// pool.tree::<u64, u64>("squares")?.insert(4, 16)?;
    /// assert_eq!(pool.info().path, None);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn temporary(&self) -> Result<Pool> {
        self.check()?;
        if self.create || self.create_new || self.read_only {
            return Err(Error::invalid(
                "a temporary pool has no file: drop create, create_new and read_only",
            ));
        }
        if self.journal.is_asked() || self.domain == Some(Domain::Journal) {
            return Err(Error::invalid("a temporary pool has no journal"));
        }
        let handled = !self.leave_sigbus;
        let file = self.create_sized(|options| PoolFile::create_temporary(handled, options, Native::new))?;
        self.pool_over(file, None)
    }

    /// Opens the pool on this machine's native medium, compiled here with every design.
    fn open_native(&self, path: &Path) -> Result<Pool> {
        self.open_on(path, Native::new)
    }

    /// Opens the pool with a busy wait after every flushed line, to emulate slower memory.
    ///
    /// # Errors
    ///
    /// Same as [`open`](Self::open).
    #[cfg(feature = "lab")]
    #[doc(hidden)]
    pub fn open_delayed(&self, path: &Path, per_line: Duration) -> Result<Pool> {
        self.open_on(path, |domain| Native::delayed(domain, per_line))
    }

    fn open_on(&self, path: &Path, medium: impl Fn(Domain) -> Native) -> Result<Pool> {
        self.check()?;
        if let Some(device) = Nameless::device(path, self.read_only)? {
            return self.open_device(device);
        }
        let (file, plan) = if self.create_new {
            self.create_file(path, &medium)
        } else if self.create {
            self.open_or_create(path, &medium)
        } else {
            self.open_file(path, &medium)
        }?;
        file.keep_index(self.keep_index, LAYOUT);
        file.drop_unfinished_trees();
        self.pool_over(file, plan.as_ref().map(|plan| (path, plan)))
    }

    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.recovery_threads.unwrap_or_else(cores)
    }

    pub(super) fn pool_over(
        &self,
        file: Arc<PoolFile<Native>>,
        plan: Option<(&Path, &Plan)>,
    ) -> Result<Pool> {
        let pool = Pool::over(Arc::clone(&file), self.threads())?;
        if let Some((path, plan)) = plan {
            // Without its journal the pool must not be marked as closed.
            let attached = Journal::attach(&pool, &self.journal, path, plan);
            attached.inspect_err(|_| pool.0.done.store(true, Relaxed))?;
        }
        file.begin_following();
        Ok(pool)
    }

    /// Gives a pool of another domain a journal.
    fn adopt(&self, path: &Path) -> Result<()> {
        let (domain, journal) = Default::default();
        let plain = Self { domain, journal, create: false, create_new: false, ..self.clone() };
        journal::adopt(plain.open(path)?, &self.journal, path, Begin::default())
    }

    /// Returns what to do with the journal of a pool that is about to be opened, if it has one.
    fn plan(&self, path: &Path, found: &Glance) -> Result<Option<Plan>> {
        let has_journal = found.domain == Domain::Journal;
        match self.domain {
            Some(Domain::Journal) if !has_journal => return Ok(Some(Plan::Adopted)),
            Some(asked) if has_journal && asked != Domain::Journal => {
                return Err(Error::invalid(format!(
                    "the pool has the domain {}, which cannot become {asked}: copy it to a new pool",
                    found.domain
                )));
            }
            _ if !has_journal && self.journal.is_asked() => return Err(no_journal()),
            _ => {}
        }
        let at = (path, !self.leave_sigbus);
        has_journal.then(|| journal::plan(&self.journal, at, found, self.threads())).transpose()
    }

    /// Rejects invalid combinations of options.
    pub(super) fn check(&self) -> Result<()> {
        if self.read_only && (self.create || self.create_new) {
            return Err(Error::invalid("a pool cannot be created read-only: drop one of the two options"));
        }
        if self.recovery_threads == Some(0) {
            return Err(Error::invalid("the number of recovery threads must be at least 1"));
        }
        if self.journal.is_asked() && self.domain.is_some_and(|domain| domain != Domain::Journal) {
            return Err(no_journal());
        }
        if self.journal.durability == Some(Durability::Interval(Duration::ZERO)) {
            return Err(Error::invalid("a durability interval of 0: use Durability::Commit"));
        }
        if self.max_bytes == Some(0) {
            return Err(Error::invalid("a pool of 0 bytes: 1 byte to 256 TiB are possible"));
        }
        Ok(())
    }

    fn create_file(&self, path: &Path, medium: impl Fn(Domain) -> Native) -> Result<Opened> {
        if self.journal.never {
            let file = self.create_sized(|options| PoolFile::create(self.at(path), options, &medium))?;
            return Ok((file, None));
        }
        let plan = Cell::new(None);
        let file = self.create_sized(|options| {
            let unnamed = PoolFile::create_with_journal(self.at(path), options, &medium)?;
            // First: a pool that has its name has its journal.
            let new = unnamed.pool().glance()?;
            match new.domain {
                Domain::Journal => plan.set(Some(journal::create(&self.journal, path, &new)?)),
                _ if self.journal.is_asked() => return Err(no_journal()),
                _ => {}
            }
            let file = Arc::clone(unnamed.pool());
            unnamed.publish().map(|()| file)
        })?;
        Ok((file, plan.into_inner()))
    }

    /// Creates a pool with the requested maximum, or with as large a default as the address space allows.
    pub(super) fn create_sized(
        &self,
        create: impl Fn(&CreateOptions) -> Result<Arc<PoolFile<Native>>>,
    ) -> Result<Arc<PoolFile<Native>>> {
        let mut max_bytes = self.max_bytes.unwrap_or_else(|| default_bytes(self.chunk_bytes));
        loop {
            // A folder for a journal asks for one.
            let domain = self.domain.or(self.journal.folder.as_ref().map(|_| Domain::Journal));
            let chunk_bytes = self.chunk_bytes;
            match create(&CreateOptions { max_bytes, domain, chunk_bytes }) {
                Err(Error::Io { source, .. })
                    if self.max_bytes.is_none()
                        && source.kind() == ErrorKind::OutOfMemory
                        && max_bytes > DEFAULT_BYTES_LEAST =>
                {
                    max_bytes /= 2;
                }
                created => return created,
            }
        }
    }

    fn open_file(&self, path: &Path, medium: impl Fn(Domain) -> Native) -> Result<Opened> {
        if self.read_only {
            return Ok((self.open_for_reading(path, medium)?, None));
        }
        let mut restored = false;
        for _ in 0..LOOKS {
            let mut planned = None;
            let may = |found: &Glance| {
                planned = self.plan(path, found)?;
                // Another file has the name now, or another process may open it meanwhile.
                let is_again = matches!(planned, Some(Plan::Restored | Plan::Adopted));
                if is_again { Err(Error::InUse { pid: None }) } else { Ok(()) }
            };
            let options = OpenOptions { domain: self.domain, max_bytes: self.max_bytes };
            let opened = PoolFile::open_if(self.at(path), &options, &medium, may);
            match (opened, planned) {
                (Err(_), Some(Plan::Restored)) => restored = true,
                (Err(_), Some(Plan::Adopted)) => self.adopt(path)?,
                // Closed by the restore: its last user did not.
                (opened, Some(Plan::Closed)) if restored => return Ok((opened?, Some(Plan::Restored))),
                (opened, planned) => return Ok((opened?, planned)),
            }
        }
        Err(Error::InUse { pid: None })
    }

    fn open_for_reading(
        &self,
        path: &Path,
        medium: impl Fn(Domain) -> Native,
    ) -> Result<Arc<PoolFile<Native>>> {
        let file = PoolFile::open_read_only(self.at(path), medium)?;
        let found = file.glance()?;
        if found.domain == Domain::Journal {
            journal::expect_pages(&self.journal, path, &found)?;
        }
        self.expect_max(&file)?;
        Ok(file)
    }

    /// Checks that a pool that is open for reading has the requested maximum.
    pub(super) fn expect_max(&self, file: &PoolFile<Native>) -> Result<()> {
        match self.max_bytes {
            Some(asked) if file.max_bytes() < asked => Err(Error::invalid(format!(
                "the pool's maximum is {} bytes, not {asked}: open it for writing to change the maximum",
                file.max_bytes()
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the location of the file.
    fn at<'p>(&self, path: &'p Path) -> At<'p> {
        if self.leave_sigbus { At::unhandled(path) } else { path.into() }
    }

    /// Retries if another process creates or removes the pool between two attempts.
    fn open_or_create(&self, path: &Path, medium: impl Fn(Domain) -> Native) -> Result<Opened> {
        for _ in 1..LOOKS {
            match self.open_file(path, &medium) {
                Err(Error::NotFound { .. }) => {}
                opened => return opened,
            }
            match self.create_file(path, &medium) {
                Err(Error::Exists { .. }) => {}
                created => return created,
            }
        }
        // The path exists but cannot be opened, for example a dangling symbolic link.
        self.create_file(path, &medium)
    }
}
