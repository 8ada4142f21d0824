//! Options for creating and opening pools.

use std::path::PathBuf;

use bristlecone_pm::{CHUNK_BYTES, Domain, KeepIndex};

use crate::journal::{Durability, Setup};

/// Default maximum size of a new pool, also where address space is limited.
const DEFAULT_BYTES: u64 = 1 << 40;
pub(super) const DEFAULT_BYTES_LEAST: u64 = 1 << 30;

/// Returns the default maximum of a new pool: the same number of chunks for every chunk size.
pub(crate) fn default_bytes(chunk_bytes: Option<u64>) -> u64 {
    DEFAULT_BYTES / CHUNK_BYTES * chunk_bytes.unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)
}

/// A hash of the sources that determine the layout and the meaning of a tree's volatile part, in both crates.
pub(crate) const LAYOUT: u64 = match u64::from_str_radix(env!("BRISTLECONE_LAYOUT"), 10) {
    Ok(layout) => layout ^ bristlecone_pm::LAYOUT.rotate_left(1),
    Err(_) => panic!("the build script prints a number"),
};

/// Options for opening or creating a pool.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    pub(crate) max_bytes: Option<u64>,
    pub(crate) chunk_bytes: Option<u64>,
    pub(super) domain: Option<Domain>,
    pub(super) create: bool,
    pub(super) create_new: bool,
    pub(super) read_only: bool,
    pub(super) recovery_threads: Option<usize>,
    pub(crate) leave_sigbus: bool,
    pub(crate) keep_index: KeepIndex,
    pub(crate) journal: Setup,
}

impl PoolOptions {
    /// Sets the maximum size of the pool in bytes (default for a new pool: 1 TiB), rounded up to whole chunks of 2 MiB.
    ///
    /// The file is as large as its contents. The maximum costs address space: opening the pool reserves that many
    /// bytes, and a process has 128 TiB. If a limit such as `ulimit -v` forbids the default, the maximum of a new pool
    /// is halved repeatedly, down to 1 GiB. An existing pool still opens, and returns
    /// [`Error::PoolFull`](crate::Error::PoolFull) when the reserved part is used up.
    ///
    /// Opening an existing pool for writing raises its maximum permanently if the new value is larger; the maximum
    /// never shrinks. A pool of up to about 490 GiB can be raised to that size. A larger pool keeps the maximum it was
    /// created with, and returns [`Error::MaximumFixed`](crate::Error::MaximumFixed).
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
    ///   [`Error::TooLong`](crate::Error::TooLong).
    /// - The default maximum is 524,288 chunks, 2 GiB with chunks of 4 KiB. It cannot be raised in place by more than a
    ///   few hundred chunks: [`Error::MaximumFixed`](crate::Error::MaximumFixed).
    ///
    /// The chunk size of a pool is fixed; [`Pool::backup`](crate::Pool::backup) copies it to a pool with another. An
    /// existing pool ignores this option.
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

    /// Sets the persistence domain, overriding detection: shared memory is [`Process`](Domain::Process), persistent memory
    /// [`Adr`](Domain::Adr) or [`Eadr`](Domain::Eadr), and a new pool in any other file [`Journal`](Domain::Journal). A
    /// domain weaker than the medium requires breaks the durability guarantee.
    ///
    /// [`Journal`](Domain::Journal) for an existing pool of another domain gives it a journal: its items are written to a
    /// checkpoint, and the pool keeps this domain. A pool with a journal cannot get another domain; copy it.
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Sets the folder of the journal (default: beside the pool, with `.journal` behind its name). A new pool then has the
    /// domain [`Domain::Journal`], in shared memory too. The folder may be on another disk, and must be given at every
    /// opening. It belongs to one pool.
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

    /// Sets how many bytes of the journal are kept for a [cursor](crate::Pool::create_cursor) at most, besides those that
    /// the last checkpoint needs (default: 1 GiB). A checkpoint drops a cursor that needs more.
    /// [`Pool::info`](crate::Pool::info) reports a cursor that needs more than half. Like
    /// [`durability`](Self::durability), it is one of pools with a journal only.
    pub fn cursor_limit_bytes(mut self, bytes: u64) -> Self {
        self.journal.cursor_limit_bytes = Some(bytes);
        self
    }

    /// Lets reads wait until everything that they return is on disk, in a pool with the domain [`Domain::Journal`]
    /// (default: no). Otherwise a read may return a change of another thread that is not yet acknowledged, and that a
    /// power failure undoes. A read then waits for one sync at most. Readers of other processes do not wait.
    ///
    /// Taking a snapshot waits in the same way, and its reads need not. A transaction waits when it ends, and a write waits
    /// if it is refused because of the present value.
    ///
    /// ```
    /// use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-durable-reads-{}.pool", std::process::id());
    ///
    /// let options = Pool::options().journal(format!("{path}.journal")).durable_reads(true).create(true);
    /// let pool = options.open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// assert_eq!(ages.get("Methuselah")?, Some(4857)); // on disk
    /// # drop(ages);
    /// # pool.close()?;
    /// # std::fs::remove_file(&path).unwrap();
    /// # std::fs::remove_dir_all(format!("{path}.journal")).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn durable_reads(mut self, wait: bool) -> Self {
        self.journal.durable_reads = wait;
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
    /// return [`Error::ReadOnly`](crate::Error::ReadOnly).
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

    pub(crate) fn asked_chunk_bytes(&self) -> Option<u64> {
        self.chunk_bytes
    }

    pub(crate) fn asks_for_journal(&self) -> bool {
        self.domain == Some(Domain::Journal) || self.journal.is_asked()
    }

    pub(crate) fn asked_bytes(&self) -> Option<u64> {
        self.max_bytes
    }
}
