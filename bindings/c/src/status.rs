//! Status codes, and the message of a thread's last error.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bristlecone_rs::Error;

/// Done.
pub const BRISTLECONE_OK: i32 = 0;
/// Failed: a check found something, or the system refused.
pub const BRISTLECONE_FAILED: i32 = 1;
/// Wrong usage: an argument is not possible, a handle is null, closed or of something else, a tree has other kinds.
pub const BRISTLECONE_USAGE: i32 = 2;
/// In use: the pool by another process or handle, the tree or pool by handles that are open, the handle by a call of
/// another thread.
pub const BRISTLECONE_IN_USE: i32 = 3;
/// There is no such pool, tree or key; or an iterator has nothing more.
pub const BRISTLECONE_ABSENT: i32 = 4;
/// Not a pool, corrupted, or written by a newer version.
pub const BRISTLECONE_CORRUPTED: i32 = 5;
/// The pool or the file system is full.
pub const BRISTLECONE_FULL: i32 = 6;
/// The key is there already, and was to be new.
pub const BRISTLECONE_PRESENT: i32 = 32;
/// The key has another value than expected, or none.
pub const BRISTLECONE_DIFFERS: i32 = 33;
/// The handle was made by another process, of which this one is a child: open the pool again here.
pub const BRISTLECONE_FORKED: i32 = 34;
/// The pool is open for reading only, or lies on a read-only file system.
pub const BRISTLECONE_READ_ONLY: i32 = 35;
/// The medium refused to make data durable: reopen the pool. What was acknowledged before stands; whether the
/// operation that returned this happened is open.
pub const BRISTLECONE_DURABILITY_LOST: i32 = 36;
/// The buffer is too small: nothing was copied, and the length says what is needed.
pub const BRISTLECONE_TOO_SMALL: i32 = 37;
/// A bug in the library, which says where on standard error: end the process; the pool loses nothing that was
/// acknowledged.
pub const BRISTLECONE_BUG: i32 = 38;
/// Others changed what a transaction read, or a condition of a batch does not hold: nothing has changed.
pub const BRISTLECONE_CONFLICT: i32 = 39;
/// A snapshot may keep no more of what has changed since, or the tree was cleared since: take another one.
pub const BRISTLECONE_SNAPSHOT_TOO_OLD: i32 = 40;
/// No process writes to a pool that is followed, or none that can be followed: the writer closed it, or does not have the
/// tree open. What a killed one left is read until it is recovered. When another one has come, calls go on with that.
pub const BRISTLECONE_NO_WRITER: i32 = 41;

/// Why a call did not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// All that is to be said is said by the code.
    Plain(i32),
    /// Said here.
    Said(i32, String),
    /// Said by the library.
    Core(Error),
}

/// What everything behind a call returns.
pub type Outcome<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl Failure {
    /// Says that an argument is not possible.
    #[cold]
    pub fn usage(what: impl Into<String>) -> Self {
        Self::Said(BRISTLECONE_USAGE, what.into())
    }

    /// Returns the code, with the message noted for the thread.
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

/// Returns the code of an error: the exit code of the tool, or one that says more.
fn code_of(error: &Error) -> c_int {
    match error {
        Error::InUse { .. } | Error::TreeInUse { .. } | Error::PoolInUse { .. } => BRISTLECONE_IN_USE,
        Error::NotFound { .. } | Error::NoSuchTree { .. } => BRISTLECONE_ABSENT,
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

/// Bytes of a message; a longer one is cut.
const MESSAGE_BYTES_MAX: usize = 1024;

/// The message of the last error. Without a destructor, so that it is there as long as the thread.
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

/// Does what a call is for; returns its status. Nothing unwinds out of it.
#[inline(always)]
pub fn call(work: impl FnOnce() -> Outcome) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => BRISTLECONE_OK,
        Ok(Err(failure)) => failure.note(),
        // What calls of the library throw that return no error, on a pool that is followed.
        Err(thrown) => thrown.downcast::<Error>().map_or_else(panicked, |error| Failure::Core(*error).note()),
    }
}

#[cold]
fn panicked(thrown: Box<dyn std::any::Any + Send>) -> c_int {
    let what = thrown.downcast_ref::<String>().map(String::as_str);
    let what = what.or_else(|| thrown.downcast_ref::<&str>().copied()).unwrap_or("it says no more");
    let code = note(BRISTLECONE_BUG, &format!("a bug in the library: {what}"));
    // What was thrown might throw when it is dropped.
    std::mem::forget(thrown);
    code
}

/// Returns what a code means, in a few words.
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
        BRISTLECONE_DURABILITY_LOST => c"the medium refused to make data durable: reopen the pool",
        BRISTLECONE_TOO_SMALL => c"the buffer is too small",
        BRISTLECONE_BUG => c"a bug in the library",
        BRISTLECONE_CONFLICT => c"others changed what was read, or a condition does not hold",
        BRISTLECONE_SNAPSHOT_TOO_OLD => c"the snapshot is too old",
        BRISTLECONE_NO_WRITER => c"no process writes to the pool that is followed",
        _ => c"no status of this library",
    }
}

/// Returns what a status means, in a few words. The string lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn bristlecone_strerror(status: i32) -> *const c_char {
    name(status).as_ptr()
}

/// Returns one line on the last call of this thread that returned anything but `BRISTLECONE_OK`; the empty string if
/// there was none. The string is the library's, is never freed, and stays as it is until the thread's next such call.
#[unsafe(no_mangle)]
pub extern "C" fn bristlecone_errmsg() -> *const c_char {
    LAST.with(|last| last.pointer.get())
}
