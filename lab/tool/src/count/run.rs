//! Phases on the model of a device.

use bristlecone::lab::AnyMedium;
use bristlecone::{Domain, TreeStats};
use bristlecone_baselines::{AnyDesign, part_of};
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use bristlecone_device::{Counted, Device, Layout, OUTSIDE, Processor, Profile, Tallies};
use bristlecone_explore::targets::device_pool;
use bristlecone_pm::{CHUNK_BYTES, Geometry, Region, assume_thread_index};
use indicatif::ProgressBar;

use crate::bench::data::{BenchKey, BenchValue, Buffer, Shape};
use crate::bench::stream::{self, Keys, Order, Stream};
use crate::bench::subject::{Answer, TreeStore, operate};
use crate::bench::workload::{Op, Phase, ScanLength};

/// Parameters of a run.
#[derive(Debug)]
pub struct Plan {
    pub design: AnyDesign,
    pub options: Vec<(String, u64)>,
    pub profile: Profile,
    pub processor: Processor,
    pub domain: Domain,
    pub threads: Vec<usize>,
    /// Threads to which operations are assigned in turn; by default as many as the clock has, with a run for each
    /// of `threads`.
    pub writers: Option<usize>,
    /// Number of slices of phases, except for a load before other phases.
    pub slices: usize,
    pub phases: Vec<Phase>,
    pub max_bytes: u64,
    pub seed: u64,
    pub order: Order,
    pub key: Shape,
    pub value: Shape,
}

/// Results of one phase.
#[derive(Debug)]
pub struct PhaseCount {
    pub found: u64,
    /// Counts with the first number of threads, and the times of each.
    pub counted: Counted,
    /// Counts for each of the times.
    pub tallies: Vec<Tallies>,
    /// Space usage of the tree at its end.
    pub space: TreeStats,
    /// Results of each slice, if there are several.
    pub slices: Vec<Slice>,
}

/// Results of one slice of a phase.
#[derive(Debug)]
pub struct Slice {
    pub counted: Counted,
    pub space: TreeStats,
}

/// Returns the device's code for an operation.
pub fn kind(op: Op) -> u8 {
    op as u8 + 1
}

/// Number of operations between two checks of the clock and of Ctrl-C.
const STRIDE: usize = 1 << 12;

/// Runs the plan.
pub fn run(plan: &Plan, output: &Output) -> Outcome<Vec<PhaseCount>> {
    let operations: u64 = plan.phases.iter().map(|phase| phase.operations).sum();
    let runs = if plan.writers.is_some() { 1 } else { plan.threads.len() };
    let bar = output.progress("counting", Some(operations * runs as u64));
    let counts = match plan.writers {
        Some(writers) => with_writers(plan, writers, &plan.threads, &bar)?,
        None => {
            let mut all: Option<Vec<PhaseCount>> = None;
            for threads in plan.threads.chunks(1) {
                let more = with_writers(plan, threads[0], threads, &bar)?;
                match &mut all {
                    None => all = Some(more),
                    Some(all) => all.iter_mut().zip(more).for_each(|(all, more)| all.and(more)),
                }
            }
            all.unwrap_or_default()
        }
    };
    bar.finish_and_clear();
    Ok(counts)
}

impl PhaseCount {
    /// Adds the times of another number of threads.
    fn and(&mut self, more: Self) {
        self.counted.times.extend(more.counted.times);
        self.tallies.extend(more.tallies);
        for (slice, more) in self.slices.iter_mut().zip(more.slices) {
            slice.counted.times.extend(more.counted.times);
        }
    }
}

/// Counts with operations assigned to this many threads.
fn with_writers(
    plan: &Plan,
    writers: usize,
    threads: &[usize],
    bar: &ProgressBar,
) -> Outcome<Vec<PhaseCount>> {
    match (plan.key, plan.value) {
        (Shape::U64, Shape::U64) => phases::<u64, u64>(plan, writers, threads, bar),
        (Shape::U64, _) => phases::<u64, &'static [u8]>(plan, writers, threads, bar),
        (_, Shape::U64) => phases::<&'static [u8], u64>(plan, writers, threads, bar),
        (_, _) => phases::<&'static [u8], &'static [u8]>(plan, writers, threads, bar),
    }
}

fn phases<K: BenchKey, V: BenchValue>(
    plan: &Plan,
    writers: usize,
    threads: &[usize],
    bar: &ProgressBar,
) -> Outcome<Vec<PhaseCount>> {
    let chunks_max = plan.max_bytes.div_ceil(CHUNK_BYTES);
    let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max, trees_max: 2 };
    let region = Region::memory(geometry.max_bytes())?;
    let layout = Layout { geometry, part_of };
    let device = Device::new(&region, layout, plan.domain, plan.profile, plan.processor, threads);
    let pool = device_pool(&device, region, geometry, plan.domain)?;
    let tree = TreeStore::<K, V>::within::<AnyMedium>(pool, plan.design, &plan.options)?;
    // The creation is not part of any phase.
    device.take();
    let mut keys = Keys { seed: plan.seed, order: plan.order.clone(), count: 0 };
    let mut counts = Vec::new();
    for (number, phase) in plan.phases.iter().enumerate() {
        bar.set_message(format!("{}, {writers} writers", phase.name));
        let (streams, added) = stream::draw(phase, &keys, 1, number as u64);
        let is_sliced = plan.slices > 1 && (number > 0 || plan.phases.len() == 1);
        let parts = if is_sliced { plan.slices } else { 1 };
        let (found, mut slices) = count(plan, phase, (&streams[0], parts), writers, (&device, &tree), bar)?;
        let (counted, space) = (together(&slices), slices[slices.len() - 1].space);
        on_the_clock(&counted, plan, phase)?;
        let tallies = vec![counted.tallies.clone(); threads.len()];
        if !is_sliced {
            slices.clear();
        }
        counts.push(PhaseCount { found, counted, tallies, space, slices });
        keys.count += added;
    }
    assume_thread_index(None);
    Ok(counts)
}

/// Returns the sum of consecutive slices.
fn together(slices: &[Slice]) -> Counted {
    let mut all = slices[0].counted.clone();
    for Slice { counted, .. } in &slices[1..] {
        all.tallies += &counted.tallies;
        all.times.iter_mut().zip(&counted.times).for_each(|(sum, more)| *sum += more);
    }
    all
}

/// Runs the operations of a phase in several parts; returns how many found their key, and the results of each part.
fn count<K: BenchKey, V: BenchValue>(
    plan: &Plan,
    phase: &Phase,
    (stream, parts): (&Stream, usize),
    writers: usize,
    (device, tree): (&Device, &TreeStore<K, V>),
    bar: &ProgressBar,
) -> Outcome<(u64, Vec<Slice>)> {
    let (mut key, mut value) = (plan.key.buffer(), plan.value.buffer());
    let (mut found, mut wrong, mut slices) = (0, 0, Vec::new());
    for (at, id) in stream.ids.iter().enumerate() {
        if at % STRIDE == 0 {
            interrupt::check("the count is not finished")?;
            bar.inc(STRIDE.min(stream.ids.len() - at) as u64);
        }
        if at > 0 && at == stream.ids.len() * (slices.len() + 1) / parts {
            slices.push(Slice { counted: device.take(), space: tree.stats()? });
        }
        assume_thread_index(Some(at % writers));
        let op = stream.ops.get(at).copied().or(phase.mix.single()).unwrap_or(Op::Get);
        let scan = stream.scans.get(at).map_or(phase.scan, |length| ScanLength::of_length(*length));
        let answer = device.operation(kind(op), || {
            let ids = (*id, at as u64);
            let done = operate(tree, op, ids, scan, (&mut key, &mut value));
            let found = matches!(done, Ok(Answer::Found(_)));
            (done, user_bytes(op, ids, found, (&key, &value)))
        })?;
        found += u64::from(matches!(answer, Answer::Found(_)));
        wrong += u64::from(answer == Answer::Wrong);
    }
    slices.push(Slice { counted: device.take(), space: tree.stats()? });
    let (name, all) = (&phase.name, phase.operations);
    let what = match (wrong, phase.all_found && found < all) {
        (0, false) => return Ok((found, slices)),
        (0, true) => format!("{name}: only {found} of {all} operations found their key"),
        _ => format!("{name}: {wrong} of {all} operations read what is not their key's"),
    };
    Err(Failure::new(Exit::Failed, what))
}

/// Fails if there were writes that belong to no operation, and are therefore on no clock.
fn on_the_clock(counted: &Counted, plan: &Plan, phase: &Phase) -> Outcome {
    let outside = counted.tallies[OUTSIDE];
    let total = outside.total();
    if outside.fences == 0 && total.flushes == 0 && total.device_bytes_written == 0 {
        return Ok(());
    }
    let what = format!(
        "{}: {} wrote {} bytes in threads of its own, which no clock counts: turn these off by an option",
        phase.name, plan.design, total.device_bytes_written
    );
    Err(Failure::new(Exit::Failed, what))
}

/// Returns the bytes that the user wrote: key and value, or the removed key.
fn user_bytes(op: Op, (id, version): (u64, u64), found: bool, (key, value): (&Buffer, &Buffer)) -> u64 {
    match op {
        Op::Get | Op::Scan | Op::GetMany => 0,
        Op::Insert | Op::InsertMany => key.key_bytes(id) + value.value_bytes(id, 0),
        Op::Upsert | Op::UpsertMany => key.key_bytes(id) + value.value_bytes(id, version),
        _ if !found => 0,
        Op::InsertNew => key.key_bytes(id) + value.value_bytes(id, 0),
        Op::Update | Op::ReadModifyWrite => key.key_bytes(id) + value.value_bytes(id, version),
        Op::Remove | Op::RemoveMany => key.key_bytes(id),
    }
}
