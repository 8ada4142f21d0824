//! Copies of entries in groups: each line is flushed once, when all its entries are stored.
//!
//! # Copy
//! 1. An end mark behind each entry; its key and value, and its stamp, if that shares their line, which keeps the
//!    order of its stores. *An entry counts or does not; no entry is needed yet.*
//! 2. All lines are flushed. *The same.*
//! 3. After a fence, the stamps of entries that straddle two lines; flush. *Until such an entry counts,
//!    it is the end, and none behind it counts.* The maker of the copies fences last.

use super::{Appender, LOG_ENTRY_BYTES, Log, LogChunk, LogEntry};
use crate::sync::spin_lock::SpinGuard;
use crate::sync::wait::lock;
use crate::{Durable, Flushed, Medium, Persist};

/// Group of copies being appended. See the module.
#[must_use = "copies are on their way once they are flushed"]
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

    fn make_room(&mut self, more: impl FnOnce(usize) -> Option<LogChunk>) -> bool {
        if self.appender.has_room(self.log.slots) {
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
        let (begun, end) = (self.begun, self.appender.next);
        let Some(chunk) = self.appender.chunk.as_ref().filter(|_| begun < end) else { return };
        let medium = self.log.pool.medium();
        let start = chunk.offset + (begun * LOG_ENTRY_BYTES) as u64;
        let words = self.log.pool.words(start, (end - begun) * LOG_ENTRY_BYTES / 8);
        let mut flushed = medium.flush(words, "log copy.2");
        if !self.straddling.is_empty() {
            let durable = medium.fence(flushed, "log copy.2");
            flushed = Flushed::none();
            for (slot, stamp) in self.straddling.drain(..) {
                let cell = self.log.cell(chunk, slot);
                cell.stamp.publish(medium, stamp, &durable, "log copy.3");
                flushed = flushed.and(medium.flush(&cell.stamp, "log copy.3"));
            }
        }
        let before = std::mem::replace(&mut self.flushed, Flushed::none());
        self.flushed = before.and(flushed);
        self.begun = end;
    }

    /// Flushes everything that was appended; the caller must fence.
    pub fn flush(mut self) -> Flushed {
        self.flush_lines();
        self.flushed
    }
}
