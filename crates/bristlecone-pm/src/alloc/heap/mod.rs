//! Slots of one size, cut from a tree's chunks.
//!
//! No slot state is persistent: the live slots are those the tree can reach, and recovery marks them with
//! [`Heap::mark_live`]. So allocation never writes to the medium, and nothing can leak. A slot is a bit in DRAM;
//! threads take 64 of them at a time, a whole bitmap word.
//!
//! In a heap that is opened [unswept](HeapSpec::unswept) recovery marks nothing, so that opening takes no time. Each
//! slot of its chunks counts as taken until a *sweep* asks the liveness callback whether the tree refers to it. A
//! thread that needs free space sweeps a few words of slots at a time ([`Heap::prepare`]).

mod free_space;
#[cfg(test)]
mod growth_tests;
mod index;
mod nests;
mod save;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, RwLockWriteGuard};

use crossbeam_utils::CachePadded;

use self::free_space::is_same;
use self::index::Index;
use self::nests::Nests;
use super::slots::Slots;
use crate::sync::{Ordering::AcqRel, Ordering::Acquire};
use crate::sync::{epoch, wait};
use crate::{Chunk, Error, Medium, PoolFile, Result, SlotKind, TreeId, thread_index};

const CACHES: usize = 64;
/// Maximum number of groups of caches: threads share caches only beyond 1,024.
const GROUPS: usize = 16;

/// A chunk as its tree sees it: its offset and number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRange {
    /// Offset of the first slot.
    pub offset: u64,
    /// Number of slots.
    pub slots: usize,
}

/// Space usage of a heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Chunks owned.
    pub chunks: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Slots handed out and not freed.
    pub live_slots: u64,
    /// Bytes of a slot.
    pub slot_bytes: u64,
}

/// Slots that one thread took in advance.
#[derive(Debug, Default)]
struct Cache {
    slots: Option<Arc<Slots>>,
    word: usize,
    free: u64,
}

impl Cache {
    fn next(&self, slot_bytes: u32) -> Option<u64> {
        let slots = self.slots.as_ref().filter(|_| self.free != 0)?;
        let slot = self.word as u64 * 64 + u64::from(self.free.trailing_zeros());
        Some(slots.offset + slot * u64::from(slot_bytes))
    }

    fn take(&mut self, slot_bytes: u32) -> Option<u64> {
        let slot = self.next(slot_bytes)?;
        self.free &= self.free - 1;
        Some(slot)
    }
}

/// The chunks of a heap by offset, and those to search first for free space.
#[derive(Debug, Default)]
struct Chunks {
    all: BTreeMap<u64, Arc<Slots>>,
    /// Chunks that may have free slots; each is listed at most once.
    partial: Vec<Arc<Slots>>,
}

impl Chunks {
    /// Returns whether the heap still has this chunk. A chunk that was returned to the pool and allocated again does
    /// not count.
    fn has(&self, slots: &Slots) -> bool {
        self.all.get(&slots.offset).is_some_and(|own| is_same(own, slots))
    }

    /// Returns the chunks of which at most `taken_max` slots are taken.
    fn with_free_slots(&self, taken_max: usize) -> Vec<Arc<Slots>> {
        let partial = |slots: &&Arc<Slots>| slots.taken.load(Acquire) <= taken_max;
        self.all.values().filter(partial).cloned().collect()
    }

    /// Returns whether so little space is free that the next chunk should be taken in advance.
    fn run_low(&self, slots_per_chunk: usize) -> bool {
        // Several threads use up half a chunk in the time that the system takes for the next one.
        let begun = |slots: &Arc<Slots>| slots.taken.load(Acquire) > slots_per_chunk / 8;
        self.all.len() >= AHEAD_FROM && self.partial.len() == 1 && begun(&self.partial[0])
    }
}

/// Parameters of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapSpec {
    /// The tree that owns the chunks.
    pub owner: TreeId,
    /// The kind of the slots' contents.
    pub kind: SlotKind,
    /// Bytes of a slot: a multiple of eight.
    pub slot_bytes: u32,
    /// Whether the first word of a slot must be durably zero when the slot is handed out and when it is freed.
    pub tagged: bool,
    /// Whether recovery marks no slot: [`prepare`](Heap::prepare) finds the free ones when space is needed.
    pub unswept: bool,
}

impl HeapSpec {
    /// Returns parameters for untagged slots, of which recovery marks the live ones.
    pub fn new(owner: TreeId, kind: SlotKind, slot_bytes: u32) -> Self {
        Self { owner, kind, slot_bytes, tagged: false, unswept: false }
    }
}

/// The caches of the threads of a group.
type Caches = Box<[CachePadded<Mutex<Cache>>]>;

/// A volatile allocator of slots of one size. See the module.
#[derive(Debug)]
pub struct Heap<M: Medium> {
    pool: Arc<PoolFile<M>>,
    spec: HeapSpec,
    /// On its own cache line, apart from the fields that every operation reads.
    chunks: CachePadded<RwLock<Chunks>>,
    /// The same chunks; changes under their lock.
    index: Index,
    /// Held while a chunk is taken from the pool.
    growing: Mutex<()>,
    /// Groups of caches, each created with the first slot of one of its threads.
    caches: [OnceLock<Caches>; GROUPS],
    /// Slots kept for leaves, since the first record.
    nests: Nests,
    /// Chunks with unswept words of slots, and how many such words are left.
    pub(super) unswept: Mutex<Vec<(Arc<Slots>, usize)>>,
}

/// Liveness callback: returns whether the tree refers to the slot at an offset.
pub type Liveness<'a> = &'a dyn Fn(u64) -> bool;

/// Number of chunks from which on a heap takes the next one in advance. The extra chunk is then a small part of all.
const AHEAD_FROM: usize = 16;

impl<M: Medium> Heap<M> {
    /// Opens the heap of one tree, kind and slot size on its chunks. Every slot counts as free until it is marked
    /// live; in an unswept heap every slot counts as taken until it is swept.
    ///
    /// # Panics
    ///
    /// If no slot fits a chunk, or the slot size is not a multiple of eight bytes.
    pub fn open(pool: &Arc<PoolFile<M>>, spec: HeapSpec) -> Self {
        Self::over(&pool.chunks_of(spec.owner), pool, spec)
    }

    /// Opens the heap on those of a tree's `chunks` that have its kind and slot size.
    pub(crate) fn over(chunks: &[Chunk], pool: &Arc<PoolFile<M>>, spec: HeapSpec) -> Self {
        let whole = spec.slot_bytes.is_multiple_of(8) && u64::from(spec.slot_bytes) <= pool.chunk_bytes();
        assert!(spec.slot_bytes > 0 && whole, "slots of {} bytes", spec.slot_bytes);
        let slots = (pool.chunk_bytes() / u64::from(spec.slot_bytes)) as usize;
        let make = if spec.unswept { Slots::unswept } else { Slots::new };
        let of_heap =
            chunks.iter().filter(|chunk| (chunk.kind, chunk.slot_bytes) == (spec.kind, spec.slot_bytes));
        let all: BTreeMap<_, _> =
            of_heap.map(|chunk| (chunk.offset, Arc::new(make(chunk.id, chunk.offset, slots)))).collect();
        let unswept = all.values().filter(|_| spec.unswept);
        let unswept = unswept.map(|slots| (Arc::clone(slots), slots.unknown.len())).collect();
        Self {
            pool: Arc::clone(pool),
            spec,
            index: Index::new(&all),
            chunks: CachePadded::new(RwLock::new(Chunks { all, partial: Vec::new() })),
            growing: Mutex::default(),
            caches: [const { OnceLock::new() }; GROUPS],
            nests: Nests::default(),
            unswept: Mutex::new(unswept),
        }
    }

    /// Returns the offset of a slot of a chunk.
    pub(super) fn slot_offset(&self, slots: &Slots, slot: usize) -> u64 {
        debug_assert!(slot < self.slots_per_chunk(), "a slot beyond its chunk");
        slots.offset + slot as u64 * u64::from(self.spec.slot_bytes)
    }

    pub(super) fn slots_per_chunk(&self) -> usize {
        (self.pool.chunk_bytes() / u64::from(self.spec.slot_bytes)) as usize
    }

    /// Returns how many slots of a chunk may be taken for it to be reused; otherwise the heap grows.
    fn worthwhile(&self) -> usize {
        self.slots_per_chunk() / 8 * 7
    }

    fn lock_chunks(&self) -> RwLockWriteGuard<'_, Chunks> {
        wait::write(&self.chunks)
    }

    /// Locks the cache of the thread with this number.
    fn cache(&self, thread: usize) -> MutexGuard<'_, Cache> {
        let group = &self.caches[thread / CACHES % GROUPS];
        let caches = group.get_or_init(|| (0..CACHES).map(|_| CachePadded::default()).collect());
        wait::lock(&caches[thread % CACHES])
    }

    /// Locks the caches of all threads, one after the other.
    fn each_cache(&self) -> impl Iterator<Item = MutexGuard<'_, Cache>> {
        self.caches.iter().filter_map(OnceLock::get).flatten().map(|cache| wait::lock(cache))
    }

    /// Allocates a slot and returns its offset.
    ///
    /// # Errors
    ///
    /// [`PoolFull`](Error::PoolFull), [`MediumFull`](Error::MediumFull), and errors of the system. The heap is
    /// unchanged.
    pub fn alloc(&self) -> Result<u64> {
        self.alloc_by(Cache::take)
    }

    fn alloc_by<T>(&self, take: impl Fn(&mut Cache, u32) -> Option<T>) -> Result<T> {
        // Indices are dense, so threads share a cache only when there are more threads than caches.
        let index = thread_index();
        if let Some(slot) = take(&mut self.cache(index), self.spec.slot_bytes) {
            return Ok(slot);
        }
        let (chunks, mut filled) = self.refill(None)?;
        let slot = take(&mut filled, self.spec.slot_bytes).expect("a refill brings slots");
        // A thread that locks both begins with the chunks. With both locked, no thread finds slots that are
        // neither live nor cached.
        let spare = std::mem::replace(&mut *self.cache(index), filled);
        let low = chunks.run_low(self.slots_per_chunk());
        drop(chunks);
        // Another thread of this cache may have filled it meanwhile.
        self.put_back(spare);
        if low {
            self.grow_ahead();
        }
        Ok(slot)
    }

    /// Prefetches the lines of this thread's next slot, if it is known.
    pub fn prefetch_next(&self) {
        if let Some(slot) = self.cache(thread_index()).next(self.spec.slot_bytes) {
            self.pool.prefetch_lines(slot, self.spec.slot_bytes as usize);
        }
    }

    /// Ensures that this thread's next slot is available. Sweeps unswept slots if necessary: a few at a time while the
    /// pool can grow, otherwise all of them. The callback may block, wait for locks, and use this heap.
    ///
    /// # Errors
    ///
    /// As [`alloc`](Self::alloc).
    pub fn prepare(&self, is_live: Liveness<'_>) -> Result<()> {
        let index = thread_index();
        if self.cache(index).free != 0 {
            return Ok(());
        }
        let (chunks, filled) = self.refill(Some(is_live))?;
        let spare = std::mem::replace(&mut *self.cache(index), filled);
        drop(chunks);
        self.put_back(spare);
        Ok(())
    }

    /// Calls `act` with the chunk and the number of the slot that begins at an offset; returns `None` if there is none.
    #[inline]
    pub(super) fn with_slot<R>(&self, offset: u64, act: impl FnOnce(&Slots, usize) -> R) -> Option<R> {
        let guard = epoch::pin();
        let slots = self.index.find(offset, &guard)?;
        let within = offset - slots.offset;
        let slot = (within / u64::from(self.spec.slot_bytes)) as usize;
        let fits = within.is_multiple_of(u64::from(self.spec.slot_bytes)) && slot < self.slots_per_chunk();
        fits.then(|| act(slots, slot))
    }

    /// Returns the slots of the chunk that begins at an offset.
    pub(super) fn chunk_at(&self, offset: u64) -> Option<Arc<Slots>> {
        wait::read(&self.chunks).all.get(&offset).cloned()
    }

    /// Returns whether a slot begins at an offset.
    pub fn is_slot(&self, offset: u64) -> bool {
        self.with_slot(offset, |_, _| ()).is_some()
    }

    /// Returns whether a slot begins at an offset, and is not marked as live.
    pub fn is_free(&self, offset: u64) -> bool {
        let is_free =
            |slots: &Slots, slot: usize| slots.bitmap[slot / 64].load(Acquire) >> (slot % 64) & 1 == 0;
        self.with_slot(offset, is_free) == Some(true)
    }

    /// Frees a slot; it may be handed out again immediately.
    ///
    /// # Panics
    ///
    /// If the slot is not part of this heap, or is free.
    pub fn free(&self, offset: u64) {
        // Pinned until the chunk is released: another thread may free its last slot, and release it first.
        let freed = self.with_slot(offset, |slots, slot| {
            if slots.give(slot / 64, 1 << (slot % 64)) {
                self.release(slots);
            }
        });
        freed.expect("a slot of this heap");
    }

    /// Marks a slot as referred to by the tree during recovery. Returns whether it was unmarked. May be called from
    /// several threads, and only before [`finish_recovery`](Self::finish_recovery).
    ///
    /// # Errors
    ///
    /// [`Corrupted`](Error::Corrupted) if no slot begins there.
    pub fn mark_live(&self, offset: u64) -> Result<bool> {
        let marked = self.with_slot(offset, |slots, slot| {
            let fresh = slots.mark(slot);
            slots.taken.fetch_add(fresh.into(), AcqRel);
            fresh
        });
        marked.ok_or_else(|| {
            Error::corrupted(
                "a reference to a slot of another tree",
                format!("{} at {offset:#x}", self.spec.kind),
            )
        })
    }

    /// Marks, during recovery, those of the 64 slots from slot `64 * word` of a chunk on whose bits are set: the tree
    /// refers to them. None of them may be marked before.
    ///
    /// # Panics
    ///
    /// If `chunk` is not one of [`chunks`](Self::chunks), or has no such slots.
    pub fn mark_live_word(&self, chunk: ChunkRange, word: usize, bits: u64) {
        let marked = self.with_slot(chunk.offset, |slots, _| {
            let before = slots.bitmap[word].fetch_or(bits, AcqRel);
            assert_eq!(before & bits, 0, "slots that the chunk has not got, or marked before");
            slots.taken.fetch_add(bits.count_ones() as usize, AcqRel);
        });
        marked.expect("a chunk of this heap");
    }

    /// Ends recovery: chunks without live slots are returned to the pool.
    pub fn finish_recovery(&self) {
        let chunks: Vec<_> = {
            let chunks = wait::read(&self.chunks);
            chunks.all.values().cloned().collect()
        };
        for slots in &chunks {
            slots.count(self.slots_per_chunk());
            if slots.taken.load(Acquire) == 0 {
                self.release(slots);
            }
        }
    }

    /// Returns every chunk of the heap in order of offset, for recovery to scan.
    pub fn chunks(&self) -> Vec<ChunkRange> {
        let chunks = wait::read(&self.chunks);
        let slots = self.slots_per_chunk();
        chunks.all.keys().map(|&offset| ChunkRange { offset, slots }).collect()
    }

    /// Returns the heap's space usage; exact while no thread allocates or frees.
    pub fn stats(&self) -> HeapStats {
        let cached: u64 = self.each_cache().map(|cache| u64::from(cache.free.count_ones())).sum();
        let cached = cached + self.nested();
        let chunks = wait::read(&self.chunks);
        let taken: usize = chunks.all.values().map(|slots| slots.taken.load(Acquire)).sum();
        HeapStats {
            chunks: chunks.all.len() as u64,
            chunk_bytes: self.pool.chunk_bytes(),
            live_slots: (taken as u64).saturating_sub(cached),
            slot_bytes: self.spec.slot_bytes.into(),
        }
    }
}
