//! DRAM for nodes that optimistic readers may access after they were freed: the memory is never unmapped or reused
//! for another type while the arena exists. Nodes are identified by 32-bit indices.

use std::marker::PhantomData;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

pub use bristlecone_pm::Zeroed;
use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::sync::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use bristlecone_pm::{Error, Extent, Manifest, ManifestReader, Memory, Result, SharedCell};
use crossbeam_utils::CachePadded;

/// Memory of a process grows in such steps. The first one uses ordinary pages, for small trees.
const STEP_BYTES: usize = 2 << 20;
/// Maximum address space of an arena: space for 2^32 nodes of one line each.
const RESERVED_BYTES: usize = 1 << 38;
/// Address space that bounds a new arena, divided by the number of arenas. 100,000 arenas reserve less than ten times
/// this much, which is less than a process has.
const SHARED_BYTES: usize = 1 << 43;

/// Number of arenas in this process.
static ARENAS: AtomicUsize = AtomicUsize::new(0);

/// Returns the address space of a new arena. With thousands of trees open, each new one gets less, so that none
/// lacks it: 64 MiB at 100,000 arenas.
fn reservation() -> usize {
    let share = SHARED_BYTES / (ARENAS.load(Relaxed) + 1);
    RESERVED_BYTES.min(1 << share.ilog2())
}

/// Small arenas that are kept for reuse, because mapping and unmapping stops all threads of the process: simulators
/// and tests open thousands of small trees a second. The first step of each is usable and zero.
static SPARES: Mutex<Vec<Extent>> = Mutex::new(Vec::new());
const SPARES_MAX: usize = 32;
/// Maximum used size of an arena that is kept, because it must be zeroed.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// Returns the spares, unless another thread holds their lock. The lock is not waited for: in a child forked while
/// another thread held it, it is never released.
fn spares() -> Option<MutexGuard<'static, Vec<Extent>>> {
    match SPARES.try_lock() {
        Ok(spares) => Some(spares),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Type-stable storage for up to 2^32 zero-initialized values of `bytes_each` bytes.
#[derive(Debug)]
pub struct Arena<T> {
    base: *mut u8,
    bytes_each: usize,
    /// `None` once it is a spare.
    extent: Option<Extent>,
    /// On a separate cache line from the fields that every operation reads.
    state: CachePadded<Mutex<State>>,
    /// Changes only under the lock. Visible to followers.
    begun: SharedCell<CachePadded<AtomicU32>>,
    values: PhantomData<T>,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<u32>,
    usable: usize,
    /// Number of values reserved for the threads that requested them.
    reserved: usize,
}

/// Unit in which an extent of a segment gets memory.
const PAGE_BYTES: usize = 4096;

/// A set of values of an arena, by index.
#[derive(Debug, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// Returns the empty set of the values below `end`.
    pub fn below(end: u32) -> Self {
        Self(vec![0; (end as usize).div_ceil(64)])
    }

    /// Adds a value; returns `false` if it was in the set, or cannot be.
    pub fn add(&mut self, index: u32) -> bool {
        let bit = 1 << (index % 64);
        self.0
            .get_mut(index as usize / 64)
            .is_some_and(|word| std::mem::replace(word, *word | bit) & bit == 0)
    }

    /// Returns whether a value is in the set.
    pub fn has(&self, index: u32) -> bool {
        self.0.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    /// Returns the values from `64 * word` on, as bits.
    pub fn word(&self, word: usize) -> u64 {
        self.0.get(word).copied().unwrap_or(0)
    }
}

/// A reservation of values in an arena: while it exists, that many calls of `alloc` succeed.
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

// SAFETY: the arena hands out shared references to `Sync` values only.
unsafe impl<T: Zeroed> Send for Arena<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroed> Sync for Arena<T> {}

impl<T: Zeroed> Arena<T> {
    /// Returns an arena whose values are `bytes_each` bytes apart, at least the size of the type. Types that are
    /// followed by arrays of a length known at run time need more.
    ///
    /// # Errors
    ///
    /// Fails if there is no address space left.
    pub fn new(bytes_each: usize, memory: &Memory) -> Result<Self> {
        if memory.is_private()
            && let Some(extent) = spares().and_then(|mut spares| spares.pop())
        {
            let state = State { usable: STEP_BYTES, ..State::default() };
            return Ok(Self::over(bytes_each, extent, state, SharedCell::private()));
        }
        Self::within(bytes_each, reservation(), memory)
    }

    /// Creates an arena that never uses more than `bytes` bytes.
    fn within(bytes_each: usize, bytes: usize, memory: &Memory) -> Result<Self> {
        Ok(Self::over(bytes_each, memory.extent(bytes)?, State::default(), memory.cell()))
    }

    fn over(
        bytes_each: usize,
        extent: Extent,
        state: State,
        begun: SharedCell<CachePadded<AtomicU32>>,
    ) -> Self {
        assert!(bytes_each >= size_of::<T>() && bytes_each.is_multiple_of(align_of::<T>()));
        ARENAS.fetch_add(1, Relaxed);
        Self {
            base: extent.base(),
            bytes_each,
            extent: Some(extent),
            state: CachePadded::new(Mutex::new(state)),
            begun,
            values: PhantomData,
        }
    }

    fn extent(&self) -> &Extent {
        self.extent.as_ref().expect("an arena that was not dropped")
    }

    /// Saves the values, which no thread changes any more, for the next open of their tree. Returns `None` if they
    /// are in memory of this process, and cannot be saved.
    ///
    /// For followers: records the location of the values, which they read while the tree is in use.
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        if manifest.is_live() {
            manifest.push(self.bytes_each as u64);
            manifest.push_cell(&self.begun)?;
            return manifest.push_extent(self.extent());
        }
        let state = self.state();
        manifest.push(self.bytes_each as u64);
        manifest.push(state.usable as u64);
        manifest.push(self.begun().into());
        manifest.push_all(state.free.iter().map(|&index| index.into()));
        manifest.push_extent(self.extent())
    }

    /// Takes over the values saved by [`save`](Self::save). Returns `None` if the manifest does not match.
    pub fn resume(bytes_each: usize, manifest: &mut ManifestReader<'_>) -> Option<Self> {
        let same = manifest.read()? == bytes_each as u64;
        if manifest.is_live() {
            let begun = same.then(|| manifest.read_cell())??;
            let extent = manifest.read_extent(RESERVED_BYTES, 0)?;
            // A follower allocates none.
            return Some(Self::over(bytes_each, extent, State::default(), begun));
        }
        let usable = usize::try_from(manifest.read()?).ok()?;
        let begun = manifest.read_u32()?;
        let free = manifest
            .read_all()?
            .iter()
            .map(|&index| u32::try_from(index).ok().filter(|&index| index < begun));
        let free = free.collect::<Option<Vec<_>>>()?;
        let fits = same && (begun as usize).checked_mul(bytes_each).is_some_and(|bytes| bytes <= usable);
        let extent = fits.then(|| manifest.read_extent(reservation().max(2 * usable), usable))??;
        let begun = manifest.memory().cell_of(CachePadded::new(AtomicU32::new(begun)));
        Some(Self::over(bytes_each, extent, State { free, usable, reserved: 0 }, begun))
    }

    /// Takes over the values that a killed process [`save`](Self::save)d for followers, and changed since. None counts as
    /// free until [`free_others`](Self::free_others). Returns `None` if the manifest does not match.
    pub fn recover(bytes_each: usize, manifest: &mut ManifestReader<'_>) -> Option<Self> {
        let same = manifest.read()? == bytes_each as u64;
        let begun: SharedCell<CachePadded<AtomicU32>> = same.then(|| manifest.read_cell())??;
        let bytes = (begun.load(Acquire) as usize).checked_mul(bytes_each)?;
        // Whole pages were made usable before the values were handed out.
        let usable = bytes.next_multiple_of(PAGE_BYTES);
        let extent = manifest.read_extent(reservation().max(2 * usable), usable)?;
        Some(Self::over(bytes_each, extent, State { usable, ..State::default() }, begun))
    }

    /// Makes all values free that are not in `used`, a bit for each. For a recovered arena.
    pub fn free_others(&self, used: &Bits) {
        self.state().free = (0..self.begun()).rev().filter(|&index| !used.has(index)).collect();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns a value that no other thread owns; it still has the contents from its former owner.
    ///
    /// # Errors
    ///
    /// Fails if the machine is out of memory, or the arena out of address space, but never while the caller has a
    /// [`Room`] for it.
    pub fn alloc(&self) -> Result<u32> {
        let mut state = self.state();
        match state.free.pop() {
            Some(index) => Ok(index),
            None => self.begin(&mut state, 1),
        }
    }

    /// Reserves values, so that they can be allocated until the result is dropped.
    ///
    /// # Errors
    ///
    /// Same as [`alloc`](Self::alloc).
    pub fn reserve(&self, values: usize) -> Result<Room<'_>> {
        let mut state = self.state();
        let wanted = (state.reserved + values).saturating_sub(state.free.len());
        self.extend(&mut state, wanted)?;
        state.reserved += values;
        Ok(Room { state: &self.state, values })
    }

    /// Allocates consecutive values that were never used before, like `alloc`.
    ///
    /// # Errors
    ///
    /// Same as [`alloc`](Self::alloc).
    pub fn alloc_fresh(&self, count: u32) -> Result<std::ops::Range<u32>> {
        let first = self.begin(&mut self.state(), count)?;
        Ok(first..first + count)
    }

    /// Allocates consecutive values, none of which may be accessed before it is [`backed`](Self::backed). Must not be
    /// mixed with other allocations in the same arena.
    ///
    /// # Errors
    ///
    /// Fails if the arena has no address space for them.
    pub fn alloc_unbacked(&self, count: u32) -> Result<u32> {
        let _only = self.state();
        let begun = self.begun();
        let end = u64::from(begun) + u64::from(count);
        if end > u32::MAX.into() || end * self.bytes_each as u64 > self.extent().reserved() as u64 {
            return Err(no_memory("finding address space for"));
        }
        self.begun.store(begun + count, Release);
        Ok(begun)
    }

    /// Makes the memory of consecutive values usable. Returns `None` if there is no memory.
    pub fn backed(&self, first: u32, count: usize) -> Option<*mut T> {
        let at = first as usize * self.bytes_each;
        self.extent().back(at, count * self.bytes_each).ok()?;
        Some(self.base.wrapping_add(at).cast())
    }

    /// Makes the memory of never-used values usable.
    fn extend(&self, state: &mut State, count: usize) -> Result<()> {
        let values = self.begun() as usize + count;
        let end = values * self.bytes_each;
        if values > u32::MAX as usize {
            return Err(no_memory("counting the parts of"));
        }
        state.usable = self.extent().extend(state.usable, end)?;
        Ok(())
    }

    fn begin(&self, state: &mut State, count: u32) -> Result<u32> {
        let begun = self.begun();
        self.extend(state, count as usize)?;
        // Pairs with the acquire in `begun`: a thread that knows the number may access the memory.
        self.begun.store(begun + count, Release);
        Ok(begun)
    }

    /// Frees a value, for reuse by `alloc`. Readers may still access it.
    pub fn free(&self, index: u32) {
        self.state().free.push(index);
    }

    /// Returns the value of an index that was allocated at any time.
    #[inline(always)]
    pub fn get(&self, index: u32) -> &T {
        debug_assert!(index < self.begun());
        // SAFETY: `alloc` made the memory of every index that it returned usable permanently; a zeroed `T` is valid,
        // and changes only through shared references.
        unsafe { &*self.base.wrapping_add(index as usize * self.bytes_each).cast() }
    }

    /// Returns the value of an index if the caller knows the distance between values in bytes.
    #[inline(always)]
    pub fn get_spaced<const BYTES: usize>(&self, index: u32) -> &T {
        debug_assert!(index < self.begun() && BYTES == self.bytes_each);
        // SAFETY: as in `get`.
        unsafe { &*self.base.wrapping_add(index as usize * BYTES).cast() }
    }

    /// Returns the distance between values in bytes.
    pub fn bytes_each(&self) -> usize {
        self.bytes_each
    }

    /// Returns the bytes of memory in use, free values included.
    pub fn bytes(&self) -> u64 {
        u64::from(self.begun()) * self.bytes_each as u64
    }

    /// Returns an upper bound of the indices of all values ever allocated.
    pub fn begun(&self) -> u32 {
        self.begun.load(Acquire)
    }

    /// Returns the number of values allocated and not freed.
    pub fn live(&self) -> usize {
        let state = self.state();
        self.begun() as usize - state.free.len()
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        ARENAS.fetch_sub(1, Relaxed);
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let used = self.begun.load(Relaxed) as usize * self.bytes_each;
        if let Some(extent) = self.extent.take()
            && extent.is_private()
            && state.usable == STEP_BYTES
            && used <= SPARE_BYTES_MAX
            && extent.reserved() == RESERVED_BYTES
            && let Some(mut spares) = spares().filter(|spares| spares.len() < SPARES_MAX)
        {
            // SAFETY: memory of this arena, which no thread can reach any more.
            unsafe { extent.zero(used) };
            spares.push(extent);
        }
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
        // As in a child that was forked meanwhile, except that here it ends.
        let held = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
        let arena = Arena::<Cell>::new(64, &Memory::private()).unwrap();
        assert_eq!(arena.alloc().unwrap(), 0);
        drop(arena);
        drop(held);
    }

    #[test]
    fn values_begin_as_zeros_and_stay_where_they_are() {
        let arena = Arena::<Cell>::new(64, &Memory::private()).unwrap();
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
        let arena = Arena::<Cell>::within(64, 2 * STEP_BYTES, &Memory::private()).unwrap();
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
        // More indices than exist.
        assert!(arena.alloc_fresh(u32::MAX).is_err() && arena.alloc().is_err());
    }
}
