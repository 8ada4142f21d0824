//! The gate that every write passes: it costs two stores while nothing but single keys is written.

use crate::index::parts::passage::{self, Passage};
use crate::index::parts::sync::{
    AsymmetricFence, AtomicU64, Mutex, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release, wait,
};

/// All writers under way take the lock of their key's stripe, and save what snapshots need.
const WATCHFUL: u64 = 1;
/// A batch, transaction or snapshot that needs this; there may be many.
const USER: u64 = 2;
/// Single writes in a row, without any user, after which writers take no locks again.
const SINGLES: u64 = 1024;

/// What writers under way are waited for by.
///
/// A writer enters, and looks at the mode and the epoch afterwards. A watchful writer looks at the epoch with the locks of
/// its keys only, which cost it a locked instruction: that is barrier enough for a new epoch, so that a snapshot interrupts no
/// thread once writers are watchful.
///
/// The mode is one word: the number of users, and whether every writer under way is watchful. A writer that finds it other than
/// zero is watchful. 1. A user counts itself. If the word says `WATCHFUL`, that is all. 2. Otherwise it waits for the writers that
/// may not have seen it, and sets that bit. 3. A writer that has found no user often enough replaces `WATCHFUL` alone by zero. *In
/// the same step a user cannot count itself, so none relies on a bit that is gone.*
#[derive(Debug)]
pub(crate) struct Gate {
    mode: AtomicU64,
    writers: Passage,
    /// Held while the mode becomes watchful.
    turning: Mutex<()>,
    /// Watchful single writes since a user came.
    singles: AtomicU64,
}

/// A writer under way, until this is dropped.
pub(crate) struct Entered<'a> {
    _entered: passage::Entered<'a>,
    watchful: bool,
}

/// A user of watchful writers, until this is dropped.
#[must_use]
pub(crate) struct Watched<'a>(&'a Gate);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.end_use();
    }
}

impl Gate {
    pub fn new(fence: AsymmetricFence) -> Self {
        let [mode, singles] = [(); 2].map(|()| AtomicU64::new(0));
        Self { mode, writers: Passage::new(fence), turning: Mutex::new(()), singles }
    }

    /// Begins a write.
    #[inline(always)]
    pub fn enter(&self) -> Entered<'_> {
        let entered = self.writers.enter();
        // Pairs with `begin_use`: what the thread that changed the mode did before is seen.
        let watchful = self.mode.load(Acquire) != 0;
        Entered { _entered: entered, watchful }
    }

    /// Has writers be watchful until what is returned is dropped; there is none left that is not.
    pub fn watch(&self) -> Watched<'_> {
        self.begin_use();
        Watched(self)
    }

    /// Begins what [`watch`](Self::watch) does; [`end_use`](Self::end_use) ends it.
    pub fn begin_use(&self) {
        let found = self.mode.fetch_add(USER, AcqRel);
        if self.singles.load(Relaxed) != 0 {
            self.singles.store(0, Relaxed);
        }
        if found & WATCHFUL == 0 {
            let _one = wait::lock(&self.turning);
            // A second user finds it done once the first is through.
            if self.mode.load(Acquire) & WATCHFUL == 0 {
                self.writers.wait();
                self.mode.fetch_add(WATCHFUL, AcqRel);
            }
        }
    }

    pub fn end_use(&self) {
        self.mode.fetch_sub(USER, Release);
    }

    /// Notes a watchful write of a single key. After many of them without any user, writers take no locks again.
    pub fn note_single(&self) {
        if self.mode.load(Relaxed) == WATCHFUL && self.singles.fetch_add(1, Relaxed) >= SINGLES {
            self.rest();
        }
    }

    /// Ends the watchful mode if there is no user.
    pub(crate) fn rest(&self) {
        if self.mode.compare_exchange(WATCHFUL, 0, AcqRel, Relaxed).is_ok() {
            self.singles.store(0, Relaxed);
        }
    }

    /// Waits until every writer is through that may not have seen what the calling thread stored before. All are watchful.
    pub fn wait_for_watchful_writers(&self) {
        debug_assert_ne!(self.mode.load(Acquire) & WATCHFUL, 0, "writers may have passed no barrier");
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
    fn writers_are_watchful_while_there_is_a_user_and_for_a_while_after_it() {
        let gate = Gate::new(AsymmetricFence::detect());
        assert!(!gate.enter().is_watchful());
        for _ in 0..2 {
            let (first, second) = (gate.watch(), gate.watch());
            drop(first);
            for _ in 0..2 * SINGLES {
                assert!(gate.enter().is_watchful());
                gate.note_single();
            }
            drop(second);
            for _ in 0..=SINGLES {
                assert!(gate.enter().is_watchful());
                gate.note_single();
            }
            assert!(!gate.enter().is_watchful());
        }
    }
}
