//! Pools: how they are opened, and what they say of themselves.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use bristlecone_pm::sync::AsymmetricFence;
use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::{Finding, Medium, PoolFile, PoolInfo, Result, TreeId};

use crate::PoolOptions;
use crate::api::handle::{Handle, Inherited};
use crate::api::load::assert_fills_none;
use crate::api::metrics::Meters;
use crate::index::any::{AnyPool, OpenTree, PoolOn};
use crate::transaction::Epochs;

/// How often something is looked at that others change meanwhile.
pub(crate) const LOOKS: usize = 8;

/// An open pool: a cheap handle, to be cloned and shared between threads.
///
/// The pool is closed in good order when the last handle and the last tree of it are dropped. A
/// process that dies instead loses nothing that was acknowledged; the next open recovers it.
///
/// A pool belongs to the process that opened it. In a child that was forked from it, operations return
/// [`Error::Forked`](crate::Error::Forked), those that return no `Result` panic, and drops do nothing but close the file.
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
    /// Trees that are open: two handles to a tree are one tree.
    open: Mutex<HashMap<TreeId, OpenTree>>,
    pub meters: Meters,
    /// What writes of several keys and snapshots have in common.
    pub epochs: Epochs,
    pub recovery_threads: usize,
    /// Closed already, or to be left as a crash would leave it.
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
            // Nothing is lost if this fails: the next open recovers instead.
            let _ = self.file.close();
        }
    }
}

impl Pool {
    /// Opens a pool that is there, or creates it as by default.
    ///
    /// [`PoolOptions`] has sizes, domains, and how to insist on a pool that is new.
    ///
    /// # Errors
    ///
    /// As [`PoolOptions::open`]. A file that is no pool is an error, and stays as it is.
    ///
    /// ```
    /// use bristlecone::{Error, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-create-{}.pool", std::process::id());
    ///
    /// assert!(matches!(Pool::open(&path), Err(Error::NotFound { .. })));
    /// Pool::create(&path)?.tree::<u64, u64>("t")?.insert(1, 2)?;
    /// assert_eq!(Pool::create(&path)?.tree::<u64, u64>("t")?.get(1), Some(2));
    /// assert_eq!(Pool::open(&path)?.tree::<u64, u64>("t")?.get(1), Some(2));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().create(true).open(path)
    }

    /// Opens a pool that is there, with default options.
    ///
    /// # Errors
    ///
    /// As [`PoolOptions::open`]: [`Error::NotFound`](crate::Error::NotFound) if there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Opens a pool for reading that another process is writing to: see [`PoolOptions::follow`].
    ///
    /// # Errors
    ///
    /// As [`PoolOptions::follow`].
    pub fn follow(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().follow(path)
    }

    /// Begins to open a pool.
    pub fn options() -> PoolOptions {
        PoolOptions::default()
    }
}

impl Pool {
    /// Makes a pool of an open pool file, on whatever medium.
    #[cfg(feature = "lab")]
    #[doc(hidden)]
    pub fn on<M: Medium>(file: Arc<PoolFile<M>>, recovery_threads: usize) -> Result<Self> {
        Self::over(file, recovery_threads)
    }

    /// Makes a pool of an open pool file, on whatever medium; carries out what was committed and is not done.
    pub(crate) fn over<M: Medium>(file: Arc<PoolFile<M>>, recovery_threads: usize) -> Result<Self> {
        Self::over_any(Box::new(PoolOn(file)), recovery_threads)
    }

    /// Makes a pool of what is open.
    pub(crate) fn over_any(file: Box<dyn AnyPool>, recovery_threads: usize) -> Result<Self> {
        let (done, opener) = (AtomicBool::new(false), file.opener());
        let (open, meters, epochs) =
            (Mutex::default(), Meters::default(), Epochs::new(AsymmetricFence::detect()));
        let shared = Arc::new(Shared { file, open, meters, epochs, recovery_threads, done });
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

    /// Returns what is known about the pool.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-info-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let info = pool.info();
    /// assert!(!info.read_only && info.max_bytes >= 64 << 20);
    /// println!("{} of {} chunks are free", info.chunks_free, info.chunks);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn info(&self) -> PoolInfo {
        self.assert_here();
        self.0.file.info()
    }

    /// Verifies the pool's own structures; trees have a `check` of their own. In a child of the process
    /// that opened the pool, that is what it finds.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-check-pool-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// pool.tree::<&str, u64>("ages")?.insert("Pando", 14_000)?;
    /// assert!(pool.check().is_empty());
    /// assert_eq!(pool.check_tree("ages")?, (1, vec![]));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Vec<Finding> {
        match self.0.file.here() {
            Ok(()) => self.0.file.check(),
            Err(error) => vec![Finding::new("pool", error.to_string())],
        }
    }

    /// Returns whether both are handles to one open pool.
    pub(crate) fn is_same(&self, other: &Pool) -> bool {
        std::ptr::eq(&*self.0, &*other.0)
    }

    /// Panics, with what is wrong and what to do, in a child of the process that opened the pool.
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

    /// Makes room ahead of time, so that growth costs no page faults later.
    ///
    /// # Errors
    ///
    /// [`Error::MediumFull`](crate::Error::MediumFull) if the file system has no such room, of which what there is was taken;
    /// [`Error::ReadOnly`](crate::Error::ReadOnly); [`Error::Forked`](crate::Error::Forked).
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-prefault-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// pool.prefault(8 << 20)?;
    /// assert!(pool.info().file_bytes >= 8 << 20);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefault(&self, bytes: u64) -> Result<()> {
        self.0.file.prefault(bytes)
    }

    pub(crate) fn lock_open(&self) -> MutexGuard<'_, HashMap<TreeId, OpenTree>> {
        assert_fills_none();
        lock(&self.0.open)
    }
}
