//! A small dense number for every running thread, used to partition shared state.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// Maximum number of threads that can have a number at the same time.
const THREADS_MAX: usize = 1 << 16;

/// A bit for each number that a running thread has. No lock: a child that was forked while another
/// thread held it would wait forever.
static TAKEN: [AtomicU64; THREADS_MAX / 64] = [const { AtomicU64::new(0) }; THREADS_MAX / 64];

struct Index {
    own: Option<usize>,
    /// The number that the thread uses.
    current: Cell<Option<usize>>,
}

impl Index {
    fn take() -> Self {
        let own = TAKEN.iter().enumerate().find_map(|(at, word)| {
            let lowest = |bits: u64| (bits != u64::MAX).then(|| bits | (bits + 1));
            // Pairs with the release in `drop`: the last thread with this number has finished.
            let before = word.fetch_update(AcqRel, Acquire, lowest).ok()?;
            Some(at * 64 + before.trailing_ones() as usize)
        });
        Self { own, current: Cell::new(own) }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        if let Some(own) = self.own {
            TAKEN[own / 64].fetch_and(!(1 << (own % 64)), Release);
        }
    }
}

thread_local! {
    static INDEX: Index = Index::take();
}

/// Returns the calling thread's number: the smallest that was free at its first call. A thread
/// whose locals are being destroyed uses number 0, and so do threads beyond 65,536.
#[inline]
pub fn thread_index() -> usize {
    own_thread_index().unwrap_or(0)
}

/// Returns the calling thread's number, or `None` if another thread may have the same number.
#[inline]
pub fn own_thread_index() -> Option<usize> {
    INDEX.try_with(|index| index.current.get()).ok().flatten()
}

/// Makes the calling thread act as the simulated thread with this number; `None` ends this.
pub fn assume_thread_index(number: Option<usize>) {
    let _ = INDEX.try_with(|index| index.current.set(number.or(index.own)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_threads_differ() {
        let here = thread_index();
        let there = std::thread::spawn(thread_index).join().unwrap();
        assert_ne!(here, there);
        assert_eq!(here, thread_index());
    }

    #[test]
    fn numbers_are_small_and_used_again() {
        // Other tests of this process start threads, too.
        for _ in 0..20 {
            let barrier = std::sync::Barrier::new(8);
            let ask = || (thread_index(), barrier.wait()).0;
            let numbers: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let mut distinct = numbers.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), 8, "{numbers:?}");
            assert!(distinct[7] < 200, "{numbers:?}");
        }
    }
}
