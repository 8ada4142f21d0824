//! Append: room for an entry, and the entry. Step numbers are those of the protocol in `mod.rs`.

use super::copies::Copies;
use super::layout::{Generation, STAMPS_A_LINE, begins_line};
use super::{APPENDERS, Appender, LOG_ENTRY_BYTES, Log, LogChunk, LogEntry};
use crate::sync::Ordering::Relaxed;
use crate::sync::spin_lock::SpinGuard;
use crate::sync::wait::lock;
use crate::{Durable, Flushed, Medium, Persist, Step, thread_index};

/// Room for one entry, which no other thread gets.
pub struct LogSpot<'a, M: Medium> {
    log: &'a Log<M>,
    appender: SpinGuard<'a, Appender>,
}

impl<M: Medium> Log<M> {
    /// Reserves room for an entry in this thread's chunk. `None`: there is none, and `may_grow`, which is told
    /// how many chunks are full by now, does not let the log take another one, or the pool is full.
    #[inline(always)]
    pub fn reserve(&self, may_grow: impl FnOnce(usize) -> bool) -> Option<LogSpot<'_, M>> {
        self.reserve_at(thread_index() % APPENDERS, |full| {
            if !may_grow(full) {
                return None;
            }
            // Nothing is logged that could not be copied later.
            if lock(&self.chunks).reserve.is_none() {
                let reserve = self.take_chunk()?;
                let other = lock(&self.chunks).reserve.replace(reserve);
                lock(&self.chunks).free.extend(other);
            }
            self.take_chunk()
        })
    }

    /// Reserves room for a copy of an entry. Copies have a chunk of their own, so that no other entry stands
    /// behind one that is not fenced yet.
    pub fn reserve_copy(&self, may_grow: impl FnOnce(usize) -> bool) -> Option<LogSpot<'_, M>> {
        self.reserve_at(APPENDERS, |full| may_grow(full).then(|| self.take_chunk()).flatten())
    }

    /// Reserves room for a copy in the reserve chunk, which the log has set aside for copies that have no other place.
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

    /// Gives an appender another chunk; returns whether there was one.
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

    /// Begins copies that are made one after the other and fenced together.
    pub fn copies(&self) -> Copies<'_, M> {
        Copies::new(self, self.appenders[APPENDERS].lock())
    }

    /// Ends the chunk's entries, by append 1: what stands behind the entry that is about to stand in a slot does not
    /// count, once what is under way, if anything, has arrived.
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

    /// Empties stamps of a line, which a slot begins, that would count, or might be taken for damage.
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
    /// Returns the number of the chunk that the entry will be in.
    #[inline(always)]
    pub fn chunk(&self) -> u32 {
        self.appender.chunk.as_ref().expect("a spot stands in a chunk").id
    }

    /// Returns the epoch that the entry will belong to: see [`Log::rotate`].
    #[inline(always)]
    pub fn epoch(&self) -> u64 {
        self.appender.epoch
    }

    /// Appends the entry; it is durable when this returns. `records` is what must be durable
    /// before it, if anything.
    #[inline(always)]
    pub fn append(self, entry: &LogEntry, records: Option<Flushed>) {
        self.append_with(entry, records, Flushed::none());
    }

    /// Appends the entry; `others` are durable with it.
    #[inline(always)]
    pub fn append_with(mut self, entry: &LogEntry, records: Option<Flushed>, others: Flushed) {
        let flushed = self.start(entry, records).and(others);
        // A thread that shares the chunk appends behind what is durable.
        let Durable { .. } = self.log.pool.medium().fence(flushed, "log append.2");
    }

    /// Appends a copy: its maker fences later.
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
                // With the end mark. The key shares the stamp's line, or this one.
                flushed = flushed.and(medium.flush(&cell.item.value, "log append.1"));
            }
            let durable = medium.fence(flushed, "log append.1");
            // Within the stamp's line its order still has to be kept.
            let _ordered = medium.ordered_within_line();
            cell.stamp.publish(medium, stamp, &durable, "log append.2");
        } else {
            // Relies on line order.
            let ordered = medium.ordered_within_line();
            cell.stamp.publish(medium, stamp, &ordered, "log append.2");
        }
        let flushed = medium.flush(cell, "log append.2");
        // Where the next entry ends: a line that is at hand, or one that has not been looked at.
        let end = std::ptr::from_ref(&cell.item.value).wrapping_byte_add(LOG_ENTRY_BYTES);
        medium.prefetch(end.cast());
        self.appender.next += 1;
        flushed
    }
}
