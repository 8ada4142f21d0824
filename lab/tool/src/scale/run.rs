//! Phases on simulated cores.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bristlecone::lab::AnyMedium;
use bristlecone::{Domain, Error};
use bristlecone_baselines::{AnyDesign, part_of};
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use bristlecone_device::Layout;
use bristlecone_device::cores::{self, CoreTally, Cores, Machine, Simulated};
use bristlecone_explore::targets::medium_pool;
use bristlecone_pm::{CHUNK_BYTES, Geometry, Region};

use crate::bench::data::{BenchKey, BenchValue, Shape};
use crate::bench::stream::{self, Keys, Order, Stream};
use crate::bench::subject::{Answer, TreeStore, operate};
use crate::bench::workload::{Op, Phase, ScanLength};
use crate::count::kind;

/// Parameters of a run.
#[derive(Debug)]
pub struct Plan {
    pub design: AnyDesign,
    pub options: Vec<(String, u64)>,
    pub machine: Machine,
    pub domain: Domain,
    pub threads: Vec<usize>,
    /// The load, if it is executed before the simulation begins.
    pub preload: Option<Phase>,
    pub phases: Vec<Phase>,
    pub max_bytes: u64,
    pub seed: u64,
    pub order: Order,
    pub key: Shape,
    pub value: Shape,
    /// Whether there is a snapshot from the load on.
    pub snapshot: bool,
    /// Number of lines that are listed of those that moved most.
    pub hot: usize,
    /// Whether the functions that access these lines are listed.
    pub callers: bool,
}

/// The results of a phase.
#[derive(Debug)]
pub struct PhaseTimes {
    pub operations: u64,
    pub outcome: cores::Outcome,
}

/// The results of all phases with a number of threads.
#[derive(Debug)]
pub struct Measured {
    pub threads: usize,
    pub phases: Vec<PhaseTimes>,
}

/// Number of operations of a thread between two checks of Ctrl-C.
const STRIDE: usize = 1 << 8;

/// Interval between two updates of the progress bar.
const UPDATE: Duration = Duration::from_millis(100);

/// Number of finished operations.
type Done = AtomicU64;

/// Runs the plan.
pub fn run(plan: &Plan, output: &Output) -> Outcome<Vec<Measured>> {
    let operations: u64 = plan.preload.iter().chain(&plan.phases).map(|phase| phase.operations).sum();
    let bar = output.progress("simulating", Some(operations * plan.threads.len() as u64));
    let (done, is_over) = (Done::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // The bar allocates memory when it is drawn. The simulating thread must not: the lines of its objects would
        // depend on the time.
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                bar.set_position(done.load(Relaxed));
                std::thread::sleep(UPDATE);
            }
            bar.finish_and_clear();
        });
        let measure = |threads: &usize| {
            Ok(Measured { threads: *threads, phases: with_threads(plan, *threads, &done)? })
        };
        let measured = plan.threads.iter().map(measure).collect();
        is_over.store(true, Relaxed);
        measured
    })
}

fn with_threads(plan: &Plan, threads: usize, done: &Done) -> Outcome<Vec<PhaseTimes>> {
    match (plan.key, plan.value) {
        (Shape::U64, Shape::U64) => phases::<u64, u64>(plan, threads, done),
        (Shape::U64, _) => phases::<u64, &'static [u8]>(plan, threads, done),
        (_, Shape::U64) => phases::<&'static [u8], u64>(plan, threads, done),
        (_, _) => phases::<&'static [u8], &'static [u8]>(plan, threads, done),
    }
}

fn phases<K: BenchKey, V: BenchValue>(plan: &Plan, threads: usize, done: &Done) -> Outcome<Vec<PhaseTimes>> {
    // Drawn by threads, before the simulation begins to allocate.
    let (load, streams) = draw(plan, threads);
    let chunks_max = plan.max_bytes.div_ceil(CHUNK_BYTES);
    let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max, trees_max: 2 };
    let region = Region::memory(geometry.max_bytes())?;
    let pool = (&region, Layout { geometry, part_of });
    let mut cores =
        Cores::new(&plan.machine, threads, pool, plan.domain, plan.callers).map_err(Failure::usage)?;
    let pool = medium_pool(cores.medium(), region, geometry, plan.domain)?;
    // The stack begins at a random address, and lines would be others in each process.
    let tree = Box::new(TreeStore::<K, V>::within::<AnyMedium>(pool, plan.design, &plan.options)?);
    let (mut results, mut snapshot) = (Vec::new(), None);
    if let Some((phase, stream)) = plan.preload.as_ref().zip(load.first()) {
        execute(plan, phase, (stream, &*tree), done, |_, operation| operation())?;
    }
    for (number, (phase, streams)) in plan.phases.iter().zip(&streams).enumerate() {
        let is_after_load = number == usize::from(plan.preload.is_none());
        if plan.snapshot && is_after_load {
            snapshot = Some(tree.snapshot()?);
        }
        let body = |simulated: Simulated, thread: usize| {
            let run = |kind, operation: &mut dyn FnMut() -> _| simulated.operation(kind, operation);
            execute(plan, phase, (&streams[thread], &*tree), done, run)
        };
        let found: u64 = cores.run(body).into_iter().sum::<Outcome<u64>>()?;
        if phase.all_found && found < phase.operations {
            let (name, all) = (&phase.name, phase.operations);
            let what = format!("{name}: only {found} of {all} operations found their key");
            return Err(Failure::new(Exit::Failed, what));
        }
        let outcome = cores.take(plan.hot);
        check_visible(plan.design, &outcome.tallies.sum())?;
        results.push(PhaseTimes { operations: phase.operations, outcome });
    }
    drop((snapshot, tree));
    Ok(results)
}

/// Fails if a design took no steps: it does not access memory by `bristlecone_pm::sync` and the medium.
fn check_visible(design: AnyDesign, tally: &CoreTally) -> Outcome {
    if tally.operations == 0 || tally.steps > 0 {
        return Ok(());
    }
    let what = format!(
        "{design} takes no visible steps: it must access memory by bristlecone_pm::sync and the medium"
    );
    Err(Failure::usage(what))
}

/// Returns the operations of a preload by one thread, and those of each phase and thread.
pub(super) fn draw(plan: &Plan, threads: usize) -> (Vec<Stream>, Vec<Vec<Stream>>) {
    let mut keys = Keys { seed: plan.seed, order: plan.order.clone(), count: 0 };
    let mut salts = 0..;
    let mut next = |phase: &Phase, threads: usize| {
        let (streams, added) = stream::draw(phase, &keys, threads, salts.next().unwrap_or_default());
        keys.count += added;
        streams
    };
    let load = plan.preload.as_ref().map(|phase| next(phase, 1)).unwrap_or_default();
    (load, plan.phases.iter().map(|phase| next(phase, threads)).collect())
}

/// Executes the operations of one thread, each by `run` with its kind; returns how many found their key.
pub(super) fn execute<K: BenchKey, V: BenchValue>(
    plan: &Plan,
    phase: &Phase,
    (stream, tree): (&Stream, &TreeStore<K, V>),
    done: &Done,
    run: impl Fn(u8, &mut dyn FnMut() -> Result<Answer, Error>) -> Result<Answer, Error>,
) -> Outcome<u64> {
    let (mut key, mut value) = (plan.key.buffer(), plan.value.buffer());
    let mut found = 0;
    for (at, id) in stream.ids.iter().enumerate() {
        if at % STRIDE == 0 {
            interrupt::check("the simulation is not finished")?;
            done.fetch_add(STRIDE.min(stream.ids.len() - at) as u64, Relaxed);
        }
        let op = stream.ops.get(at).copied().or(phase.mix.single()).unwrap_or(Op::Get);
        let scan = stream.scans.get(at).map_or(phase.scan, |length| ScanLength::of_length(*length));
        let ids = (*id, at as u64);
        match run(kind(op), &mut || operate(tree, op, ids, scan, (&mut key, &mut value)))? {
            Answer::Found(_) => found += 1,
            Answer::Absent => {}
            Answer::Wrong => {
                let what = format!("{}: an operation read what is not its key's", phase.name);
                return Err(Failure::new(Exit::Failed, what));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_design_without_visible_steps_is_refused_in_one_line() {
        let design: AnyDesign = "fptree".parse().unwrap();
        let tally = |operations, steps| CoreTally { operations, steps, ..CoreTally::default() };
        assert!(check_visible(design, &tally(0, 0)).is_ok() && check_visible(design, &tally(5, 1)).is_ok());
        let failure = check_visible(design, &tally(5, 0)).unwrap_err();
        assert!(failure.line().contains("fptree takes no visible steps"), "{}", failure.line());
    }
}
