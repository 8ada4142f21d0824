//! Pools: opening and metadata.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bristlecone_pm::sync::AsymmetricFence;
use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::{Issue, Medium, PoolFile, PoolInfo, Result, TreeId};

use crate::PoolOptions;
use crate::api::handle::{Handle, Inherited};
use crate::api::load::assert_fills_none;
use crate::api::metrics::Meters;
use crate::index::any::{AnyPool, OpenTree, PoolOn};
use crate::journal::Journal;
use crate::transaction::Epochs;

/// Maximum number of attempts to read state that other threads change concurrently.
pub(crate) const LOOKS: usize = 8;

/// An open pool: a cheap handle that can be cloned and shared between threads.
///
/// Dropping the last handle to the pool and to its trees closes the pool cleanly. If the process dies
/// instead, no acknowledged write is lost; the next open recovers the pool.
///
/// A pool belongs to the process that opened it. In a forked child, operations return
/// [`Error::Forked`](crate::Error::Forked), operations that return no `Result` panic, and drops only close
/// the file.
#[derive(Debug)]
pub struct Pool(pub(crate) Handle<Shared>);

impl Clone for Pool {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub file: Box<dyn AnyPool>,
    /// Open trees: two handles to a tree share one instance.
    open: Mutex<HashMap<TreeId, OpenTree>>,
    pub meters: Meters,
    /// State shared by multi-key writes and snapshots.
    pub epochs: Epochs,
    pub recovery_threads: usize,
    /// Number of backups in progress. Changes and is read under the lock of `open`.
    pub holds: AtomicUsize,
    /// Trees of a read-only pool that refused changes of an unfinished commit, with the damage. Each opening reads them
    /// as damaged trees.
    pub refused: Mutex<HashMap<TreeId, Issue>>,
    /// The journal, once it has begun.
    pub journal: OnceLock<Arc<Journal>>,
    /// Set if the pool is already closed, or must be left as after a crash.
    pub done: AtomicBool,
}

impl Inherited for Shared {
    fn abandon(&self) {
        self.file.abandon();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.done.load(Relaxed) {
            // A failure here loses nothing: the next open recovers the pool.
            let _ = Pool::close_file(self);
        }
        self.journal.get().into_iter().for_each(|journal| journal.abandon());
    }
}

impl Pool {
    /// Opens an existing pool, or creates one with default options.
    ///
    /// [`PoolOptions`] sets the size and the domain, and can require a new pool.
    ///
    /// # Errors
    ///
    /// Same as [`PoolOptions::open`]. A file that is not a pool is an error and remains unchanged.
    ///
    /// ```
    /// use bristlecone::{Error, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-create-{}.pool", std::process::id());
    ///
    /// assert!(matches!(Pool::open(&path), Err(Error::NotFound { .. })));
    /// Pool::create(&path)?.tree::<u64, u64>("t")?.insert(1, 2)?;
    /// assert_eq!(Pool::create(&path)?.tree::<u64, u64>("t")?.get(1)?, Some(2));
    /// assert_eq!(Pool::open(&path)?.tree::<u64, u64>("t")?.get(1)?, Some(2));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().create(true).open(path)
    }

    /// Creates a pool in memory, which is lost when its last handle is dropped: see [`PoolOptions::temporary`].
    ///
    /// # Errors
    ///
    /// Same as [`PoolOptions::temporary`].
    pub fn temporary() -> Result<Self> {
        Self::options().temporary()
    }

    /// Opens an existing pool with default options.
    ///
    /// # Errors
    ///
    /// Same as [`PoolOptions::open`]: [`Error::NotFound`](crate::Error::NotFound) if the pool does not exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Opens a pool for reading that another process is writing to: see [`PoolOptions::follow`].
    ///
    /// # Errors
    ///
    /// Same as [`PoolOptions::follow`].
    pub fn follow(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().follow(path)
    }

    /// Returns options for opening or creating a pool.
    pub fn options() -> PoolOptions {
        PoolOptions::default()
    }
}

impl Pool {
    /// Creates a pool from an open pool file on any medium.
    #[cfg(feature = "lab")]
    #[doc(hidden)]
    pub fn on<M: Medium>(file: Arc<PoolFile<M>>, recovery_threads: usize) -> Result<Self> {
        Self::over(file, recovery_threads)
    }

    /// Creates a pool from an open pool file on any medium, and replays committed but unfinished commits.
    pub(crate) fn over<M: Medium>(file: Arc<PoolFile<M>>, recovery_threads: usize) -> Result<Self> {
        Self::over_any(Box::new(PoolOn(file)), recovery_threads)
    }

    /// Creates a pool from an open, type-erased pool file.
    pub(crate) fn over_any(file: Box<dyn AnyPool>, recovery_threads: usize) -> Result<Self> {
        let (holds, done, opener) = (AtomicUsize::new(0), AtomicBool::new(false), file.opener());
        let (open, meters, epochs) =
            (Mutex::default(), Meters::default(), Epochs::new(AsymmetricFence::detect()));
        let (refused, journal) = Default::default();
        let shared = Shared { file, open, meters, epochs, recovery_threads, holds, refused, journal, done };
        let shared = Arc::new(shared);
        let pool = Self(Handle::new(shared, opener));
        pool.replay(recovery_threads)?;
        Ok(pool)
    }

    /// Verifies that this process opened the pool.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error::Forked) in a child of the process that opened the pool.
    pub fn opened_here(&self) -> Result<()> {
        self.0.file.here()
    }

    /// Returns information about the pool.
    ///
    /// # Panics
    ///
    /// Panics in a child of the process that opened the pool.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let info = pool.info();
    /// assert!(!info.read_only && info.max_bytes >= 64 << 20);
    /// println!("{} of {} chunks are free", info.chunks_free, info.chunks);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn info(&self) -> PoolInfo {
        self.assert_here();
        let mut info = self.0.file.info();
        if let Some(journal) = self.0.journal.get() {
            info.was_clean &= !journal.restored;
            info.issues.extend(journal.warnings());
        }
        info
    }

    /// Returns how many bytes of the pool are mapped by huge pages. The kernel looks at each page of all mappings of the
    /// process for it, which takes milliseconds where they are large.
    ///
    /// # Panics
    ///
    /// Panics in a child of the process that opened the pool.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// assert!(pool.huge_bytes() <= pool.info().max_bytes);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn huge_bytes(&self) -> u64 {
        self.assert_here();
        self.0.file.huge_bytes()
    }

    /// Verifies the pool's own structures; use `check` of a tree to verify its contents. In a child of the
    /// process that opened the pool, the result reports that.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// pool.tree::<&str, u64>("ages")?.insert("Pando", 14_000)?;
    /// assert!(pool.check().is_empty());
    /// assert_eq!(pool.check_tree("ages")?, (1, vec![]));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn check(&self) -> Vec<Issue> {
        match self.0.file.here() {
            Ok(()) => self.0.file.check(),
            Err(error) => vec![Issue::new("pool", error.to_string())],
        }
    }

    /// Returns whether both are handles to the same open pool.
    pub(crate) fn is_same(&self, other: &Pool) -> bool {
        std::ptr::eq(&*self.0, &*other.0)
    }

    /// Panics with a message that names the problem and the remedy, in a child of the process that opened the
    /// pool.
    #[inline(always)]
    pub(crate) fn assert_here(&self) {
        if !self.0.is_here() {
            self.panic_elsewhere();
        }
    }

    #[cold]
    #[inline(never)]
    fn panic_elsewhere(&self) {
        if let Err(error) = self.0.file.here() {
            panic!("{error}");
        }
    }

    /// Limits the bytes to which the pool grows while it is open here, its header excluded, rounded up to whole chunks. The
    /// maximum of the pool stays as it is, and holds, too: see [`PoolOptions::max_bytes`](crate::PoolOptions::max_bytes).
    /// Beyond the limit writes return [`Error::PoolFull`](crate::Error::PoolFull). A limit below the size of the file
    /// changes nothing that is there. Nothing of it is stored: the next opening has no limit.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let logs = pool.tree::<u64, &[u8]>("logs")?;
    /// pool.set_limit(16 << 20);
    /// let full = (0..1000).try_for_each(|number| logs.upsert(number, &[7; 100_000]));
    /// assert!(full.unwrap_err().is_no_room());
    /// pool.set_limit(64 << 20);
    /// logs.upsert(1000, &[7; 100_000])?;
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn set_limit(&self, bytes: u64) {
        self.assert_here();
        self.0.file.set_limit(bytes);
    }

    /// Allocates space in advance, so that later growth causes no page faults.
    ///
    /// # Errors
    ///
    /// [`Error::MediumFull`](crate::Error::MediumFull) if the file system lacks the space; the available part
    /// stays allocated. Also [`Error::ReadOnly`](crate::Error::ReadOnly) and
    /// [`Error::Forked`](crate::Error::Forked).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// pool.prefault(8 << 20)?;
    /// assert!(pool.info().file_bytes >= 8 << 20);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn prefault(&self, bytes: u64) -> Result<()> {
        self.0.file.prefault(bytes)
    }

    /// Returns whether a thread holds the lock of the open trees.
    pub(crate) fn is_open_locked(&self) -> bool {
        self.0.open.try_lock().is_err()
    }

    pub(crate) fn lock_open(&self) -> MutexGuard<'_, HashMap<TreeId, OpenTree>> {
        assert_fills_none();
        lock(&self.0.open)
    }
}
