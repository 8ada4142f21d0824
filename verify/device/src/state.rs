//! The state of the model: contents of caches, counts, and clocks.

use bristlecone_pm::LINE_BYTES;

use super::clock::{Clock, Event, Times};
use super::counts::{OUTSIDE, Tallies, Writer};
use super::cpu::Cache;
use super::media::{Media, MediaWrite};
use super::parts::{Layout, Parts};
use super::profile::{Processor, Profile};

/// The state of a device.
pub(super) struct State {
    profile: Profile,
    parts: Parts,
    cache: Cache,
    media: Media,
    tallies: Tallies,
    clocks: Vec<Clock>,
    /// The present operation, and when each line was last read and written by one.
    operation: u32,
    read: Vec<u32>,
    written: Vec<u32>,
    /// The operation that prefetched a line, until it is needed; 0: none did.
    prefetched_by: Vec<u32>,
    /// Lines that the present operation prefetched.
    prefetching: Vec<usize>,
    /// Events of the present operation, for the clocks.
    events: Vec<Event>,
    flushed: bool,
    /// Whether the present operation has loaded from a line.
    has_read: bool,
}

/// Counts since the last call.
#[derive(Clone, Debug)]
pub struct Counted {
    /// By kind of operation.
    pub tallies: Tallies,
    /// Times of the operations on the virtual clock, for each number of threads.
    pub times: Vec<Times>,
}

impl State {
    /// Creates the state of an unused device, with a clock for each number of threads.
    pub(super) fn new(layout: Layout, profile: Profile, processor: Processor, threads: &[usize]) -> Self {
        let lines = layout.geometry.max_bytes() as usize / LINE_BYTES;
        Self {
            profile,
            parts: Parts::new(layout),
            cache: Cache::new(&processor),
            media: Media::new(profile),
            tallies: Tallies::default(),
            clocks: threads.iter().map(|threads| Clock::new(*threads, &profile, &processor)).collect(),
            operation: 0,
            read: vec![0; lines],
            written: vec![0; lines],
            prefetched_by: vec![0; lines],
            prefetching: Vec::new(),
            events: Vec::new(),
            flushed: false,
            has_read: false,
        }
    }

    /// Inspects a store, which may be that of a chunk's descriptor.
    pub(super) fn learn(&mut self, offset: usize, value: u64) {
        self.parts.learn(offset, value);
    }

    pub(super) fn begin(&mut self) {
        if self.operation == u32::MAX {
            self.read.fill(0);
            self.written.fill(0);
            self.prefetched_by.fill(0);
            self.operation = 0;
        }
        self.operation += 1;
        self.prefetching.clear();
        self.events.clear();
        self.has_read = false;
    }

    pub(super) fn end(&mut self, kind: u8, user_bytes: u64) {
        let tally = self.tallies.of(kind);
        tally.operations += 1;
        tally.user_bytes += user_bytes;
        tally.reading_nothing += u64::from(!self.has_read);
        self.clocks.iter_mut().for_each(|clock| clock.feed(kind, &self.events));
    }

    pub(super) fn load(&mut self, line: usize, kind: u8) {
        let by = Writer::new(kind, self.parts.of(line));
        if kind != OUTSIDE {
            if std::mem::replace(&mut self.read[line], self.operation) == self.operation {
                return;
            }
            self.tallies.traffic(by).lines_read += 1;
            self.has_read = true;
        }
        let first = self.written[line] != self.operation;
        self.touch(line, by, false, first);
    }

    pub(super) fn store(&mut self, line: usize, kind: u8) {
        let by = Writer::new(kind, self.parts.of(line));
        let mut first = false;
        if kind != OUTSIDE && std::mem::replace(&mut self.written[line], self.operation) != self.operation {
            self.tallies.traffic(by).lines_written += 1;
            first = self.read[line] != self.operation;
        }
        self.touch(line, by, true, first);
    }

    /// Prefetches a line that is not in the cache.
    pub(super) fn prefetch(&mut self, line: usize, kind: u8) {
        let by = Writer::new(kind, self.parts.of(line));
        if let Some((module, media)) = self.fetch(line, by, false) {
            self.note(by, Event::Prefetch { module, media });
            if by.is_timed() {
                self.prefetched_by[line] = self.operation;
                self.prefetching.push(line);
            }
        }
    }

    /// Accesses a line through the cache; it is fetched even if it will only be written.
    fn touch(&mut self, line: usize, by: Writer, store: bool, first: bool) {
        let fetched = self.fetch(line, by, store);
        let prefetched_by = std::mem::take(&mut self.prefetched_by[line]);
        if let Some((module, media)) = fetched {
            self.note(by, Event::Read { module, media });
        } else if prefetched_by != 0 {
            let prefetching = self.prefetching.iter().rposition(|prefetched_by| *prefetched_by == line);
            let own = prefetching.filter(|_| prefetched_by == self.operation);
            self.note(by, own.map_or(Event::PrefetchedBefore, |at| Event::Prefetched { number: at as u32 }));
        } else if first {
            self.note(by, Event::Hit);
        }
    }

    /// Makes the cache fetch a line. If it was not cached, returns its source: the module, and
    /// whether the media was read.
    fn fetch(&mut self, line: usize, by: Writer, store: bool) -> Option<(u16, bool)> {
        let touched = self.cache.touch(line, store.then_some(by));
        if let Some((evicted, writer)) = touched.evicted {
            self.write(evicted, writer, by.is_timed());
        }
        (!touched.hit).then(|| {
            let media = self.media.read(line);
            if media {
                self.tallies.traffic(by).media_bytes_read += self.profile.media_line_bytes as u64;
            }
            (self.profile.module_of(line) as u16, media)
        })
    }

    pub(super) fn flush(&mut self, line: usize, kind: u8) {
        let by = Writer::new(kind, self.parts.of(line));
        self.tallies.traffic(by).flushes += 1;
        self.note(by, Event::Flush { line: line as u32 });
        let dirty = if self.profile.clwb_evicts { self.cache.evict(line) } else { self.cache.clean(line) };
        if let Some(writer) = dirty {
            self.write(line, writer, by.is_timed());
        }
        self.flushed |= by.is_timed();
    }

    pub(super) fn fence(&mut self, kind: u8) {
        self.tallies.of(kind).fences += 1;
        if kind != OUTSIDE {
            let flushed = std::mem::take(&mut self.flushed);
            self.events.push(Event::Fence { flushed });
        }
    }

    /// Writes a line to the device.
    fn write(&mut self, line: usize, by: Writer, timed: bool) {
        self.tallies.traffic(by).device_bytes_written += LINE_BYTES as u64;
        let sent = self.media.write(line, by);
        if timed {
            let (module, media) = (self.profile.module_of(line) as u16, sent.is_some());
            self.events.push(Event::Write { module, media });
        }
        if let Some(write) = sent {
            count(&mut self.tallies, &self.profile, &write);
        }
    }

    fn note(&mut self, by: Writer, event: Event) {
        if by.is_timed() {
            self.events.push(event);
        }
    }

    pub(super) fn take(&mut self) -> Counted {
        let (media, tallies, profile) = (&mut self.media, &mut self.tallies, &self.profile);
        self.cache.clean_all(|line, by| {
            tallies.traffic(by).device_bytes_written += LINE_BYTES as u64;
            if let Some(write) = media.write(line, by) {
                count(tallies, profile, &write);
            }
        });
        media.drain(|write| count(tallies, profile, &write));
        let times = self.clocks.iter_mut().map(Clock::finish).collect();
        Counted { tallies: std::mem::take(tallies), times }
    }
}

fn count(tallies: &mut Tallies, profile: &Profile, write: &MediaWrite) {
    let bytes = profile.media_line_bytes as u64;
    let traffic = tallies.traffic(write.by);
    traffic.media_bytes_written += bytes;
    if write.read_first {
        traffic.media_bytes_read += bytes;
    }
}
