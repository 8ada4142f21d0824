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
use super::modules::{Costs, Modules, Time};
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

/// Significant digits of latencies.
const DIGITS: u8 = 3;

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

impl Clock {
    pub fn new(threads: usize, profile: &Profile, processor: &Processor) -> Self {
        let costs = Costs::new(threads, profile, processor);
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
