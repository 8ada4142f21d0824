//! Append: reserving space for an entry, and writing it. Step numbers are those of the protocol in `mod.rs`.

use super::copies::Copies;
use super::layout::{Generation, STAMPS_A_LINE, begins_line};
use super::{APPENDERS, Appender, LOG_ENTRY_BYTES, Log, LogChunk, LogEntry};
use crate::sync::Ordering::Relaxed;
use crate::sync::spin_lock::SpinGuard;
use crate::sync::wait::lock;
use crate::{Durable, Flushed, Medium, Persist, Step, thread_index};

/// Space for one entry, reserved for the calling thread.
pub struct LogSpot<'a, M: Medium> {
    log: &'a Log<M>,
    appender: SpinGuard<'a, Appender>,
}

impl<M: Medium> Log<M> {
    /// Reserves space for an entry in this thread's chunk. Returns `None` if there is none and the log cannot take
    /// another chunk: the pool is full, or `may_grow`, which gets the number of full chunks, refuses.
    #[inline(always)]
    pub fn reserve(&self, may_grow: impl FnOnce(usize) -> bool) -> Option<LogSpot<'_, M>> {
        self.reserve_at(thread_index() % APPENDERS, |full| {
            if !may_grow(full) {
                return None;
            }
            // An entry is logged only if it can be copied later.
            if lock(&self.chunks).reserve.is_none() {
                let reserve = self.take_chunk()?;
                let other = lock(&self.chunks).reserve.replace(reserve);
                lock(&self.chunks).free.extend(other);
            }
            self.take_chunk()
        })
    }

    /// Reserves space for a copy of an entry. Copies have a chunk of their own, so that no other entry follows one
    /// that is not fenced yet.
    pub fn reserve_copy(&self, may_grow: impl FnOnce(usize) -> bool) -> Option<LogSpot<'_, M>> {
        self.reserve_at(APPENDERS, |full| may_grow(full).then(|| self.take_chunk()).flatten())
    }

    /// Reserves space for a copy in the reserve chunk, which the log keeps for copies that find no other space.
    pub fn draw_on_reserve(&self) -> Option<LogSpot<'_, M>> {
        self.reserve_at(APPENDERS, |_| lock(&self.chunks).reserve.take())
    }

    #[inline(always)]
    fn reserve_at(
        &self,
        index: usize,
        more: impl FnOnce(usize) -> Option<LogChunk>,
    ) -> Option<LogSpot<'_, M>> {
        let mut appender = self.appenders[index].lock();
        let reserved = appender.has_room(self.slots) || self.make_room(&mut appender, more);
        reserved.then(|| LogSpot { log: self, appender })
    }

    /// Gives an appender another chunk; returns whether one was available.
    #[cold]
    #[inline(never)]
    pub(super) fn make_room(
        &self,
        appender: &mut Appender,
        more: impl FnOnce(usize) -> Option<LogChunk>,
    ) -> bool {
        if !std::mem::replace(&mut appender.began, true) {
            self.active.fetch_add(1, Relaxed);
        }
        let Some(fresh) = more(self.chunks_sealed() + usize::from(appender.chunk.is_some())) else {
            return false;
        };
        self.in_use.fetch_add(1, Relaxed);
        let full = appender.chunk.replace(fresh).map(|full| LogChunk { epoch: appender.epoch, ..full });
        appender.next = 1;
        lock(&self.chunks).sealed.extend(full);
        true
    }

    /// Begins a group of copies that are fenced together.
    pub fn copies(&self) -> Copies<'_, M> {
        Copies::new(self, self.appenders[APPENDERS].lock())
    }

    /// Begins a group of entries of the calling thread that are fenced together.
    pub fn group(&self) -> Copies<'_, M> {
        Copies::new(self, self.appenders[thread_index() % APPENDERS].lock())
    }

    /// Ends the chunk's entries, by append 1: slots behind the one to be written do not count, once an entry in
    /// progress, if any, is durable.
    #[inline(always)]
    pub(super) fn end_behind(&self, chunk: &LogChunk, slot: usize, step: Step) -> Option<Flushed> {
        let (next, medium) = (slot + 1, self.pool.medium());
        if next >= self.slots {
            return None;
        }
        if begins_line(next) {
            return self.clear_line(chunk, next, step);
        }
        self.cell(chunk, next).stamp.store(medium, chunk.generation.end_mark());
        None
    }

    /// Clears the stamps in a line that begins with this slot, if they would count, or might be taken for damage.
    #[inline(always)]
    fn clear_line(&self, chunk: &LogChunk, first: usize, step: Step) -> Option<Flushed> {
        let medium = self.pool.medium();
        let stamps =
            || (first..self.slots.min(first + STAMPS_A_LINE)).map(|slot| &self.cell(chunk, slot).stamp);
        let is_clear = |stamp: u64| {
            let of = Generation::of_stamp(stamp);
            of != chunk.generation && of.is_whole()
        };
        if stamps().all(|stamp| is_clear(stamp.load(medium))) {
            return None;
        }
        stamps().for_each(|stamp| stamp.store(medium, 0));
        Some(medium.flush(&self.cell(chunk, first).stamp, step))
    }
}

impl<M: Medium> LogSpot<'_, M> {
    /// Returns the number of the entry's chunk.
    #[inline(always)]
    pub fn chunk(&self) -> u32 {
        self.appender.chunk.as_ref().expect("a spot stands in a chunk").id
    }

    /// Returns the epoch of the entry: see [`Log::rotate`].
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.appender.epoch
    }

    /// Appends the entry; it is durable when this returns. `records` are flushes that must be durable before it, if
    /// any.
    #[inline(always)]
    pub fn append(self, entry: &LogEntry, records: Option<Flushed>) {
        self.append_with(entry, records, Flushed::none());
    }

    /// Appends the entry; `others` become durable with it.
    #[inline(always)]
    pub fn append_with(mut self, entry: &LogEntry, records: Option<Flushed>, others: Flushed) {
        let flushed = self.start(entry, records).and(others);
        // A thread that shares the chunk appends behind durable entries.
        let Durable { .. } = self.log.pool.medium().fence(flushed, "log append.2");
    }

    /// Appends a copy: the caller fences later.
    pub fn append_unfenced(mut self, entry: &LogEntry, records: Option<Flushed>) -> Flushed {
        self.start(entry, records)
    }

    #[inline(always)]
    fn start(&mut self, entry: &LogEntry, records: Option<Flushed>) -> Flushed {
        let medium = self.log.pool.medium();
        let chunk = self.appender.chunk.as_ref().expect("a spot stands in a chunk");
        debug_assert!(self.appender.next < self.log.slots, "an entry behind the end of its chunk");
        let cell = self.log.cell(chunk, self.appender.next);
        let stamp = entry.stamp(chunk.generation, self.appender.next);
        cell.item.key.store(medium, entry.key);
        cell.item.value.store(medium, entry.value);
        let torn = cell.straddles();
        let cleared = self.log.end_behind(chunk, self.appender.next, "log append.1 next");
        if torn || cleared.is_some() || records.is_some() {
            let mut flushed = records.unwrap_or_else(Flushed::none);
            flushed = cleared.into_iter().fold(flushed, Flushed::and);
            if torn {
                // Includes the end mark. The key shares the stamp's line, or this one.
                flushed = flushed.and(medium.flush(&cell.item.value, "log append.1"));
            }
            let durable = medium.fence(flushed, "log append.1");
            // Within the stamp's line, stores must still be ordered.
            let _ordered = medium.ordered_within_line();
            cell.stamp.publish(medium, stamp, &durable, "log append.2");
        } else {
            // Relies on line order.
            let ordered = medium.ordered_within_line();
            cell.stamp.publish(medium, stamp, &ordered, "log append.2");
        }
        let flushed = medium.flush(cell, "log append.2");
        // The end of the next entry: in a line already in the cache, or in one that was not touched yet.
        let end = std::ptr::from_ref(&cell.item.value).wrapping_byte_add(LOG_ENTRY_BYTES);
        medium.prefetch(end.cast());
        self.appender.next += 1;
        flushed
    }
}
