//! Failing system calls, for tests: the N-th call of this thread is refused.

use std::cell::Cell;

use rustix::io::{Errno, Result};

thread_local! {
    static REFUSE: Cell<Option<(usize, Errno)>> = const { Cell::new(None) };
}

/// Lets `after` further system calls of this thread through and refuses the next one.
#[cfg(test)]
pub(crate) fn refuse(after: usize, with: Errno) {
    REFUSE.set(Some((after, with)));
}

/// Whether a call that was to be refused has not come yet.
#[cfg(test)]
pub(crate) fn cease() -> bool {
    REFUSE.take().is_some()
}

/// Asked before each system call on a pool; these are rare, so it costs nothing that matters.
pub(crate) fn check(_call: &'static str) -> Result<()> {
    match REFUSE.get() {
        None => Ok(()),
        Some((0, with)) => {
            REFUSE.set(None);
            Err(with)
        }
        Some((after, with)) => {
            REFUSE.set(Some((after - 1, with)));
            Ok(())
        }
    }
}
