//! Epochs: what was taken out of a structure is freed once no thread that may have seen it is pinned.
//!
//! They are crossbeam's. Where one system thread stands for several simulated ones, each of these has a
//! participant of its own, which a simulator sets up with `simulate`.

use std::cell::RefCell;

pub use crossbeam_epoch::Guard;
use crossbeam_epoch::{Collector, LocalHandle};

use crate::sync::HAS_TURNS;
use crate::sync::wait::cross;
use crate::thread_index;

/// How often [`settle`] ends an epoch.
const EPOCHS_ENDED: usize = 256;

thread_local! {
    /// The participants of simulated threads, by their numbers.
    static PARTICIPANTS: RefCell<Vec<LocalHandle>> = const { RefCell::new(Vec::new()) };
}

/// Pins the calling thread: what is reachable now is not freed before the guard is dropped.
#[inline(always)]
pub fn pin() -> Guard {
    if HAS_TURNS && let Some(guard) = pin_simulated() {
        return guard;
    }
    crossbeam_epoch::pin()
}

/// Ends epochs until `is_over` says that what waits for them is free, or has been asked so often that a thread that is
/// pinned, or has put off what it freed, must be in the way; returns what it says last.
pub fn settle(mut is_over: impl FnMut() -> bool) -> bool {
    for _ in 0..EPOCHS_ENDED {
        if is_over() {
            return true;
        }
        pin().flush();
    }
    is_over()
}

/// Has the calling thread stand for so many, with epochs of their own, in a build with the feature `turns`.
/// 0 ends this, and frees what waits for their epochs.
pub fn simulate(threads: usize) {
    let collector = Collector::new();
    let participants = (0..threads).map(|_| collector.register()).collect();
    drop(PARTICIPANTS.replace(participants));
}

fn pin_simulated() -> Option<Guard> {
    let pinned = |all: &Vec<LocalHandle>| all.get(thread_index()).map(LocalHandle::pin);
    let guard = PARTICIPANTS.try_with(|all| pinned(&all.borrow())).ok()??;
    cross();
    // What can be freed is freed soon, so that short runs see it.
    guard.flush();
    Some(guard)
}
