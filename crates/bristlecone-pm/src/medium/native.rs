//! The medium of this machine, without overhead. Benchmarks may add a delay to each flush, to model slower memory.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::arch::{self, FlushKind};
use super::copy;
use crate::{Domain, LINE_BYTES, Medium, PAGE_BYTES, Step, failpoint};

/// The processor's own loads, stores, flushes and fences, as the domain requires them.
#[derive(Debug)]
pub struct Native {
    mode: Mode,
    /// The mode without the delay of a flushed line, and that delay.
    slow: (Mode, Duration),
    failed: AtomicBool,
    /// Identifies the medium whose pages a thread has yet to sync.
    life: Arc<()>,
    /// Numbers of flushed lines and of fences.
    #[cfg(feature = "metrics")]
    counts: crate::Counts<2>,
}

/// The implementation of flush and fence. There is one per pool, so the branch on it is always predicted.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Order,
    Fence,
    Flush(FlushKind),
    Sync,
    /// See [`Native::slow`].
    Slow,
}

/// Pages of one medium that a thread flushed and has not yet synced. The fence of another medium must not sync them:
/// the pool may be closed by then and its addresses reused.
#[derive(Debug)]
struct Unsynced {
    medium: Weak<()>,
    pages: Vec<usize>,
}

thread_local! {
    static UNSYNCED: RefCell<Vec<Unsynced>> = const { RefCell::new(Vec::new()) };
}

impl Native {
    /// Returns the medium of a domain.
    pub fn new(domain: Domain) -> Self {
        let mode = match domain {
            Domain::Process | Domain::Journal => Mode::Order,
            Domain::Eadr => Mode::Fence,
            Domain::Adr => Mode::Flush(FlushKind::detect()),
            Domain::Msync => Mode::Sync,
        };
        Self {
            mode,
            slow: (mode, Duration::ZERO),
            failed: AtomicBool::new(false),
            life: Arc::default(),
            #[cfg(feature = "metrics")]
            counts: crate::Counts::default(),
        }
    }

    /// Returns the medium of a domain with a busy wait after every flushed line.
    pub fn delayed(domain: Domain, per_line: Duration) -> Self {
        let native = Self::new(domain);
        Self { mode: Mode::Slow, slow: (native.mode, per_line), ..native }
    }

    #[inline(always)]
    fn flush_as(&self, mode: Mode, start: *const u8, bytes: usize) {
        match mode {
            Mode::Flush(kind) => kind.flush(start, bytes),
            Mode::Sync => self.note_pages(start, bytes),
            Mode::Order | Mode::Fence => compiler_fence(Ordering::SeqCst),
            Mode::Slow => self.flush_slowly(start, bytes),
        }
    }

    #[cold]
    fn flush_slowly(&self, start: *const u8, bytes: usize) {
        let (mode, per_line) = self.slow;
        self.flush_as(mode, start, bytes);
        let lines = (start.addr() % LINE_BYTES + bytes).div_ceil(LINE_BYTES);
        let begun = Instant::now();
        while begun.elapsed() < per_line * lines as u32 {
            std::hint::spin_loop();
        }
    }

    #[inline(always)]
    fn drain_as(&self, mode: Mode) {
        match mode {
            // A killed process leaves the stores that it retired, in program order.
            Mode::Order => fence(Ordering::Release),
            Mode::Fence | Mode::Flush(_) => arch::drain(),
            Mode::Sync => self.sync_pages(),
            Mode::Slow => self.drain_slowly(),
        }
    }

    #[cold]
    fn drain_slowly(&self) {
        self.drain_as(self.slow.0);
    }

    fn is_of(&self, unsynced: &Unsynced) -> bool {
        std::ptr::eq(unsynced.medium.as_ptr(), Arc::as_ptr(&self.life))
    }

    #[cold]
    fn note_pages(&self, start: *const u8, bytes: usize) {
        let first = start.addr() / PAGE_BYTES;
        let last = (start.addr() + bytes.max(1) - 1) / PAGE_BYTES;
        let noted = UNSYNCED.try_with(|unsynced| {
            let mut unsynced = unsynced.borrow_mut();
            let at = unsynced.iter().position(|unsynced| self.is_of(unsynced)).unwrap_or_else(|| {
                // Drops the entries of media that no longer exist.
                unsynced.retain(|unsynced| unsynced.medium.strong_count() > 0);
                unsynced.push(Unsynced { medium: Arc::downgrade(&self.life), pages: Vec::new() });
                unsynced.len() - 1
            });
            unsynced[at].pages.extend(first..=last);
        });
        if noted.is_err() {
            // The thread is ending and can store nothing in its thread-local list any more.
            self.sync_run(first, last + 1 - first);
        }
    }

    #[cold]
    fn sync_pages(&self) {
        // In a thread that ends, flushed pages are synced immediately.
        let _ = UNSYNCED.try_with(|unsynced| {
            let mut unsynced = unsynced.borrow_mut();
            let Some(own) = unsynced.iter_mut().find(|unsynced| self.is_of(unsynced)) else { return };
            own.pages.sort_unstable();
            own.pages.dedup();
            for run in own.pages.chunk_by(|a, b| a + 1 == *b) {
                self.sync_run(run[0], run.len());
            }
            own.pages.clear();
        });
    }

    fn sync_run(&self, first: usize, pages: usize) {
        let (start, bytes) = (first * PAGE_BYTES, pages * PAGE_BYTES);
        let synced = failpoint::call_msync(start, bytes, || {
            let start = std::ptr::without_provenance_mut(start);
            // SAFETY: the pages were flushed through references into a live mapping; the kernel checks
            // the range by itself.
            unsafe { rustix::mm::msync(start, bytes, rustix::mm::MsyncFlags::SYNC) }
        });
        if synced.is_err() {
            // Pairs with `failed`, called after every operation of this thread.
            self.failed.store(true, Ordering::Release);
        }
    }
}

impl Medium for Native {
    #[inline(always)]
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        cell.load(order)
    }

    #[inline(always)]
    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        cell.store(value, order);
    }

    #[inline(always)]
    fn store_words(&self, cells: &[AtomicU64], values: &[u64]) {
        assert!(cells.len() == values.len(), "a copy of another length");
        // SAFETY: both are valid for this many words, and no thread changes `values`, which may be read as atomics or
        // as words.
        unsafe { copy::words(values.as_ptr().cast(), cells.as_ptr().cast_mut().cast(), cells.len()) };
    }

    #[inline(always)]
    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        cell.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    #[inline(always)]
    fn flush_lines(&self, start: *const u8, bytes: usize, _step: Step) {
        #[cfg(feature = "metrics")]
        self.counts.add(0, (start.addr() % LINE_BYTES + bytes).div_ceil(LINE_BYTES) as u64);
        self.flush_as(self.mode, start, bytes);
    }

    #[inline(always)]
    fn drain(&self, _step: Step) {
        #[cfg(feature = "metrics")]
        self.counts.add(1, 1);
        self.drain_as(self.mode);
    }

    #[cfg(feature = "metrics")]
    fn counts(&self) -> Option<[u64; 2]> {
        Some([self.counts.sum(0), self.counts.sum(1)])
    }

    fn extended(&self, last: &AtomicU64) {
        match self.slow.0 {
            Mode::Order | Mode::Slow => {}
            // A page that a process can write to in a file with MAP_SYNC is durably part of the file. Storing the
            // existing value makes the page writable.
            Mode::Fence | Mode::Flush(_) => drop(last.fetch_or(0, Ordering::Relaxed)),
            // The file length becomes durable with any page that is synced after the growth.
            Mode::Sync => self.note_pages(last.as_ptr().cast(), size_of::<u64>()),
        }
    }

    #[inline(always)]
    fn order_line(&self) {
        // x86 persists the stores to one line in program order; others need the barrier.
        #[cfg(target_arch = "x86_64")]
        compiler_fence(Ordering::SeqCst);
        #[cfg(not(target_arch = "x86_64"))]
        arch::drain();
    }

    #[inline(always)]
    fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Persist;

    #[test]
    fn a_failed_msync_is_remembered() {
        let medium = Native::new(Domain::Msync);
        assert!(!medium.failed());
        // Nothing is mapped at the address, so the kernel refuses.
        medium.flush_lines(std::ptr::without_provenance(PAGE_BYTES), 8, "test");
        medium.drain("test");
        assert!(medium.failed());
    }

    /// Returns adjacent pages of this process, mapped until it ends.
    fn pages(count: usize) -> usize {
        let bytes = (count + 1) * PAGE_BYTES;
        let leaked = Box::leak(vec![0_u8; bytes].into_boxed_slice());
        leaked.as_ptr().addr().next_multiple_of(PAGE_BYTES)
    }

    fn flush(medium: &Native, page: usize, bytes: usize) {
        medium.flush_lines(std::ptr::without_provenance(page), bytes, "test");
    }

    #[test]
    fn pages_of_three_media_are_synced_with_their_own_fences() {
        let media = [(); 3].map(|()| Native::new(Domain::Msync));
        let start = pages(12);
        let page = |number: usize| start + number * PAGE_BYTES;
        for round in 0..4 {
            flush(&media[0], page(3) - 8, 16);
            flush(&media[1], page(7) + 64, 64);
            flush(&media[0], page(5), 1);
            flush(&media[2], page(4), 8);
            flush(&media[0], page(3), 8);
            let _ = failpoint::synced();
            media[1].drain("test");
            assert_eq!(failpoint::synced(), [(page(7), PAGE_BYTES)], "{round}");
            media[1].drain("test");
            assert_eq!(failpoint::synced(), []);
            media[0].drain("test");
            assert_eq!(failpoint::synced(), [(page(2), 2 * PAGE_BYTES), (page(5), PAGE_BYTES)]);
            media[2].drain("test");
            assert_eq!(failpoint::synced(), [(page(4), PAGE_BYTES)]);
        }
        assert!(media.iter().all(|medium| !medium.failed()));
    }

    #[test]
    fn a_failed_msync_is_its_own_mediums() {
        let (healthy, failing) = (Native::new(Domain::Msync), Native::new(Domain::Msync));
        let page = pages(1);
        flush(&failing, PAGE_BYTES, 8);
        flush(&healthy, page, 8);
        healthy.drain("test");
        assert!(!healthy.failed() && !failing.failed());
        failing.drain("test");
        assert!(!healthy.failed() && failing.failed());
    }

    #[test]
    fn pages_of_a_medium_that_is_gone_are_forgotten() {
        let gone = Native::new(Domain::Msync);
        flush(&gone, PAGE_BYTES, 8);
        drop(gone);
        for _ in 0..100 {
            let medium = Native::new(Domain::Msync);
            flush(&medium, pages(1), 8);
            medium.drain("test");
            assert!(!medium.failed());
        }
        assert!(UNSYNCED.with_borrow(Vec::len) <= 2);
    }

    #[test]
    fn a_thread_that_ends_syncs_at_once() {
        struct Last(Arc<Native>);
        impl Drop for Last {
            fn drop(&mut self) {
                assert!(UNSYNCED.try_with(|_| ()).is_err());
                flush(&self.0, PAGE_BYTES, 8);
                self.0.drain("test");
            }
        }
        thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
        let (medium, page) = (Arc::new(Native::new(Domain::Msync)), pages(1));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Registered first, so it is destroyed last.
                LAST.set(None);
                flush(&medium, page, 8);
                medium.drain("test");
                assert!(!medium.failed());
                LAST.set(Some(Last(Arc::clone(&medium))));
            });
        });
        // Nothing is mapped at the page that was flushed last.
        while Arc::strong_count(&medium) > 1 {
            std::thread::yield_now();
        }
        assert!(medium.failed());
    }

    #[test]
    fn delay_is_per_line() {
        let medium = Native::delayed(Domain::Adr, Duration::from_micros(200));
        let lines = [0_u64; 32];
        let begun = Instant::now();
        medium.persist(&lines, "test");
        assert!(begun.elapsed() >= Duration::from_micros(800));
    }
}
