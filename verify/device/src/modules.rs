//! The modules of a device on a virtual clock: they serve one access after the other, and hold a limited backlog of
//! writes.

use super::profile::{Processor, Profile};

/// Picoseconds: whole numbers, so that sums have no order.
pub(crate) type Time = u64;

fn picoseconds(nanoseconds: f64) -> Time {
    (nanoseconds * 1000.0) as Time
}

/// The times of a device and of a processor in front of it.
pub(crate) struct Costs {
    pub operation: Time,
    pub hit: Time,
    pub read: Time,
    pub buffered_read: Time,
    pub flush: Time,
    pub fence: Time,
    pub media_read: Time,
    pub media_write: Time,
    pub queue: Time,
    pub reflush: Time,
    pub line: Time,
    pub shared_queue: bool,
}

impl Costs {
    /// Returns the times for this number of threads.
    pub fn new(threads: usize, profile: &Profile, processor: &Processor) -> Self {
        let too_many = threads.saturating_sub(profile.writers_best) as f64;
        let slower = 1.0 + profile.write_slowdown * too_many;
        Self {
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
        }
    }
}

/// State of the modules, for which threads contend.
pub(crate) struct Modules {
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
    pub fn new(profile: &Profile) -> Self {
        let remembered = if profile.reflush_ns > 0.0 { FLUSHED } else { 0 };
        Self { busy_until: vec![0; profile.modules], passed_on: 0, flushed: vec![(u32::MAX, 0); remembered] }
    }

    /// Returns when all accepted work is finished, and restarts at 0.
    pub fn finish(&mut self) -> Time {
        let last = self.busy_until.iter().copied().max().unwrap_or(0);
        self.busy_until.fill(0);
        self.passed_on = 0;
        self.flushed.fill((u32::MAX, 0));
        last
    }

    /// Returns when a module accepts a line that is written at `time`; `media` says whether the
    /// media writes.
    pub fn write(&mut self, time: Time, module: u16, media: bool, costs: &Costs) -> Time {
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
    pub fn read(&mut self, time: Time, module: u16, media: bool, costs: &Costs) -> Time {
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
    pub fn flush(&mut self, time: Time, line: u32, costs: &Costs) -> Time {
        if self.flushed.is_empty() {
            return time + costs.flush;
        }
        let place = &mut self.flushed[line as usize % FLUSHED];
        let begins = if place.0 == line { time.max(place.1 + costs.reflush) } else { time };
        *place = (line, begins);
        begins + costs.flush
    }
}
