//! Failing system calls, for tests: the N-th call of this thread is refused.
//!
//! Tests of other crates reach this by the feature `failpoints`, which only their dev-dependencies turn on.

#![cfg_attr(
    not(feature = "failpoints"),
    allow(dead_code, reason = "tests of other crates use what is not used here")
)]

use std::cell::Cell;

use rustix::io::{Errno, Result};

thread_local! {
    /// Calls to let through, calls to refuse after them, and how.
    static REFUSE: Cell<Option<(usize, usize, Errno)>> = const { Cell::new(None) };
    /// The call that was refused last.
    static REFUSED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Lets `after` further system calls of this thread through and refuses the next one.
pub fn refuse(after: usize, with: Errno) {
    refuse_many(after, 1, with);
}

/// Lets `after` further system calls of this thread through and refuses the next `times`.
pub fn refuse_many(after: usize, times: usize, with: Errno) {
    REFUSED.set(None);
    REFUSE.set(Some((after, times, with)));
}

/// Returns whether a call that was to be refused has not come yet, and refuses none any more.
pub fn cease() -> bool {
    REFUSE.take().is_some()
}

/// Returns the name of the call that was refused last, if one was since [`refuse`].
pub fn refused() -> Option<&'static str> {
    REFUSED.get()
}

#[cfg(test)]
thread_local! {
    /// What this thread synced: address and bytes.
    static SYNCED: std::cell::RefCell<Vec<(usize, usize)>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Returns what this thread synced since the last call of this, in order: address and bytes.
#[cfg(test)]
pub(crate) fn synced() -> Vec<(usize, usize)> {
    SYNCED.take()
}

/// Calls `msync`, or has it refused; again if a signal interrupts it.
pub(crate) fn call_msync(_start: usize, _bytes: usize, msync: impl FnMut() -> Result<()>) -> Result<()> {
    #[cfg(test)]
    let _ = SYNCED.try_with(|synced| synced.borrow_mut().push((_start, _bytes)));
    call("msync", msync)
}

/// Makes a system call on a pool, or has it refused; again if a signal interrupts it.
pub(crate) fn call<T>(name: &'static str, mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match check(name).and_then(|()| call()) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Decides before each system call on a pool whether it is refused; calls are rare, so it costs nothing that matters.
pub(crate) fn check(call: &'static str) -> Result<()> {
    match REFUSE.get() {
        None => Ok(()),
        Some((0, times, with)) => {
            REFUSED.set(Some(call));
            REFUSE.set((times > 1).then_some((0, times - 1, with)));
            Err(with)
        }
        Some((after, times, with)) => {
            REFUSE.set(Some((after - 1, times, with)));
            Ok(())
        }
    }
}
