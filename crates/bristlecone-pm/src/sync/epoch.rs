//! Epoch-based reclamation: an object removed from a structure is freed once no thread that may have seen it is
//! pinned.
//!
//! The implementation is crossbeam's. Where one system thread runs several simulated threads, each of these has its
//! own participant, set up with `simulate`.

use std::cell::RefCell;

pub use crossbeam_epoch::Guard;
use crossbeam_epoch::{Collector, LocalHandle};

use crate::sync::HAS_TURNS;
use crate::sync::wait::cross;
use crate::thread_index;

/// Maximum number of epochs that [`settle`] ends.
const EPOCHS_ENDED: usize = 256;

thread_local! {
    /// The participants of simulated threads, by their numbers.
    static PARTICIPANTS: RefCell<Vec<LocalHandle>> = const { RefCell::new(Vec::new()) };
}

/// Pins the calling thread: objects reachable now are not freed before the guard is dropped.
#[inline(always)]
pub fn pin() -> Guard {
    if HAS_TURNS && let Some(guard) = pin_simulated() {
        return guard;
    }
    crossbeam_epoch::pin()
}

/// Ends epochs until `is_over` returns true, but a limited number of times: after that, a pinned thread, or one
/// that deferred a free, must be blocking progress. Returns the last result of `is_over`.
pub fn settle(mut is_over: impl FnMut() -> bool) -> bool {
    for _ in 0..EPOCHS_ENDED {
        if is_over() {
            return true;
        }
        pin().flush();
    }
    is_over()
}

/// Makes the calling thread run `threads` simulated threads, each with its own epochs, in a build with the feature
/// `turns`. 0 ends this, and frees what waits for their epochs.
pub fn simulate(threads: usize) {
    let collector = Collector::new();
    let participants = (0..threads).map(|_| collector.register()).collect();
    drop(PARTICIPANTS.replace(participants));
}

fn pin_simulated() -> Option<Guard> {
    let pinned = |all: &Vec<LocalHandle>| all.get(thread_index()).map(LocalHandle::pin);
    let guard = PARTICIPANTS.try_with(|all| pinned(&all.borrow())).ok()??;
    cross();
    // Frees objects early, so that short runs cover it.
    guard.flush();
    Some(guard)
}
