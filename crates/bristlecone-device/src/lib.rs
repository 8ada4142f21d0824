//! The device model: what operations cost a machine that nobody here has.
//!
//! ```text
//! loads, stores   ->  processor cache    36 MiB, 12 ways          cpu.rs
//! misses, flushed
//! or evicted lines ->  modules           interleaved, 4 KiB
//!                       buffers          media lines, LRU         media.rs
//!                       media            whole media lines
//! all of it       ->  tallies            by operation and part    counts.rs
//!                 ->  virtual clocks     threads share modules    clock.rs
//! ```
//!
//! A [`Device`] is a [`Medium`] that carries out every access on ordinary memory and keeps count.
//! It records nothing, so tens of millions of operations take minutes. Operations come one after
//! the other; threads exist on the clocks only. The parameters and where they come from stand in
//! `docs/lab/DEVICE.md`.

mod clock;
mod counts;
mod cpu;
mod media;
mod profile;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bristlecone_pm::{Domain, Geometry, LINE_BYTES, Medium, Part, PartOf, Region, Step, kind_of_descriptor};

pub use self::clock::Times;
use self::clock::{Clock, Event};
use self::counts::Writer;
pub use self::counts::{KINDS, OUTSIDE, Tallies, Tally, Traffic};
use self::cpu::Cache;
use self::media::{Media, MediaWrite};
pub use self::profile::{Processor, Profile};

/// What a device has to know of the pool on it to count apart what is written for what.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The sizes of the pool.
    pub geometry: Geometry,
    /// What the slots of its chunks are for.
    pub part_of: PartOf,
}

/// The medium that counts. Clones are one device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    base: usize,
    bytes: usize,
    /// Whether the caches survive, so that nothing needs to be flushed.
    eadr: bool,
    state: Mutex<State>,
}

struct State {
    profile: Profile,
    parts: Parts,
    cache: Cache,
    media: Media,
    tallies: Tallies,
    clocks: Vec<Clock>,
    /// The operation under way, and when each line was last read and written by one.
    operation: u32,
    read: Vec<u32>,
    written: Vec<u32>,
    /// The operation that asked for a line ahead, until it is needed; 0: none did.
    asked: Vec<u32>,
    /// Lines that the operation under way asked for ahead.
    asking: Vec<usize>,
    /// What the operation under way did, for the clocks.
    events: Vec<Event>,
    flushed: bool,
}

/// What was counted since the last time.
#[derive(Clone, Debug)]
pub struct Counted {
    /// By kind of operation.
    pub tallies: Tallies,
    /// What the operations took on the virtual clock, for each number of threads.
    pub times: Vec<Times>,
}

/// What the calling thread is doing.
struct Doing {
    kind: Cell<u8>,
    /// The line it loaded from last: most loads go on in it.
    line: Cell<usize>,
}

thread_local! {
    static DOING: Doing = const { Doing { kind: Cell::new(OUTSIDE), line: Cell::new(usize::MAX) } };
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("bytes", &self.0.bytes).finish_non_exhaustive()
    }
}

impl Device {
    /// A device under `region`, which a pool of this layout will be in. In domain `eadr` flushes
    /// do nothing; in any other they write back. `threads` are the numbers of threads that get
    /// clocks.
    pub fn new(
        region: &Region,
        layout: Layout,
        domain: Domain,
        profile: Profile,
        processor: Processor,
        threads: &[usize],
    ) -> Self {
        let lines = layout.geometry.max_bytes() as usize / LINE_BYTES;
        let state = State {
            profile,
            parts: Parts::new(layout),
            cache: Cache::new(&processor),
            media: Media::new(profile),
            tallies: Tallies::default(),
            clocks: threads.iter().map(|threads| Clock::new(*threads, &profile, &processor)).collect(),
            operation: 0,
            read: vec![0; lines],
            written: vec![0; lines],
            asked: vec![0; lines],
            asking: Vec::new(),
            events: Vec::new(),
            flushed: false,
        };
        Self(Arc::new(Inner {
            base: region.base().addr(),
            bytes: layout.geometry.max_bytes() as usize,
            eadr: domain == Domain::Eadr,
            state: Mutex::new(state),
        }))
    }

    /// Does an operation of a kind from 1 to [`KINDS`] - 1. `run` gives its result and the bytes
    /// that the user asked to write. What other threads do meanwhile counts as [`OUTSIDE`].
    ///
    /// # Panics
    ///
    /// If there is no such kind.
    pub fn operation<R>(&self, kind: u8, run: impl FnOnce() -> (R, u64)) -> R {
        assert!(kind != OUTSIDE && usize::from(kind) < KINDS, "kind {kind}");
        self.state().begin();
        DOING.with(|doing| (doing.kind.set(kind), doing.line.set(usize::MAX)));
        let (result, user_bytes) = run();
        DOING.with(|doing| (doing.kind.set(OUTSIDE), doing.line.set(usize::MAX)));
        self.state().end(kind, user_bytes);
        result
    }

    /// Writes back everything that is dirty, counted to whoever dirtied it, and takes what was
    /// counted so far. The caches stay warm.
    pub fn take(&self) -> Counted {
        self.state().take()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn offset(&self, cell: &AtomicU64) -> usize {
        let offset = std::ptr::from_ref(cell).addr().wrapping_sub(self.0.base);
        assert!(offset < self.0.bytes, "an access outside the device");
        offset
    }

    /// Returns the lines that `[start, start + bytes)` touches.
    fn lines(&self, start: *const u8, bytes: usize) -> std::ops::Range<usize> {
        let offset = start.addr().wrapping_sub(self.0.base);
        assert!(offset < self.0.bytes && bytes <= self.0.bytes - offset, "a range outside the device");
        offset / LINE_BYTES..if bytes == 0 { 0 } else { (offset + bytes).div_ceil(LINE_BYTES) }
    }

    #[inline]
    fn loads(&self, cell: &AtomicU64) {
        let line = self.offset(cell) / LINE_BYTES;
        let kind =
            DOING.with(|doing| if doing.line.replace(line) == line { None } else { Some(doing.kind.get()) });
        if let Some(kind) = kind {
            self.state().load(line, kind);
        }
    }

    fn stores(&self, cell: &AtomicU64, value: u64) {
        let offset = self.offset(cell);
        let kind = DOING.with(|doing| doing.kind.get());
        let mut state = self.state();
        state.parts.learn(offset, value);
        state.store(offset / LINE_BYTES, kind);
    }
}

impl Medium for Device {
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        self.loads(cell);
        cell.load(order)
    }

    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        self.stores(cell, value);
        cell.store(value, order);
    }

    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        self.loads(cell);
        let done = cell.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
        if done.is_ok() {
            self.stores(cell, new);
        }
        done
    }

    fn flush_lines(&self, start: *const u8, bytes: usize, _step: Step) {
        if self.0.eadr {
            return;
        }
        let kind = DOING.with(|doing| doing.kind.get());
        let mut state = self.state();
        self.lines(start, bytes).for_each(|line| state.flush(line, kind));
    }

    fn drain(&self, _step: Step) {
        let kind = DOING.with(|doing| doing.kind.get());
        self.state().fence(kind);
    }

    fn order_line(&self) {}

    fn about_to_read(&self, start: *const u8, bytes: usize) {
        let kind = DOING.with(|doing| doing.kind.get());
        let mut state = self.state();
        self.lines(start, bytes).for_each(|line| state.load(line, kind));
    }

    fn prefetch(&self, address: *const u8) {
        let offset = address.addr().wrapping_sub(self.0.base);
        if offset < self.0.bytes {
            let kind = DOING.with(|doing| doing.kind.get());
            self.state().prefetch(offset / LINE_BYTES, kind);
        }
    }
}

impl State {
    fn begin(&mut self) {
        if self.operation == u32::MAX {
            self.read.fill(0);
            self.written.fill(0);
            self.asked.fill(0);
            self.operation = 0;
        }
        self.operation += 1;
        self.asking.clear();
        self.events.clear();
    }

    fn end(&mut self, kind: u8, user_bytes: u64) {
        let tally = self.tallies.of(kind);
        tally.operations += 1;
        tally.user_bytes += user_bytes;
        self.clocks.iter_mut().for_each(|clock| clock.feed(kind, &self.events));
    }

    fn load(&mut self, line: usize, kind: u8) {
        let by = Writer::new(kind, self.parts.of(line));
        if kind != OUTSIDE {
            if std::mem::replace(&mut self.read[line], self.operation) == self.operation {
                return;
            }
            self.tallies.traffic(by).lines_read += 1;
        }
        let first = self.written[line] != self.operation;
        self.touch(line, by, false, first);
    }

    fn store(&mut self, line: usize, kind: u8) {
        let by = Writer::new(kind, self.parts.of(line));
        let mut first = false;
        if kind != OUTSIDE && std::mem::replace(&mut self.written[line], self.operation) != self.operation {
            self.tallies.traffic(by).lines_written += 1;
            first = self.read[line] != self.operation;
        }
        self.touch(line, by, true, first);
    }

    /// Prefetches a line that the cache does not have.
    fn prefetch(&mut self, line: usize, kind: u8) {
        let by = Writer::new(kind, self.parts.of(line));
        if let Some((module, media)) = self.fetch(line, by, false) {
            self.note(by, Event::Prefetch { module, media });
            if by.is_timed() {
                self.asked[line] = self.operation;
                self.asking.push(line);
            }
        }
    }

    /// Takes a line through the cache; it is fetched even if it will only be written.
    fn touch(&mut self, line: usize, by: Writer, store: bool, first: bool) {
        let fetched = self.fetch(line, by, store);
        let asked = std::mem::take(&mut self.asked[line]);
        if let Some((module, media)) = fetched {
            self.note(by, Event::Read { module, media });
        } else if asked != 0 {
            let asking = self.asking.iter().rposition(|asked| *asked == line);
            let own = asking.filter(|_| asked == self.operation);
            self.note(by, own.map_or(Event::PrefetchedBefore, |at| Event::Prefetched { number: at as u32 }));
        } else if first {
            self.note(by, Event::Hit);
        }
    }

    /// Has the cache fetch a line; where from, if the cache did not have it: the module, and whether
    /// the media had to be read.
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

    fn flush(&mut self, line: usize, kind: u8) {
        let by = Writer::new(kind, self.parts.of(line));
        self.tallies.traffic(by).flushes += 1;
        self.note(by, Event::Flush);
        if let Some(writer) = self.cache.clean(line) {
            self.write(line, writer, by.is_timed());
        }
        self.flushed |= by.is_timed();
    }

    fn fence(&mut self, kind: u8) {
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

    fn take(&mut self) -> Counted {
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

/// What each chunk is for, as the pool's descriptors say.
struct Parts {
    header_bytes: usize,
    descriptors: usize,
    chunk_bits: u32,
    chunks: Vec<Part>,
    part_of: PartOf,
}

impl Parts {
    fn new(Layout { geometry, part_of }: Layout) -> Self {
        Self {
            header_bytes: geometry.header_bytes() as usize,
            descriptors: geometry.descriptors_offset() as usize,
            chunk_bits: geometry.chunk_bytes.trailing_zeros(),
            chunks: vec![Part::Other; geometry.chunks_max as usize],
            part_of,
        }
    }

    /// Looks at a store: it may be that of a descriptor.
    #[inline]
    fn learn(&mut self, offset: usize, value: u64) {
        if offset < self.header_bytes {
            let word = offset.checked_sub(self.descriptors).map(|at| at / 8);
            if let Some(part) = word.and_then(|word| self.chunks.get_mut(word)) {
                *part = kind_of_descriptor(value).and_then(self.part_of).unwrap_or(Part::Other);
            }
        }
    }

    #[inline]
    fn of(&self, line: usize) -> Part {
        let chunk = (line * LINE_BYTES).checked_sub(self.header_bytes).map(|at| at >> self.chunk_bits);
        chunk.and_then(|chunk| self.chunks.get(chunk)).copied().unwrap_or(Part::Other)
    }
}
