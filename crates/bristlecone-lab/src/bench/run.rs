//! Phases on pinned threads.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use bristlecone::Error;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::data::{BenchKey, BenchValue, Buffer, Shape};
use super::latency::{Clock, Latency, ticks};
use super::many::{self, Buffers};
use super::stream::Stream;
use super::subject::{Subject, operate};
use super::workload::{Op, Phase};

/// What a phase came to.
#[derive(Clone, Debug)]
pub struct Measured {
    pub operations: u64,
    /// Operations that found their key.
    pub found: u64,
    pub seconds: f64,
    pub latency: Latency,
    /// Operations of a batch, the first of which was timed.
    pub batch: usize,
    /// When each batch began, in nanoseconds since the phase did.
    pub batches: Vec<u64>,
}

/// What keys and values are, and of how many operations one is timed.
#[derive(Clone, Copy, Debug)]
pub struct PhaseParameters {
    pub key: Shape,
    pub value: Shape,
    pub batch: usize,
    /// Keys of a call for many.
    pub group: usize,
}

/// What a thread notes while it works.
#[derive(Debug, Default)]
pub struct Samples {
    /// Operations of a batch.
    pub batch: usize,
    /// Ticks that the first operation of a batch took.
    pub took: Vec<u64>,
    /// Ticks when the batch began.
    pub began: Vec<u64>,
}

impl Samples {
    fn with_room_for(operations: usize, batch: usize) -> Self {
        let batches = operations / batch + 1;
        Self { batch, took: Vec::with_capacity(batches), began: Vec::with_capacity(batches) }
    }
}

/// Runs a phase: every stream on a thread of its own, pinned to a processor of its own as far as
/// there are enough.
pub fn phase<K: BenchKey, V: BenchValue>(
    subject: &impl Subject<K, V>,
    phase: &Phase,
    streams: &[Stream],
    PhaseParameters { key, value, batch, group }: PhaseParameters,
) -> Outcome<Measured> {
    let barrier = Barrier::new(streams.len());
    let processors = processors();
    let workers = std::thread::scope(|scope| {
        let started: Vec<_> = streams
            .iter()
            .enumerate()
            .map(|(thread, stream)| {
                let (barrier, processor) =
                    (&barrier, processors.get(thread % processors.len().max(1)).copied());
                scope.spawn(move || {
                    pin(processor);
                    let many = Buffers::new(group, key, value);
                    let worker =
                        Worker { subject, phase, stream, key: key.buffer(), value: value.buffer(), many };
                    let mut samples = Samples::with_room_for(stream.ids.len(), batch);
                    barrier.wait();
                    worker.run(&mut samples)
                })
            })
            .collect();
        started.into_iter().map(|worker| worker.join()).collect::<Vec<_>>()
    });
    interrupt::check("the bench is not finished")?;
    let mut parts = Vec::with_capacity(workers.len());
    for worker in workers {
        parts.push(worker.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
    }
    Ok(together(&parts, batch))
}

/// What one thread measured.
struct Part {
    operations: u64,
    found: u64,
    started: Instant,
    started_ticks: u64,
    ended: Instant,
    samples: Samples,
    nanoseconds_per_tick: f64,
}

impl Part {
    fn nanoseconds(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.nanoseconds_per_tick) as u64
    }
}

fn together(parts: &[Part], batch: usize) -> Measured {
    let started = parts.iter().map(|part| part.started).min();
    let ended = parts.iter().map(|part| part.ended).max();
    let took = started.zip(ended).map_or(Duration::ZERO, |(started, ended)| ended - started);
    let samples =
        parts.iter().flat_map(|part| part.samples.took.iter().map(|ticks| part.nanoseconds(*ticks)));
    let batches = parts.iter().flat_map(|part| {
        let late = started.map_or(0, |started| (part.started - started).as_nanos() as u64);
        let since = move |ticks: &u64| late + part.nanoseconds(ticks.wrapping_sub(part.started_ticks));
        part.samples.began.iter().map(since)
    });
    Measured {
        operations: parts.iter().map(|part| part.operations).sum(),
        found: parts.iter().map(|part| part.found).sum(),
        seconds: took.as_secs_f64().max(1e-9),
        latency: Latency::of(samples),
        batch,
        batches: batches.collect(),
    }
}

struct Worker<'a, S> {
    subject: &'a S,
    phase: &'a Phase,
    stream: &'a Stream,
    key: Buffer,
    value: Buffer,
    many: Buffers,
}

impl<S> Worker<'_, S> {
    fn run<K: BenchKey, V: BenchValue>(mut self, samples: &mut Samples) -> Result<Part, Failure>
    where
        S: Subject<K, V>,
    {
        let (subject, stream, scan) = (self.subject, self.stream, self.phase.scan);
        let (key, value) = (&mut self.key, &mut self.value);
        let clock = Clock::start();
        // One loop for each operation, so that a phase of one kind has no branches but its own.
        let found = match self.phase.mix.single() {
            Some(Op::Insert) => drive(stream, samples, |_, id| {
                subject.upsert(K::make(id, key), V::make(id, value)).map(|()| true)
            }),
            Some(Op::InsertNew) => {
                drive(stream, samples, |_, id| subject.insert_new(K::make(id, key), V::make(id, value)))
            }
            Some(Op::Get) => drive(stream, samples, |_, id| Ok(subject.get(K::make(id, key)))),
            Some(Op::Update) => {
                drive(stream, samples, |at, id| subject.update(K::make(id, key), V::make(at as u64, value)))
            }
            Some(Op::Remove) => drive(stream, samples, |_, id| subject.remove(K::make(id, key))),
            Some(Op::Scan) => {
                drive(stream, samples, |_, id| Ok(subject.scan(K::make(id, key), scan.of(id)) > 0))
            }
            Some(op) if op.is_many() => many::drive::<K, V>(subject, op, stream, &mut self.many, samples),
            Some(_) | None => drive(stream, samples, |at, id| {
                let op = stream.ops.get(at).copied().or(self.phase.mix.single()).unwrap_or(Op::Get);
                operate(subject, op, (id, at as u64), scan, (&mut *key, &mut *value))
            }),
        }?;
        let ended = Instant::now();
        Ok(Part {
            operations: stream.ids.len() as u64,
            found,
            started: clock.started(),
            started_ticks: clock.started_ticks(),
            ended,
            samples: std::mem::take(samples),
            nanoseconds_per_tick: clock.nanoseconds_per_tick(),
        })
    }
}

/// Runs the loop that is measured; returns how many operations found their key.
#[inline(always)]
fn drive(
    stream: &Stream,
    samples: &mut Samples,
    mut operation: impl FnMut(usize, u64) -> Result<bool, Error>,
) -> Result<u64, Error> {
    let mut found = 0;
    for (number, ids) in stream.ids.chunks(samples.batch).enumerate() {
        let at = number * samples.batch;
        let before = ticks();
        found += u64::from(operation(at, ids[0])?);
        samples.took.push(ticks().wrapping_sub(before));
        samples.began.push(before);
        for (more, id) in ids.iter().enumerate().skip(1) {
            found += u64::from(operation(at + more, *id)?);
        }
        if interrupt::asked() {
            break;
        }
    }
    Ok(found)
}

/// Returns the processors that this process may use.
pub fn processors() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Pins the calling thread. Where the system refuses, the thread runs unpinned: slower at worst.
fn pin(processor: Option<usize>) {
    if let Some(processor) = processor {
        let mut set = CpuSet::new();
        set.set(processor);
        let _ = sched_setaffinity(None, &set);
    }
}
