//! Options of a journal.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bristlecone_pm::{Error, Folder, Result, Storage};

use super::JournalFiles;

/// Default bytes of the ring.
const RING_BYTES: u64 = 16 << 20;
/// Default bytes of segments behind which a writer makes a checkpoint, if the last one has less than half of that.
const CHECKPOINT_BYTES: u64 = 128 << 20;
/// Default bytes of segments that are kept for a cursor at most.
const CURSOR_LIMIT_BYTES: u64 = 1 << 30;
/// Default bytes of a segment.
const SEGMENT_BYTES: u64 = 32 << 20;

/// When a write to a pool with a journal returns: see [`PoolOptions::durability`](crate::PoolOptions::durability).
///
/// In all of them a write that has returned survives the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Once it is on disk. Threads that wait share a sync.
    #[default]
    Commit,
    /// Immediately. It is on disk after this time and one sync. The time must not be 0.
    Interval(Duration),
    /// Immediately. It is on disk after [`Pool::sync`](crate::Pool::sync), and after a clean close.
    Memory,
}

/// Where the journal is, and its sizes.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    pub folder: Option<PathBuf>,
    pub durability: Option<Durability>,
    pub durable_reads: bool,
    /// Whether a new pool has none, because its trees are filled without entries.
    pub never: bool,
    /// A disk in place of the folder.
    pub storage: Option<Arc<dyn Storage>>,
    /// Bytes of the ring and of a segment, if not the default ones.
    pub sizes: Option<(u64, u64)>,
    /// Bytes of segments behind which a writer makes a checkpoint, if not the default ones.
    pub checkpoint_bytes: Option<u64>,
    /// Bytes of segments that are kept for a cursor at most, if not the default ones.
    pub cursor_limit_bytes: Option<u64>,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, durability, .. } = self;
        f.debug_struct("Setup")
            .field("folder", folder)
            .field("durability", durability)
            .finish_non_exhaustive()
    }
}

impl Setup {
    pub fn cursor_limit_bytes(&self) -> u64 {
        self.cursor_limit_bytes.unwrap_or(CURSOR_LIMIT_BYTES)
    }

    pub fn is_asked(&self) -> bool {
        self.folder.is_some() || self.durability.is_some() || self.cursor_limit_bytes.is_some()
    }

    pub fn checkpoint_bytes(&self) -> u64 {
        self.checkpoint_bytes.unwrap_or(CHECKPOINT_BYTES)
    }

    pub fn sizes(&self) -> (u64, u64) {
        self.sizes.unwrap_or((RING_BYTES, SEGMENT_BYTES))
    }

    /// Returns the folder of the journal of the pool at `path`.
    pub fn folder_of(&self, path: &Path) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| JournalFiles::folder_of(path))
    }

    /// Opens the folder, or creates it if asked.
    pub fn open(&self, path: &Path, create: bool) -> Result<Arc<dyn Storage>> {
        if let Some(storage) = &self.storage {
            return Ok(Arc::clone(storage));
        }
        let folder = self.folder_of(path);
        let opened = if create { Folder::create(&folder) } else { Folder::open(&folder) };
        match opened {
            Err(Error::Io { source, .. }) if !create && source.kind() == std::io::ErrorKind::NotFound => {
                if standby_folder(path).is_dir() {
                    let what = "is a standby: follow it while a process keeps it up to date, or promote it";
                    return Err(Error::invalid(format!("{} {what}", path.display())));
                }
                Err(Error::io(
                    format!("the journal of {} is not at {}", path.display(), folder.display()),
                    source,
                ))
            }
            opened => Ok(Arc::new(opened?)),
        }
    }

    /// Opens the folder if it exists.
    pub fn existing(&self, path: &Path) -> Result<Option<Arc<dyn Storage>>> {
        let exists = self.storage.is_some() || self.folder_of(path).is_dir();
        exists.then(|| self.open(path, false)).transpose()
    }

    /// Locks the folder, which must exist. No other thread or process creates a journal in it until the result is dropped.
    pub fn lock(&self, path: &Path) -> Result<Option<File>> {
        let is_real = self.storage.is_none();
        is_real.then(|| Folder::open(&self.folder_of(path))?.lock()).transpose()
    }
}

/// Returns the folder with the state of a standby whose pool is at a path.
pub fn standby_folder(pool: &Path) -> PathBuf {
    let mut name = pool.as_os_str().to_owned();
    name.push(".standby");
    name.into()
}
