//! Options for creating and opening pools.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bristlecone_pm::{
    At, CHUNK_BYTES, CreateOptions, Domain, Error, Glance, KeepIndex, Native, OpenOptions, PoolFile, Result,
    trace_span,
};

use crate::Pool;
use crate::api::pool::LOOKS;
use crate::index::followed::Source;
use crate::index::followed::pool::FollowedPool;
use crate::journal::{self, Durability, Journal, Plan, Setup};

/// Default maximum size of a new pool, also where address space is limited.
const DEFAULT_BYTES: u64 = 1 << 40;
const DEFAULT_BYTES_LEAST: u64 = 1 << 30;

/// Returns the default maximum of a new pool: the same number of chunks for every chunk size.
pub(crate) fn default_bytes(chunk_bytes: Option<u64>) -> u64 {
    DEFAULT_BYTES / CHUNK_BYTES * chunk_bytes.unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)
}

/// A hash of this library's sources, which fixes the layout of a tree's volatile part.
pub(crate) const BUILD: u64 = match u64::from_str_radix(env!("BRISTLECONE_BUILD"), 10) {
    Ok(build) => build,
    Err(_) => panic!("a number"),
};

/// Options for opening or creating a pool.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    max_bytes: Option<u64>,
    chunk_bytes: Option<u64>,
    domain: Option<Domain>,
    create: bool,
    create_new: bool,
    read_only: bool,
    recovery_threads: Option<usize>,
    leave_sigbus: bool,
    keep_index: KeepIndex,
    pub(crate) journal: Setup,
}

/// An open file, and what to do with its journal.
type Opened = (Arc<PoolFile<Native>>, Option<Plan>);

fn no_journal() -> Error {
    Error::invalid("only a pool with the domain journal has a journal: create it with this domain")
}

impl PoolOptions {
    /// Sets the maximum size of the pool in bytes (default for a new pool: 1 TiB), rounded up to whole chunks of 2 MiB.
    ///
    /// The file is as large as its contents. The maximum costs address space: opening the pool reserves that many
    /// bytes, and a process has 128 TiB. If a limit such as `ulimit -v` forbids the default, the maximum of a new pool
    /// is halved repeatedly, down to 1 GiB. An existing pool still opens, and returns [`Error::PoolFull`] when the
    /// reserved part is used up.
    ///
    /// Opening an existing pool for writing raises its maximum permanently if the new value is larger; the maximum
    /// never shrinks. A pool of up to about 490 GiB can be raised to that size. A larger pool keeps the maximum it was
    /// created with, and returns [`Error::MaximumFixed`].
    ///
    /// ```
    /// use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-max-{}.pool", std::process::id());
    ///
    /// Pool::options().max_bytes(64 << 20).create_new(true).open(&path)?.close()?;
    /// Pool::options().max_bytes(256 << 20).open(&path)?.close()?;
    /// assert!(Pool::options().open(&path)?.info().max_bytes >= 256 << 20);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Sets the chunk size of a new pool: a power of two from 4 KiB to 2 MiB (default: 2 MiB).
    ///
    /// A tree has at least one to four chunks of its own. Small chunks therefore suit pools of thousands of small trees:
    /// 10,000 trees of a few words take 40 to 85 MiB with chunks of 4 KiB. Large chunks suit trees of millions of
    /// items: huge pages map them, and the file grows less often. With small chunks:
    ///
    /// - Keys and values must be smaller than a chunk. With chunks of 4 KiB, a key or value of more than 3,064 B is
    ///   [`Error::TooLong`].
    /// - The default maximum is 524,288 chunks, 2 GiB with chunks of 4 KiB. It cannot be raised in place by more than a
    ///   few hundred chunks: [`Error::MaximumFixed`].
    ///
    /// The chunk size of a pool is fixed; [`Pool::backup`] copies it to a pool with another. An existing pool ignores
    /// this option.
    ///
    /// ```
    /// use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-chunks-{}.pool", std::process::id());
    ///
    /// let pool = Pool::options().chunk_bytes(4096).create_new(true).open(&path)?;
    /// for tenant in 0..1000 {
    ///     pool.tree::<u64, u64>(&format!("tenant {tenant}"))?.insert(1, 2)?;
    /// }
    /// let info = pool.info();
    /// assert!((info.chunks - info.chunks_free) * info.chunk_bytes < 5 << 20);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = Some(bytes);
        self
    }

    /// Sets the persistence domain, overriding detection. A domain weaker than the medium requires breaks the
    /// durability guarantee.
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Sets the folder of the journal, for a pool with the domain [`Domain::Journal`] (default: beside the pool, with
    /// `.journal` behind its name). It may be on another disk, and must be given at every opening. It belongs to one pool.
    pub fn journal(mut self, folder: impl Into<PathBuf>) -> Self {
        self.journal.folder = Some(folder.into());
        self
    }

    /// Sets when a write returns, for a pool with the domain [`Domain::Journal`] (default: [`Durability::Commit`]). It
    /// holds until the pool is closed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use bristlecone::{Domain, Durability, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-durability-{}.pool", std::process::id());
    ///
    /// let durability = Durability::Interval(Duration::from_millis(100));
    /// let options = Pool::options().domain(Domain::Journal).durability(durability).create(true);
    /// let pool = options.open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?; // survives a kill now, and a power failure after 100 ms
    /// pool.sync()?; // survives a power failure now
    /// # drop(ages);
    /// # pool.close()?;
    /// # std::fs::remove_file(&path).unwrap();
    /// # std::fs::remove_dir_all(format!("{path}.journal")).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn durability(mut self, durability: Durability) -> Self {
        self.journal.durability = Some(durability);
        self
    }

    /// Creates the pool if it does not exist.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Creates the pool, and fails if it exists.
    ///
    /// ```
    /// use bristlecone::{Error, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-create-new-{}.pool", std::process::id());
    /// Pool::options().max_bytes(64 << 20).create_new(true).open(&path)?.close()?;
    /// let again = Pool::options().create_new(true).open(&path);
    /// assert!(matches!(again, Err(Error::Exists { .. })));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Opens the pool for reading only. The file is never changed: recovery after a crash keeps its stores in this
    /// process. Any number of processes may read a pool at the same time, while none has it open for writing. Writes
    /// return [`Error::ReadOnly`].
    ///
    /// ```
    /// use bristlecone::{Error, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-reader-{}.pool", std::process::id());
    ///
    /// let pool = Pool::options().max_bytes(64 << 20).create_new(true).open(&path)?;
    /// pool.tree::<u64, u64>("t")?.insert(1, 2)?;
    /// pool.close()?;
    ///
    /// let reader = Pool::options().read_only(true).open(&path)?;
    /// let another = Pool::options().read_only(true).open(&path)?;
    /// assert_eq!(another.tree::<u64, u64>("t")?.get(1)?, Some(2));
    /// assert!(matches!(reader.tree::<u64, u64>("t")?.insert(1, 3), Err(Error::ReadOnly)));
    /// assert!(matches!(Pool::options().open(&path), Err(Error::InUse { .. })));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets the number of threads that recover a tree (default: all of the machine), at least one.
    pub fn recovery_threads(mut self, threads: usize) -> Self {
        self.recovery_threads = Some(threads);
        self
    }

    /// Sets whether the index survives a clean close in shared memory, so that the next open takes milliseconds for any
    /// pool size (default: [`KeepIndex::Auto`], for pools that take longer to recover).
    ///
    /// The DRAM part of each tree is then stored in a file in `/dev/shm`. Only its owner may read the file, and it uses
    /// as much memory as the index would in the process. A clean close leaves the file; the next open by the same
    /// library version continues with it. After a crash, a change by another program, or a reboot, the file is ignored
    /// and the pool is recovered. If `/dev/shm` is full, the index uses process memory. The file of a deleted pool is
    /// removed when the next pool is opened.
    ///
    /// ```
    /// use bristlecone::{KeepIndex, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-keep-{}.pool", std::process::id());
    /// let options = Pool::options().create(true).keep_index(KeepIndex::Always);
    ///
    /// let pool = options.open(&path)?;
    /// pool.tree::<u64, u64>("t")?.insert(1, 2)?;
    /// pool.close()?;
    ///
    /// let pool = options.open(&path)?;
    /// assert!(pool.info().index_was_kept);
    /// assert_eq!(pool.tree::<u64, u64>("t")?.get(1)?, Some(2));
    /// # drop(pool);
    /// # Pool::options().keep_index(KeepIndex::Never).open(&path)?.close()?;
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep_index(mut self, keep: KeepIndex) -> Self {
        self.keep_index = keep;
        self
    }

    /// Installs no `SIGBUS` handler and leaves the signal to the program.
    ///
    /// The kernel raises `SIGBUS` on access to a byte of the pool that is unavailable, because the file was truncated
    /// or the medium failed. By default, opening a pool installs a handler that prints the pool and the position in one
    /// line, and aborts. Faults elsewhere go to the previously installed handler. With this option the program must
    /// handle faults in this pool. It must not return to the interrupted code. Ending the process loses no acknowledged
    /// write.
    ///
    /// ```
    /// use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-sigbus-{}.pool", std::process::id());
    ///
    /// let options = Pool::options().max_bytes(64 << 20).leave_sigbus(true);
    /// options.create_new(true).open(&path)?.close()?;
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn leave_sigbus(mut self, leave: bool) -> Self {
        self.leave_sigbus = leave;
        self
    }

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
    /// memory, so it builds and recovers nothing. The writer must run the same build of this library under the same
    /// user, and only trees that the writer has open can be opened. Neither side waits for the other: the writer does
    /// not reuse freed memory while a lookup may read it, for at most one second. A lookup that takes longer, because
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
        let is_writers = self.create
            || self.create_new
            || self.max_bytes.is_some()
            || self.domain.is_some()
            || self.journal.is_asked();
        if is_writers {
            return Err(Error::invalid("a followed pool must exist and uses the options of its writer"));
        }
        if cfg!(panic = "abort") {
            return Err(Error::invalid("following a pool requires panic unwinding: set panic = \"unwind\""));
        }
        let follow = || {
            let source = Source::attach(path.as_ref().to_owned(), self.leave_sigbus, BUILD)?;
            Pool::over_any(Box::new(FollowedPool::new(source)), 1)
        };
        trace_span("a pool is followed", path.as_ref(), follow)
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

    pub(crate) fn asked_chunk_bytes(&self) -> Option<u64> {
        self.chunk_bytes
    }

    pub(crate) fn asks_for_journal(&self) -> bool {
        self.domain == Some(Domain::Journal) || self.journal.is_asked()
    }

    pub(crate) fn asked_bytes(&self) -> Option<u64> {
        self.max_bytes
    }

    fn open_on(&self, path: &Path, medium: impl Fn(Domain) -> Native) -> Result<Pool> {
        self.check()?;
        let (file, plan) = if self.create_new {
            self.create_file(path, &medium)
        } else if self.create {
            self.open_or_create(path, &medium)
        } else {
            self.open_file(path, &medium)
        }?;
        file.keep_index(self.keep_index, BUILD);
        file.drop_unfinished_trees();
        self.pool_over(file, plan.as_ref().map(|plan| (path, plan)))
    }

    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.recovery_threads.unwrap_or_else(cores)
    }

    fn pool_over(&self, file: Arc<PoolFile<Native>>, plan: Option<(&Path, &Plan)>) -> Result<Pool> {
        let pool = Pool::over(Arc::clone(&file), self.threads())?;
        if let Some((path, plan)) = plan {
            // Without its journal the pool must not be marked as closed.
            let attached = Journal::attach(&pool, &self.journal, path, plan);
            attached.inspect_err(|_| pool.0.done.store(true, Relaxed))?;
        }
        file.begin_following();
        Ok(pool)
    }

    /// Returns what to do with the journal of a pool that is about to be opened, if it has one.
    fn plan(&self, path: &Path, found: &Glance) -> Result<Option<Plan>> {
        let has_journal = found.domain == Domain::Journal;
        match self.domain {
            Some(asked) if asked != found.domain && (has_journal || asked == Domain::Journal) => {
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
    fn check(&self) -> Result<()> {
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
        if self.domain != Some(Domain::Journal) {
            if self.journal.is_asked() {
                return Err(no_journal());
            }
            return Ok((
                self.create_sized(|options| PoolFile::create(self.at(path), options, &medium))?,
                None,
            ));
        }
        let file = self.create_sized(|options| {
            let unnamed = PoolFile::create_unnamed(self.at(path), options, &medium)?;
            // First: a pool that has its name has its journal.
            journal::create(&self.journal, path, &unnamed.pool().glance()?)?;
            let file = Arc::clone(unnamed.pool());
            unnamed.publish().map(|()| file)
        })?;
        Ok((file, Some(Plan::Closed)))
    }

    /// Creates a pool with the requested maximum, or with as large a default as the address space allows.
    fn create_sized(
        &self,
        create: impl Fn(&CreateOptions) -> Result<Arc<PoolFile<Native>>>,
    ) -> Result<Arc<PoolFile<Native>>> {
        let mut max_bytes = self.max_bytes.unwrap_or_else(|| default_bytes(self.chunk_bytes));
        loop {
            let (domain, chunk_bytes) = (self.domain, self.chunk_bytes);
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
        for _ in 0..LOOKS {
            let mut planned = None;
            let may = |found: &Glance| {
                planned = self.plan(path, found)?;
                // Another file has the name now.
                if let Some(Plan::Restored) = planned { Err(Error::InUse { pid: None }) } else { Ok(()) }
            };
            let options = OpenOptions { domain: self.domain, max_bytes: self.max_bytes };
            let opened = PoolFile::open_if(self.at(path), &options, &medium, may);
            match (opened, planned) {
                (Err(_), Some(Plan::Restored)) => {}
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
        match self.max_bytes {
            Some(asked) if file.max_bytes() < asked => Err(Error::invalid(format!(
                "the pool's maximum is {} bytes, not {asked}: open it for writing to change the maximum",
                file.max_bytes()
            ))),
            _ => Ok(file),
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
