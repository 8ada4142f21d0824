//! Progress of an exploration, and the request to stop it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Shared by an exploration and its caller.
#[derive(Debug, Default)]
pub struct Progress {
    opened: AtomicU64,
    stopped: AtomicBool,
}

impl Progress {
    /// Returns the images opened so far.
    pub fn opened(&self) -> u64 {
        self.opened.load(Relaxed)
    }

    /// Requests all explorations to stop soon and return their results so far.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Returns whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    pub(crate) fn opened_one(&self) {
        self.opened.fetch_add(1, Relaxed);
    }
}
