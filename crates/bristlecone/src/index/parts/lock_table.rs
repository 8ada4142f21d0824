//! Locks in DRAM for nodes that stand on the medium, where no lock belongs.

use bristlecone_pm::sync::{AtomicPtr, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use super::optimistic_lock::OptimisticLock;
use super::zeroed::zeroed;

/// A chunk of the tree without locks so far.
const UNTOUCHED: *mut OptimisticLock = std::ptr::dangling_mut();

/// A lock for every slot of the tree's chunks, found by offset.
#[derive(Debug)]
pub struct LockTable {
    /// By chunk: null if it is not the tree's, `UNTOUCHED` if no lock of it was asked for yet.
    chunks: Box<[AtomicPtr<OptimisticLock>]>,
    made: AtomicUsize,
    chunk_shift: u32,
    node_shift: u32,
}

impl LockTable {
    /// Makes the locks of a pool that may grow to `pool_bytes`, and nodes of a power of two bytes.
    pub fn new(pool_bytes: u64, chunk_bytes: u64, node_bytes: u64) -> Self {
        Self {
            chunks: zeroed((pool_bytes / chunk_bytes) as usize),
            made: AtomicUsize::new(0),
            chunk_shift: chunk_bytes.trailing_zeros(),
            node_shift: node_bytes.trailing_zeros(),
        }
    }

    fn slots(&self) -> usize {
        1 << (self.chunk_shift - self.node_shift)
    }

    /// Notes that the chunk of a node is the tree's. It stays so for good: locks outlive their chunks.
    #[inline]
    pub fn admit(&self, node: u64) {
        let cell = &self.chunks[(node >> self.chunk_shift) as usize];
        if cell.load(Acquire).is_null() {
            // A thread that comes second finds what the first one left.
            let _ = cell.compare_exchange(std::ptr::null_mut(), UNTOUCHED, AcqRel, Acquire);
        }
    }

    /// Returns the locks of a chunk, made now if it is the tree's.
    #[cold]
    fn make(&self, cell: &AtomicPtr<OptimisticLock>) -> Option<*mut OptimisticLock> {
        if cell.load(Acquire).is_null() {
            return None;
        }
        let locks: Box<[OptimisticLock]> = (0..self.slots()).map(|_| OptimisticLock::default()).collect();
        let locks = Box::into_raw(locks).cast::<OptimisticLock>();
        // Pairs with the loads: a thread that sees the pointer sees zeroed locks.
        match cell.compare_exchange(UNTOUCHED, locks, AcqRel, Acquire) {
            Ok(_) => {
                self.made.fetch_add(1, Relaxed);
                Some(locks)
            }
            Err(theirs) => {
                self.unmake(locks);
                Some(theirs)
            }
        }
    }

    fn unmake(&self, locks: *mut OptimisticLock) {
        // SAFETY: made by `make` from a box of this many locks, and not shared or no longer.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(locks, self.slots())) });
    }

    /// Returns the lock of a node. `None`: no node of the tree can stand there.
    #[inline(always)]
    pub fn get(&self, node: u64) -> Option<&OptimisticLock> {
        let cell = self.chunks.get((node >> self.chunk_shift) as usize)?;
        let mut locks = cell.load(Acquire);
        if locks.addr() <= UNTOUCHED.addr() {
            locks = self.make(cell)?;
        }
        if node & ((1 << self.node_shift) - 1) != 0 {
            return None;
        }
        let slot = (node & ((1 << self.chunk_shift) - 1)) >> self.node_shift;
        // SAFETY: the chunk's locks, of which there is one for each slot, live as long as `self`.
        Some(unsafe { &*locks.add(slot as usize) })
    }

    /// Returns the bytes of DRAM.
    pub fn bytes(&self) -> u64 {
        let made = self.made.load(Relaxed) * self.slots() * size_of::<OptimisticLock>();
        (made + self.chunks.len() * size_of::<AtomicPtr<OptimisticLock>>()) as u64
    }
}

impl Drop for LockTable {
    fn drop(&mut self) {
        for cell in &self.chunks {
            let locks = cell.load(Acquire);
            if locks.addr() > UNTOUCHED.addr() {
                self.unmake(locks);
            }
        }
    }
}
