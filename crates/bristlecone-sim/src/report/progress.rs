//! What an exploration under way can be asked and told.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Shared with whoever waits for an exploration.
#[derive(Debug, Default)]
pub struct Progress {
    opened: AtomicU64,
    stopped: AtomicBool,
}

impl Progress {
    /// Images opened so far.
    pub fn opened(&self) -> u64 {
        self.opened.load(Relaxed)
    }

    /// Asks all explorations to end soon, with what they have done by then.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Whether it was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    pub(crate) fn opened_one(&self) {
        self.opened.fetch_add(1, Relaxed);
    }
}
