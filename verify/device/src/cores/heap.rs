//! A heap whose addresses depend on the order of its calls alone. Which objects share a line, and which lines a page,
//! would otherwise differ from run to run.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use bristlecone_pm::sync::HAS_TURNS;

/// Address space of the heap.
const RESERVED_BYTES: usize = 1 << 38;
const PAGE_BYTES: usize = 4096;
/// Unit of sizes.
const UNIT: usize = 16;
/// Larger blocks, and those with a larger alignment than a unit, have sizes that are powers of two.
const SMALL_BYTES: usize = 1024;
const CLASSES: usize = SMALL_BYTES / UNIT + 64;

/// The global allocator of programs that simulate cores. A thread that simulates gets memory from a heap of its own;
/// every other call is one of the system's allocator, and so is each in a build without `turns`.
pub struct SimulatorHeap {
    held: AtomicBool,
    heap: UnsafeCell<Heap>,
}

struct Heap {
    base: usize,
    used: usize,
    /// The first free block of each class, which contains the address of the next one.
    free: [usize; CLASSES],
    /// Number of blocks in use.
    live: usize,
}

/// Where the calling thread allocates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    System,
    /// In the heap.
    Heap,
    /// In the heap, which is to forget what was freed before: where that lies depends on the runs before.
    NewHeap,
}

thread_local! {
    static PLACE: Cell<Place> = const { Cell::new(Place::System) };
}

/// Makes the calling thread allocate there.
pub(super) fn allocate_in(place: Place) {
    PLACE.set(place);
}

/// Returns the class of a block, and its size.
fn class(layout: Layout) -> (usize, usize) {
    if layout.align() <= UNIT && layout.size() <= SMALL_BYTES {
        let units = layout.size().div_ceil(UNIT).max(1);
        return (units - 1, units * UNIT);
    }
    let bytes = layout.size().max(layout.align()).next_power_of_two();
    (SMALL_BYTES / UNIT + bytes.trailing_zeros() as usize, bytes)
}

impl Default for SimulatorHeap {
    fn default() -> Self {
        Self::new()
    }
}

impl SimulatorHeap {
    /// Creates a heap.
    pub const fn new() -> Self {
        let heap = Heap { base: 0, used: 0, free: [0; CLASSES], live: 0 };
        Self { held: AtomicBool::new(false), heap: UnsafeCell::new(heap) }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Heap) -> R) -> R {
        while self.held.swap(true, Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: one thread at a time has the lock.
        let result = act(unsafe { &mut *self.heap.get() });
        self.held.store(false, Release);
        result
    }

    fn has(&self, address: usize) -> bool {
        self.with(|heap| heap.base != 0 && address.wrapping_sub(heap.base) < RESERVED_BYTES)
    }
}

impl Heap {
    fn alloc(&mut self, layout: Layout) -> *mut u8 {
        if self.base == 0 && !self.reserve() {
            return std::ptr::null_mut();
        }
        if PLACE.replace(Place::Heap) == Place::NewHeap {
            self.free = [0; CLASSES];
            self.used = if self.live == 0 { 0 } else { self.used.next_multiple_of(PAGE_BYTES) };
        }
        self.live += 1;
        let (class, bytes) = class(layout);
        let first = self.free[class];
        if first != 0 {
            // SAFETY: a free block of the heap, which begins with the address of the next one.
            self.free[class] = unsafe { *std::ptr::with_exposed_provenance::<usize>(first) };
            return std::ptr::with_exposed_provenance_mut(first);
        }
        let align = if class < SMALL_BYTES / UNIT { UNIT } else { bytes.min(PAGE_BYTES) };
        let at = self.used.next_multiple_of(align.max(layout.align()));
        if at + bytes > RESERVED_BYTES {
            return std::ptr::null_mut();
        }
        self.used = at + bytes;
        std::ptr::with_exposed_provenance_mut(self.base + at)
    }

    fn free(&mut self, block: *mut u8, layout: Layout) {
        self.live -= 1;
        let (class, _) = class(layout);
        // SAFETY: the block is no longer used, and has space for an address.
        unsafe { *block.cast::<usize>() = self.free[class] };
        self.free[class] = block.expose_provenance();
    }

    fn reserve(&mut self) -> bool {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: maps new memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), RESERVED_BYTES, access, kind, -1, 0) };
        if base == libc::MAP_FAILED {
            return false;
        }
        self.base = base.expose_provenance();
        true
    }
}

// SAFETY: the heap is accessed under its lock.
unsafe impl Sync for SimulatorHeap {}

// SAFETY: blocks are of at least the wanted size and alignment, and no two that are in use overlap.
unsafe impl GlobalAlloc for SimulatorHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if HAS_TURNS && PLACE.get() != Place::System && layout.align() <= PAGE_BYTES {
            return self.with(|heap| heap.alloc(layout));
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if HAS_TURNS && self.has(block.addr()) {
            return self.with(|heap| heap.free(block, layout));
        }
        // SAFETY: as the caller promises, and the block is not of this heap.
        unsafe { System.dealloc(block, layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulating_thread_gets_the_same_addresses_for_the_same_calls() {
        let offsets = || {
            let heap = SimulatorHeap::new();
            allocate_in(Place::NewHeap);
            let mut blocks = Vec::new();
            let mut offsets = Vec::new();
            for round in 0..200_usize {
                let layout = Layout::from_size_align(1 + round * 37 % 3000, 1 << (round % 8)).unwrap();
                // SAFETY: the layout is not empty; the block is freed once, with its layout.
                let block = unsafe { heap.alloc(layout) };
                assert!(
                    !block.is_null() && block.addr().is_multiple_of(layout.align()) && heap.has(block.addr())
                );
                // SAFETY: the block has this size.
                unsafe { block.write_bytes(round as u8, layout.size()) };
                blocks.push((block, layout));
                offsets.push(heap.with(|heap| block.addr() - heap.base));
                if round % 3 == 0 {
                    let (block, layout) = blocks.swap_remove(round % blocks.len());
                    // SAFETY: as above.
                    unsafe { heap.dealloc(block, layout) };
                }
            }
            allocate_in(Place::System);
            offsets
        };
        assert_eq!(offsets(), offsets());
    }
}
