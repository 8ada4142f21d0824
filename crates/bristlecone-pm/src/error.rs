//! The one error type of Bristlecone.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Why an operation could not be done, in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, with the path where there is one.
        doing: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// There is no pool at this path.
    #[error("no pool at {}: create it first", path.display())]
    NotFound {
        /// The path asked for.
        path: PathBuf,
    },
    /// Something is at this path already.
    #[error("{} exists already: choose another path or open it", path.display())]
    Exists {
        /// The path asked for.
        path: PathBuf,
    },
    /// The file is not a Bristlecone pool.
    #[error("{} is not a Bristlecone pool", path.display())]
    NotAPool {
        /// The path asked for.
        path: PathBuf,
    },
    /// The pool was written by a newer version of Bristlecone.
    #[error("the pool needs {needs}, which this version does not know: open it with a newer version")]
    Newer {
        /// The format version or the feature flags found.
        needs: String,
    },
    /// The pool contradicts itself.
    #[error("the pool is corrupted: {what} at {location}")]
    Corrupted {
        /// What is wrong.
        what: String,
        /// Where: a byte offset or the name of a structure.
        location: String,
    },
    /// The pool cannot be followed: no process writes to it, or not such that others can read it meanwhile.
    #[error("{} cannot be followed: {why}", path.display())]
    NoWriter {
        /// Where the pool is.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// Another process, or another handle of this one, has the pool open.
    #[error("the pool is in use{}: close it there first", pid.map(|p| format!(" by process {p}")).unwrap_or_default())]
    InUse {
        /// The holder, where it is known.
        pid: Option<u32>,
    },
    /// The pool was opened by another process, of which this one is a child. Only the opener may use
    /// its handles; dropping them elsewhere does nothing.
    #[error("the pool{} was opened by process {pid}: open it again in this process",
        path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default())]
    Forked {
        /// Where the pool is; `None` for a pool in memory.
        path: Option<PathBuf>,
        /// The process that opened it.
        pid: u32,
    },
    /// Other handles of this process hold the pool, which stays open for them.
    #[error("the pool has other handles in this process ({handles}): drop them first")]
    PoolInUse {
        /// Clones of the pool's handle, those in trees and in tree options included.
        handles: usize,
    },
    /// The pool has no space left. Reads, removals and updates in place go on.
    #[error("the pool is full: remove something, or open it with a larger maximum than {max_bytes} bytes")]
    PoolFull {
        /// Its maximum.
        max_bytes: u64,
    },
    /// The pool cannot have so large a maximum: its header has no room for the descriptors. Move what it holds
    /// to a larger one.
    #[error(
        "the pool cannot grow to {asked} bytes, only to {possible}: create a larger one and move everything there"
    )]
    MaximumFixed {
        /// The maximum asked for.
        asked: u64,
        /// The largest that this pool can have.
        possible: u64,
    },
    /// The file system has no space left for the pool to grow.
    #[error("the file system is full: free some space (growing the pool to {bytes} bytes failed)")]
    MediumFull {
        /// The size asked for.
        bytes: u64,
    },
    /// No tree of this name.
    #[error("no tree named {name:?} in this pool")]
    NoSuchTree {
        /// The name asked for.
        name: String,
    },
    /// The tree exists already.
    #[error("a tree named {name:?} exists already")]
    TreeExists {
        /// The name asked for.
        name: String,
    },
    /// The tree is open elsewhere in this process and cannot be dropped or opened again.
    #[error("the tree {name:?} is in use: drop its handles first")]
    TreeInUse {
        /// The tree's name.
        name: String,
    },
    /// The tree was created with other types, another design or other options.
    #[error("the tree {name:?} has {what} {found}, not {asked}")]
    Mismatch {
        /// The tree's name.
        name: String,
        /// Which of its properties.
        what: &'static str,
        /// What it was created with.
        found: String,
        /// What the caller asked for.
        asked: String,
    },
    /// A parameter is outside its range.
    #[error("{what}")]
    Invalid {
        /// What is wrong, and what would be right.
        what: String,
    },
    /// A key or value is longer than a tree can hold.
    #[error("a {what} of {bytes} bytes is too long: at most {max_bytes} bytes")]
    TooLong {
        /// `"key"`, `"value"` or `"tree name"`.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The longest allowed.
        max_bytes: usize,
    },
    /// The key is there already: what a refused `try_insert` becomes where only the fact counts.
    #[error("the key is there already, with another value or the same: nothing has changed")]
    KeyExists,
    /// The key had another value than expected, or none: what a refused `compare_and_swap` becomes where only
    /// the fact counts.
    #[error("the key has another value than expected, or none: nothing has changed")]
    ValueDiffers,
    /// Others changed what a transaction read, or a condition of a batch does not hold.
    #[error("others changed what the transaction read, or a condition does not hold: nothing has changed")]
    Conflict,
    /// A snapshot may keep no more of what has changed since it was taken, or the tree was cleared since.
    #[error(
        "the snapshot is too old: more has changed since than it may keep, or the tree was cleared: take another one"
    )]
    SnapshotTooOld,
    /// The medium refused to make data durable (`msync` failed). What was acknowledged before
    /// stands; nothing since may be trusted. Reopen the pool.
    #[error("the medium refused to make data durable: reopen the pool")]
    DurabilityLost,
    /// The pool is open for reading only, or lies on a read-only file system.
    #[error("the pool cannot be written: it is open for reading only, or its file system is read-only")]
    ReadOnly,
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns whether there was no space for something: the pool has its maximum, the file system is
    /// full, or a limit on the size of files forbids more. Space may come back.
    pub fn is_no_room(&self) -> bool {
        match self {
            Self::PoolFull { .. } | Self::MediumFull { .. } => true,
            Self::Io { source, .. } => source.kind() == ErrorKind::FileTooLarge,
            _ => false,
        }
    }

    /// Returns an [`Error::Io`] from what was being done and the system's answer.
    pub fn io(doing: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Io { doing: doing.into(), source: source.into() }
    }

    /// Returns what the system's answer means for the file of a pool.
    pub(crate) fn at_path(path: &Path, error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::NotFound { path: path.to_owned() },
            ErrorKind::AlreadyExists => Self::Exists { path: path.to_owned() },
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            ErrorKind::StorageFull => Self::MediumFull { bytes: 0 },
            _ => Self::io(path.display().to_string(), error),
        }
    }

    /// Returns an [`Error::Corrupted`].
    pub fn corrupted(what: impl Into<String>, location: impl Into<String>) -> Self {
        Self::Corrupted { what: what.into(), location: location.into() }
    }

    /// Returns an [`Error::Invalid`].
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }
}
