//! The same phases for the tree and its competitors, in turns, so that a disturbance of the machine
//! meets all of them and ratios are fair.

use std::marker::PhantomData;
use std::time::Duration;

use bristlecone::PoolInfo;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use bristlecone_cli::scratch::Scratch;

use super::competitor::Competitor;
use super::data::{BenchKey, BenchValue, Shape};
use super::run::{self, Measured, PhaseParameters};
use super::stream::{self, Keys, Order, Stream};
use super::subject::{Setup, Subject, TreeStore};
use super::volatile::{Art, Ferntree, Scc, Skiplist, VolatileMap};
use super::workload::Phase;

/// Everything that makes a run what it is.
#[derive(Debug)]
pub struct Plan {
    pub setup: Setup,
    pub phases: Vec<Phase>,
    pub threads: usize,
    pub rounds: usize,
    pub seed: u64,
    pub order: Order,
    pub key: Shape,
    pub value: Shape,
    pub against: Vec<Competitor>,
    /// One operation in so many is timed by itself.
    pub batch: usize,
    /// Keys of a call for many.
    pub group: usize,
    /// Throughput is reported over time, in slices of so long.
    pub timeline: Option<Duration>,
}

/// What one store did in one phase, round by round.
#[derive(Clone, Debug, Default)]
pub struct PhaseResult {
    pub rounds: Vec<Measured>,
}

/// What one competitor did.
#[derive(Debug)]
pub struct CompetitorResult {
    pub competitor: Competitor,
    /// Phase by phase; empty if it took no part.
    pub phases: Vec<PhaseResult>,
    /// What it cannot do, and why.
    pub skipped: Vec<(&'static str, &'static str)>,
}

/// What came out.
#[derive(Debug)]
pub struct Results {
    /// The pool after the load of the last round.
    pub info: PoolInfo,
    pub phases: Vec<PhaseResult>,
    pub pm_bytes_per_key: f64,
    pub dram_bytes_per_key: f64,
    /// Seconds, round by round.
    pub recovery: Vec<f64>,
    /// Keys that were recovered.
    pub recovered: u64,
    pub competitors: Vec<CompetitorResult>,
}

/// Runs the plan.
pub fn run(plan: &Plan, scratch: &Scratch, output: &Output) -> Outcome<Results> {
    match (plan.key, plan.value) {
        (Shape::U64, Shape::U64) => rounds::<u64, u64>(plan, scratch, output, Some(congee)),
        (Shape::U64, Shape::Bytes { .. }) => rounds::<u64, &'static [u8]>(plan, scratch, output, None),
        (Shape::Bytes { .. }, Shape::U64) => rounds::<&'static [u8], u64>(plan, scratch, output, None),
        (Shape::Bytes { .. }, Shape::Bytes { .. }) => {
            rounds::<&'static [u8], &'static [u8]>(plan, scratch, output, None)
        }
    }
}

/// A competitor, whatever its type.
trait Runner {
    fn run(&self, phase: &Phase, streams: &[Stream], parameters: PhaseParameters) -> Outcome<Measured>;
}

struct RunnerOf<S, K, V>(S, PhantomData<(K, V)>);

impl<S: Subject<K, V>, K: BenchKey, V: BenchValue> Runner for RunnerOf<S, K, V> {
    fn run(&self, phase: &Phase, streams: &[Stream], parameters: PhaseParameters) -> Outcome<Measured> {
        run::phase::<K, V>(&self.0, phase, streams, parameters)
    }
}

type Congee = fn() -> Box<dyn Runner>;

fn congee() -> Box<dyn Runner> {
    Box::new(RunnerOf::<_, u64, u64>(Art::default(), PhantomData))
}

/// Creates the runner of a competitor; `None`: it takes no part.
fn runner<K: BenchKey, V: BenchValue>(
    competitor: Competitor,
    setup: &Setup,
    scratch: &Scratch,
    congee: Option<Congee>,
) -> Outcome<Option<Box<dyn Runner>>> {
    Ok(Some(match competitor {
        Competitor::Map(VolatileMap::Ferntree) => {
            Box::new(RunnerOf(Ferntree::<K, V>::default(), PhantomData))
        }
        Competitor::Map(VolatileMap::Scc) => Box::new(RunnerOf(Scc::<K, V>::default(), PhantomData)),
        Competitor::Map(VolatileMap::Skiplist) => {
            Box::new(RunnerOf(Skiplist::<K, V>::default(), PhantomData))
        }
        Competitor::Map(VolatileMap::Congee) => match congee {
            Some(congee) => congee(),
            None => return Ok(None),
        },
        Competitor::Tree(design) => {
            // Baselines are like the design that they are compared with; others are as they come.
            let options = if design.is_baseline() { setup.options.clone() } else { Vec::new() };
            let setup = Setup { design, options, ..setup.clone() };
            Box::new(RunnerOf(TreeStore::<K, V>::beside(&setup, scratch)?, PhantomData))
        }
    }))
}

/// Returns the results of all competitors before the first round; some take no part.
fn no_results(plan: &Plan, has_congee: bool) -> Vec<CompetitorResult> {
    let result = |competitor: &Competitor| {
        let mut phases = vec![PhaseResult::default(); plan.phases.len()];
        let skipped = match competitor {
            Competitor::Map(VolatileMap::Congee) if !has_congee => {
                phases.clear();
                vec![("everything", "its keys and values are words")]
            }
            Competitor::Map(_) => vec![("recovery", "it is volatile")],
            Competitor::Tree(_) => Vec::new(),
        };
        CompetitorResult { competitor: *competitor, phases, skipped }
    };
    plan.against.iter().map(result).collect()
}

fn rounds<K: BenchKey, V: BenchValue>(
    plan: &Plan,
    scratch: &Scratch,
    output: &Output,
    congee: Option<Congee>,
) -> Outcome<Results> {
    let mut competitors = no_results(plan, congee.is_some());
    let steps = plan.rounds * (plan.phases.len() * (1 + competitors.len()) + 1);
    let bar = output.progress("measuring", Some(steps as u64));
    let mut phases = vec![PhaseResult::default(); plan.phases.len()];
    let mut last = None;
    let mut recovery = Vec::new();
    for round in 0..plan.rounds {
        let store = TreeStore::<K, V>::create(&plan.setup, scratch)?;
        let runner = |competitor: &Competitor| runner::<K, V>(*competitor, &plan.setup, scratch, congee);
        let runners = plan.against.iter().map(runner).collect::<Outcome<Vec<_>>>()?;
        let mut keys = Keys { seed: plan.seed, order: plan.order, count: 0 };
        let mut loaded = None;
        for (number, phase) in plan.phases.iter().enumerate() {
            interrupt::check("the bench is not finished")?;
            bar.set_message(phase.name.clone());
            let (streams, added) = stream::draw(phase, &keys, plan.threads, number as u64);
            let parameters =
                PhaseParameters { key: plan.key, value: plan.value, batch: plan.batch, group: plan.group };
            // Which store begins changes from round to round.
            let run_store = |phases: &mut Vec<PhaseResult>| -> Outcome {
                let measured = run::phase::<K, V>(&store, phase, &streams, parameters)?;
                bar.inc(1);
                if phase.all_found && measured.found < measured.operations {
                    let (found, all) = (measured.found, measured.operations);
                    let what = format!("{}: only {found} of {all} operations found their key", phase.name);
                    return Err(Failure::new(Exit::Failed, what));
                }
                phases[number].rounds.push(measured);
                Ok(())
            };
            if round % 2 == 0 {
                run_store(&mut phases)?;
            }
            for (runner, result) in runners.iter().zip(&mut competitors) {
                let Some(runner) = runner else { continue };
                result.phases[number].rounds.push(runner.run(phase, &streams, parameters)?);
                bar.inc(1);
            }
            if round % 2 != 0 {
                run_store(&mut phases)?;
            }
            keys.count += added;
            loaded.get_or_insert_with(|| (store.info(), store.stats()));
        }
        drop(runners);
        bar.set_message("recovery");
        let (store, took) = store.recover(&plan.setup, scratch)?;
        bar.inc(1);
        recovery.push(took.as_secs_f64());
        last = loaded.map(|(info, loaded)| (info, loaded, store.stats().items));
        drop(store);
        scratch.remove();
    }
    bar.finish_and_clear();
    let Some((info, loaded, recovered)) = last else {
        return Err(Failure::usage("--rounds must be 1 or more"));
    };
    let per_key = |bytes: u64| bytes as f64 / loaded.items.max(1) as f64;
    let (pm_bytes_per_key, dram_bytes_per_key) = (per_key(loaded.pm_bytes), per_key(loaded.dram_bytes));
    Ok(Results { info, phases, pm_bytes_per_key, dram_bytes_per_key, recovery, recovered, competitors })
}
