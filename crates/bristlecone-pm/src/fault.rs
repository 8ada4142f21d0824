//! Failing system calls, for tests: the N-th call of this thread is refused.

use std::cell::Cell;

use rustix::io::{Errno, Result};

thread_local! {
    /// Calls to let through, calls to refuse after them, and how.
    static REFUSE: Cell<Option<(usize, usize, Errno)>> = const { Cell::new(None) };
}

/// Lets `after` further system calls of this thread through and refuses the next one.
#[cfg(test)]
pub(crate) fn refuse(after: usize, with: Errno) {
    refuse_many(after, 1, with);
}

/// Lets `after` further system calls of this thread through and refuses the next `times`.
#[cfg(test)]
pub(crate) fn refuse_many(after: usize, times: usize, with: Errno) {
    REFUSE.set(Some((after, times, with)));
}

/// Whether a call that was to be refused has not come yet.
#[cfg(test)]
pub(crate) fn cease() -> bool {
    REFUSE.take().is_some()
}

#[cfg(test)]
thread_local! {
    /// What this thread synced: address and bytes.
    static SYNCED: std::cell::RefCell<Vec<(usize, usize)>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Returns what this thread synced since it was last asked, in order: address and bytes.
#[cfg(test)]
pub(crate) fn synced() -> Vec<(usize, usize)> {
    SYNCED.take()
}

/// Asked before each `msync`.
pub(crate) fn check_msync(_start: usize, _bytes: usize) -> Result<()> {
    #[cfg(test)]
    let _ = SYNCED.try_with(|synced| synced.borrow_mut().push((_start, _bytes)));
    check("msync")
}

/// Asked before each system call on a pool; these are rare, so it costs nothing that matters.
pub(crate) fn check(_call: &'static str) -> Result<()> {
    match REFUSE.get() {
        None => Ok(()),
        Some((0, times, with)) => {
            REFUSE.set((times > 1).then_some((0, times - 1, with)));
            Err(with)
        }
        Some((after, times, with)) => {
            REFUSE.set(Some((after - 1, times, with)));
            Ok(())
        }
    }
}
