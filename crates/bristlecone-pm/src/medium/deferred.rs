//! Fences that a thread leaves to one that comes later.

use std::cell::Cell;

use crate::thread_index;

thread_local! {
    /// A bit for each thread, real or simulated, that the system's thread stands for and that defers.
    static DEFERRING: Cell<u64> = const { Cell::new(0) };
}

/// Defers the fences of acknowledgements of the calling thread, until this is dropped; then a fence is due. Threads of
/// large numbers defer nothing.
#[derive(Debug)]
pub struct Deferred(u64);

impl Deferred {
    /// Begins.
    pub fn begin() -> Self {
        let bit = 1_u64.checked_shl(thread_index() as u32).unwrap_or(0);
        DEFERRING.set(DEFERRING.get() | bit);
        Self(bit)
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        DEFERRING.set(DEFERRING.get() & !self.0);
    }
}

/// Returns whether the calling thread defers.
#[inline(always)]
pub(super) fn is_deferred() -> bool {
    let deferring = DEFERRING.get();
    deferring != 0 && deferring & 1_u64.checked_shl(thread_index() as u32).unwrap_or(0) != 0
}
