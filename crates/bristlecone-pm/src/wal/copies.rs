//! Entries in groups, copies or new ones: each line is flushed once, when all its entries are stored.
//!
//! # Copy
//! 1. An end mark behind each entry; its key and value, and its stamp, if that shares their line, which keeps the
//!    order of its stores. *An entry counts or does not; no entry is needed yet, or acknowledged.*
//! 2. All lines are flushed. *The same.*
//! 3. After a fence, the stamps of entries that straddle two lines; flush. *Until such an entry counts,
//!    it is the end, and none behind it counts.* The maker of the group fences last, and only then lets others append.

use super::{Appender, LOG_ENTRY_BYTES, Log, LogChunk, LogEntry};
use crate::sync::spin_lock::SpinGuard;
use crate::sync::wait::lock;
use crate::{Durable, Flushed, Medium, Persist};

/// Group of entries being appended. See the module.
#[must_use = "entries are on their way once they are flushed"]
pub struct Copies<'a, M: Medium> {
    log: &'a Log<M>,
    appender: SpinGuard<'a, Appender>,
    /// The first slot that is not flushed.
    begun: usize,
    /// Slots that straddle two lines, with their stamps.
    straddling: Vec<(usize, u64)>,
    flushed: Flushed,
}

impl<'a, M: Medium> Copies<'a, M> {
    pub(super) fn new(log: &'a Log<M>, appender: SpinGuard<'a, Appender>) -> Self {
        let begun = appender.next;
        Self { log, appender, begun, straddling: Vec::new(), flushed: Flushed::none() }
    }

    /// Reserves space for one more; returns whether there is any. `may_grow` gets the number of full chunks, and
    /// decides whether the log may take another one.
    pub fn reserve(&mut self, may_grow: impl FnOnce(usize) -> bool) -> bool {
        let log = self.log;
        self.make_room(|full| may_grow(full).then(|| log.take_chunk()).flatten())
    }

    /// Returns whether there is space for one more, if only in the reserve chunk: see [`Log::draw_on_reserve`].
    pub fn draw_on_reserve(&mut self) -> bool {
        let log = self.log;
        self.make_room(|_| lock(&log.chunks).reserve.take())
    }

    /// Returns whether the chunk has space for one more.
    #[inline(always)]
    pub fn has_room(&self) -> bool {
        self.appender.has_room(self.log.slots)
    }

    fn make_room(&mut self, more: impl FnOnce(usize) -> Option<LogChunk>) -> bool {
        if self.has_room() {
            return true;
        }
        self.flush_lines();
        let made = self.log.make_room(&mut self.appender, more);
        self.begun = self.appender.next;
        made
    }

    /// Appends (copy 1) an entry, whose space must be reserved. Returns its epoch.
    pub fn append(&mut self, entry: &LogEntry) -> u64 {
        let medium = self.log.pool.medium();
        let (chunk, at) = (self.appender.chunk.as_ref().expect("room was reserved"), self.appender.next);
        if let Some(cleared) = self.log.end_behind(chunk, at, "log copy.1 next") {
            let Durable { .. } = medium.fence(cleared, "log copy.1 next");
        }
        let (cell, stamp) = (self.log.cell(chunk, at), entry.stamp(chunk.generation, at));
        cell.item.key.store(medium, entry.key);
        cell.item.value.store(medium, entry.value);
        if cell.straddles() {
            self.straddling.push((at, stamp));
        } else {
            let ordered = medium.ordered_within_line();
            cell.stamp.publish(medium, stamp, &ordered, "log copy.1");
        }
        let end = std::ptr::from_ref(&cell.item.value).wrapping_byte_add(LOG_ENTRY_BYTES);
        medium.prefetch(end.cast());
        self.appender.next += 1;
        self.appender.epoch
    }

    /// Flushes the lines of entries, by copy 2 and 3.
    fn flush_lines(&mut self) {
        let Some(mut flushed) = self.flush_entries() else { return };
        if !self.straddling.is_empty() {
            let durable = self.log.pool.medium().fence(flushed, "log copy.2");
            flushed = self.publish_straddling(&durable);
        }
        let before = std::mem::replace(&mut self.flushed, Flushed::none());
        self.flushed = before.and(flushed);
    }

    /// Copy 2.
    fn flush_entries(&mut self) -> Option<Flushed> {
        let (begun, end) = (self.begun, self.appender.next);
        let chunk = self.appender.chunk.as_ref().filter(|_| begun < end)?;
        self.begun = end;
        let start = chunk.offset + (begun * LOG_ENTRY_BYTES) as u64;
        let words = self.log.pool.words(start, (end - begun) * LOG_ENTRY_BYTES / 8);
        Some(self.log.pool.medium().flush(words, "log copy.2"))
    }

    /// Copy 3.
    fn publish_straddling(&mut self, durable: &Durable) -> Flushed {
        let (chunk, medium) = (self.appender.chunk.as_ref(), self.log.pool.medium());
        let mut flushed = Flushed::none();
        for (slot, stamp) in self.straddling.drain(..) {
            let cell = self.log.cell(chunk.expect("entries were appended"), slot);
            cell.stamp.publish(medium, stamp, durable, "log copy.3");
            flushed = flushed.and(medium.flush(&cell.stamp, "log copy.3"));
        }
        flushed
    }

    /// Makes everything durable that was appended, before another thread can append behind it. `others` become durable
    /// first, with the lines of the entries; then those that `then` returns, with the last stamps.
    pub fn settle(mut self, others: Flushed, then: impl FnOnce(&Durable) -> Option<Flushed>) {
        let medium = self.log.pool.medium();
        let lines = self.flush_entries().into_iter().fold(others, Flushed::and);
        let durable = medium.fence(lines, "log copy.2 group");
        let is_complete = self.straddling.is_empty();
        let stamps = self.publish_straddling(&durable);
        let rest = match then(&durable) {
            None if is_complete => return,
            rest => rest.into_iter().fold(stamps, Flushed::and),
        };
        let Durable { .. } = medium.fence(rest, "log copy.3 group");
    }

    /// Flushes everything that was appended; the caller must fence.
    pub fn flush(mut self) -> Flushed {
        self.flush_lines();
        self.flushed
    }
}
