//! A virtual clock: how long operations would take if many threads did them at the same time.
//!
//! Threads take operations from one queue. Each goes through its operation's accesses; those of
//! all threads happen in the order of their times. Threads meet at the modules: the media serve
//! one access after the other, and writes that a module has taken may only pile up so far. Locks
//! are not simulated, so a curve shows what the device allows.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::AddAssign;

use hdrhistogram::Histogram;

use super::counts::OUTSIDE;
use super::profile::{Processor, Profile};
use super::writing::Writing;

/// Something in an operation that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The processor's cache has the line.
    Hit,
    /// The device is read; whether the media is.
    Read { module: u16, media: bool },
    /// The device is read ahead of need (a prefetch): the thread goes on.
    Prefetch { module: u16, media: bool },
    /// A prefetched line is needed: which of this operation's prefetches it was, from 0.
    Prefetched { number: u32 },
    /// A line is needed that an operation before prefetched.
    PrefetchedBefore,
    /// A line goes to the device; whether that makes the media write.
    Write { module: u16, media: bool },
    /// A line is written back: which.
    Flush { line: u32 },
    /// A wait; whether there is anything to wait for.
    Fence { flushed: bool },
}

/// Picoseconds: whole numbers, so that sums have no order.
type Time = u64;

/// Digits of latencies that are kept.
const DIGITS: u8 = 3;

fn picoseconds(nanoseconds: f64) -> Time {
    (nanoseconds * 1000.0) as Time
}

/// What operations took on the clock of so many threads.
#[derive(Clone, Debug)]
pub struct Times {
    /// Threads that did them.
    pub threads: usize,
    /// Seconds until the last of them was done.
    pub seconds: f64,
    /// Nanoseconds of each, by their kind.
    pub latencies: BTreeMap<u8, Histogram<u64>>,
    /// For which share of the time how many threads wrote to the device, from none on.
    pub writing: Vec<f64>,
}

impl AddAssign<&Self> for Times {
    /// As many threads did something else afterwards.
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

/// One number of threads.
pub(super) struct Clock {
    costs: Costs,
    threads: Vec<Thread>,
    /// Threads by their times.
    next: BinaryHeap<Reverse<(Time, usize)>>,
    modules: Modules,
    latencies: BTreeMap<u8, Histogram<u64>>,
    writing: Writing,
}

/// What threads meet at.
struct Modules {
    /// When each will have done what it has taken.
    busy_until: Vec<Time>,
    /// When the queue that all share has passed on what it has.
    passed_on: Time,
    /// When lines were flushed last: each at the place that its number picks, until another takes it.
    flushed: Vec<(u32, Time)>,
}

/// Lines whose last flush is kept in mind.
const FLUSHED: usize = 1 << 14;

impl Modules {
    fn new(profile: &Profile) -> Self {
        let remembered = if profile.reflush_ns > 0.0 { FLUSHED } else { 0 };
        Self { busy_until: vec![0; profile.modules], passed_on: 0, flushed: vec![(u32::MAX, 0); remembered] }
    }

    /// Returns when all is done that was taken, and starts again at 0.
    fn finish(&mut self) -> Time {
        let last = self.busy_until.iter().copied().max().unwrap_or(0);
        self.busy_until.fill(0);
        self.passed_on = 0;
        self.flushed.fill((u32::MAX, 0));
        last
    }

    /// Returns when a module takes a line that is written at `time`; whether that makes the media write.
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

    /// Returns when a line is there that is read from `time` on.
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

    /// Returns when a flush of a line is done that begins at `time`.
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
    /// The kind of the operation under way, and when it began.
    kind: u8,
    began: Time,
    events: Vec<Event>,
    done: usize,
    /// When the lines arrive that the operation under way prefetched.
    arrivals: Vec<Time>,
    /// When the last line arrives that an operation before prefetched.
    arrived: Time,
    /// Until when each buffer waits for a line.
    fills: Vec<Time>,
    /// It has flushed, and not fenced yet.
    writes: bool,
}

impl Thread {
    fn new(fill_buffers: usize) -> Self {
        Self { fills: vec![0; fill_buffers.max(1)], ..Self::default() }
    }

    /// Goes past an event, and notes if the thread begins or ends to write with it.
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

    /// Goes past an event that it comes to at `time`; when it has it behind itself.
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

    /// Gives an operation to the thread that is the first to be free.
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

    /// Lets all threads finish and starts again at 0.
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
        // What the modules have taken must reach the media, too.
        let last = last.max(self.modules.finish());
        let latencies = std::mem::take(&mut self.latencies);
        let writing = self.writing.finish(last);
        Times { threads: self.threads.len(), seconds: last as f64 / 1e12, latencies, writing }
    }
}

/// Records that a thread is done with what it began, if it began anything.
fn record(latencies: &mut BTreeMap<u8, Histogram<u64>>, thread: &Thread, time: Time) {
    if thread.kind != OUTSIDE {
        let kind = latencies.entry(thread.kind);
        let histogram = kind.or_insert_with(|| Histogram::new(DIGITS).expect("so many digits are possible"));
        histogram.record((time - thread.began) / 1000).expect("a histogram that grows");
    }
}
