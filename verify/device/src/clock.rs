//! A virtual clock: the duration of operations if many threads execute them concurrently.
//!
//! Threads take operations from one queue. Each executes its operation's accesses; accesses of all
//! threads are processed in order of time. Threads contend for the modules: the media serve one
//! access after the other, and the backlog of accepted writes of a module is limited. Locks are not
//! simulated, so a curve shows the limit of the device.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::AddAssign;

use hdrhistogram::Histogram;

use super::counts::OUTSIDE;
use super::profile::{Processor, Profile};
use super::writing::Writing;

/// A timed event in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The processor's cache has the line.
    Hit,
    /// The device is read; `media` says whether the media is read.
    Read { module: u16, media: bool },
    /// The device is read in advance (a prefetch): the thread continues.
    Prefetch { module: u16, media: bool },
    /// A prefetched line is needed: the index of this operation's prefetch.
    Prefetched { number: u32 },
    /// A line is needed that an earlier operation prefetched.
    PrefetchedBefore,
    /// A line is written to the device; `media` says whether the media writes.
    Write { module: u16, media: bool },
    /// A line is written back: its number.
    Flush { line: u32 },
    /// A wait; `flushed` says whether there is anything to wait for.
    Fence { flushed: bool },
}

/// Picoseconds: whole numbers, so that sums have no order.
type Time = u64;

/// Significant digits of latencies.
const DIGITS: u8 = 3;

fn picoseconds(nanoseconds: f64) -> Time {
    (nanoseconds * 1000.0) as Time
}

/// Times of operations on the clock with this number of threads.
#[derive(Clone, Debug)]
pub struct Times {
    /// Number of threads.
    pub threads: usize,
    /// Seconds until the last operation finished.
    pub seconds: f64,
    /// Latencies in nanoseconds, by kind.
    pub latencies: BTreeMap<u8, Histogram<u64>>,
    /// Fraction of the time in which this many threads wrote to the device, from none on.
    pub writing: Vec<f64>,
}

impl AddAssign<&Self> for Times {
    /// Adds later times of an equal number of threads.
    fn add_assign(&mut self, more: &Self) {
        let (before, added) = (self.seconds, more.seconds);
        self.seconds += more.seconds;
        self.writing.resize(self.writing.len().max(more.writing.len()), 0.0);
        for (place, share) in self.writing.iter_mut().enumerate() {
            let other = more.writing.get(place).copied().unwrap_or(0.0);
            *share = (*share * before + other * added) / (before + added).max(f64::MIN_POSITIVE);
        }
        for (kind, latencies) in &more.latencies {
            match self.latencies.entry(*kind) {
                Entry::Vacant(none) => _ = none.insert(latencies.clone()),
                Entry::Occupied(some) => *some.into_mut() += latencies,
            }
        }
    }
}

/// Clock of one number of threads.
pub(super) struct Clock {
    costs: Costs,
    threads: Vec<Thread>,
    /// Threads ordered by time.
    next: BinaryHeap<Reverse<(Time, usize)>>,
    modules: Modules,
    latencies: BTreeMap<u8, Histogram<u64>>,
    writing: Writing,
}

/// State of the modules, for which threads contend.
struct Modules {
    /// When each module will have finished its accepted work.
    busy_until: Vec<Time>,
    /// When the shared queue will have forwarded its contents.
    passed_on: Time,
    /// Times of the last flush of lines: each in the entry selected by its number, until another
    /// line replaces it.
    flushed: Vec<(u32, Time)>,
}

/// Number of lines whose last flush is recorded.
const FLUSHED: usize = 1 << 14;

impl Modules {
    fn new(profile: &Profile) -> Self {
        let remembered = if profile.reflush_ns > 0.0 { FLUSHED } else { 0 };
        Self { busy_until: vec![0; profile.modules], passed_on: 0, flushed: vec![(u32::MAX, 0); remembered] }
    }

    /// Returns when all accepted work is finished, and restarts at 0.
    fn finish(&mut self) -> Time {
        let last = self.busy_until.iter().copied().max().unwrap_or(0);
        self.busy_until.fill(0);
        self.passed_on = 0;
        self.flushed.fill((u32::MAX, 0));
        last
    }

    /// Returns when a module accepts a line that is written at `time`; `media` says whether the
    /// media writes.
    fn write(&mut self, time: Time, module: u16, media: bool, costs: &Costs) -> Time {
        let busy = &mut self.busy_until[usize::from(module)];
        let mut accepted = time.max(busy.saturating_sub(costs.queue));
        if costs.shared_queue {
            accepted = accepted.max(self.passed_on);
            self.passed_on = accepted;
        }
        let work = costs.line + if media { costs.media_write } else { 0 };
        if work > 0 {
            *busy = accepted.max(*busy) + work;
        }
        accepted
    }

    /// Returns when a line arrives that is read from `time` on.
    fn read(&mut self, time: Time, module: u16, media: bool, costs: &Costs) -> Time {
        let work = costs.line + if media { costs.media_read } else { 0 };
        let latency = if media { costs.read } else { costs.buffered_read };
        if !media && work == 0 {
            return time + latency;
        }
        let busy = &mut self.busy_until[usize::from(module)];
        let begins = time.max(*busy);
        *busy = begins + work;
        begins + latency
    }

    /// Returns when a flush of a line that begins at `time` finishes.
    fn flush(&mut self, time: Time, line: u32, costs: &Costs) -> Time {
        if self.flushed.is_empty() {
            return time + costs.flush;
        }
        let place = &mut self.flushed[line as usize % FLUSHED];
        let begins = if place.0 == line { time.max(place.1 + costs.reflush) } else { time };
        *place = (line, begins);
        begins + costs.flush
    }
}

#[derive(Default)]
struct Thread {
    /// The kind of the present operation, and its start.
    kind: u8,
    began: Time,
    events: Vec<Event>,
    done: usize,
    /// Arrival times of the lines that the present operation prefetched.
    arrivals: Vec<Time>,
    /// Arrival time of the last line that an earlier operation prefetched.
    arrived: Time,
    /// Until when each buffer waits for a line.
    fills: Vec<Time>,
    /// Whether it has flushed without a fence.
    writes: bool,
}

impl Thread {
    fn new(fill_buffers: usize) -> Self {
        Self { fills: vec![0; fill_buffers.max(1)], ..Self::default() }
    }

    /// Processes an event, and records if the thread begins or ends to write with it.
    fn pass_noting(
        &mut self,
        event: Event,
        time: Time,
        costs: &Costs,
        (modules, writing): (&mut Modules, &mut Writing),
    ) -> Time {
        if matches!(event, Event::Flush { .. }) && !std::mem::replace(&mut self.writes, true) {
            writing.begin(time);
        }
        let after = self.pass(event, time, costs, modules);
        if matches!(event, Event::Fence { .. }) && std::mem::take(&mut self.writes) {
            writing.end(after);
        }
        after
    }

    fn begin(&mut self, kind: u8, time: Time, operation: &[Event]) {
        (self.kind, self.began) = (kind, time);
        self.events.clear();
        self.events.extend_from_slice(operation);
        self.done = 0;
        self.arrived = self.arrivals.drain(..).fold(self.arrived, Time::max);
    }

    /// Processes an event that the thread reaches at `time`; returns when it is finished.
    fn pass(&mut self, event: Event, time: Time, costs: &Costs, modules: &mut Modules) -> Time {
        self.done += 1;
        match event {
            Event::Hit => time + costs.hit,
            Event::Read { module, media } => modules.read(time, module, media, costs),
            Event::Prefetch { module, media } => {
                let buffer = self.fills.iter_mut().min().expect("there is one at least");
                let begins = time.max(*buffer);
                *buffer = modules.read(begins, module, media, costs);
                self.arrivals.push(*buffer);
                begins
            }
            Event::Prefetched { number } => (time + costs.hit).max(self.arrivals[number as usize]),
            Event::PrefetchedBefore => (time + costs.hit).max(self.arrived),
            Event::Write { module, media } => modules.write(time, module, media, costs),
            Event::Flush { line } => modules.flush(time, line, costs),
            Event::Fence { flushed } => time + if flushed { costs.fence } else { 0 },
        }
    }
}

struct Costs {
    operation: Time,
    hit: Time,
    read: Time,
    buffered_read: Time,
    flush: Time,
    fence: Time,
    media_read: Time,
    media_write: Time,
    queue: Time,
    reflush: Time,
    line: Time,
    shared_queue: bool,
}

impl Clock {
    pub fn new(threads: usize, profile: &Profile, processor: &Processor) -> Self {
        let too_many = threads.saturating_sub(profile.writers_best) as f64;
        let slower = 1.0 + profile.write_slowdown * too_many;
        let costs = Costs {
            operation: picoseconds(processor.operation_ns),
            hit: picoseconds(processor.hit_ns),
            read: picoseconds(profile.read_ns),
            buffered_read: picoseconds(profile.buffered_read_ns),
            flush: picoseconds(profile.flush_ns),
            fence: picoseconds(profile.fence_ns),
            media_read: picoseconds(profile.media_read_ns),
            media_write: picoseconds(profile.media_write_ns * slower),
            queue: picoseconds(profile.queue_ns),
            reflush: picoseconds(profile.reflush_ns),
            line: picoseconds(profile.line_ns),
            shared_queue: profile.shared_queue,
        };
        Self {
            costs,
            threads: (0..threads).map(|_| Thread::new(processor.fill_buffers)).collect(),
            next: (0..threads).map(|thread| Reverse((0, thread))).collect(),
            modules: Modules::new(profile),
            latencies: BTreeMap::new(),
            writing: Writing::default(),
        }
    }

    /// Assigns an operation to the first free thread.
    pub fn feed(&mut self, kind: u8, operation: &[Event]) {
        while let Some(Reverse((mut time, number))) = self.next.pop() {
            let limit = self.next.peek().map_or(Time::MAX, |Reverse((time, _))| *time);
            let thread = &mut self.threads[number];
            while time <= limit {
                let Some(&event) = thread.events.get(thread.done) else {
                    record(&mut self.latencies, thread, time);
                    thread.begin(kind, time, operation);
                    self.next.push(Reverse((time + self.costs.operation, number)));
                    return;
                };
                let noted = (&mut self.modules, &mut self.writing);
                time = thread.pass_noting(event, time, &self.costs, noted);
            }
            self.next.push(Reverse((time, number)));
        }
    }

    /// Lets all threads finish and restarts at 0.
    pub fn finish(&mut self) -> Times {
        let mut last = 0;
        while let Some(Reverse((time, number))) = self.next.pop() {
            let thread = &mut self.threads[number];
            match thread.events.get(thread.done) {
                Some(&event) => {
                    let noted = (&mut self.modules, &mut self.writing);
                    let time = thread.pass_noting(event, time, &self.costs, noted);
                    self.next.push(Reverse((time, number)));
                }
                None => {
                    record(&mut self.latencies, thread, time);
                    if std::mem::take(&mut thread.writes) {
                        self.writing.end(time);
                    }
                    last = last.max(time);
                }
            }
        }
        self.threads.iter_mut().for_each(|thread| *thread = Thread::new(thread.fills.len()));
        self.next = (0..self.threads.len()).map(|thread| Reverse((0, thread))).collect();
        // The modules' accepted writes must reach the media, too.
        let last = last.max(self.modules.finish());
        let latencies = std::mem::take(&mut self.latencies);
        let writing = self.writing.finish(last);
        Times { threads: self.threads.len(), seconds: last as f64 / 1e12, latencies, writing }
    }
}

/// Records the end of a thread's present operation, if there is one.
fn record(latencies: &mut BTreeMap<u8, Histogram<u64>>, thread: &Thread, time: Time) {
    if thread.kind != OUTSIDE {
        let kind = latencies.entry(thread.kind);
        let histogram = kind.or_insert_with(|| Histogram::new(DIGITS).expect("so many digits are possible"));
        histogram.record((time - thread.began) / 1000).expect("a histogram that grows");
    }
}
