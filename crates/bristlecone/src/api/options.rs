//! How pools are created and opened.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "lab")]
use std::time::Duration;

use bristlecone_pm::{
    At, CreateOptions, Domain, Error, KeepIndex, Native, OpenOptions, PoolFile, Result, told,
};

use crate::Pool;
use crate::api::pool::LOOKS;
use crate::index::followed::Source;
use crate::index::followed::pool::FollowedPool;

/// What a new pool may grow to if nothing is said, and where there is little address space.
const DEFAULT_BYTES: u64 = 1 << 40;
const DEFAULT_BYTES_LEAST: u64 = 1 << 30;

/// A number of this library's sources, of which the layout is that a tree's volatile half has.
pub(crate) const BUILD: u64 = match u64::from_str_radix(env!("BRISTLECONE_BUILD"), 10) {
    Ok(build) => build,
    Err(_) => panic!("a number"),
};

/// How a pool is opened.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    max_bytes: Option<u64>,
    domain: Option<Domain>,
    create: bool,
    create_new: bool,
    read_only: bool,
    recovery_threads: Option<usize>,
    leave_sigbus: bool,
    throw_errors: bool,
    keep_index: KeepIndex,
}

impl PoolOptions {
    /// Sets the bytes that the pool may grow to (default for a new pool: 1 TiB), rounded up to whole chunks of 2 MiB.
    ///
    /// The file is as large as what is in it. What costs something is address space, of which a process has 128 TiB: as
    /// much of it as the pool may grow to is reserved while the pool is open. Where a limit such as that of `ulimit -v`
    /// forbids the default, the maximum of a new pool is half of it, or half of that, and so on, down to 1 GiB; and a
    /// pool that exists opens, and returns [`Error::PoolFull`] when what could be reserved is used.
    ///
    /// An existing pool that is opened for writing gets this maximum if it is larger than its own, for good.
    /// It is never made smaller. A pool of up to some 490 GiB can grow to that; a larger one has room for what
    /// it was created with, and says [`Error::MaximumFixed`].
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

    /// Sets the persistence domain, instead of the detected one. With a weaker one than the medium needs, less survives
    /// than is said.
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Creates the pool if there is none.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Creates the pool, and fails if there is one.
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

    /// Opens the pool for reading only: its file is not changed, not even by recovery after a
    /// crash, whose stores stay in this process. Any number of processes may read a pool at the
    /// same time, while none has it open for writing. Writes return [`Error::ReadOnly`].
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
    /// assert_eq!(another.tree::<u64, u64>("t")?.get(1), Some(2));
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

    /// Sets how many threads recover a tree (default: as many as the machine has), at least one.
    pub fn recovery_threads(mut self, threads: usize) -> Self {
        self.recovery_threads = Some(threads);
        self
    }

    /// Sets whether the index outlives a clean close in shared memory, so that the next open takes milliseconds however
    /// large the pool is (default: [`KeepIndex::Auto`], for pools that take longer to recover).
    ///
    /// What trees keep in DRAM then stands in a file in `/dev/shm` that only its owner may read, and which takes as much
    /// memory as it would in the process. A clean close leaves it there; the next open by the same version of the library
    /// goes on with it. After a crash, a change by another program, or a restart of the machine it is not used, and the pool is
    /// recovered as ever. Where there is no room in `/dev/shm`, memory of the process takes its place. The file of a
    /// pool that is removed goes when the next one is opened.
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
    /// assert_eq!(pool.tree::<u64, u64>("t")?.get(1), Some(2));
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

    /// Leaves `SIGBUS` to the program, which has a handler of its own or wants none.
    ///
    /// A byte of the pool that cannot be had when it is touched, since the file was truncated or its medium is
    /// bad, raises that signal. Without this option opening a pool installs a handler that says in one line
    /// which pool and where, and aborts; faults elsewhere go to the handler that was installed before. With it
    /// nothing is installed, and a fault in this pool is the program's: it must not return to what was
    /// interrupted, and loses nothing that was acknowledged when it ends the process.
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
    /// [`Error::NotFound`], unless it is to be created; [`Error::Exists`], if it is to be new; [`Error::InUse`] while
    /// another process or handle has it open; [`Error::NotAPool`], [`Error::Newer`] and [`Error::Corrupted`] for what
    /// is in the file; [`Error::MaximumFixed`] for a maximum that an existing pool cannot have; [`Error::Invalid`]
    /// for options that contradict each other; [`Error::MediumFull`], [`Error::ReadOnly`] and [`Error::Io`] as the
    /// system says. A pool that existed is as it was after any of these.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        told("a pool is opened", path.as_ref(), || self.open_native(path.as_ref()))
    }

    /// Opens the pool at `path` for reading while another process is writing to it.
    ///
    /// What is read is durable, and what the writer's own threads would read: a lookup is linearizable, a range sees each leaf as it was
    /// at one moment. Nothing is built and nothing recovered, since the writer's index in shared memory is read; so the writer has to be of the same build
    /// of this library and of the same user, and trees can be opened that it has open. It is not waited for, and does not wait: what it frees is
    /// not used again while a lookup may look at it, for a second at most; a lookup that takes longer, since its process was
    /// stopped, is made again. Any number of threads, and up to 256 followers, may read.
    ///
    /// When the writer has gone, which a thread learns after a thousand lookups of what it left at most, lookups that return a `Result` ([`Tree::look_up`](crate::Tree::look_up), [`try_get`](crate::Tree::try_get),
    /// [`try_range`](crate::Tree::try_range)) return [`Error::NoWriter`], and the others panic with its message. When another
    /// writer has come by then they go on with that one. Writes return [`Error::ReadOnly`]. Snapshots, transactions and copies of a
    /// pool that is followed are [`Error::Invalid`], and `len` counts a WO-tree that its writer has not counted.
    ///
    /// # Errors
    ///
    /// [`Error::NoWriter`] if no process writes to the pool, or none that can be followed: it can be opened with
    /// [`read_only`](Self::read_only) then. [`Error::Invalid`] for options that only a writer can have; otherwise as [`open`](Self::open).
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
    /// assert_eq!(followed.get("Methuselah"), Some(4857));
    /// assert!(matches!(followed.insert("Pando", 16000), Err(Error::ReadOnly)));
    /// drop(ages);
    /// writer.close()?;
    /// assert!(matches!(followed.look_up("Methuselah"), Err(Error::NoWriter { .. })));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn follow(&self, path: impl AsRef<Path>) -> Result<Pool> {
        let is_writers = self.create || self.create_new || self.max_bytes.is_some() || self.domain.is_some();
        if is_writers {
            return Err(Error::invalid(
                "a pool that is followed is not created, and has its writer's options",
            ));
        }
        if cfg!(panic = "abort") {
            return Err(Error::invalid(
                "a pool can be followed by programs that unwind: set panic = \"unwind\"",
            ));
        }
        let follow = || {
            let source =
                Source::attach(path.as_ref().to_owned(), self.leave_sigbus, self.throw_errors, BUILD)?;
            Pool::over_any(Box::new(FollowedPool::new(source)), 1)
        };
        told("a pool is followed", path.as_ref(), follow)
    }

    /// Has calls on a pool that is followed unwind with the [`Error`] itself, without a word, where they would panic with its
    /// message: for other languages, whose side of the call catches it and has somewhere to return it.
    #[doc(hidden)]
    pub fn throw_errors(mut self, throw: bool) -> Self {
        self.throw_errors = throw;
        self
    }

    /// Opens the pool on the medium of this machine: compiled here, with every design.
    fn open_native(&self, path: &Path) -> Result<Pool> {
        self.open_on(path, Native::new)
    }

    /// Opens the pool with a busy wait after every flushed line, as slower memory would have it.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    #[cfg(feature = "lab")]
    #[doc(hidden)]
    pub fn open_delayed(&self, path: &Path, per_line: Duration) -> Result<Pool> {
        self.open_on(path, |domain| Native::delayed(domain, per_line))
    }

    pub(crate) fn asked_bytes(&self) -> Option<u64> {
        self.max_bytes
    }

    fn open_on(&self, path: &Path, medium: impl Fn(Domain) -> Native) -> Result<Pool> {
        self.check()?;
        let file = if self.create_new {
            self.create_file(path, &medium)
        } else if self.create {
            self.open_or_create(path, &medium)
        } else {
            self.open_file(path, &medium)
        }?;
        file.keep_index(self.keep_index, BUILD);
        file.drop_unfinished_trees();
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let pool = Pool::over(Arc::clone(&file), self.recovery_threads.unwrap_or_else(cores))?;
        file.begin_following();
        Ok(pool)
    }

    /// Refuses options that no pool can be opened with.
    fn check(&self) -> Result<()> {
        if self.read_only && (self.create || self.create_new) {
            return Err(Error::invalid("a pool cannot be created read-only: leave one of both out"));
        }
        if self.recovery_threads == Some(0) {
            return Err(Error::invalid("recovery needs a thread: leave the number out, or give 1 or more"));
        }
        if self.max_bytes == Some(0) {
            return Err(Error::invalid("a pool of 0 bytes: 1 byte to 256 TiB are possible"));
        }
        Ok(())
    }

    fn create_file(&self, path: &Path, medium: impl Fn(Domain) -> Native) -> Result<Arc<PoolFile<Native>>> {
        let mut max_bytes = self.max_bytes.unwrap_or(DEFAULT_BYTES);
        loop {
            match PoolFile::create(self.at(path), &CreateOptions { max_bytes, domain: self.domain }, &medium)
            {
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

    fn open_file(&self, path: &Path, medium: impl Fn(Domain) -> Native) -> Result<Arc<PoolFile<Native>>> {
        if !self.read_only {
            let options = OpenOptions { domain: self.domain, max_bytes: self.max_bytes };
            return PoolFile::open(self.at(path), &options, medium);
        }
        let file = PoolFile::open_read_only(self.at(path), medium)?;
        match self.max_bytes {
            Some(asked) if file.max_bytes() < asked => Err(Error::invalid(format!(
                "the pool may grow to {} bytes, not to {asked}: open it for writing to change that",
                file.max_bytes()
            ))),
            _ => Ok(file),
        }
    }

    /// Returns where the file is.
    fn at<'p>(&self, path: &'p Path) -> At<'p> {
        if self.leave_sigbus { At::unhandled(path) } else { path.into() }
    }

    /// Looks again if another process creates the pool, or removes it, between two looks.
    fn open_or_create(
        &self,
        path: &Path,
        medium: impl Fn(Domain) -> Native,
    ) -> Result<Arc<PoolFile<Native>>> {
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
        // Something is there that cannot be opened, such as a link to nothing.
        self.create_file(path, &medium)
    }
}
