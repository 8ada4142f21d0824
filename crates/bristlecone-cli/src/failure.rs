//! The reason why a command failed, in one line, and its exit code.

use std::fmt;
use std::io::ErrorKind;

use bristlecone::{CloseError, Error};

/// The exit codes, as printed by `--help`.
pub const HELP: &str = "\
Exit codes:
  0    success
  1    failure: `check` found damage or could not read, `--repair` could not save everything,
       `put --new` found a value, acknowledged data is missing, or a system call failed
  2    wrong usage: invalid argument or value
  3    the pool is in use by another process
  4    no such folder, pool, tree or key
  5    not a pool, corrupted, or written by a newer version
  6    the pool or the file system is full
  7    a line of the input is malformed, or a dump is incomplete
  8    no writer can be followed, or it does not have the tree open
  9    the changes asked for are not kept any more, or their cursor was dropped
  10   another writer has taken over the archive
  130  interrupted
  134  aborted (SIGABRT): the medium failed while a page of the pool was accessed";

/// Exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Acknowledged data is missing, a check failed, or the system returned an error.
    Failed = 1,
    /// An argument or a value is invalid.
    Usage = 2,
    /// Another process has the pool open.
    InUse = 3,
    /// The pool, tree or key does not exist.
    Absent = 4,
    /// Not a pool, corrupted, or written by a newer version.
    Corrupted = 5,
    /// The pool or the file system is full.
    Full = 6,
    /// A line of the input is malformed.
    BadInput = 7,
    /// No process writes to the pool such that it can be followed, or the writer does not have the
    /// tree open.
    NoWriter = 8,
    /// Changes that were asked for are not kept any more.
    Pruned = 9,
    /// Another writer has taken over an archive.
    Fenced = 10,
    /// Stopped by Ctrl-C or SIGTERM.
    Interrupted = 130,
}

/// The failure of a command.
#[derive(Debug)]
pub enum Failure {
    /// Reported by one line on standard error.
    Said {
        /// The exit code.
        exit: Exit,
        /// The line.
        line: String,
    },
    /// Already reported on standard output: only the exit code remains.
    Shown(Exit),
    /// The reader of standard output has closed the pipe: nothing can be reported.
    BrokenPipe,
}

/// Result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Returns a failure with a one-line message.
    pub fn new(exit: Exit, line: impl Into<String>) -> Self {
        Self::Said { exit, line: line.into() }
    }

    /// Returns a failure of invalid arguments.
    pub fn usage(line: impl Into<String>) -> Self {
        Self::new(Exit::Usage, line)
    }

    /// Returns a failure of a system call, with its purpose.
    pub fn io(doing: impl fmt::Display, error: &std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::BrokenPipe,
            ErrorKind::StorageFull | ErrorKind::FileTooLarge | ErrorKind::QuotaExceeded => {
                Self::new(Exit::Full, format!("{doing}: {error}"))
            }
            ErrorKind::NotFound => Self::new(Exit::Absent, format!("{doing}: {error}")),
            _ => Self::new(Exit::Failed, format!("{doing}: {error}")),
        }
    }

    /// Returns a failure caused by Ctrl-C or SIGTERM.
    pub fn interrupted(what_stands: impl fmt::Display) -> Self {
        Self::new(Exit::Interrupted, format!("interrupted: {what_stands}"))
    }

    /// Returns whether the failure is a lack of space.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Said { exit: Exit::Full, .. } | Self::Shown(Exit::Full))
    }

    /// Returns the message, if any.
    pub fn line(&self) -> &str {
        match self {
            Self::Said { line, .. } => line,
            Self::Shown(_) | Self::BrokenPipe => "",
        }
    }

    /// Returns this failure with `what` as context.
    pub fn within(self, what: impl fmt::Display) -> Self {
        match self {
            Self::Said { exit, line } => Self::Said { exit, line: format!("{what}: {line}") },
            other => other,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::InUse { .. } | Error::TreeInUse { .. } | Error::PoolInUse { .. } => Exit::InUse,
            Error::NoWriter { .. } => Exit::NoWriter,
            Error::NotFound { .. } | Error::NoSuchTree { .. } | Error::NoSuchCursor { .. } => Exit::Absent,
            Error::Pruned { .. } | Error::CursorDropped { .. } => Exit::Pruned,
            Error::Fenced { .. } => Exit::Fenced,
            Error::NotAPool { .. } | Error::Newer { .. } | Error::Corrupted { .. } => Exit::Corrupted,
            error if error.is_no_room() => Exit::Full,
            Error::Exists { .. }
            | Error::TreeExists { .. }
            | Error::Mismatch { .. }
            | Error::Invalid { .. }
            | Error::MaximumFixed { .. }
            | Error::TooLong { .. } => Exit::Usage,
            Error::Io { doing, source } => return Self::io(doing, source),
            _ => Exit::Failed,
        };
        let advice = match &error {
            Error::Corrupted { .. } => "; `bristlecone check --repair` saves the readable data",
            _ => "",
        };
        Self::new(exit, format!("{error}{advice}"))
    }
}

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Self {
        Error::from(error).into()
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::io("writing the output", &error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_left_is_no_failure_to_speak_of() {
        let error = std::io::Error::from(ErrorKind::BrokenPipe);
        assert!(matches!(Failure::from(error), Failure::BrokenPipe));
    }

    #[test]
    fn each_kind_of_error_has_its_exit_code() {
        let exit = |error: Error| match Failure::from(error) {
            Failure::Said { exit, .. } => exit,
            other => panic!("{other:?}"),
        };
        assert_eq!(exit(Error::InUse { pid: Some(7) }), Exit::InUse);
        assert_eq!(exit(Error::NoWriter { path: "x".into(), why: "y".into() }), Exit::NoWriter);
        assert_eq!(exit(Error::NotFound { path: "x".into() }), Exit::Absent);
        assert_eq!(exit(Error::PoolFull { max_bytes: 1 }), Exit::Full);
        assert_eq!(exit(Error::corrupted("x", "y")), Exit::Corrupted);
        assert_eq!(exit(Error::invalid("x")), Exit::Usage);
        assert_eq!(exit(Error::DurabilityLost), Exit::Failed);
        assert_eq!(exit(Error::Pruned { oldest: 8 }), Exit::Pruned);
        assert_eq!(exit(Error::Fenced { place: "x".to_owned(), timeline: 2 }), Exit::Fenced);
    }
}
