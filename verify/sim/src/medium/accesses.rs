//! Executes and records each access to the medium.

use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use bristlecone_pm::sync::wait;
use bristlecone_pm::{LINE_BYTES, Medium, Step};

use crate::medium::mutation::Mutation;
use crate::medium::sim::Sim;
use crate::medium::thread::thread;
use crate::medium::{stopped, watch};
use crate::model::memory::LINE_WORDS;
use crate::model::trace::{Event, Site, SiteKind};

/// The name under which the length of the file is made durable.
const EXTEND: Step = "pool extend";

thread_local! {
    /// Source location of the thread's next access, if the medium is behind a call that loses it.
    static NOTED: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// Returns the source location of an access. Must be called before another thread may run.
#[track_caller]
fn caller() -> &'static Location<'static> {
    match NOTED.take() {
        Some(noted) => noted,
        None => Location::caller(),
    }
}

impl Medium for Sim {
    fn called_from(&self, caller: &'static Location<'static>) {
        NOTED.set(Some(caller));
    }

    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        self.turn();
        self.read(self.word(cell));
        cell.load(order)
    }

    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        self.put(cell, value, order, Site::unnamed(SiteKind::Store, caller()));
    }

    fn store_derived(&self, cell: &AtomicU64, value: u64) {
        self.put(cell, value, Ordering::Relaxed, Site::unnamed(SiteKind::Derived, caller()));
    }

    fn store_words(&self, cells: &[AtomicU64], values: &[u64]) {
        assert!(cells.len() == values.len(), "a copy of another length");
        let site = Site::unnamed(SiteKind::Store, caller());
        for (cell, value) in cells.iter().zip(values) {
            self.put(cell, *value, Ordering::Relaxed, site);
        }
    }

    fn publish(&self, cell: &AtomicU64, value: u64, step: Step) {
        let site = Site { kind: SiteKind::Publish, step, at: caller() };
        watch::pass(step);
        self.name();
        self.put(cell, value, Ordering::Release, site);
    }

    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        let site = Site::unnamed(SiteKind::Swap, caller());
        self.cross();
        let word = self.word(cell);
        self.read(word);
        let mut trace = self.trace();
        let done = cell.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
        if done.is_ok() {
            self.0.memory.use_line(word / LINE_WORDS as u32);
            let lost = self.is_changed(Mutation::Lose(site));
            let event = Event::Locked { word, value: new, thread: thread(), lost, at: site.at };
            self.insert(&mut trace, event, site);
            self.0.stored.add(word);
        }
        drop(trace);
        self.cross();
        done
    }

    fn flush_lines(&self, start: *const u8, bytes: usize, step: Step) {
        let at = caller();
        self.turn();
        self.take_step();
        watch::pass(step);
        let site = Site { kind: SiteKind::Flush, step, at };
        if bytes == 0 || self.is_changed(Mutation::Remove(site)) {
            return;
        }
        let memory = &self.0.memory;
        let [first, last] = self.ends_of(start, bytes).map(|word| word / LINE_WORDS);
        debug_assert!(last - first <= bytes / LINE_BYTES + 1);
        let shift = usize::from(self.is_changed(Mutation::Shift(site)));
        let mut trace = self.trace();
        for line in first..=last {
            let line = ((line + shift) % memory.lines()) as u32;
            trace.push(Event::Flush { line, thread: thread(), step, at });
        }
    }

    fn drain(&self, step: Step) {
        let at = caller();
        self.name();
        self.take_step();
        watch::pass(step);
        if !self.is_changed(Mutation::Remove(Site { kind: SiteKind::Fence, step, at })) {
            self.record(Event::Fence { thread: thread(), step, at });
        }
    }

    fn about_to_read(&self, start: *const u8, bytes: usize) {
        self.cross();
        self.take_step();
        if bytes > 0 {
            let [first, last] = self.ends_of(start, bytes);
            (first..=last).for_each(|word| self.read(word as u32));
        }
    }

    fn prefetch(&self, _address: *const u8) {
        self.take_step();
    }

    fn reached(&self, step: Step) {
        self.name();
        self.take_step();
        watch::pass(step);
        stopped::pass(step);
    }

    fn extended(&self, last: &AtomicU64) {
        let at = caller();
        self.turn();
        let Some(length) = self.0.memory.length_word() else { return };
        let value = (u64::from(self.word(last)) + 1) * size_of::<u64>() as u64;
        let mut trace = self.trace();
        if value > self.0.memory.length() {
            self.0.memory.set_word(length, value);
            self.0.stored.add(length);
            trace.push(Event::Extended { word: length, value, thread: thread() });
        }
        if !self.is_changed(Mutation::Remove(Site { kind: SiteKind::Flush, step: EXTEND, at })) {
            trace.push(Event::Flush { line: length / LINE_WORDS as u32, thread: thread(), step: EXTEND, at });
        }
    }

    fn has_room(&self) -> bool {
        let mut room = wait::lock(&self.0.room);
        match *room {
            (0, 0) => true,
            (0, refused) => {
                *room = (0, refused.saturating_sub(u64::from(refused != u64::MAX)));
                false
            }
            (granted, refused) => {
                *room = (granted.saturating_sub(u64::from(granted != u64::MAX)), refused);
                true
            }
        }
    }

    fn order_line(&self) {
        let at = caller();
        self.take_step();
        if !self.is_changed(Mutation::Remove(Site::unnamed(SiteKind::Order, at))) {
            self.record(Event::Order { thread: thread(), at });
        }
    }
}
