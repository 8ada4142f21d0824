//! Finding free slots, and returning empty chunks to the pool.

use std::sync::{Arc, RwLockWriteGuard};

use super::super::slots::Slots;
use super::{Cache, Chunks, Heap, Liveness};
use crate::sync::wait;
use crate::sync::{Ordering::Acquire, Ordering::Release};
use crate::{Medium, Result};

/// Words of slots that a thread in need of free space sweeps before the heap grows.
const SWEPT_AT_ONCE: usize = 4;

impl<M: Medium> Heap<M> {
    /// Finds a word with free slots: in the heap's chunks, after a sweep if there is a liveness callback, in
    /// a new chunk, or in the caches of other threads.
    pub(super) fn refill(
        &self,
        is_live: Option<Liveness<'_>>,
    ) -> Result<(RwLockWriteGuard<'_, Chunks>, Cache)> {
        let enough = self.worthwhile();
        if let Some(filled) = self.take_free(enough) {
            return Ok(filled);
        }
        if is_live.is_some_and(|is_live| self.sweep(SWEPT_AT_ONCE, is_live))
            && let Some(filled) = self.take_free(enough)
        {
            return Ok(filled);
        }
        let error = match self.grow(enough) {
            Ok(filled) => return Ok(filled),
            Err(error) => error,
        };
        if let Some(is_live) = is_live {
            self.sweep_all(is_live);
        }
        self.empty_nests();
        if let Some(filled) = self.take_free(self.slots_per_chunk()) {
            return Ok(filled);
        }
        let chunks = self.lock_chunks();
        let cache = self.steal().ok_or(error)?;
        Ok((chunks, cache))
    }

    fn grow(&self, enough: usize) -> Result<(RwLockWriteGuard<'_, Chunks>, Cache)> {
        // If another thread grew the heap meanwhile, its chunk serves this thread too.
        let _growing = wait::lock(&self.growing);
        if let Some(filled) = self.take_free(enough) {
            return Ok(filled);
        }
        let slots = self.new_chunk()?;
        let (word, free) = slots.take_word().expect("a new chunk has free slots");
        let mut chunks = self.lock_chunks();
        self.add(&mut chunks, &slots);
        chunks.partial.push(Arc::clone(&slots));
        Ok((chunks, Cache { slots: Some(slots), word, free }))
    }

    /// Takes the next chunk while there are still free slots. The system takes milliseconds to provide its
    /// pages, and otherwise all threads would wait.
    #[cold]
    pub(super) fn grow_ahead(&self) {
        let Ok(_growing) = self.growing.try_lock() else { return };
        {
            let mut chunks = self.lock_chunks();
            if !chunks.run_low(self.slots_per_chunk()) {
                return;
            }
            let mut others = chunks.with_free_slots(self.worthwhile());
            others.retain(|slots| !Arc::ptr_eq(slots, &chunks.partial[0]));
            if !others.is_empty() {
                others.append(&mut chunks.partial);
                chunks.partial = others;
                return;
            }
        }
        // On failure, the thread that needs the space gets the error.
        let Ok(slots) = self.new_chunk() else { return };
        let mut chunks = self.lock_chunks();
        self.add(&mut chunks, &slots);
        chunks.partial.insert(0, slots);
    }

    fn add(&self, chunks: &mut Chunks, slots: &Arc<Slots>) {
        chunks.all.insert(slots.offset, Arc::clone(slots));
        self.index.publish(&chunks.all, None);
    }

    /// Takes a chunk from the pool. The caller holds the lock on growing.
    fn new_chunk(&self) -> Result<Arc<Slots>> {
        debug_assert!(self.growing.try_lock().is_err(), "two threads grow the heap");
        let tags = if self.spec.tagged { u64::MAX } else { 0 };
        let chunk = self.pool.chunk_alloc(self.spec.owner, self.spec.kind, self.spec.slot_bytes, tags)?;
        Ok(Arc::new(Slots::new(chunk.id, chunk.offset, self.slots_per_chunk())))
    }

    /// Takes a word with free slots from the chunks listed as partial, or else from those with at most
    /// `taken_max` slots taken.
    pub(super) fn take_free(&self, taken_max: usize) -> Option<(RwLockWriteGuard<'_, Chunks>, Cache)> {
        let mut chunks = self.lock_chunks();
        let take = |slots: &Arc<Slots>| {
            slots.take_word().map(|(word, free)| Cache { slots: Some(Arc::clone(slots)), word, free })
        };
        while let Some(slots) = chunks.partial.last() {
            if let Some(cache) = take(slots) {
                return Some((chunks, cache));
            }
            chunks.partial.pop();
        }
        // `partial` does not learn of every free, to avoid contention: scan all chunks before growing.
        chunks.partial = chunks.with_free_slots(taken_max);
        let cache = chunks.partial.iter().rev().find_map(take)?;
        Some((chunks, cache))
    }

    /// Lists a chunk of which a word may have free slots, unless the chunk was returned to the pool meanwhile.
    pub(in crate::alloc) fn note_partial(&self, slots: Arc<Slots>, word: usize) {
        let mut chunks = self.lock_chunks();
        let known = chunks.partial.iter().any(|partial| Arc::ptr_eq(partial, &slots));
        if chunks.has(&slots) && !known && slots.bitmap[word].load(Acquire) != u64::MAX {
            chunks.partial.push(slots);
        }
    }

    /// Takes the idle slots of another thread's cache.
    fn steal(&self) -> Option<Cache> {
        self.each_cache().find_map(|mut cache| (cache.free != 0).then(|| std::mem::take(&mut *cache)))
    }

    pub(super) fn put_back(&self, cache: Cache) {
        if let Some(slots) = cache.slots.filter(|_| cache.free != 0)
            && slots.give(cache.word, cache.free)
        {
            self.release(&slots);
        }
    }

    /// Returns a chunk to the pool if no slot of it is in use; cached slots count as unused. The heap's last
    /// chunk stays.
    pub(in crate::alloc) fn release(&self, slots: &Slots) {
        let mut chunks = self.lock_chunks();
        // The thread that freed the previous slot may have returned the chunk, and the pool may have handed it
        // out again.
        if !chunks.has(slots) {
            return;
        }
        let caches = || {
            self.each_cache()
                .filter(|cache| cache.slots.as_ref().is_some_and(|cached| is_same(cached, slots)))
        };
        // Caches are filled under the lock on the chunks, so their number can only decrease.
        let cached: usize = caches().map(|cache| cache.free.count_ones() as usize).sum();
        let live = slots.taken.load(Acquire).saturating_sub(cached);
        if live > 0 || chunks.all.len() < 2 {
            // Half of them must be freed before a thread looks again, which bounds the total cost of looking. A
            // thread that frees the last slot now sees the old threshold or this one; neither is too low.
            slots.look_at.store(cached + live / 2, Release);
            let is_last = chunks.all.len() < 2;
            drop(chunks);
            // Most of these slots may be in nests. Looking into all nests pays only for a chunk that may then be free.
            if !is_last && live > 0 && live <= self.slots_per_chunk() / 4 {
                self.empty_nests();
            }
            return;
        }
        for mut cache in caches() {
            let Cache { word, free, .. } = std::mem::take(&mut *cache);
            if free != 0 {
                slots.give(word, free);
            }
        }
        // An owner may have taken a slot from its cache since it was counted.
        if slots.taken.load(Acquire) == 0 {
            let removed = chunks.all.remove(&slots.offset);
            chunks.partial.retain(|partial| !is_same(partial, slots));
            self.index.publish(&chunks.all, removed);
            drop(chunks);
            self.pool.chunk_free(slots.id);
        }
    }
}

/// Returns whether these are the slots, rather than those of an earlier or later use of their chunk.
pub(super) fn is_same(one: &Arc<Slots>, other: &Slots) -> bool {
    std::ptr::eq(Arc::as_ptr(one), other)
}
