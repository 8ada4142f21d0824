//! Active-writer registry, and waiting for active threads (quiescence): an entering thread executes two
//! stores, a waiting thread takes some microseconds.

use crossbeam_utils::CachePadded;

use super::sync::{
    AsymmetricFence, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
    RwLock, RwLockReadGuard, THREAD_SLOTS, compiler_fence, fence, own_thread_index, wait,
};

/// A registry that threads enter and leave, each with its own slot.
///
/// A thread stores in its slot that it is active, and then reads the shared state. A thread that changes this
/// state stores it, passes the heavy side of the fence, and then reads the slots. So either the one sees the
/// change, or the other sees that it is active, and waits for it. A thread must not enter twice.
#[derive(Debug)]
pub struct ActiveThreads {
    fence: AsymmetricFence,
    /// By thread: odd while it is active.
    slots: Box<[CachePadded<AtomicU64>]>,
    /// Held for reading by threads without a slot.
    others: RwLock<()>,
}

/// An active thread, until this is dropped.
pub struct Entered<'a> {
    slot: Option<&'a AtomicU64>,
    _shared: Option<RwLockReadGuard<'a, ()>>,
}

impl ActiveThreads {
    pub fn new(fence: AsymmetricFence) -> Self {
        let slots = (0..THREAD_SLOTS).map(|_| CachePadded::default()).collect();
        Self { fence, slots, others: RwLock::new(()) }
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
        let slot = thread.and_then(|thread| self.slots.get(thread));
        let Some(slot) = slot else { return self.enter_shared() };
        slot.store(slot.load(Relaxed) + 1, Relaxed);
        self.fence.light();
        Entered { slot: Some(slot), _shared: None }
    }

    #[cold]
    #[inline(never)]
    fn enter_shared(&self) -> Entered<'_> {
        let shared = wait::read(&self.others);
        self.fence.light();
        Entered { slot: None, _shared: Some(shared) }
    }

    /// Waits until every thread has left that may not have seen the calling thread's earlier stores.
    pub fn wait(&self) {
        self.fence.heavy();
        self.wait_for_slots();
    }

    /// Waits likewise, for threads that read the stored data only behind a [`full_barrier`].
    pub fn wait_behind_barriers(&self) {
        // Pairs with the barrier: either that thread sees the stored data, or its slot is seen.
        fence(SeqCst);
        self.wait_for_slots();
    }

    fn wait_for_slots(&self) {
        for slot in &self.slots {
            // Pairs with the release in `drop`.
            let seen = slot.load(Acquire);
            let mut round = 0;
            while seen % 2 == 1 && slot.load(Acquire) == seen {
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
        if let Some(slot) = self.slot {
            slot.store(slot.load(Relaxed) + 1, Release);
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
            let active = ActiveThreads::new(fence);
            is_waited_for(|| active.enter(), || active.wait());
            is_waited_for(|| active.enter(), || active.wait_behind_barriers());
        }
    }

    #[test]
    fn threads_without_a_slot_are_waited_for() {
        let active = ActiveThreads::new(AsymmetricFence::detect());
        is_waited_for(|| active.enter_shared(), || active.wait());
    }
}
