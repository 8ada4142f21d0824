//! The medium of simulated cores: executes every access, and passes it to the thread that is simulated.

use std::sync::atomic::{AtomicU64, Ordering};

use bristlecone_pm::sync::wait::Use;
use bristlecone_pm::{Domain, LINE_BYTES, Medium, Step};

use super::cores::{flush, read_lines, step, wait_for_flushes};
use super::shared::Shared;

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
