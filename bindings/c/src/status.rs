//! Status codes, and the message of a thread's last error.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bristlecone_rs::Error;

/// Success.
pub const BRISTLECONE_OK: i32 = 0;
/// Failed: a check found damage, or the system returned an error.
pub const BRISTLECONE_FAILED: i32 = 1;
/// Wrong usage: an argument is invalid; a handle is null, closed or of another type; a tree has other kinds.
pub const BRISTLECONE_USAGE: i32 = 2;
/// In use: the pool by another process or handle, the tree or pool by open handles, the handle by a call of another
/// thread.
pub const BRISTLECONE_IN_USE: i32 = 3;
/// The pool, tree, key or journal does not exist; or an iterator has reached its end.
pub const BRISTLECONE_ABSENT: i32 = 4;
/// Not a pool, corrupted, or written by a newer version.
pub const BRISTLECONE_CORRUPTED: i32 = 5;
/// The pool or the file system is full.
pub const BRISTLECONE_FULL: i32 = 6;
/// The key already exists, but must be new.
pub const BRISTLECONE_PRESENT: i32 = 32;
/// The key has another value than expected, or none.
pub const BRISTLECONE_DIFFERS: i32 = 33;
/// The handle was created by another process, of which this one is a child: open the pool again here.
pub const BRISTLECONE_FORKED: i32 = 34;
/// The pool is open for reading only, or its file system is read-only.
pub const BRISTLECONE_READ_ONLY: i32 = 35;
/// The medium failed to make data durable: reopen the pool. Earlier acknowledged writes are durable; whether the
/// operation that returned this took effect is unknown.
pub const BRISTLECONE_DURABILITY_LOST: i32 = 36;
/// The buffer is too small: nothing was copied, and the length is the required one.
pub const BRISTLECONE_TOO_SMALL: i32 = 37;
/// A bug in the library, which prints the location to standard error: end the process; the pool loses no acknowledged
/// data.
pub const BRISTLECONE_BUG: i32 = 38;
/// A concurrent write changed data that a transaction read, or a condition of a batch does not hold: nothing has
/// changed.
pub const BRISTLECONE_CONFLICT: i32 = 39;
/// A snapshot exceeded its limit of retained changes, or the tree was cleared since: take another one.
pub const BRISTLECONE_SNAPSHOT_TOO_OLD: i32 = 40;
/// No process writes to the pool such that it can be followed: the writer closed it, or does not have the tree open.
/// The data of a killed writer stays readable until it is recovered. Calls continue with the next writer.
pub const BRISTLECONE_NO_WRITER: i32 = 41;
/// The journal does not keep the requested changes any more, or the cursor held back too much and was dropped: read the
/// items, and continue from the `oldest_lsn` of `bristlecone_pool_get_journal_status`, or from a new cursor.
pub const BRISTLECONE_PRUNED: i32 = 42;

/// The failure of a call.
#[derive(Debug)]
pub enum Failure {
    /// The code is the whole message.
    Plain(i32),
    /// With a message of this crate.
    Said(i32, String),
    /// With an error of the library.
    Core(Error),
}

/// Result of the code behind a call.
pub type Outcome<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl Failure {
    /// Returns the failure of an invalid argument.
    #[cold]
    pub fn usage(what: impl Into<String>) -> Self {
        Self::Said(BRISTLECONE_USAGE, what.into())
    }

    /// Returns the code, and stores the message for the thread.
    #[cold]
    fn note(self) -> c_int {
        match self {
            Self::Plain(code) => {
                LAST.with(|last| last.pointer.set(name(code).as_ptr()));
                code
            }
            Self::Said(code, what) => note(code, &what),
            Self::Core(error) => note(code_of(&error), &error.to_string()),
        }
    }
}

/// Returns the code of an error: the exit code of the tool, or a more specific one.
fn code_of(error: &Error) -> c_int {
    match error {
        Error::InUse { .. } | Error::TreeInUse { .. } | Error::PoolInUse { .. } => BRISTLECONE_IN_USE,
        Error::NotFound { .. } | Error::NoSuchTree { .. } | Error::NoSuchCursor { .. } => BRISTLECONE_ABSENT,
        Error::Pruned { .. } | Error::CursorDropped { .. } => BRISTLECONE_PRUNED,
        Error::NotAPool { .. } | Error::Newer { .. } | Error::Corrupted { .. } => BRISTLECONE_CORRUPTED,
        error if error.is_no_room() => BRISTLECONE_FULL,
        Error::Exists { .. }
        | Error::TreeExists { .. }
        | Error::Mismatch { .. }
        | Error::Invalid { .. }
        | Error::MaximumFixed { .. }
        | Error::TooLong { .. } => BRISTLECONE_USAGE,
        Error::KeyExists => BRISTLECONE_PRESENT,
        Error::ValueDiffers => BRISTLECONE_DIFFERS,
        Error::Forked { .. } => BRISTLECONE_FORKED,
        Error::Conflict => BRISTLECONE_CONFLICT,
        Error::SnapshotTooOld => BRISTLECONE_SNAPSHOT_TOO_OLD,
        Error::NoWriter { .. } => BRISTLECONE_NO_WRITER,
        Error::ReadOnly => BRISTLECONE_READ_ONLY,
        Error::DurabilityLost => BRISTLECONE_DURABILITY_LOST,
        Error::Io { source, .. } => match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => BRISTLECONE_FULL,
            ErrorKind::NotFound => BRISTLECONE_ABSENT,
            _ => BRISTLECONE_FAILED,
        },
        _ => BRISTLECONE_FAILED,
    }
}

/// Maximum length of a message in bytes; a longer one is truncated.
const MESSAGE_BYTES_MAX: usize = 1024;

/// The message of the last error. It has no destructor, so that it is valid as long as the thread.
struct Last {
    pointer: Cell<*const c_char>,
    text: UnsafeCell<[u8; MESSAGE_BYTES_MAX]>,
}

thread_local! {
    static LAST: Last = const {
        Last { pointer: Cell::new(c"".as_ptr()), text: UnsafeCell::new([0; MESSAGE_BYTES_MAX]) }
    };
}

fn note(code: i32, what: &str) -> c_int {
    let mut end = what.len().min(MESSAGE_BYTES_MAX - 1);
    while !what.is_char_boundary(end) {
        end -= 1;
    }
    LAST.with(|last| {
        // SAFETY: only this thread has it, and keeps no reference to it.
        let text = unsafe { &mut *last.text.get() };
        text[..end].copy_from_slice(&what.as_bytes()[..end]);
        // A string of C ends at the first zero.
        text[..end].iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b'?');
        text[end] = 0;
        last.pointer.set(text.as_ptr().cast());
    });
    code
}

/// Runs a call; returns its status. No panic unwinds out of it.
#[inline(always)]
pub fn call(work: impl FnOnce() -> Outcome) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => BRISTLECONE_OK,
        Ok(Err(failure)) => failure.note(),
        Err(thrown) => panicked(thrown),
    }
}

#[cold]
fn panicked(thrown: Box<dyn std::any::Any + Send>) -> c_int {
    let what = thrown.downcast_ref::<String>().map(String::as_str);
    let what = what.or_else(|| thrown.downcast_ref::<&str>().copied()).unwrap_or("it says no more");
    let code = note(BRISTLECONE_BUG, &format!("a bug in the library: {what}"));
    // Dropping the payload might panic again.
    std::mem::forget(thrown);
    code
}

/// Returns a brief description of a code.
fn name(code: i32) -> &'static CStr {
    match code {
        BRISTLECONE_OK => c"done",
        BRISTLECONE_FAILED => c"failed",
        BRISTLECONE_USAGE => c"wrong usage",
        BRISTLECONE_IN_USE => c"in use",
        BRISTLECONE_ABSENT => c"there is none",
        BRISTLECONE_CORRUPTED => c"not a pool, corrupted, or written by a newer version",
        BRISTLECONE_FULL => c"the pool or the file system is full",
        BRISTLECONE_PRESENT => c"the key is there already",
        BRISTLECONE_DIFFERS => c"the key has another value than expected, or none",
        BRISTLECONE_FORKED => c"the handle was made by another process: open the pool again in this one",
        BRISTLECONE_READ_ONLY => c"the pool cannot be written",
        BRISTLECONE_DURABILITY_LOST => c"msync failed, so later writes may not be durable: reopen the pool",
        BRISTLECONE_TOO_SMALL => c"the buffer is too small",
        BRISTLECONE_BUG => c"a bug in the library",
        BRISTLECONE_CONFLICT => c"others changed what was read, or a condition does not hold",
        BRISTLECONE_SNAPSHOT_TOO_OLD => c"the snapshot is too old",
        BRISTLECONE_PRUNED => c"the journal does not keep these changes any more",
        BRISTLECONE_NO_WRITER => c"no process writes to the pool that is followed",
        _ => c"no status of this library",
    }
}

/// Returns a brief description of a status. The string is valid as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn bristlecone_strerror(status: i32) -> *const c_char {
    name(status).as_ptr()
}

/// Returns one line about the last call of this thread that returned anything but `BRISTLECONE_OK`; the empty string if
/// there was none. The library owns the string, which must not be freed. It is unchanged until the thread's next such
/// call.
#[unsafe(no_mangle)]
pub extern "C" fn bristlecone_errmsg() -> *const c_char {
    LAST.with(|last| last.pointer.get())
}
