//! Fault injection for tests: the N-th system call of this thread fails.
//!
//! Tests of other crates use it through the feature `failpoints`, which only their dev-dependencies
//! enable.

#![cfg_attr(
    not(feature = "failpoints"),
    allow(dead_code, reason = "tests of other crates use what is not used here")
)]

use std::cell::Cell;

use rustix::io::{Errno, Result};

pub use crate::dax_device::Device;

thread_local! {
    /// Number of calls to let through, number of calls to fail after them, and the error.
    static REFUSE: Cell<Option<(usize, usize, Errno)>> = const { Cell::new(None) };
    /// The step that is omitted.
    static OMITTED: Cell<Option<&'static str>> = const { Cell::new(None) };
    /// The file that stands for a DAX device, by its inode.
    static DEVICE: Cell<Option<(u64, Device)>> = const { Cell::new(None) };
    /// The call that failed last.
    static REFUSED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Makes this thread omit a named step of an algorithm, to show that a test notices; `None` ends this.
pub fn omit(step: Option<&'static str>) {
    OMITTED.set(step);
}

/// Returns whether this thread omits a step.
pub(crate) fn is_omitted(step: &'static str) -> bool {
    OMITTED.get() == Some(step)
}

/// Makes this thread take the file with an inode for a DAX device: it can be mapped, and every call fails that such a
/// device does not have, on any file of a pool. `None` ends this.
pub fn pretend_device(device: Option<(u64, Device)>) {
    REFUSED.set(None);
    DEVICE.set(device);
}

/// Returns the device for which a file stands.
pub(crate) fn device(inode: u64) -> Option<Device> {
    DEVICE
        .get()
        .filter(|(of, _)| cfg!(any(test, feature = "failpoints")) && *of == inode)
        .map(|(_, device)| device)
}

/// Calls on a file that a DAX device refuses.
const REFUSED_BY_DEVICES: [&str; 6] = ["ftruncate", "fallocate", "pread", "pwrite", "fsync", "populate"];

/// Lets `after` further system calls of this thread through and fails the next one.
pub fn refuse(after: usize, with: Errno) {
    refuse_many(after, 1, with);
}

/// Lets `after` further system calls of this thread through and fails the next `times`.
pub fn refuse_many(after: usize, times: usize, with: Errno) {
    REFUSED.set(None);
    REFUSE.set(Some((after, times, with)));
}

/// Disables fault injection and returns whether a planned failure has not happened yet.
pub fn cease() -> bool {
    REFUSE.take().is_some()
}

/// Returns the name of the call that failed last, if one failed since [`refuse`].
pub fn refused() -> Option<&'static str> {
    REFUSED.get()
}

#[cfg(test)]
thread_local! {
    /// Ranges that this thread synced: address and bytes.
    static SYNCED: std::cell::RefCell<Vec<(usize, usize)>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Returns and clears the ranges that this thread synced, in order: address and bytes.
#[cfg(test)]
pub(crate) fn synced() -> Vec<(usize, usize)> {
    SYNCED.take()
}

/// Calls `msync` or fails it; repeats the call if a signal interrupts it.
pub(crate) fn call_msync(_start: usize, _bytes: usize, msync: impl FnMut() -> Result<()>) -> Result<()> {
    #[cfg(test)]
    let _ = SYNCED.try_with(|synced| synced.borrow_mut().push((_start, _bytes)));
    call("msync", msync)
}

/// Makes a system call on a pool or fails it; repeats the call if a signal interrupts it.
pub(crate) fn call<T>(name: &'static str, mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match check(name).and_then(|()| call()) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Decides before each system call on a pool whether it fails. Such calls are rare, so the check
/// has no measurable cost.
pub(crate) fn check(call: &'static str) -> Result<()> {
    if DEVICE.get().is_some() && REFUSED_BY_DEVICES.contains(&call) {
        REFUSED.set(Some(call));
        return Err(Errno::INVAL);
    }
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
