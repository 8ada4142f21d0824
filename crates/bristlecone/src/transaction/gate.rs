//! The gate that every write passes: it costs two stores while nothing but single keys is written.

use crossbeam_utils::CachePadded;

use crate::transaction::sync::{
    AsymmetricFence, AtomicU64, LINES, Mutex, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst, RwLock, RwLockReadGuard, compiler_fence, fence, own_thread_index, wait,
};

/// Nothing but single keys was written since the pool was opened.
const QUIET: u64 = 0;
/// Writes take the lock of their key's stripe, and save what snapshots need.
const WATCHFUL: u64 = 1;
/// As watchful, while writers from before are waited for.
const TURNING: u64 = 2;

/// What writers under way are waited for by.
///
/// A writer stores in its own line that it is under way, and looks at the mode and the epoch afterwards. The thread that changes
/// one of these stores it, passes the heavy side of the fence, and looks at the lines afterwards. So either
/// the writer sees the change, or the other thread sees the writer, and waits for it. A watchful writer looks at the epoch with the locks of
/// its keys only, which cost it a locked instruction: that is barrier enough for a new epoch, so that a snapshot interrupts no
/// thread once writers are watchful.
#[derive(Debug)]
pub(crate) struct Gate {
    mode: AtomicU64,
    fence: AsymmetricFence,
    /// By thread: odd while it writes.
    lines: Box<[CachePadded<AtomicU64>]>,
    /// Held for reading by writers without a line.
    others: RwLock<()>,
    /// Held while the mode is changed.
    turning: Mutex<()>,
}

/// A writer under way, until this is dropped.
pub(crate) struct Entered<'a> {
    line: Option<&'a AtomicU64>,
    watchful: bool,
    _shared: Option<RwLockReadGuard<'a, ()>>,
}

impl Gate {
    pub fn new(fence: AsymmetricFence) -> Self {
        let lines = (0..LINES).map(|_| CachePadded::default()).collect();
        let (others, turning) = (RwLock::new(()), Mutex::new(()));
        Self { mode: AtomicU64::new(QUIET), fence, lines, others, turning }
    }

    /// Begins a write.
    #[inline(always)]
    pub fn enter(&self) -> Entered<'_> {
        let line = own_thread_index().and_then(|thread| self.lines.get(thread));
        let Some(line) = line else { return self.enter_shared() };
        line.store(line.load(Relaxed) + 1, Relaxed);
        self.fence.light();
        // Pairs with `watch`: what the thread that changed the mode did before is seen.
        let watchful = self.mode.load(Acquire) != QUIET;
        Entered { line: Some(line), watchful, _shared: None }
    }

    #[cold]
    #[inline(never)]
    fn enter_shared(&self) -> Entered<'_> {
        let shared = wait::read(&self.others);
        self.fence.light();
        let watchful = self.mode.load(Acquire) != QUIET;
        Entered { line: None, watchful, _shared: Some(shared) }
    }

    /// Has writers be watchful from now on; there is none left that is not.
    pub fn watch(&self) {
        if self.mode.load(Acquire) == QUIET {
            let _one = wait::lock(&self.turning);
            // Again, by a second thread: it returns once this one is through.
            self.mode.store(TURNING, Release);
            self.wait_for_writers();
            self.mode.store(WATCHFUL, Release);
        } else if self.mode.load(Acquire) != WATCHFUL {
            drop(wait::lock(&self.turning));
        }
    }

    /// Waits until every writer is through that may not have seen what the calling thread stored before.
    pub fn wait_for_writers(&self) {
        self.fence.heavy();
        self.wait_for_lines();
    }

    /// Waits likewise, for writers that look at what was stored behind a [`full_barrier`] only. All are watchful.
    pub fn wait_for_watchful_writers(&self) {
        debug_assert_ne!(self.mode.load(Acquire), QUIET, "writers may have passed no barrier");
        // Pairs with the barrier: that writer sees what was stored, or its line is seen.
        fence(SeqCst);
        self.wait_for_lines();
    }

    fn wait_for_lines(&self) {
        for line in &self.lines {
            // Pairs with the release in `drop`.
            let seen = line.load(Acquire);
            let mut round = 0;
            while seen % 2 == 1 && line.load(Acquire) == seen {
                wait::pause(round);
                round += 1;
            }
        }
        drop(wait::write(&self.others));
    }
}

/// Orders the calling thread's line, and whatever it stored before, before what it loads from now on. It has just passed a locked
/// instruction.
#[inline(always)]
pub(crate) fn full_barrier() {
    // On x86 that was one.
    if cfg!(target_arch = "x86_64") { compiler_fence(SeqCst) } else { fence(SeqCst) }
}

impl Entered<'_> {
    /// Returns whether the write has to take the lock of its stripe.
    #[inline(always)]
    pub fn is_watchful(&self) -> bool {
        self.watchful
    }
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(line) = self.line {
            line.store(line.load(Relaxed) + 1, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn writers_under_way_are_waited_for_and_later_ones_are_watchful() {
        for fence in [AsymmetricFence::detect(), AsymmetricFence::symmetric()] {
            let gate = Gate::new(fence);
            let (inside, over) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let entered = gate.enter();
                    assert!(!entered.is_watchful());
                    inside.store(true, Release);
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    over.store(true, Relaxed);
                });
                while !inside.load(Acquire) {
                    std::thread::yield_now();
                }
                gate.watch();
                assert!(over.load(Relaxed), "a writer was not waited for");
            });
            assert!(gate.enter().is_watchful());
            gate.watch();
        }
    }

    #[test]
    fn writers_without_a_line_are_waited_for() {
        let gate = Gate::new(AsymmetricFence::detect());
        let (inside, over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _entered = gate.enter_shared();
                inside.store(true, Release);
                std::thread::sleep(std::time::Duration::from_millis(20));
                over.store(true, Relaxed);
            });
            while !inside.load(Acquire) {
                std::thread::yield_now();
            }
            gate.wait_for_writers();
            assert!(over.load(Relaxed), "a writer was not waited for");
        });
    }
}
