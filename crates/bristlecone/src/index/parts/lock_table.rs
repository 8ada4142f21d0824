//! Locks in DRAM for nodes on the medium, which must not contain locks.

use std::sync::Mutex;

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::sync::{
    AtomicPtr, AtomicU32, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};
use bristlecone_pm::{Manifest, ManifestReader, Memory, Result};

use super::arena::{Arena, Zeroed};
use super::optimistic_lock::OptimisticLock;
use super::zeroed::zeroed;

/// Marks a chunk of the tree that has no locks yet.
const UNTOUCHED: *mut OptimisticLock = std::ptr::dangling_mut();

// SAFETY: an atomic, for which zero is a value.
unsafe impl Zeroed for OptimisticLock {}

/// A lock for every slot of the tree's chunks, found by offset.
#[derive(Debug)]
pub struct LockTable {
    /// By chunk: null if it does not belong to the tree, `UNTOUCHED` if none of its locks was
    /// requested yet.
    chunks: Box<[AtomicPtr<OptimisticLock>]>,
    made: AtomicUsize,
    chunk_shift: u32,
    node_shift: u32,
    shared: Option<Shared>,
}

/// Locks in memory that followers can see.
#[derive(Debug)]
struct Shared {
    locks: Arena<OptimisticLock>,
    /// By chunk: the number of its first lock, plus one; zero if it does not belong to the tree.
    rows: Arena<AtomicU32>,
    /// Held while numbers are assigned to a chunk.
    growing: Mutex<()>,
    /// Whether another process creates the locks.
    follows: bool,
}

impl Shared {
    fn new(memory: &Memory) -> Result<Self> {
        let (locks, rows) =
            (Arena::new(size_of::<OptimisticLock>(), memory)?, Arena::new(size_of::<AtomicU32>(), memory)?);
        Ok(Self { locks, rows, growing: Mutex::new(()), follows: false })
    }

    /// Assigns numbers to the locks of a chunk, without using memory yet.
    fn admit(&self, chunk: u32, slots: usize) -> Result<()> {
        let _only = lock(&self.growing);
        self.rows.alloc_fresh((chunk + 1).saturating_sub(self.rows.begun()))?;
        let row = self.rows.get(chunk);
        if row.load(Relaxed) == 0 {
            let first = self.locks.alloc_unbacked(slots as u32)?;
            // Pairs with the acquire of a follower.
            row.store(first + 1, Release);
        }
        Ok(())
    }
}

impl LockTable {
    /// Creates the locks for a pool with a maximum of `pool_bytes`, and nodes whose size is a power of
    /// two.
    ///
    /// # Errors
    ///
    /// Fails if followers must see them and there is no address space.
    pub fn new(pool_bytes: u64, chunk_bytes: u64, node_bytes: u64, memory: &Memory) -> Result<Self> {
        Ok(Self {
            chunks: zeroed((pool_bytes / chunk_bytes) as usize),
            made: AtomicUsize::new(0),
            chunk_shift: chunk_bytes.trailing_zeros(),
            node_shift: node_bytes.trailing_zeros(),
            shared: if memory.is_private() { None } else { Some(Shared::new(memory)?) },
        })
    }

    /// Records the locks in the manifest for followers.
    pub fn share(&self, manifest: &mut Manifest) -> Option<()> {
        let shared = self.shared.as_ref()?;
        shared.rows.save(manifest)?;
        shared.locks.save(manifest)
    }

    /// Takes over the locks recorded by [`share`](Self::share).
    pub fn follow(&mut self, manifest: &mut ManifestReader<'_>) -> Option<()> {
        let rows = Arena::resume(size_of::<AtomicU32>(), manifest)?;
        let locks = Arena::resume(size_of::<OptimisticLock>(), manifest)?;
        self.shared = Some(Shared { locks, rows, growing: Mutex::new(()), follows: true });
        Some(())
    }

    fn slots(&self) -> usize {
        1 << (self.chunk_shift - self.node_shift)
    }

    /// Records that the chunk of a node belongs to the tree. This is permanent: locks outlive their
    /// chunks.
    ///
    /// # Errors
    ///
    /// Fails if followers must see its locks and there is no memory.
    #[inline]
    pub fn admit(&self, node: u64) -> Result<()> {
        let chunk = node >> self.chunk_shift;
        let cell = &self.chunks[chunk as usize];
        if cell.load(Acquire).is_null() {
            if let Some(shared) = &self.shared {
                shared.admit(chunk as u32, self.slots())?;
            }
            // A second thread finds the result of the first one.
            let _ = cell.compare_exchange(std::ptr::null_mut(), UNTOUCHED, AcqRel, Acquire);
        }
        Ok(())
    }

    /// Returns the locks of a chunk, and creates them if it belongs to the tree.
    #[cold]
    fn make(&self, chunk: usize, cell: &AtomicPtr<OptimisticLock>) -> Option<*mut OptimisticLock> {
        let follows = self.shared.as_ref().is_some_and(|shared| shared.follows);
        let untouched = if follows { std::ptr::null_mut() } else { UNTOUCHED };
        if cell.load(Acquire).is_null() && !follows {
            return None;
        }
        let locks = match &self.shared {
            Some(shared) => {
                let row = shared.rows.get(chunk as u32).load(Acquire);
                // A follower finds no chunk that the tree has not used yet.
                shared.locks.backed(row.checked_sub(1)?, self.slots())?
            }
            None => {
                let locks: Box<[OptimisticLock]> =
                    (0..self.slots()).map(|_| OptimisticLock::default()).collect();
                Box::into_raw(locks).cast::<OptimisticLock>()
            }
        };
        // Pairs with the loads: a thread that sees the pointer sees zeroed locks.
        match cell.compare_exchange(untouched, locks, AcqRel, Acquire) {
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
        if self.shared.is_none() {
            // SAFETY: made by `make` from a box of this many locks, and not shared or no longer.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(locks, self.slots())) });
        }
    }

    /// Returns the lock of a node, or `None` if no node of the tree can be at this offset.
    #[inline(always)]
    pub fn get(&self, node: u64) -> Option<&OptimisticLock> {
        let chunk = (node >> self.chunk_shift) as usize;
        let cell = self.chunks.get(chunk)?;
        let mut locks = cell.load(Acquire);
        if locks.addr() <= UNTOUCHED.addr() {
            locks = self.make(chunk, cell)?;
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
        for cell in self.chunks.iter().filter(|_| self.shared.is_none()) {
            let locks = cell.load(Acquire);
            if locks.addr() > UNTOUCHED.addr() {
                self.unmake(locks);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const CHUNKS: [u64; 4] = [0, 5, 1, 7];

    #[test]
    fn every_node_has_its_own_lock() {
        let table = LockTable::new(1 << 20, 4096, 256, &Memory::private()).unwrap();
        let nodes = || CHUNKS.into_iter().flat_map(|chunk| (0..16).map(move |at| chunk * 4096 + at * 256));
        nodes().for_each(|node| table.admit(node).unwrap());
        let of = |node| std::ptr::from_ref(table.get(node).unwrap()).addr();
        assert_eq!(nodes().map(of).collect::<BTreeSet<_>>().len(), 64);
    }

    #[test]
    fn every_node_that_followers_see_has_its_own_lock() {
        let shared = Shared::new(&Memory::private()).unwrap();
        CHUNKS.iter().for_each(|chunk| shared.admit(*chunk as u32, 16).unwrap());
        let of = |chunk: u64| shared.rows.get(chunk as u32).load(Relaxed) - 1;
        let all: BTreeSet<u32> = CHUNKS.into_iter().flat_map(|chunk| of(chunk)..of(chunk) + 16).collect();
        assert_eq!((all.len(), all.last().copied()), (64, Some(shared.locks.begun() - 1)));
    }
}
