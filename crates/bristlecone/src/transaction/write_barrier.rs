//! The write barrier that every write passes. It costs two stores while there are only single-key writes.

use crossbeam_utils::CachePadded;

use crate::index::parts::active_threads::{self, ActiveThreads};
use crate::index::parts::sync::{
    AsymmetricFence, AtomicU64, Mutex, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release, wait,
};

/// Tracking mode: every active writer takes the lock of its key's stripe, and saves old values for snapshots.
const TRACKING: u64 = 1;
/// A batch, transaction or snapshot that needs tracking; there may be many.
const USER: u64 = 2;
/// Number of consecutive single-key writes without any user after which writers return to the fast mode.
const SINGLES: u64 = 1024;

/// The write barrier: lets a thread wait for active writers.
///
/// A writer enters first, and then reads the mode and the epoch. In tracking mode, a writer reads the epoch only
/// while it holds the locks of its keys. Acquiring a lock takes a locked instruction, which is a sufficient
/// barrier for a new epoch. A snapshot therefore interrupts no thread in tracking mode.
///
/// The mode is one word: the number of users, and whether every active writer is in tracking mode. A writer that
/// reads a nonzero mode tracks its write.
/// 1. A user increments the count. If the word has `TRACKING` set, tracking is active.
/// 2. Otherwise the user waits for the writers that may not have seen the count, and sets that bit.
/// 3. A writer that has found no user often enough replaces a word with only `TRACKING` set by zero. *A user
///    cannot increment the count within this atomic step, so none relies on a cleared bit.*
#[derive(Debug)]
pub(crate) struct WriteBarrier {
    /// On its own cache line: every write reads it.
    mode: CachePadded<AtomicU64>,
    writers: ActiveThreads,
    /// Held during the transition to tracking mode.
    transition: Mutex<()>,
    /// Number of tracked single-key writes since the last user, stored to by each of them.
    singles: CachePadded<AtomicU64>,
}

/// An active writer, until this is dropped.
pub(crate) struct Entered<'a> {
    _entered: active_threads::Entered<'a>,
    tracking: bool,
}

/// A user of tracking mode, until this is dropped.
#[must_use]
pub(crate) struct Tracked<'a>(&'a WriteBarrier);

impl Drop for Tracked<'_> {
    fn drop(&mut self) {
        self.0.end_use();
    }
}

impl WriteBarrier {
    pub fn new(fence: AsymmetricFence) -> Self {
        let [mode, singles] = [(); 2].map(|()| CachePadded::new(AtomicU64::new(0)));
        Self { mode, writers: ActiveThreads::new(fence), transition: Mutex::new(()), singles }
    }

    /// Begins a write.
    #[inline(always)]
    pub fn enter(&self) -> Entered<'_> {
        let entered = self.writers.enter();
        // Pairs with `begin_use`: earlier stores of the thread that changed the mode are visible.
        let tracking = self.mode.load(Acquire) != 0;
        Entered { _entered: entered, tracking }
    }

    /// Switches all writers to tracking mode until the result is dropped, and waits until the last untracked
    /// write has finished.
    pub fn watch(&self) -> Tracked<'_> {
        self.begin_use();
        Tracked(self)
    }

    /// Begins tracking as [`watch`](Self::watch) does; [`end_use`](Self::end_use) ends it.
    pub fn begin_use(&self) {
        let found = self.mode.fetch_add(USER, AcqRel);
        if self.singles.load(Relaxed) != 0 {
            self.singles.store(0, Relaxed);
        }
        if found & TRACKING == 0 {
            let _one = wait::lock(&self.transition);
            // A second user finds the bit set once the first has finished.
            if self.mode.load(Acquire) & TRACKING == 0 {
                self.writers.wait();
                self.mode.fetch_add(TRACKING, AcqRel);
            }
        }
    }

    pub fn end_use(&self) {
        self.mode.fetch_sub(USER, Release);
    }

    /// Counts a tracked single-key write. After many of them without any user, writers return to the fast mode.
    pub fn note_single(&self) {
        if self.mode.load(Relaxed) == TRACKING && self.singles.fetch_add(1, Relaxed) >= SINGLES {
            self.rest();
        }
    }

    /// Ends the tracking mode if there is no user.
    pub(crate) fn rest(&self) {
        if self.mode.compare_exchange(TRACKING, 0, AcqRel, Relaxed).is_ok() {
            self.singles.store(0, Relaxed);
        }
    }

    /// Waits until every writer has finished that may not have seen the calling thread's earlier stores. All
    /// writers must be in tracking mode.
    pub fn wait_for_tracked_writers(&self) {
        debug_assert_ne!(self.mode.load(Acquire) & TRACKING, 0, "writers may have passed no barrier");
        self.writers.wait_behind_barriers();
    }
}

impl Entered<'_> {
    /// Returns whether the write must take the lock of its stripe.
    #[inline(always)]
    pub fn is_tracking(&self) -> bool {
        self.tracking
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_tracking_while_there_is_a_user_and_for_a_while_after_it() {
        let barrier = WriteBarrier::new(AsymmetricFence::detect());
        assert!(!barrier.enter().is_tracking());
        for _ in 0..2 {
            let (first, second) = (barrier.watch(), barrier.watch());
            drop(first);
            for _ in 0..2 * SINGLES {
                assert!(barrier.enter().is_tracking());
                barrier.note_single();
            }
            drop(second);
            for _ in 0..=SINGLES {
                assert!(barrier.enter().is_tracking());
                barrier.note_single();
            }
            assert!(!barrier.enter().is_tracking());
        }
    }
}
