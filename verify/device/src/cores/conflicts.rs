//! Conflicting accesses: of simulated threads, and of real ones, so that the two can be compared.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use bristlecone_pm::LINE_BYTES;
use bristlecone_pm::sync::wait::Use;

/// Entries of the directory. Lines are found by a hash, and few share an entry.
const ENTRIES: usize = 1 << 24;
/// Set if the last access of an entry was a store. The other bits are the threads that have the line.
const MODIFIED: u32 = 1 << 31;
const MOST: usize = Conflicts::THREADS_MAX;

/// Counts the accesses that would fetch a line from another core, or take it from one, if caches had no end. An access
/// conflicts if it is a store to a line that others have accessed since, or a load of one that another thread has
/// stored to since.
pub struct Conflicts {
    entries: Box<[AtomicU32]>,
    counts: [Counts; MOST],
}

/// The counts of a thread.
#[derive(Default)]
#[repr(align(128))]
struct Counts {
    accesses: AtomicU64,
    conflicts: AtomicU64,
}

thread_local! {
    /// What a real thread reports to, and its number.
    static OBSERVED: Cell<Option<(*const Conflicts, usize)>> = const { Cell::new(None) };
}

impl std::fmt::Debug for Conflicts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conflicts").finish_non_exhaustive()
    }
}

impl Default for Conflicts {
    fn default() -> Self {
        let entries = (0..ENTRIES).map(|_| AtomicU32::new(0)).collect();
        Self { entries, counts: std::array::from_fn(|_| Counts::default()) }
    }
}

impl Conflicts {
    /// Maximum number of threads.
    pub const THREADS_MAX: usize = 31;

    /// Returns the numbers of accesses and of conflicts since the last call.
    pub fn take(&self) -> (u64, u64) {
        let taken =
            self.counts.iter().map(|of| (of.accesses.swap(0, Relaxed), of.conflicts.swap(0, Relaxed)));
        taken.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }

    /// Notes an access of a thread.
    pub(super) fn touch(&self, number: usize, address: usize, by: Use) {
        let stores = match by {
            Use::Load => false,
            Use::Store | Use::Locked | Use::Lock => true,
            // Only what is waited for counts, and an attempt to get a lock once.
            Use::Prefetch | Use::LockAgain | Use::Fence => return,
        };
        let hash = (address / LINE_BYTES).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let entry = &self.entries[hash >> (usize::BITS - ENTRIES.trailing_zeros())];
        let own = 1 << number;
        let next = |seen: u32| if stores { MODIFIED | own } else { seen & !MODIFIED | own };
        let is_conflict = |seen: u32| {
            let of_others = seen & !MODIFIED & !own != 0;
            of_others && if stores { true } else { seen & MODIFIED != 0 }
        };
        let mut seen = entry.load(Relaxed);
        let is_kept = |seen: u32| if stores { seen == MODIFIED | own } else { seen & own != 0 };
        while !is_kept(seen) {
            match entry.compare_exchange_weak(seen, next(seen), Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // One thread counts here.
        let count = |of: &AtomicU64| of.store(of.load(Relaxed) + 1, Relaxed);
        count(&self.counts[number].accesses);
        if is_conflict(seen) {
            count(&self.counts[number].conflicts);
        }
    }
}

/// Sets what the accesses of the calling thread are noted in, and its number there, until the next call.
///
/// # Safety
///
/// The conflicts live until then.
pub(super) unsafe fn observe(by: Option<(&Conflicts, usize)>) {
    OBSERVED.set(by.map(|(conflicts, number)| (std::ptr::from_ref(conflicts), number)));
}

/// Notes an access of the calling thread, if it is a real one that is observed.
#[inline]
pub(super) fn note(address: usize, by: Use) {
    if let Some((conflicts, number)) = OBSERVED.get() {
        // SAFETY: the caller of `observe`.
        unsafe { &*conflicts }.touch(number, address, by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_conflicts_if_another_thread_has_the_line_and_one_of_both_stores() {
        let conflicts = Conflicts::default();
        let after = |number, by| {
            conflicts.touch(number, 0x1000, by);
            conflicts.take()
        };
        assert_eq!(after(0, Use::Load), (1, 0));
        assert_eq!(after(1, Use::Load), (1, 0), "two readers");
        assert_eq!(after(1, Use::Store), (1, 1));
        assert_eq!(after(1, Use::Locked), (1, 0));
        assert_eq!(after(0, Use::Load), (1, 1));
        assert_eq!(after(0, Use::Load), (1, 0));
        assert_eq!(after(1, Use::Load), (1, 0), "it has kept the line");
        assert_eq!(after(0, Use::Lock), (1, 1));
        assert_eq!(after(0, Use::Prefetch), (0, 0));
        conflicts.touch(1, 0x1040, Use::Store);
        assert_eq!(conflicts.take(), (1, 0), "another line");
    }
}
