//! The media of this machine: [`Native`], at no cost of its own, and [`Delayed`], which makes
//! every flushed line cost more, as slower memory would.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};
use std::time::{Duration, Instant};

use crate::arch::{self, FlushKind};
use crate::{Domain, LINE_BYTES, Medium, Step};

/// Bytes that `msync` works on.
const PAGE_BYTES: usize = 4096;

/// The processor's own loads, stores, flushes and fences, as the domain asks for them.
#[derive(Debug)]
pub struct Native {
    mode: Mode,
    failed: AtomicBool,
}

/// What a flush and a fence are. One per pool, so the branch on it is always predicted.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Order,
    Fence,
    Flush(FlushKind),
    Sync,
}

thread_local! {
    /// Pages that this thread flushed and has not yet synced.
    static UNSYNCED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl Native {
    /// The medium of a domain.
    pub fn new(domain: Domain) -> Self {
        let mode = match domain {
            Domain::Process => Mode::Order,
            Domain::Eadr => Mode::Fence,
            Domain::Adr => Mode::Flush(FlushKind::detect()),
            Domain::Msync => Mode::Sync,
        };
        Self { mode, failed: AtomicBool::new(false) }
    }

    #[cold]
    fn note_pages(start: *const u8, bytes: usize) {
        let first = start.addr() / PAGE_BYTES;
        let last = (start.addr() + bytes.max(1) - 1) / PAGE_BYTES;
        UNSYNCED.with_borrow_mut(|pages| pages.extend(first..=last));
    }

    #[cold]
    fn sync_pages(&self) {
        UNSYNCED.with_borrow_mut(|pages| {
            pages.sort_unstable();
            pages.dedup();
            for run in pages.chunk_by(|a, b| a + 1 == *b) {
                let start = std::ptr::without_provenance_mut(run[0] * PAGE_BYTES);
                // SAFETY: the pages were flushed through references into a live mapping; the
                // kernel checks the range by itself.
                let synced =
                    unsafe { rustix::mm::msync(start, run.len() * PAGE_BYTES, rustix::mm::MsyncFlags::SYNC) };
                if synced.is_err() {
                    // Pairs with `failed`, asked after every operation of this thread.
                    self.failed.store(true, Ordering::Release);
                }
            }
            pages.clear();
        });
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
    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        cell.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    #[inline(always)]
    fn flush_lines(&self, start: *const u8, bytes: usize, _step: Step) {
        match self.mode {
            Mode::Flush(kind) => kind.flush(start, bytes),
            Mode::Sync => Self::note_pages(start, bytes),
            Mode::Order | Mode::Fence => compiler_fence(Ordering::SeqCst),
        }
    }

    #[inline(always)]
    fn drain(&self, _step: Step) {
        match self.mode {
            // A killed process leaves the stores that it retired, in program order.
            Mode::Order => fence(Ordering::Release),
            Mode::Fence | Mode::Flush(_) => arch::drain(),
            Mode::Sync => self.sync_pages(),
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
}

/// [`Native`], with a busy wait after every flushed line.
#[derive(Debug)]
pub struct Delayed {
    native: Native,
    per_line: Duration,
}

impl Delayed {
    /// The medium of a domain with extra latency per flushed line.
    pub fn new(domain: Domain, per_line: Duration) -> Self {
        Self { native: Native::new(domain), per_line }
    }
}

impl Medium for Delayed {
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        self.native.load(cell, order)
    }

    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        self.native.store(cell, value, order);
    }

    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        self.native.compare_exchange(cell, current, new)
    }

    fn flush_lines(&self, start: *const u8, bytes: usize, step: Step) {
        self.native.flush_lines(start, bytes, step);
        let lines = (start.addr() % LINE_BYTES + bytes).div_ceil(LINE_BYTES);
        let begun = Instant::now();
        while begun.elapsed() < self.per_line * lines as u32 {
            std::hint::spin_loop();
        }
    }

    fn drain(&self, step: Step) {
        self.native.drain(step);
    }

    fn order_line(&self) {
        self.native.order_line();
    }

    fn failed(&self) -> bool {
        self.native.failed()
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

    #[test]
    fn delay_is_per_line() {
        let medium = Delayed::new(Domain::Adr, Duration::from_micros(200));
        let lines = [0_u64; 32];
        let begun = Instant::now();
        let _durable = medium.persist(&lines, "test");
        assert!(begun.elapsed() >= Duration::from_micros(800));
    }
}
