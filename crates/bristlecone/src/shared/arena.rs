//! DRAM for nodes that optimistic readers may look at after they were freed: it is never
//! unmapped or given another type while the arena lives. Nodes are named by 32-bit indices.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

/// Memory comes in such steps; the first one is left to ordinary pages, for small trees.
const STEP_BYTES: usize = 2 << 20;
/// Address space of an arena: room for 2^32 nodes of a line each.
const RESERVED_BYTES: usize = 1 << 38;

/// Small arenas that are kept for their successors, because mapping and unmapping stops all
/// threads of the process: simulators and tests open thousands of small trees a second.
static SPARES: Mutex<Vec<Spare>> = Mutex::new(Vec::new());
const SPARES_MAX: usize = 32;
/// What an arena may have used to be kept: it is zeroed.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// A reservation of which the first step is usable and zero.
struct Spare {
    base: *mut u8,
    reserved: usize,
    whole: (*mut u8, usize),
}

// SAFETY: memory that only its holder can reach.
unsafe impl Send for Spare {}

fn spares() -> MutexGuard<'static, Vec<Spare>> {
    SPARES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Type-stable storage for up to 2^32 values of `bytes_each` bytes that begin as zeros.
#[derive(Debug)]
pub struct Arena<T> {
    base: *mut u8,
    reserved: usize,
    whole: (*mut u8, usize),
    bytes_each: usize,
    /// Apart from what every operation reads.
    state: CachePadded<Mutex<State>>,
    /// Changes only under the lock.
    begun: CachePadded<AtomicU32>,
    values: PhantomData<T>,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<u32>,
    usable: usize,
}

/// A type whose all-zero bytes are a value and which may be shared without being moved.
///
/// # Safety
///
/// All-zero bytes are a valid value of the type, and it needs no drop.
pub unsafe trait Zeroed: Sync {}

// SAFETY: the arena hands out shared references to `Sync` values only.
unsafe impl<T: Zeroed> Send for Arena<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroed> Sync for Arena<T> {}

impl<T: Zeroed> Arena<T> {
    /// An arena whose values are `bytes_each` bytes apart: at least the type's size (types that
    /// are followed by arrays of a length known at run time take more).
    ///
    /// # Panics
    ///
    /// If there is no address space left.
    pub fn new(bytes_each: usize) -> Self {
        assert!(bytes_each >= size_of::<T>() && bytes_each.is_multiple_of(align_of::<T>()));
        if let Some(Spare { base, reserved, whole }) = spares().pop() {
            let state = CachePadded::new(Mutex::new(State { usable: STEP_BYTES, ..State::default() }));
            let begun = CachePadded::default();
            return Self { base, reserved, whole, bytes_each, state, begun, values: PhantomData };
        }
        let mut reserved = RESERVED_BYTES;
        let whole = loop {
            // SAFETY: a new mapping at an address of the kernel's choice disturbs nobody.
            let mapping = unsafe {
                rustix::mm::mmap_anonymous(
                    std::ptr::null_mut(),
                    reserved + STEP_BYTES,
                    ProtFlags::empty(),
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )
            };
            match mapping {
                Ok(start) => break (start.cast::<u8>(), reserved + STEP_BYTES),
                // A process with limited address space gets a smaller arena.
                Err(_) if reserved > STEP_BYTES => reserved /= 2,
                Err(error) => panic!("no address space for the index: {error}"),
            }
        };
        let base = whole.0.map_addr(|addr| addr.next_multiple_of(STEP_BYTES));
        let (state, begun) = Default::default();
        Self { base, reserved, whole, bytes_each, state, begun, values: PhantomData }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A value nobody else has; what a former owner left in it is still there.
    ///
    /// # Panics
    ///
    /// If the machine is out of memory.
    pub fn alloc(&self) -> u32 {
        let mut state = self.state();
        match state.free.pop() {
            Some(index) => index,
            None => self.begin(&mut state, 1),
        }
    }

    /// As `alloc`, so many in a row that nobody ever had.
    ///
    /// # Panics
    ///
    /// If the machine is out of memory.
    pub fn alloc_fresh(&self, count: u32) -> std::ops::Range<u32> {
        let first = self.begin(&mut self.state(), count);
        first..first + count
    }

    fn begin(&self, state: &mut State, count: u32) -> u32 {
        let begun = self.begun();
        let end = (begun + count) as usize * self.bytes_each;
        if end > state.usable {
            let bytes = end.next_multiple_of(STEP_BYTES) - state.usable;
            assert!(state.usable + bytes <= self.reserved, "the index outgrew its address space");
            let start = self.base.wrapping_add(state.usable).cast();
            // SAFETY: the range lies in this arena's reservation, beyond what is in use.
            unsafe { rustix::mm::mprotect(start, bytes, MprotectFlags::READ | MprotectFlags::WRITE) }
                .expect("memory for the index");
            if state.usable > 0 {
                // SAFETY: as above; advice changes no contents, and its failure only costs speed.
                let _ = unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxHugepage) };
            }
            state.usable += bytes;
        }
        // Pairs with the acquire in `begun`: whoever knows the number may look at the memory.
        self.begun.store(begun + count, Release);
        begun
    }

    /// Gives a value back, for `alloc` to hand out again. Readers may still look at it.
    pub fn free(&self, index: u32) {
        self.state().free.push(index);
    }

    /// The value of an index that was handed out at some time.
    #[inline(always)]
    pub fn get(&self, index: u32) -> &T {
        debug_assert!(index < self.begun());
        // SAFETY: `alloc` made the memory of every index it handed out usable, for good; a zeroed
        // `T` is valid, and changes only through shared references.
        unsafe { &*self.base.wrapping_add(index as usize * self.bytes_each).cast() }
    }

    /// The same for who knows how many bytes values are apart.
    #[inline(always)]
    pub fn get_spaced<const BYTES: usize>(&self, index: u32) -> &T {
        debug_assert!(index < self.begun() && BYTES == self.bytes_each);
        // SAFETY: as in `get`.
        unsafe { &*self.base.wrapping_add(index as usize * BYTES).cast() }
    }

    /// Bytes that values are apart.
    pub fn bytes_each(&self) -> usize {
        self.bytes_each
    }

    /// Bytes of memory in use, free values included.
    pub fn bytes(&self) -> u64 {
        u64::from(self.begun()) * self.bytes_each as u64
    }

    /// Values that were ever handed out have an index below this.
    pub fn begun(&self) -> u32 {
        self.begun.load(Acquire)
    }

    /// Values handed out and not given back.
    pub fn live(&self) -> usize {
        let state = self.state();
        self.begun() as usize - state.free.len()
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let used = *self.begun.get_mut() as usize * self.bytes_each;
        if state.usable == STEP_BYTES && used <= SPARE_BYTES_MAX {
            let mut spares = spares();
            if spares.len() < SPARES_MAX {
                // SAFETY: usable memory of this arena, which nobody can reach any more.
                unsafe { self.base.write_bytes(0, used) };
                spares.push(Spare { base: self.base, reserved: self.reserved, whole: self.whole });
                return;
            }
        }
        // SAFETY: the whole reservation, which nobody can reach any more; values need no drop.
        let _ = unsafe { rustix::mm::munmap(self.whole.0.cast(), self.whole.1) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    struct Cell([AtomicU64; 8]);

    // SAFETY: atomics.
    unsafe impl Zeroed for Cell {}

    #[test]
    fn values_begin_as_zeros_and_stay_where_they_are() {
        let arena = Arena::<Cell>::new(64);
        let first = arena.alloc();
        let value = arena.get(first);
        value.0[0].store(7, Relaxed);
        for index in 1..100_000_u32 {
            assert_eq!(arena.alloc(), index);
            assert_eq!(arena.get(index).0[7].load(Relaxed), 0);
        }
        assert_eq!(value.0[0].load(Relaxed), 7);
        arena.free(17);
        assert_eq!((arena.live(), arena.alloc(), arena.live()), (99_999, 17, 100_000));
        assert_eq!(arena.bytes(), 6_400_000);
        assert_eq!(arena.alloc_fresh(3), 100_000..100_003);
    }
}
