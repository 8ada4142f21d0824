//! DRAM for nodes that optimistic readers may look at after they were freed: it is never
//! unmapped or given another type while the arena lives. Nodes are named by 32-bit indices.

use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::sync::{AtomicU32, Ordering::Acquire, Ordering::Release};
use bristlecone_pm::{Error, Result};
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

/// Returns the spares, unless another thread has them. They are not waited for: in a child that was forked
/// while another thread had them they are never given back.
fn spares() -> Option<MutexGuard<'static, Vec<Spare>>> {
    match SPARES.try_lock() {
        Ok(spares) => Some(spares),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
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
    /// Values that are kept ready for the threads that asked for them.
    reserved: usize,
}

/// Values that an arena keeps ready until this is dropped: so many calls of `alloc` do not fail.
#[must_use = "values are kept ready as long as this is there"]
pub struct Room<'a> {
    state: &'a Mutex<State>,
    values: usize,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        lock(self.state).reserved -= self.values;
    }
}

fn no_memory(doing: &str) -> Error {
    Error::io(format!("{doing} the index in DRAM"), rustix::io::Errno::NOMEM)
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
    /// Returns an arena whose values are `bytes_each` bytes apart: at least the type's size (types that
    /// are followed by arrays of a length known at run time take more).
    ///
    /// # Errors
    ///
    /// If there is no address space left.
    pub fn new(bytes_each: usize) -> Result<Self> {
        Self::within(bytes_each, RESERVED_BYTES)
    }

    /// Makes an arena that never takes more than `bytes` bytes.
    fn within(bytes_each: usize, bytes: usize) -> Result<Self> {
        assert!(bytes_each >= size_of::<T>() && bytes_each.is_multiple_of(align_of::<T>()));
        if let Some(Spare { base, reserved, whole }) = spares().and_then(|mut spares| spares.pop()) {
            let state = CachePadded::new(Mutex::new(State { usable: STEP_BYTES, ..State::default() }));
            let begun = CachePadded::default();
            let reserved = reserved.min(bytes);
            return Ok(Self { base, reserved, whole, bytes_each, state, begun, values: PhantomData });
        }
        let mut reserved = bytes;
        let whole = loop {
            // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
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
                Err(error) => return Err(Error::io("finding address space for the index in DRAM", error)),
            }
        };
        let base = whole.0.map_addr(|addr| addr.next_multiple_of(STEP_BYTES));
        let (state, begun) = Default::default();
        Ok(Self { base, reserved, whole, bytes_each, state, begun, values: PhantomData })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns a value that no other thread has; what a former owner left in it is still there.
    ///
    /// # Errors
    ///
    /// If the machine is out of memory, or the arena of address space; never while the caller has
    /// [`Room`] for it.
    pub fn alloc(&self) -> Result<u32> {
        let mut state = self.state();
        match state.free.pop() {
            Some(index) => Ok(index),
            None => self.begin(&mut state, 1),
        }
    }

    /// Makes sure that so many values can be handed out until the answer is dropped.
    ///
    /// # Errors
    ///
    /// As [`alloc`](Self::alloc).
    pub fn reserve(&self, values: usize) -> Result<Room<'_>> {
        let mut state = self.state();
        let wanted = (state.reserved + values).saturating_sub(state.free.len());
        self.extend(&mut state, wanted)?;
        state.reserved += values;
        Ok(Room { state: &self.state, values })
    }

    /// As `alloc`, so many in a row that were never handed out.
    ///
    /// # Errors
    ///
    /// As [`alloc`](Self::alloc).
    pub fn alloc_fresh(&self, count: u32) -> Result<std::ops::Range<u32>> {
        let first = self.begin(&mut self.state(), count)?;
        Ok(first..first + count)
    }

    /// Makes memory usable for so many values that were never handed out.
    fn extend(&self, state: &mut State, count: usize) -> Result<()> {
        let values = self.begun() as usize + count;
        let end = values * self.bytes_each;
        if values > u32::MAX as usize {
            return Err(no_memory("counting the parts of"));
        }
        if end > state.usable {
            let bytes = end.next_multiple_of(STEP_BYTES) - state.usable;
            if state.usable + bytes > self.reserved {
                return Err(no_memory("finding address space for"));
            }
            let start = self.base.wrapping_add(state.usable).cast();
            // SAFETY: the range lies in this arena's reservation, beyond what is in use.
            unsafe { rustix::mm::mprotect(start, bytes, MprotectFlags::READ | MprotectFlags::WRITE) }
                .map_err(|error| Error::io("finding memory for the index in DRAM", error))?;
            if state.usable > 0 {
                // SAFETY: as above; advice changes no contents, and its failure only costs speed.
                let _ = unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxHugepage) };
            }
            state.usable += bytes;
        }
        Ok(())
    }

    fn begin(&self, state: &mut State, count: u32) -> Result<u32> {
        let begun = self.begun();
        self.extend(state, count as usize)?;
        // Pairs with the acquire in `begun`: a thread that knows the number may look at the memory.
        self.begun.store(begun + count, Release);
        Ok(begun)
    }

    /// Gives a value back, for `alloc` to hand out again. Readers may still look at it.
    pub fn free(&self, index: u32) {
        self.state().free.push(index);
    }

    /// Returns the value of an index that was handed out at some time.
    #[inline(always)]
    pub fn get(&self, index: u32) -> &T {
        debug_assert!(index < self.begun());
        // SAFETY: `alloc` made the memory of every index it handed out usable, for good; a zeroed
        // `T` is valid, and changes only through shared references.
        unsafe { &*self.base.wrapping_add(index as usize * self.bytes_each).cast() }
    }

    /// Returns the value of an index where the caller knows how many bytes values are apart.
    #[inline(always)]
    pub fn get_spaced<const BYTES: usize>(&self, index: u32) -> &T {
        debug_assert!(index < self.begun() && BYTES == self.bytes_each);
        // SAFETY: as in `get`.
        unsafe { &*self.base.wrapping_add(index as usize * BYTES).cast() }
    }

    /// Returns the bytes that values are apart.
    pub fn bytes_each(&self) -> usize {
        self.bytes_each
    }

    /// Returns the bytes of memory in use, free values included.
    pub fn bytes(&self) -> u64 {
        u64::from(self.begun()) * self.bytes_each as u64
    }

    /// Returns a number above the index of every value that was ever handed out.
    pub fn begun(&self) -> u32 {
        self.begun.load(Acquire)
    }

    /// Returns the number of values handed out and not given back.
    pub fn live(&self) -> usize {
        let state = self.state();
        self.begun() as usize - state.free.len()
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let used = *self.begun.get_mut() as usize * self.bytes_each;
        if state.usable == STEP_BYTES
            && used <= SPARE_BYTES_MAX
            && self.reserved == RESERVED_BYTES
            && let Some(mut spares) = spares().filter(|spares| spares.len() < SPARES_MAX)
        {
            // SAFETY: usable memory of this arena, which no thread can reach any more.
            unsafe { self.base.write_bytes(0, used) };
            spares.push(Spare { base: self.base, reserved: self.reserved, whole: self.whole });
            return;
        }
        // SAFETY: the whole reservation, which no thread can reach any more; values need no drop.
        let _ = unsafe { rustix::mm::munmap(self.whole.0.cast(), self.whole.1) };
    }
}

#[cfg(test)]
mod tests {
    use bristlecone_pm::sync::{AtomicU64, Ordering::Relaxed};

    use super::*;

    struct Cell([AtomicU64; 8]);

    // SAFETY: atomics.
    unsafe impl Zeroed for Cell {}

    #[test]
    fn spares_that_another_thread_has_are_not_waited_for() {
        // As in a child that was forked meanwhile; only here it ends.
        let held = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
        let arena = Arena::<Cell>::new(64).unwrap();
        assert_eq!(arena.alloc().unwrap(), 0);
        drop(arena);
        drop(held);
    }

    #[test]
    fn values_begin_as_zeros_and_stay_where_they_are() {
        let arena = Arena::<Cell>::new(64).unwrap();
        let first = arena.alloc().unwrap();
        let value = arena.get(first);
        value.0[0].store(7, Relaxed);
        for index in 1..100_000_u32 {
            assert_eq!(arena.alloc().unwrap(), index);
            assert_eq!(arena.get(index).0[7].load(Relaxed), 0);
        }
        assert_eq!(value.0[0].load(Relaxed), 7);
        arena.free(17);
        assert_eq!((arena.live(), arena.alloc().unwrap(), arena.live()), (99_999, 17, 100_000));
        assert_eq!(arena.bytes(), 6_400_000);
        assert_eq!(arena.alloc_fresh(3).unwrap(), 100_000..100_003);
    }

    #[test]
    fn an_arena_without_address_space_gives_errors_and_what_it_reserved() {
        let values = (2 * STEP_BYTES / 64) as u32;
        let arena = Arena::<Cell>::within(64, 2 * STEP_BYTES).unwrap();
        assert_eq!(arena.alloc_fresh(values - 3).unwrap(), 0..values - 3);
        assert!(arena.alloc_fresh(4).is_err() && arena.reserve(4).is_err());
        let room = arena.reserve(2).unwrap();
        assert!(arena.reserve(2).is_err());
        let last = [arena.alloc().unwrap(), arena.alloc().unwrap()];
        assert_eq!(last, [values - 3, values - 2]);
        drop(room);
        assert!(arena.alloc().is_ok() && arena.alloc().is_err() && arena.reserve(1).is_err());
        arena.free(last[0]);
        assert!(arena.reserve(1).is_ok() && arena.alloc_fresh(1).is_err());
        assert_eq!(arena.alloc().unwrap(), last[0]);
        // More numbers than there are.
        assert!(arena.alloc_fresh(u32::MAX).is_err() && arena.alloc().is_err());
    }
}
