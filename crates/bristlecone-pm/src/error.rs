//! The error type of Bristlecone.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The reason why an operation failed; displayed as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// The failed action, with the path if there is one.
        doing: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// There is no pool at this path.
    #[error("no pool at {}: create it first", path.display())]
    NotFound {
        /// The requested path.
        path: PathBuf,
    },
    /// A file already exists at this path.
    #[error("{} exists already: choose another path or open it", path.display())]
    Exists {
        /// The requested path.
        path: PathBuf,
    },
    /// The file is not a Bristlecone pool.
    #[error("{} is not a Bristlecone pool", path.display())]
    NotAPool {
        /// The requested path.
        path: PathBuf,
    },
    /// The pool was written by a newer version of Bristlecone.
    #[error("the pool needs {needs}, which this version does not know: open it with a newer version")]
    Newer {
        /// The unknown format version or feature flags.
        needs: String,
    },
    /// The pool's data is inconsistent.
    #[error("the pool is corrupted: {what} at {location}")]
    Corrupted {
        /// Description of the damage.
        what: String,
        /// Location: a byte offset or the name of a structure.
        location: String,
    },
    /// The pool cannot be followed: no process writes to it, or its writer does not admit readers.
    #[error("{} cannot be followed: {why}", path.display())]
    NoWriter {
        /// Path of the pool.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Another process, or another handle of this one, has the pool open.
    #[error("the pool is in use{}: close it there first", pid.map(|p| format!(" by process {p}")).unwrap_or_default())]
    InUse {
        /// Process that holds it, if known.
        pid: Option<u32>,
    },
    /// The pool was opened by another process, of which this one is a child. Only the process that opened it
    /// may use its handles; dropping them elsewhere has no effect.
    #[error("the pool{} was opened by process {pid}: open it again in this process",
        path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default())]
    Forked {
        /// Path of the pool; `None` for a pool in memory.
        path: Option<PathBuf>,
        /// The process that opened it.
        pid: u32,
    },
    /// The pool has other handles in this process and stays open for them.
    #[error("the pool has other handles in this process ({handles}): drop them first")]
    PoolInUse {
        /// Number of other handles, including those in trees and tree options.
        handles: usize,
    },
    /// The pool has no space left. Reads, removals and updates in place still work.
    #[error("the pool is full ({max_bytes} bytes): remove entries, or reopen it with a larger maximum")]
    PoolFull {
        /// Maximum size of the pool.
        max_bytes: u64,
    },
    /// The pool cannot have so large a maximum: its header has no space for the descriptors. Move its contents
    /// to a larger one.
    #[error(
        "the pool cannot grow to {asked} bytes, only to {possible}: copy it to a pool with a larger maximum"
    )]
    MaximumFixed {
        /// The requested maximum.
        asked: u64,
        /// The largest possible maximum of this pool.
        possible: u64,
    },
    /// The file system has no space left for the pool to grow.
    #[error("the file system is full: free some space (growing the pool to {bytes} bytes failed)")]
    MediumFull {
        /// The requested size.
        bytes: u64,
    },
    /// No tree has this name.
    #[error("no tree named {name:?} in this pool")]
    NoSuchTree {
        /// The requested name.
        name: String,
    },
    /// The tree exists already.
    #[error("a tree named {name:?} exists already")]
    TreeExists {
        /// The requested name.
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
        /// The property that differs.
        what: &'static str,
        /// Its value at creation.
        found: String,
        /// The requested value.
        asked: String,
    },
    /// A parameter is outside its range.
    #[error("{what}")]
    Invalid {
        /// Description of the error and of the valid range.
        what: String,
    },
    /// A key or value is longer than a tree can hold.
    #[error("a {what} of {bytes} bytes is too long: at most {max_bytes} bytes")]
    TooLong {
        /// `"key"`, `"value"` or `"tree name"`.
        what: &'static str,
        /// Length in bytes.
        bytes: usize,
        /// Maximum length in bytes.
        max_bytes: usize,
    },
    /// The key already exists. Converted from the error of `try_insert` where only the fact counts.
    #[error("key already exists")]
    KeyExists,
    /// The key had another value than expected, or none. Converted from the error of `compare_and_swap` where
    /// only the fact counts.
    #[error("the key's value differs from the expected one")]
    ValueDiffers,
    /// A concurrent write changed data that a transaction read, or a condition of a batch does not hold.
    #[error("conflict: a concurrent write changed data this transaction read, or a condition does not hold")]
    Conflict,
    /// A snapshot exceeded its limit of retained changes, or the tree was cleared since it was taken.
    #[error(
        "the snapshot is too old: it exceeded its limit of kept changes, or the tree was cleared; take a new snapshot"
    )]
    SnapshotTooOld,
    /// The medium failed to make data durable (`msync` failed). Earlier acknowledged writes are durable; no
    /// later write is guaranteed. Reopen the pool.
    #[error("msync failed, so later writes may not be durable: reopen the pool")]
    DurabilityLost,
    /// Entries of a journal that were asked for are not kept any more.
    #[error("the journal keeps entries from LSN {oldest} on: read the items, and continue from there")]
    Pruned {
        /// LSN of the oldest entry that is kept.
        oldest: u64,
    },
    /// A journal or an archive has no cursor of this name.
    #[error("no cursor named {name:?} in this journal: create it first")]
    NoSuchCursor {
        /// The requested name.
        name: String,
    },
    /// A cursor held back more of the journal than its pool allows, and was dropped.
    #[error(
        "the cursor {name:?} was dropped at LSN {lsn}, because it held back too much of the journal: \
         read the items, and create it again"
    )]
    CursorDropped {
        /// Its name.
        name: String,
        /// The LSN at which it was.
        lsn: u64,
    },
    /// Another writer has taken over an archive.
    #[error("another writer has taken over {place} (timeline {timeline}): this one must not write to it")]
    Fenced {
        /// The archive.
        place: String,
        /// Number of the timeline that the archive continues.
        timeline: u64,
    },
    /// The pool is open for reading only, or its file system is read-only.
    #[error("the pool cannot be written: it is open for reading only, or its file system is read-only")]
    ReadOnly,
}

/// A result with [`Error`] as its error type.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns whether the error is a lack of space: the pool reached its maximum, the file system is full, or
    /// a limit on file sizes was reached. Space may become available later.
    pub fn is_no_room(&self) -> bool {
        match self {
            Self::PoolFull { .. } | Self::MediumFull { .. } => true,
            Self::Io { source, .. } => source.kind() == ErrorKind::FileTooLarge,
            _ => false,
        }
    }

    /// Returns an [`Error::Io`] from the failed action and the system's error.
    pub fn io(doing: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Io { doing: doing.into(), source: source.into() }
    }

    /// Converts a system error on the file of a pool.
    pub(crate) fn at_path(path: &Path, error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => {
                    Self::io(format!("opening the folder {}", folder.display()), error)
                }
                _ => Self::NotFound { path: path.to_owned() },
            },
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
