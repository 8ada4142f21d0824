//! The gate that every write passes: it costs two stores while nothing but single keys is written.

use crate::index::parts::passage::{self, Passage};
use crate::index::parts::sync::{
    AsymmetricFence, AtomicU64, Mutex, Ordering::Acquire, Ordering::Release, wait,
};

/// Nothing but single keys was written since the pool was opened.
const QUIET: u64 = 0;
/// Writes take the lock of their key's stripe, and save what snapshots need.
const WATCHFUL: u64 = 1;
/// As watchful, while writers from before are waited for.
const TURNING: u64 = 2;

/// What writers under way are waited for by.
///
/// A writer enters, and looks at the mode and the epoch afterwards. A watchful writer looks at the epoch with the locks of
/// its keys only, which cost it a locked instruction: that is barrier enough for a new epoch, so that a snapshot interrupts no
/// thread once writers are watchful.
#[derive(Debug)]
pub(crate) struct Gate {
    mode: AtomicU64,
    writers: Passage,
    /// Held while the mode is changed.
    turning: Mutex<()>,
}

/// A writer under way, until this is dropped.
pub(crate) struct Entered<'a> {
    _entered: passage::Entered<'a>,
    watchful: bool,
}

impl Gate {
    pub fn new(fence: AsymmetricFence) -> Self {
        Self { mode: AtomicU64::new(QUIET), writers: Passage::new(fence), turning: Mutex::new(()) }
    }

    /// Begins a write.
    #[inline(always)]
    pub fn enter(&self) -> Entered<'_> {
        let entered = self.writers.enter();
        // Pairs with `watch`: what the thread that changed the mode did before is seen.
        let watchful = self.mode.load(Acquire) != QUIET;
        Entered { _entered: entered, watchful }
    }

    /// Has writers be watchful from now on; there is none left that is not.
    pub fn watch(&self) {
        if self.mode.load(Acquire) == QUIET {
            let _one = wait::lock(&self.turning);
            // Again, by a second thread: it returns once this one is through.
            self.mode.store(TURNING, Release);
            self.writers.wait();
            self.mode.store(WATCHFUL, Release);
        } else if self.mode.load(Acquire) != WATCHFUL {
            drop(wait::lock(&self.turning));
        }
    }

    /// Waits until every writer is through that may not have seen what the calling thread stored before. All are watchful.
    pub fn wait_for_watchful_writers(&self) {
        debug_assert_ne!(self.mode.load(Acquire), QUIET, "writers may have passed no barrier");
        self.writers.wait_behind_barriers();
    }
}

impl Entered<'_> {
    /// Returns whether the write has to take the lock of its stripe.
    #[inline(always)]
    pub fn is_watchful(&self) -> bool {
        self.watchful
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_watchful_from_then_on() {
        let gate = Gate::new(AsymmetricFence::detect());
        assert!(!gate.enter().is_watchful());
        for _ in 0..2 {
            gate.watch();
            assert!(gate.enter().is_watchful());
        }
    }
}
