//! Active-writer registry, and waiting for active threads (quiescence): an entering thread executes two
//! stores, a waiting thread takes some microseconds.

use crossbeam_utils::CachePadded;

use super::sync::{
    AsymmetricFence, AtomicU64, LINES, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst, RwLock, RwLockReadGuard, compiler_fence, fence, own_thread_index, wait,
};

/// A registry that threads enter and leave, each with its own slot.
///
/// A thread stores in its slot that it is active, and then reads the shared state. A thread that changes this
/// state stores it, passes the heavy side of the fence, and then reads the slots. So either the one sees the
/// change, or the other sees that it is active, and waits for it. A thread must not enter twice.
#[derive(Debug)]
pub struct Passage {
    fence: AsymmetricFence,
    /// By thread: odd while it is active.
    lines: Box<[CachePadded<AtomicU64>]>,
    /// Held for reading by threads without a slot.
    others: RwLock<()>,
}

/// An active thread, until this is dropped.
pub struct Entered<'a> {
    line: Option<&'a AtomicU64>,
    _shared: Option<RwLockReadGuard<'a, ()>>,
}

impl Passage {
    pub fn new(fence: AsymmetricFence) -> Self {
        let lines = (0..LINES).map(|_| CachePadded::default()).collect();
        Self { fence, lines, others: RwLock::new(()) }
    }

    /// Enters: data loaded from here on either remain valid until the thread leaves, or are the ones that
    /// others have stored.
    #[inline(always)]
    pub fn enter(&self) -> Entered<'_> {
        self.enter_as(own_thread_index())
    }

    /// Enters as the calling thread, which has this number.
    #[inline(always)]
    pub fn enter_as(&self, thread: Option<usize>) -> Entered<'_> {
        let line = thread.and_then(|thread| self.lines.get(thread));
        let Some(line) = line else { return self.enter_shared() };
        line.store(line.load(Relaxed) + 1, Relaxed);
        self.fence.light();
        Entered { line: Some(line), _shared: None }
    }

    #[cold]
    #[inline(never)]
    fn enter_shared(&self) -> Entered<'_> {
        let shared = wait::read(&self.others);
        self.fence.light();
        Entered { line: None, _shared: Some(shared) }
    }

    /// Waits until every thread has left that may not have seen the calling thread's earlier stores.
    pub fn wait(&self) {
        self.fence.heavy();
        self.wait_for_lines();
    }

    /// Waits likewise, for threads that read the stored data only behind a [`full_barrier`].
    pub fn wait_behind_barriers(&self) {
        // Pairs with the barrier: either that thread sees the stored data, or its slot is seen.
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

/// Orders the calling thread's slot, and its earlier stores, before its later loads. The thread must just
/// have executed a locked instruction.
#[inline(always)]
pub fn full_barrier() {
    // On x86, the locked instruction is a full barrier.
    if cfg!(target_arch = "x86_64") { compiler_fence(SeqCst) } else { fence(SeqCst) }
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
    use std::time::Duration;

    use super::*;

    /// Keeps a thread in the registry for a while, and asserts that it has left when `wait` returns.
    fn is_waited_for<'p>(enter: impl Fn() -> Entered<'p> + Sync, wait: impl FnOnce()) {
        let (inside, leaves) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _entered = enter();
                inside.store(true, Release);
                std::thread::sleep(Duration::from_millis(20));
                leaves.store(true, Relaxed);
            });
            while !inside.load(Acquire) {
                std::thread::yield_now();
            }
            wait();
            assert!(leaves.load(Relaxed), "a thread was not waited for");
        });
    }

    #[test]
    fn threads_under_way_are_waited_for() {
        for fence in [AsymmetricFence::detect(), AsymmetricFence::symmetric()] {
            let passage = Passage::new(fence);
            is_waited_for(|| passage.enter(), || passage.wait());
            is_waited_for(|| passage.enter(), || passage.wait_behind_barriers());
        }
    }

    #[test]
    fn threads_without_a_line_are_waited_for() {
        let passage = Passage::new(AsymmetricFence::detect());
        is_waited_for(|| passage.enter_shared(), || passage.wait());
    }
}
