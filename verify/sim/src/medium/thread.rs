//! The thread that an access is recorded for, and the points at which threads may switch.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    static OWN: u32 = {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    static SIMULATED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Returns the number of the calling thread in traces.
pub(crate) fn thread() -> u32 {
    SIMULATED.get().unwrap_or_else(|| OWN.with(|own| *own))
}

/// Makes the calling thread act as the simulated one with this number, or as itself.
pub(crate) fn assume_thread(number: Option<u32>) {
    SIMULATED.set(number);
}

/// Kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum At {
    /// An access to DRAM.
    Memory,
    /// An access to the medium.
    Medium,
    /// A lock, a compare-and-swap, a read of a record.
    Decision,
    /// A publish, a fence, a named step.
    Named,
}
