//! Where room comes from, and chunks go that have nothing but room.

use std::sync::{Arc, RwLockWriteGuard};

use super::super::slots::Slots;
use super::{Cache, Chunks, Heap, Judge};
use crate::sync::wait;
use crate::sync::{Ordering::Acquire, Ordering::Release};
use crate::{Medium, Result};

/// Words of slots that are settled by one who needs room, before the heap grows.
const SETTLED_AT_ONCE: usize = 4;

impl<M: Medium> Heap<M> {
    /// Finds a word with room: in the heap's chunks, after judging if there is a judge, in a new
    /// chunk, or in others' caches.
    pub(super) fn refill(&self, judge: Option<Judge<'_>>) -> Result<(RwLockWriteGuard<'_, Chunks>, Cache)> {
        let enough = self.worthwhile();
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
    pub(super) fn grow_ahead(&self) {
        let Ok(_growing) = self.growing.try_lock() else { return };
        {
            let mut chunks = self.lock_chunks();
            if !chunks.run_low(self.slots_per_chunk()) {
                return;
            }
            let mut others = chunks.with_room(self.worthwhile());
            others.retain(|slots| !Arc::ptr_eq(slots, &chunks.roomy[0]));
            if !others.is_empty() {
                others.append(&mut chunks.roomy);
                chunks.roomy = others;
                return;
            }
        }
        // Without room for it, whoever needs it will be told.
        let Ok(slots) = self.new_chunk() else { return };
        let mut chunks = self.lock_chunks();
        chunks.all.insert(slots.offset, Arc::clone(&slots));
        chunks.roomy.insert(0, slots);
    }

    fn new_chunk(&self) -> Result<Arc<Slots>> {
        let tags = if self.spec.tagged { u64::MAX } else { 0 };
        let chunk = self.pool.chunk_alloc(self.spec.owner, self.spec.kind, self.spec.slot_bytes, tags)?;
        Ok(Arc::new(Slots::new(chunk.id, chunk.offset, self.slots_per_chunk())))
    }

    /// Takes a word with room, of chunks that are known to have some, or else of those that have
    /// at most `taken_max` slots taken.
    pub(super) fn take_room(&self, taken_max: usize) -> Option<(RwLockWriteGuard<'_, Chunks>, Cache)> {
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
        chunks.roomy = chunks.with_room(taken_max);
        let cache = chunks.roomy.iter().rev().find_map(take)?;
        Some((chunks, cache))
    }

    /// A word of a chunk may have room, unless the pool has the chunk by now.
    pub(in crate::alloc) fn say_roomy(&self, slots: Arc<Slots>, word: usize) {
        let mut chunks = self.lock_chunks();
        let known = chunks.roomy.iter().any(|roomy| Arc::ptr_eq(roomy, &slots));
        if chunks.has(&slots) && !known && slots.bitmap[word].load(Acquire) != u64::MAX {
            chunks.roomy.push(slots);
        }
    }

    /// Takes what another thread's cache holds idle.
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

    /// Gives a chunk back to the pool if no slot of it is in use; slots that sit in caches are
    /// not. The heap's last chunk stays.
    pub(in crate::alloc) fn release(&self, slots: &Arc<Slots>) {
        let mut chunks = self.lock_chunks();
        // Whoever freed the last slot before this one may have given the chunk back, and the pool may have
        // handed it out again.
        if !chunks.has(slots) {
            return;
        }
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
        if slots.taken.load(Acquire) == 0 {
            chunks.all.remove(&slots.offset);
            chunks.roomy.retain(|roomy| !Arc::ptr_eq(roomy, slots));
            drop(chunks);
            self.pool.chunk_free(slots.id);
        }
    }
}
