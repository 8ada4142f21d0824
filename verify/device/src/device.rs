//! The counting medium: executes every access, and passes it to the model.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bristlecone_pm::{Domain, LINE_BYTES, Medium, Region, Step};

use super::counts::{KINDS, OUTSIDE};
use super::parts::Layout;
use super::profile::{Processor, Profile};
use super::state::{Counted, State};

/// The counting medium. Clones are one device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    base: usize,
    bytes: usize,
    /// Whether the caches survive, so that no flushes are needed.
    eadr: bool,
    state: Mutex<State>,
}

/// State of the calling thread.
struct Doing {
    kind: Cell<u8>,
    /// The last loaded line: most loads are in the same line.
    line: Cell<usize>,
}

thread_local! {
    static DOING: Doing = const { Doing { kind: Cell::new(OUTSIDE), line: Cell::new(usize::MAX) } };
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("bytes", &self.0.bytes).finish_non_exhaustive()
    }
}

impl Device {
    /// Creates a device under `region`, for a pool with this layout. In domain `eadr` flushes have no
    /// effect; in any other they write back. `threads` are the numbers of threads for which there are
    /// clocks.
    pub fn new(
        region: &Region,
        layout: Layout,
        domain: Domain,
        profile: Profile,
        processor: Processor,
        threads: &[usize],
    ) -> Self {
        let state = State::new(layout, profile, processor, threads);
        Self(Arc::new(Inner {
            base: region.base().addr(),
            bytes: layout.geometry.max_bytes() as usize,
            eadr: domain == Domain::Eadr,
            state: Mutex::new(state),
        }))
    }

    /// Executes an operation of a kind from 1 to [`KINDS`] - 1. `run` returns its result and the bytes
    /// that the user wrote. Concurrent accesses of other threads count as [`OUTSIDE`].
    ///
    /// # Panics
    ///
    /// If the kind is out of range.
    pub fn operation<R>(&self, kind: u8, run: impl FnOnce() -> (R, u64)) -> R {
        assert!(kind != OUTSIDE && usize::from(kind) < KINDS, "kind {kind}");
        self.state().begin();
        DOING.with(|doing| (doing.kind.set(kind), doing.line.set(usize::MAX)));
        let (result, user_bytes) = run();
        DOING.with(|doing| (doing.kind.set(OUTSIDE), doing.line.set(usize::MAX)));
        self.state().end(kind, user_bytes);
        result
    }

    /// Writes back all dirty lines, counted to the operation that dirtied them, and returns the counts so
    /// far. The caches stay warm.
    pub fn take(&self) -> Counted {
        self.state().take()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn offset(&self, cell: &AtomicU64) -> usize {
        let offset = std::ptr::from_ref(cell).addr().wrapping_sub(self.0.base);
        assert!(offset < self.0.bytes, "an access outside the device");
        offset
    }

    /// Returns the lines that `[start, start + bytes)` touches.
    fn lines(&self, start: *const u8, bytes: usize) -> std::ops::Range<usize> {
        let offset = start.addr().wrapping_sub(self.0.base);
        assert!(offset < self.0.bytes && bytes <= self.0.bytes - offset, "a range outside the device");
        offset / LINE_BYTES..if bytes == 0 { 0 } else { (offset + bytes).div_ceil(LINE_BYTES) }
    }

    #[inline]
    fn loads(&self, cell: &AtomicU64) {
        let line = self.offset(cell) / LINE_BYTES;
        let kind =
            DOING.with(|doing| if doing.line.replace(line) == line { None } else { Some(doing.kind.get()) });
        if let Some(kind) = kind {
            self.state().load(line, kind);
        }
    }

    fn stores(&self, cell: &AtomicU64, value: u64) {
        let offset = self.offset(cell);
        let kind = DOING.with(|doing| doing.kind.get());
        let mut state = self.state();
        state.learn(offset, value);
        state.store(offset / LINE_BYTES, kind);
    }
}

impl Medium for Device {
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        self.loads(cell);
        cell.load(order)
    }

    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        self.stores(cell, value);
        cell.store(value, order);
    }

    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        self.loads(cell);
        let done = cell.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
        if done.is_ok() {
            self.stores(cell, new);
        }
        done
    }

    fn flush_lines(&self, start: *const u8, bytes: usize, _step: Step) {
        if self.0.eadr {
            return;
        }
        let kind = DOING.with(|doing| doing.kind.get());
        let mut state = self.state();
        self.lines(start, bytes).for_each(|line| state.flush(line, kind));
    }

    fn drain(&self, _step: Step) {
        let kind = DOING.with(|doing| doing.kind.get());
        self.state().fence(kind);
    }

    fn order_line(&self) {}

    fn about_to_read(&self, start: *const u8, bytes: usize) {
        let kind = DOING.with(|doing| doing.kind.get());
        let mut state = self.state();
        self.lines(start, bytes).for_each(|line| state.load(line, kind));
    }

    fn prefetch(&self, address: *const u8) {
        let offset = address.addr().wrapping_sub(self.0.base);
        if offset < self.0.bytes {
            let kind = DOING.with(|doing| doing.kind.get());
            self.state().prefetch(offset / LINE_BYTES, kind);
        }
    }
}
