//! Phases on pinned threads.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use bristlecone::Error;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::data::{BenchKey, BenchValue, Buffer, Shape};
use super::latency::{Clock, Latency, ticks};
use super::many::{self, Buffers};
use super::perf::{Counters, Perf};
use super::samples::{Answers, Samples};
use super::stream::Stream;
use super::subject::{Answer, Subject, operate};
use super::workload::{Op, Phase, ScanLength};

/// Results of a phase.
#[derive(Clone, Debug)]
pub struct Measured {
    pub operations: u64,
    /// Operations that found their key.
    pub found: u64,
    /// Operations that read data that does not belong to their key.
    pub wrong: u64,
    /// Sum of all reads: for scans, the number of entries.
    pub read: u64,
    pub seconds: f64,
    pub latency: Latency,
    /// Values of the processor's counters, if requested and readable.
    pub counters: Option<Counters>,
    /// Operations of a batch, the first of which was timed.
    pub batch: usize,
    /// Start of each batch, in nanoseconds since the phase began.
    pub batches: Vec<u64>,
}

/// Shapes of keys and values, and the sampling interval.
#[derive(Clone, Copy, Debug)]
pub struct PhaseParameters {
    pub key: Shape,
    pub value: Shape,
    pub batch: usize,
    /// Number of keys of a multi-key call.
    pub group: usize,
    /// Whether the key of each read depends on the value of the read before it.
    pub dependent: bool,
    /// Whether the processor's counters are read.
    pub perf: bool,
}

/// Runs a phase: every stream on its own thread, each pinned to its own processor if there are enough.
pub fn phase<K: BenchKey, V: BenchValue>(
    subject: &impl Subject<K, V>,
    phase: &Phase,
    streams: &[Stream],
    parameters: PhaseParameters,
) -> Outcome<Measured> {
    let PhaseParameters { key, value, batch, group, .. } = parameters;
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
                    let (key, value) = (key.buffer(), value.buffer());
                    let worker = Worker { subject, phase, stream, key, value, many, parameters };
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

/// Measurements of one thread.
struct Part {
    operations: u64,
    answers: Answers,
    started: Instant,
    started_ticks: u64,
    ended: Instant,
    samples: Samples,
    nanoseconds_per_tick: f64,
    counters: Option<Counters>,
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
        found: parts.iter().map(|part| part.answers.found).sum(),
        wrong: parts.iter().map(|part| part.answers.wrong).sum(),
        read: parts.iter().fold(0, |sum, part| sum.wrapping_add(part.answers.read)),
        seconds: took.as_secs_f64().max(1e-9),
        latency: Latency::of(samples),
        counters: Counters::sum(parts.iter().map(|part| part.counters)),
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
    parameters: PhaseParameters,
}

impl<S> Worker<'_, S> {
    fn run<K: BenchKey, V: BenchValue>(mut self, samples: &mut Samples) -> Result<Part, Failure>
    where
        S: Subject<K, V>,
    {
        let perf = self.parameters.perf.then(Perf::start).flatten();
        let clock = Clock::start();
        let answers = self.operations::<K, V>(samples)?;
        let ended = Instant::now();
        Ok(Part {
            operations: self.stream.ids.len() as u64,
            answers,
            started: clock.started(),
            started_ticks: clock.started_ticks(),
            ended,
            samples: std::mem::take(samples),
            nanoseconds_per_tick: clock.nanoseconds_per_tick(),
            counters: perf.and_then(Perf::stop),
        })
    }

    /// Runs the operations: one loop for each kind, so that a phase of one kind has no branches for others.
    fn operations<K: BenchKey, V: BenchValue>(&mut self, samples: &mut Samples) -> Result<Answers, Error>
    where
        S: Subject<K, V>,
    {
        let (subject, stream, phase) = (self.subject, self.stream, self.phase);
        let (key, value) = (&mut self.key, &mut self.value);
        let dependent = self.parameters.dependent;
        macro_rules! only {
            ($op:expr) => {
                drive(stream, dependent, samples, |at, id| {
                    operate(subject, $op, (id, at as u64), phase.scan, (&mut *key, &mut *value))
                })
            };
        }
        match phase.mix.single().filter(|_| stream.ops.is_empty() && stream.scans.is_empty()) {
            Some(Op::Insert) => only!(Op::Insert),
            Some(Op::InsertNew) => only!(Op::InsertNew),
            Some(Op::Get) => only!(Op::Get),
            Some(Op::Update) => only!(Op::Update),
            Some(Op::Remove) => only!(Op::Remove),
            Some(Op::Scan) => only!(Op::Scan),
            Some(op) if op.is_many() => many::drive::<K, V>(subject, op, stream, &mut self.many, samples),
            single => drive(stream, dependent, samples, |at, id| {
                let op = stream.ops.get(at).copied().or(single).unwrap_or(Op::Get);
                let scan = stream.scans.get(at).map_or(phase.scan, |length| ScanLength::of_length(*length));
                operate(subject, op, (id, at as u64), scan, (&mut *key, &mut *value))
            }),
        }
    }
}

/// Runs the measured loop. If operations are dependent, the next key includes the first word of the previous
/// value, masked to zero. So the processor cannot begin a read before the previous one has finished.
#[inline(always)]
fn drive(
    stream: &Stream,
    dependent: bool,
    samples: &mut Samples,
    mut operation: impl FnMut(usize, u64) -> Result<Answer, Error>,
) -> Result<Answers, Error> {
    let mut answers = Answers::default();
    let (mut link, none) = (0, black_box(0));
    let mut one = |at, id: u64| -> Result<(), Error> {
        let answer = operation(at, id ^ link)?;
        if let Answer::Found(read) = answer
            && dependent
        {
            link = read & none;
        }
        answers.add(answer);
        Ok(())
    };
    for (number, ids) in stream.ids.chunks(samples.batch).enumerate() {
        let at = number * samples.batch;
        let before = ticks();
        one(at, ids[0])?;
        samples.took.push(ticks().wrapping_sub(before));
        samples.began.push(before);
        for (more, id) in ids.iter().enumerate().skip(1) {
            one(at + more, *id)?;
        }
        if interrupt::asked() {
            break;
        }
    }
    Ok(answers)
}

/// Returns the processors that this process may use.
pub fn processors() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Returns the number of this machine's processors.
pub fn threads_here() -> u64 {
    processors().len().max(1) as u64
}

/// Pins the calling thread. If the system refuses, the thread runs unpinned: slower at worst.
pub fn pin(processor: Option<usize>) {
    if let Some(processor) = processor {
        let mut set = CpuSet::new();
        set.set(processor);
        let _ = sched_setaffinity(None, &set);
    }
}
