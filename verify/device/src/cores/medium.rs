//! The medium of simulated cores: executes every access, and passes it to the thread that is simulated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bristlecone_pm::sync::wait::Use;
use bristlecone_pm::{Domain, LINE_BYTES, Medium, Part, Step};

use super::cores::{flush, read_lines, step, wait_for_flushes};
use crate::parts::Parts;

/// The medium of simulated cores. Clones are one medium. Accesses of threads that are not simulated are executed, but
/// neither counted nor timed.
#[derive(Clone)]
pub struct Shared(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub base: usize,
    pub length: usize,
    pub header_bytes: usize,
    pub domain: Domain,
    pub parts: Mutex<Parts>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("bytes", &self.0.length).finish_non_exhaustive()
    }
}

impl Shared {
    /// Inspects a store, which may be that of a chunk's descriptor.
    #[inline]
    fn learn(&self, cell: &AtomicU64, value: u64) {
        let offset = std::ptr::from_ref(cell).addr().wrapping_sub(self.0.base);
        if offset < self.0.header_bytes {
            self.parts().learn(offset, value);
        }
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, Parts> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the purpose of an address of the pool, and its offset there; `None` if it is in DRAM.
    pub(super) fn place(&self, address: usize) -> Option<(Part, usize)> {
        let offset = address.wrapping_sub(self.0.base);
        (offset < self.0.length).then(|| (self.parts().of(offset / LINE_BYTES), offset))
    }
}

fn address(cell: &AtomicU64) -> usize {
    std::ptr::from_ref(cell).addr()
}

impl Medium for Shared {
    #[inline]
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        step(address(cell), Use::Load);
        cell.load(order)
    }

    #[inline]
    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        step(address(cell), Use::Store);
        self.learn(cell, value);
        cell.store(value, order);
    }

    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        step(address(cell), Use::Locked);
        let done = cell.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
        if done.is_ok() {
            self.learn(cell, new);
        }
        done
    }

    fn flush_lines(&self, start: *const u8, bytes: usize, _step: Step) {
        if self.0.domain != Domain::Adr || bytes == 0 {
            return;
        }
        let first = start.addr() / LINE_BYTES;
        let end = (start.addr() + bytes).div_ceil(LINE_BYTES);
        (first..end).for_each(|line| flush(line * LINE_BYTES));
    }

    fn drain(&self, _step: Step) {
        // In domain `process` a fence is no instruction on x86.
        if matches!(self.0.domain, Domain::Adr | Domain::Eadr) {
            wait_for_flushes();
        }
    }

    fn order_line(&self) {}

    fn about_to_read(&self, start: *const u8, bytes: usize) {
        read_lines(start.addr(), bytes);
    }

    fn prefetch(&self, address: *const u8) {
        let offset = address.addr().wrapping_sub(self.0.base);
        if offset < self.0.length {
            step(address.addr(), Use::Prefetch);
        }
    }
}
