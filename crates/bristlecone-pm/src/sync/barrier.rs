//! An asymmetric fence: frequent callers pass a light side, and a rare caller pays for all of them.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence, fence};

/// Orders a store before a load on two sides. Many threads pass the light side often; the heavy side bears the
/// cost. If two threads, one on each side, each store and then load what the other stored, at least one sees the
/// other's store.
#[derive(Debug)]
pub struct AsymmetricFence {
    /// The kernel interrupts the other threads.
    by_kernel: bool,
}

impl AsymmetricFence {
    /// Asks the kernel whether it can do the work of the heavy side. If it cannot (an old kernel, or one configured
    /// to refuse), both sides execute a fence.
    pub fn detect() -> Self {
        Self { by_kernel: membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) }
    }

    /// Returns a fence that executes on both sides.
    pub fn symmetric() -> Self {
        Self { by_kernel: false }
    }

    /// Passes the light side.
    #[inline(always)]
    pub fn light(&self) {
        if self.by_kernel {
            compiler_fence(SeqCst);
        } else {
            fence(SeqCst);
        }
    }

    /// Passes the heavy side: costs some microseconds if the kernel does the work.
    ///
    /// # Panics
    ///
    /// If the kernel did the work before and refuses now: the visibility of other threads' stores is then unknown.
    pub fn heavy(&self) {
        fence(SeqCst);
        if self.by_kernel {
            let done = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
            assert!(done, "the kernel refuses membarrier, which it allowed when the pool was opened");
        }
    }
}

/// An [`AsymmetricFence`] whose light side is passed by threads of other processes.
#[derive(Debug)]
pub(crate) struct GlobalFence {
    by_kernel: bool,
}

impl GlobalFence {
    /// Asks the kernel whether it can do the work of the heavy side, and registers this process for the light side.
    pub fn detect() -> Self {
        Self { by_kernel: membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) }
    }

    /// Returns whether the kernel does the work. If it does not do so for both sides, both must fence.
    pub fn is_by_kernel(&self) -> bool {
        self.by_kernel
    }

    /// Passes the heavy side.
    ///
    /// # Panics
    ///
    /// As [`AsymmetricFence::heavy`].
    pub fn heavy(&self) {
        fence(SeqCst);
        if self.by_kernel {
            let done = membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED);
            assert!(done, "the kernel refuses membarrier, which it allowed when the pool was opened");
        }
    }
}

#[cfg(target_os = "linux")]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: a system call that takes two numbers (the processor's counts for no command used here), and touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn membarrier(_: libc::c_int) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    /// Both threads store and load; at least one must see the other's store.
    #[test]
    fn one_of_both_sides_sees_the_other() {
        for barrier in [AsymmetricFence::detect(), AsymmetricFence::symmetric()] {
            let (a, b) = (AtomicU64::new(0), AtomicU64::new(0));
            let meet = std::sync::Barrier::new(2);
            let rounds = 2000;
            let (light, heavy) = std::thread::scope(|scope| {
                let light = scope.spawn(|| {
                    let round = |round| {
                        meet.wait();
                        a.store(round, Relaxed);
                        barrier.light();
                        let seen = b.load(Relaxed);
                        meet.wait();
                        seen == round
                    };
                    (1..=rounds).map(round).collect::<Vec<_>>()
                });
                let heavy = scope.spawn(|| {
                    let round = |round| {
                        meet.wait();
                        b.store(round, Relaxed);
                        barrier.heavy();
                        let seen = a.load(Relaxed);
                        meet.wait();
                        seen == round
                    };
                    (1..=rounds).map(round).collect::<Vec<_>>()
                });
                (light.join().unwrap(), heavy.join().unwrap())
            });
            assert!(light.iter().zip(&heavy).all(|(light, heavy)| *light || *heavy));
        }
    }
}
