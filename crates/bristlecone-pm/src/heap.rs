//! Slots of one size, cut from a tree's chunks.
//!
//! Nothing about slots is persistent: which are live is what the tree can reach, told at recovery
//! by [`Heap::mark_live`]. So allocation costs the medium nothing, and nothing can leak. A slot
//! is a bit in DRAM; threads take 64 of them at a time, a whole bitmap word.
//!
//! A heap that is opened [unsettled](Heap::open_unsettled) is told nothing at recovery. Each slot
//! of its chunks counts as taken until a *judge* was asked whether the tree refers to it, a few
//! words of slots at a time, by those who need room ([`Heap::prepare`]). Opening it takes no time.

use std::collections::BTreeMap;
use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockWriteGuard};

use crossbeam_utils::CachePadded;

use crate::slots::Slots;
use crate::{Chunk, Error, Medium, PoolFile, Result, SlotKind, TreeId, thread_index, wait};

const CACHES: usize = 64;

/// A chunk as its tree sees it: where it begins and how many slots it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRange {
    /// Offset of the first slot.
    pub offset: u64,
    /// Number of slots.
    pub slots: usize,
}

/// What a heap occupies.
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

/// Slots that one thread took ahead of need.
#[derive(Debug, Default)]
struct Cache {
    slots: Option<Arc<Slots>>,
    word: usize,
    free: u64,
}

impl Cache {
    fn take(&mut self, slot_bytes: u32) -> Option<u64> {
        let slots = self.slots.as_ref().filter(|_| self.free != 0)?;
        let slot = self.word as u64 * 64 + u64::from(self.free.trailing_zeros());
        self.free &= self.free - 1;
        Some(slots.offset + slot * u64::from(slot_bytes))
    }
}

/// The chunks of a heap, by offset, and where to look for room first.
#[derive(Debug, Default)]
struct Chunks {
    all: BTreeMap<u64, Arc<Slots>>,
    /// Chunks that may have room; each stands here at most once.
    roomy: Vec<Arc<Slots>>,
}

impl Chunks {
    /// Whether there is little room left, so that the next chunk had better be taken by now.
    fn run_low(&self, slots_per_chunk: usize) -> bool {
        let mostly_taken = |slots: &Arc<Slots>| slots.taken.load(Acquire) > slots_per_chunk / 2;
        self.all.len() >= AHEAD_FROM && self.roomy.len() == 1 && mostly_taken(&self.roomy[0])
    }
}

/// A volatile allocator of equal slots. See the module.
#[derive(Debug)]
pub struct Heap<M: Medium> {
    pool: Arc<PoolFile<M>>,
    owner: TreeId,
    kind: SlotKind,
    slot_bytes: u32,
    tagged: bool,
    /// Apart from what every operation reads.
    chunks: CachePadded<RwLock<Chunks>>,
    /// Held while a chunk is taken from the pool.
    growing: Mutex<()>,
    /// Made with the first slot: a heap that is only looked at has none.
    caches: OnceLock<Box<[CachePadded<Mutex<Cache>>]>>,
    /// Chunks with words of slots that nobody has judged yet: how many words are left.
    unsettled: Mutex<Vec<(Arc<Slots>, usize)>>,
}

/// Whether the tree refers to the slot at an offset.
pub type Judge<'a> = &'a dyn Fn(u64) -> bool;

/// Chunks from which on a heap takes the next one ahead of need: which then is a small part of all.
const AHEAD_FROM: usize = 8;
/// Words of slots that are settled by one who needs room, before the heap grows.
const SETTLED_AT_ONCE: usize = 4;

impl<M: Medium> Heap<M> {
    /// Takes over the chunks of one tree, kind and slot size. Every slot counts as free until it
    /// is marked live. With `tagged`, slots handed out begin with a durable zero word, and must
    /// do so again when they are freed.
    pub fn open(
        pool: &Arc<PoolFile<M>>,
        owner: TreeId,
        kind: SlotKind,
        slot_bytes: u32,
        tagged: bool,
    ) -> Result<Self> {
        Ok(Self::of(&pool.chunks_of(owner), pool, owner, kind, slot_bytes, tagged))
    }

    /// The same, of a tree whose chunks are known.
    pub(crate) fn of(
        chunks: &[Chunk],
        pool: &Arc<PoolFile<M>>,
        owner: TreeId,
        kind: SlotKind,
        slot_bytes: u32,
        tagged: bool,
    ) -> Self {
        let mut heap = Self::empty(pool, owner, kind, slot_bytes, tagged);
        heap.adopt(chunks, Slots::new);
        heap
    }

    /// Takes over the chunks of one tree, kind and slot size. Which of their slots are free is
    /// found out when room is needed: see [`prepare`](Self::prepare).
    pub fn open_unsettled(
        pool: &Arc<PoolFile<M>>,
        owner: TreeId,
        kind: SlotKind,
        slot_bytes: u32,
        tagged: bool,
    ) -> Self {
        Self::unsettled_of(&pool.chunks_of(owner), pool, owner, kind, slot_bytes, tagged)
    }

    pub(crate) fn unsettled_of(
        chunks: &[Chunk],
        pool: &Arc<PoolFile<M>>,
        owner: TreeId,
        kind: SlotKind,
        slot_bytes: u32,
        tagged: bool,
    ) -> Self {
        let mut heap = Self::empty(pool, owner, kind, slot_bytes, tagged);
        heap.adopt(chunks, Slots::unsettled);
        let chunks = heap.chunks.get_mut().unwrap_or_else(PoisonError::into_inner);
        let unsettled = chunks.all.values().map(|slots| (Arc::clone(slots), slots.unknown.len()));
        heap.unsettled = Mutex::new(unsettled.collect());
        heap
    }

    fn empty(pool: &Arc<PoolFile<M>>, owner: TreeId, kind: SlotKind, slot_bytes: u32, tagged: bool) -> Self {
        Self {
            pool: Arc::clone(pool),
            owner,
            kind,
            slot_bytes,
            tagged,
            chunks: CachePadded::default(),
            growing: Mutex::default(),
            caches: OnceLock::new(),
            unsettled: Mutex::default(),
        }
    }

    fn adopt(&mut self, owned: &[Chunk], make: fn(u32, u64, usize) -> Slots) {
        let slots = self.slots_per_chunk();
        let chunks = self.chunks.get_mut().unwrap_or_else(PoisonError::into_inner);
        for chunk in owned {
            if (chunk.kind, chunk.slot_bytes) == (self.kind, self.slot_bytes) {
                chunks.all.insert(chunk.offset, Arc::new(make(chunk.id, chunk.offset, slots)));
            }
        }
    }

    fn slots_per_chunk(&self) -> usize {
        (self.pool.chunk_bytes() / u64::from(self.slot_bytes)) as usize
    }

    fn lock_chunks(&self) -> RwLockWriteGuard<'_, Chunks> {
        wait::write(&self.chunks)
    }

    fn cache(&self, index: usize) -> MutexGuard<'_, Cache> {
        let caches = self.caches.get_or_init(|| (0..CACHES).map(|_| CachePadded::default()).collect());
        wait::lock(&caches[index])
    }

    /// The caches of all threads, one after the other locked.
    fn each_cache(&self) -> impl Iterator<Item = MutexGuard<'_, Cache>> {
        self.caches.get().into_iter().flatten().map(|cache| wait::lock(cache))
    }

    /// Hands out a slot: its offset. `Err`: the pool or the medium is full; nothing changed.
    pub fn alloc(&self) -> Result<u64> {
        // Indices are dense, so threads share a cache only when there are very many.
        let index = thread_index() % CACHES;
        if let Some(slot) = self.cache(index).take(self.slot_bytes) {
            return Ok(slot);
        }
        let (chunks, mut filled) = self.refill(None)?;
        let slot = filled.take(self.slot_bytes).expect("a refill brings slots");
        // Those who lock both begin with the chunks. With both locked, nobody finds slots that are
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

    /// Sees to it that this thread's next slot is at hand. Unsettled slots are judged on the way,
    /// a few at a time as long as the pool can grow, all of them when it cannot. The judge may
    /// take its time, wait for locks, and use this heap; `Err` as of [`alloc`](Self::alloc).
    pub fn prepare(&self, judge: Judge<'_>) -> Result<()> {
        let index = thread_index() % CACHES;
        if self.cache(index).free != 0 {
            return Ok(());
        }
        let (chunks, filled) = self.refill(Some(judge))?;
        let spare = std::mem::replace(&mut *self.cache(index), filled);
        drop(chunks);
        self.put_back(spare);
        Ok(())
    }

    /// Has up to `words` words of unsettled slots judged; whether any slot turned out to be free.
    fn settle(&self, words: usize, judge: Judge<'_>) -> bool {
        let mut found = false;
        for _ in 0..words {
            let Some((slots, word)) = self.next_unsettled() else { return found };
            let mut bits = slots.unknown[word].load(Acquire);
            let mut look = false;
            while bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let live = judge(slots.offset + slot as u64 * u64::from(self.slot_bytes));
                // Whoever frees a slot made it known before it left the tree: then the judgement,
                // which may have come later, does not count.
                if slots.know(slot) && !live {
                    look = slots.give(word, 1 << (slot % 64));
                    found = true;
                }
            }
            if look {
                self.release(&slots);
            }
            self.say_roomy(slots, word);
        }
        found
    }

    /// A word of a chunk may have room, unless the pool has the chunk by now.
    fn say_roomy(&self, slots: Arc<Slots>, word: usize) {
        let mut chunks = self.lock_chunks();
        let ours = chunks.all.get(&slots.offset).is_some_and(|ours| Arc::ptr_eq(ours, &slots));
        let known = chunks.roomy.iter().any(|roomy| Arc::ptr_eq(roomy, &slots));
        if ours && !known && slots.bitmap[word].load(Acquire) != u64::MAX {
            chunks.roomy.push(slots);
        }
    }

    fn next_unsettled(&self) -> Option<(Arc<Slots>, usize)> {
        let mut unsettled = wait::lock(&self.unsettled);
        let (slots, left) = unsettled.last_mut()?;
        *left -= 1;
        let next = (Arc::clone(slots), *left);
        if *left == 0 {
            unsettled.pop();
        }
        Some(next)
    }

    /// Has every unsettled slot judged, so that [`stats`](Self::stats) are exact.
    pub fn settle_all(&self, judge: Judge<'_>) {
        self.settle(usize::MAX, judge);
    }

    /// The slot is live and about to leave the tree: it is taken until [`free`](Self::free),
    /// whatever a judge says who comes too late to find it.
    pub fn keep(&self, offset: u64) {
        if let Some((slots, slot)) = self.chunk_of(offset) {
            slots.know(slot);
        }
    }

    /// Finds a word with room: in the heap's chunks, after judging if there is a judge, in a new
    /// chunk, or in others' caches.
    fn refill(&self, judge: Option<Judge<'_>>) -> Result<(RwLockWriteGuard<'_, Chunks>, Cache)> {
        // A chunk is worth taking up again once it has enough room; otherwise the heap grows.
        let enough = self.slots_per_chunk() / 8 * 7;
        if let Some(filled) = self.take_room(enough) {
            return Ok(filled);
        }
        if judge.is_some_and(|judge| self.settle(SETTLED_AT_ONCE, judge))
            && let Some(filled) = self.take_room(enough)
        {
            return Ok(filled);
        }
        let error = match self.grow(enough) {
            Ok(filled) => return Ok(filled),
            Err(error) => error,
        };
        if let Some(judge) = judge {
            self.settle_all(judge);
        }
        if let Some(filled) = self.take_room(self.slots_per_chunk()) {
            return Ok(filled);
        }
        let chunks = self.lock_chunks();
        let cache = self.steal().ok_or(error)?;
        Ok((chunks, cache))
    }

    fn grow(&self, enough: usize) -> Result<(RwLockWriteGuard<'_, Chunks>, Cache)> {
        // Whoever grew the heap meanwhile did it for all.
        let _growing = wait::lock(&self.growing);
        if let Some(filled) = self.take_room(enough) {
            return Ok(filled);
        }
        let slots = self.new_chunk()?;
        let (word, free) = slots.take_word().expect("a new chunk has room");
        let mut chunks = self.lock_chunks();
        chunks.all.insert(slots.offset, Arc::clone(&slots));
        chunks.roomy.push(Arc::clone(&slots));
        Ok((chunks, Cache { slots: Some(slots), word, free }))
    }

    /// Takes the next chunk while others still have room: the system takes milliseconds for its
    /// pages, and they would all wait.
    #[cold]
    fn grow_ahead(&self) {
        let Ok(_growing) = self.growing.try_lock() else { return };
        if !wait::read(&self.chunks).run_low(self.slots_per_chunk()) {
            return;
        }
        // Without room for it, whoever needs it will be told.
        let Ok(slots) = self.new_chunk() else { return };
        let mut chunks = self.lock_chunks();
        chunks.all.insert(slots.offset, Arc::clone(&slots));
        chunks.roomy.insert(0, slots);
    }

    fn new_chunk(&self) -> Result<Arc<Slots>> {
        let chunk = self.pool.chunk_alloc(self.owner, self.kind, self.slot_bytes, self.tagged)?;
        Ok(Arc::new(Slots::new(chunk.id, chunk.offset, self.slots_per_chunk())))
    }

    /// Takes a word with room, of chunks that are known to have some, or else of those that have
    /// at most `taken_max` slots taken.
    fn take_room(&self, taken_max: usize) -> Option<(RwLockWriteGuard<'_, Chunks>, Cache)> {
        let mut chunks = self.lock_chunks();
        let take = |slots: &Arc<Slots>| {
            slots.take_word().map(|(word, free)| Cache { slots: Some(Arc::clone(slots)), word, free })
        };
        while let Some(slots) = chunks.roomy.last() {
            if let Some(cache) = take(slots) {
                return Some((chunks, cache));
            }
            chunks.roomy.pop();
        }
        // `roomy` is not told of every free, lest frees contend: look everywhere before growing.
        let roomy = |slots: &&Arc<Slots>| slots.taken.load(Acquire) <= taken_max;
        chunks.roomy = chunks.all.values().filter(roomy).cloned().collect();
        let cache = chunks.roomy.iter().rev().find_map(take)?;
        Some((chunks, cache))
    }

    /// Takes what another thread's cache holds idle.
    fn steal(&self) -> Option<Cache> {
        self.each_cache().find_map(|mut cache| (cache.free != 0).then(|| std::mem::take(&mut *cache)))
    }

    fn put_back(&self, cache: Cache) {
        if let Some(slots) = cache.slots.filter(|_| cache.free != 0)
            && slots.give(cache.word, cache.free)
        {
            self.release(&slots);
        }
    }

    fn chunk_of(&self, offset: u64) -> Option<(Arc<Slots>, usize)> {
        let chunks = wait::read(&self.chunks);
        let slots = chunks.all.range(..=offset).next_back()?.1;
        let within = offset - slots.offset;
        let slot = (within / u64::from(self.slot_bytes)) as usize;
        let fits = within.is_multiple_of(u64::from(self.slot_bytes)) && slot < self.slots_per_chunk();
        fits.then(|| (Arc::clone(slots), slot))
    }

    /// Takes a slot back; it may be handed out again at once.
    ///
    /// # Panics
    ///
    /// If the slot is not this heap's, or is free.
    pub fn free(&self, offset: u64) {
        let (slots, slot) = self.chunk_of(offset).expect("a slot of this heap");
        if slots.give(slot / 64, 1 << (slot % 64)) {
            self.release(&slots);
        }
    }

    /// Gives a chunk back to the pool if no slot of it is in use; slots that sit in caches are
    /// not. The heap's last chunk stays.
    fn release(&self, slots: &Arc<Slots>) {
        let mut chunks = self.lock_chunks();
        let caches = || {
            self.each_cache()
                .filter(|cache| cache.slots.as_ref().is_some_and(|cached| Arc::ptr_eq(cached, slots)))
        };
        // Caches are filled under the lock on the chunks, so they can only get fewer.
        let cached: usize = caches().map(|cache| cache.free.count_ones() as usize).sum();
        let live = slots.taken.load(Acquire).saturating_sub(cached);
        if live > 0 || chunks.all.len() < 2 {
            // Half of them go before anybody looks again, so that looking costs little in all. Who
            // frees the last one now still sees the old measure, or this one, and neither is too low.
            slots.look_at.store(cached + live / 2, Release);
            return;
        }
        for mut cache in caches() {
            let Cache { word, free, .. } = std::mem::take(&mut *cache);
            if free != 0 {
                slots.give(word, free);
            }
        }
        // An owner may have taken a slot from its cache since it was counted.
        if slots.taken.load(Acquire) == 0 && chunks.all.remove(&slots.offset).is_some() {
            chunks.roomy.retain(|roomy| !Arc::ptr_eq(roomy, slots));
            drop(chunks);
            self.pool.chunk_free(slots.id);
        }
    }

    /// Recovery: the tree refers to this slot. `true`: for the first time. May be called from
    /// several threads, and only before [`finish_recovery`](Self::finish_recovery).
    pub fn mark_live(&self, offset: u64) -> Result<bool> {
        let (slots, slot) = self.chunk_of(offset).ok_or_else(|| {
            Error::corrupted("a reference to no slot of this tree", format!("{:?} {offset:#x}", self.kind))
        })?;
        let fresh = slots.bitmap[slot / 64].fetch_or(1 << (slot % 64), AcqRel) >> (slot % 64) & 1 == 0;
        if fresh {
            slots.taken.fetch_add(1, AcqRel);
        }
        Ok(fresh)
    }

    /// Recovery: of 64 slots of a chunk, from slot `64 * word` on, the tree refers to those whose bits
    /// are set. None of them was marked before.
    ///
    /// # Panics
    ///
    /// If `chunk` is not one of [`chunks`](Self::chunks), or has no such slots.
    pub fn mark_live_word(&self, chunk: ChunkRange, word: usize, bits: u64) {
        let (slots, _) = self.chunk_of(chunk.offset).expect("a chunk of this heap");
        let before = slots.bitmap[word].fetch_or(bits, AcqRel);
        assert_eq!(before & bits, 0, "slots that the chunk has not got, or marked before");
        slots.taken.fetch_add(bits.count_ones() as usize, AcqRel);
    }

    /// Recovery is over: chunks without live slots go back to the pool.
    pub fn finish_recovery(&self) {
        let chunks: Vec<_> = {
            let chunks = wait::read(&self.chunks);
            chunks.all.values().cloned().collect()
        };
        for slots in chunks.iter().filter(|slots| slots.taken.load(Acquire) == 0) {
            self.release(slots);
        }
    }

    /// Every chunk of the heap, for recovery to look at.
    pub fn chunks(&self) -> Vec<ChunkRange> {
        let chunks = wait::read(&self.chunks);
        let slots = self.slots_per_chunk();
        chunks.all.keys().map(|&offset| ChunkRange { offset, slots }).collect()
    }

    /// What the heap occupies; exact while nobody allocates or frees.
    pub fn stats(&self) -> HeapStats {
        let cached: u64 = self.each_cache().map(|cache| u64::from(cache.free.count_ones())).sum();
        let chunks = wait::read(&self.chunks);
        let taken: usize = chunks.all.values().map(|slots| slots.taken.load(Acquire)).sum();
        HeapStats {
            chunks: chunks.all.len() as u64,
            chunk_bytes: self.pool.chunk_bytes(),
            live_slots: (taken as u64).saturating_sub(cached),
            slot_bytes: self.slot_bytes.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Domain, Geometry, Native, Region, TreeSpec, Word};

    pub(crate) fn pool(chunks: u64) -> (Arc<PoolFile<Native>>, TreeId) {
        let geometry = Geometry { chunk_bytes: 64 << 10, chunks_max: chunks, trees_max: 2 };
        let region = Region::memory(geometry.max_bytes()).unwrap();
        let pool = PoolFile::create_in(region, geometry, Domain::Process, Native::new(Domain::Process));
        let pool = pool.unwrap();
        let spec = TreeSpec {
            name: "t".into(),
            design: 1,
            key_kind: "u64".into(),
            value_kind: "u64".into(),
            params: [0; 8],
        };
        let id = pool.create_tree(&spec).unwrap().id;
        (pool, id)
    }

    #[test]
    fn slots_are_unique_and_the_full_pool_gives_every_one() {
        let (pool, tree) = pool(4);
        let heap = Heap::open(&pool, tree, SlotKind::Subnode, 192, true).unwrap();
        let per_chunk = (64 << 10) / 192;
        let mut slots = BTreeSet::new();
        while let Ok(slot) = heap.alloc() {
            assert!(slots.insert(slot) && slot % 64 == 0);
        }
        assert_eq!(slots.len(), 4 * per_chunk);
        assert_eq!(heap.stats().live_slots, slots.len() as u64);
        for slot in &slots {
            heap.free(*slot);
        }
        assert_eq!(heap.stats().live_slots, 0);
        assert_eq!(heap.stats().chunks, 1, "all chunks but the last went back");
        assert_eq!(pool.chunk_counts().0, 3);
        assert!(heap.alloc().is_ok());
    }

    #[test]
    fn idle_caches_of_other_threads_are_used_before_the_pool_is_full() {
        let (pool, tree) = pool(1);
        let heap = Heap::open(&pool, tree, SlotKind::Subnode, 256, true).unwrap();
        std::thread::scope(|scope| scope.spawn(|| heap.alloc().unwrap()).join().unwrap());
        let got = std::iter::from_fn(|| heap.alloc().ok()).count();
        assert_eq!(got, 255);
    }

    #[test]
    fn threads_never_share_a_slot() {
        let (pool, tree) = pool(64);
        let heap = Heap::open(&pool, tree, SlotKind::Subnode, 128, false).unwrap();
        std::thread::scope(|scope| {
            for thread in 1..=4_u64 {
                let (heap, pool) = (&heap, &pool);
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for round in 0..20_000_u64 {
                        if round % 5 < 3 {
                            let slot = heap.alloc().unwrap();
                            pool.at::<Word>(slot).store(pool.medium(), thread << 32 | round);
                            held.push((slot, thread << 32 | round));
                        } else if let Some((slot, mark)) = held.pop() {
                            assert_eq!(pool.at::<Word>(slot).load(pool.medium()), mark);
                            heap.free(slot);
                        }
                    }
                    held.into_iter().for_each(|(slot, _)| heap.free(slot));
                });
            }
        });
        assert_eq!(heap.stats().live_slots, 0);
        assert_eq!(heap.stats().chunks, 1);
    }

    #[test]
    fn recovery_knows_only_what_it_is_told() {
        let (pool, tree) = pool(8);
        let heap = Heap::open(&pool, tree, SlotKind::Subnode, 256, false).unwrap();
        let slots: Vec<u64> = (0..600).map(|_| heap.alloc().unwrap()).collect();
        let again = Heap::open(&pool, tree, SlotKind::Subnode, 256, false).unwrap();
        assert_eq!(again.chunks(), heap.chunks());
        assert!(again.mark_live(slots[3]).unwrap());
        assert!(!again.mark_live(slots[3]).unwrap());
        assert!(again.mark_live(slots[3] + 8).is_err());
        assert!(again.mark_live(0).is_err());
        again.mark_live_word(again.chunks()[0], 1, 0b101);
        assert!(!again.mark_live(again.chunks()[0].offset + 66 * 256).unwrap());
        again.finish_recovery();
        assert_eq!(
            again.stats(),
            HeapStats { chunks: 1, chunk_bytes: 64 << 10, live_slots: 3, slot_bytes: 256 }
        );
        let fresh: BTreeSet<u64> = (0..253).map(|_| again.alloc().unwrap()).collect();
        assert!(!fresh.contains(&slots[3]));
    }
}
