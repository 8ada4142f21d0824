//! Runs the same phases on the tree and its competitors, alternately, so that disturbances of the machine affect all
//! of them and ratios are fair.

use std::marker::PhantomData;
use std::time::Duration;

use bristlecone::{Domain, PoolInfo};
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use bristlecone_cli::scratch::Scratch;
use indicatif::ProgressBar;

use super::competitor::Competitor;
use super::data::{BenchKey, BenchValue, Shape};
#[cfg(feature = "rivals")]
use super::masstree::Masstree;
use super::pages::Pages;
use super::rivals::{self, Class, kill, pibench};
use super::run::{self, Measured, PhaseParameters};
use super::stream::{self, Keys, Order, Stream};
use super::subject::{Setup, Subject, TreeStore};
use super::volatile::{Ferntree, Locked, Scc, Skiplist, VolatileMap};
use super::words::Art;
use super::workload::{Op, Phase};

/// Parameters of a run.
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
    /// One operation in this many is timed individually.
    pub batch: usize,
    /// Number of keys of a multi-key call.
    pub group: usize,
    /// Length of slices in which throughput is reported over time.
    pub timeline: Option<Duration>,
    /// Whether the key of each read depends on the value of the read before it.
    pub dependent: bool,
    /// Whether the processor's counters are read.
    pub perf: bool,
}

impl Plan {
    /// Returns the order of stores in a round; 0 is the tree, the others are its competitors. Each is first in some
    /// round.
    pub fn order_of(&self, round: usize) -> impl Iterator<Item = usize> + use<> {
        let all = 1 + self.against.len();
        (0..all).map(move |at| (at + round) % all)
    }
}

/// Results of one store in one phase, round by round.
#[derive(Clone, Debug, Default)]
pub struct PhaseResult {
    pub rounds: Vec<Measured>,
}

/// Results of one competitor.
#[derive(Debug)]
pub struct CompetitorResult {
    pub competitor: Competitor,
    /// Phase by phase; empty if it was skipped.
    pub phases: Vec<PhaseResult>,
    /// Unsupported phases, and the reasons.
    pub skipped: Vec<(String, &'static str)>,
    /// Memory used by the load of the first round.
    pub pages: Pages,
    /// Seconds of a reopen after its process was killed, round by round.
    pub reopened: Vec<f64>,
}

/// Results of a run.
#[derive(Debug)]
pub struct Results {
    /// The pool after the load of the last round.
    pub info: PoolInfo,
    /// Bytes of the pool that huge pages map, at the same time.
    pub huge_bytes: u64,
    pub phases: Vec<PhaseResult>,
    pub pm_bytes_per_key: f64,
    pub dram_bytes_per_key: f64,
    /// Seconds, round by round.
    pub recovery: Vec<f64>,
    /// Number of recovered keys.
    pub recovered: u64,
    pub competitors: Vec<CompetitorResult>,
    /// Memory used by the tree for the load of the first round.
    pub pages: Pages,
    /// Lost or wrong data of stores: a line each.
    pub lost: Vec<String>,
}

/// Runs the plan.
pub fn run(plan: &Plan, scratch: &Scratch, output: &Output) -> Outcome<Results> {
    match (plan.key, plan.value) {
        (Shape::U64, Shape::U64) => rounds::<u64, u64>(plan, scratch, output, of_words),
        (Shape::U64, _) => rounds::<u64, &'static [u8]>(plan, scratch, output, to_bytes::<u64>),
        (_, Shape::U64) => rounds::<&'static [u8], u64>(plan, scratch, output, to_words::<&'static [u8]>),
        (_, _) => rounds::<&'static [u8], &'static [u8]>(plan, scratch, output, to_bytes::<&'static [u8]>),
    }
}

/// A competitor of any type.
trait Runner {
    fn run(&self, phase: &Phase, streams: &[Stream], parameters: PhaseParameters) -> Outcome<Measured>;
}

struct RunnerOf<S, K, V>(S, PhantomData<(K, V)>);

impl<S: Subject<K, V>, K: BenchKey, V: BenchValue> Runner for RunnerOf<S, K, V> {
    fn run(&self, phase: &Phase, streams: &[Stream], parameters: PhaseParameters) -> Outcome<Measured> {
        run::phase::<K, V>(&self.0, phase, streams, parameters)
    }
}

/// Creates a map that does not keep every shape of keys and values, or keeps each in its own way.
type Special = fn(VolatileMap) -> Option<Box<dyn Runner>>;

fn boxed<S: Subject<K, V> + 'static, K: BenchKey, V: BenchValue>(subject: S) -> Box<dyn Runner> {
    Box::new(RunnerOf(subject, PhantomData))
}

fn of_words(map: VolatileMap) -> Option<Box<dyn Runner>> {
    match map {
        VolatileMap::Congee => Some(boxed::<_, u64, u64>(Art::default())),
        _ => to_words::<u64>(map),
    }
}

fn to_words<K: BenchKey>(map: VolatileMap) -> Option<Box<dyn Runner>> {
    match map {
        #[cfg(feature = "rivals")]
        VolatileMap::Masstree => Some(boxed::<_, K, u64>(Masstree(masstree::MassTree15Inline::new()))),
        _ => None,
    }
}

fn to_bytes<K: BenchKey>(map: VolatileMap) -> Option<Box<dyn Runner>> {
    match map {
        #[cfg(feature = "rivals")]
        VolatileMap::Masstree => Some(boxed::<_, K, &'static [u8]>(Masstree(masstree::MassTree15::new()))),
        _ => None,
    }
}

/// Creates the runner of a competitor; `None` if it is skipped.
fn runner<K: BenchKey, V: BenchValue>(
    competitor: &Competitor,
    (plan, domain): (&Plan, Domain),
    scratch: &Scratch,
    special: Special,
) -> Outcome<Option<Box<dyn Runner>>> {
    Ok(Some(match competitor {
        Competitor::Map(map) if map.refuses(plan.key, plan.value).is_some() => return Ok(None),
        Competitor::Map(VolatileMap::Ferntree) => boxed::<_, K, V>(Ferntree::default()),
        Competitor::Map(VolatileMap::Scc) => boxed::<_, K, V>(Scc::default()),
        Competitor::Map(VolatileMap::Skiplist) => boxed::<_, K, V>(Skiplist::default()),
        Competitor::Map(VolatileMap::Btreemap) => boxed::<_, K, V>(Locked::default()),
        Competitor::Map(map) => return Ok(special(*map)),
        Competitor::Tree(design) => {
            // Baselines get the options of the design they are compared with; others get defaults.
            let options = if design.is_baseline() { plan.setup.options.clone() } else { Vec::new() };
            let setup = Setup { design: *design, options, ..plan.setup.clone() };
            boxed::<_, K, V>(TreeStore::beside(&setup, scratch)?)
        }
        Competitor::Follower => boxed::<_, K, V>(TreeStore::followed(scratch)?),
        Competitor::Store(rival) => {
            boxed::<_, K, V>(rivals::open(*rival, Class::of(domain), plan.setup.max_bytes, scratch)?)
        }
        Competitor::Library(path) => boxed::<_, K, V>(pibench::load(path, plan.told(), scratch)?),
    }))
}

/// Returns empty results of all competitors before the first round; some are skipped.
fn no_results(plan: &Plan) -> Vec<CompetitorResult> {
    let result = |competitor: &Competitor| {
        let mut phases = vec![PhaseResult::default(); plan.phases.len()];
        let mut skipped: Vec<_> = (plan.phases.iter())
            .filter_map(|phase| Some((phase.name.clone(), competitor.skips(phase, plan.threads)?)))
            .collect();
        match competitor {
            Competitor::Map(map) => match map.refuses(plan.key, plan.value) {
                Some(why) => {
                    phases.clear();
                    skipped = vec![("everything".to_owned(), why)];
                }
                None => skipped.push(("recovery".to_owned(), "it is volatile")),
            },
            Competitor::Library(_) => {
                skipped.push(("recovery".to_owned(), "a wrapper cannot open what is there"))
            }
            Competitor::Follower => skipped.push(("recovery".to_owned(), "a follower recovers nothing")),
            Competitor::Tree(_) | Competitor::Store(_) => {}
        }
        let competitor = competitor.clone();
        CompetitorResult { competitor, phases, skipped, pages: Pages::default(), reopened: Vec::new() }
    };
    plan.against.iter().map(result).collect()
}

/// Returns a description of data that a store lost or changed in a phase, if any. `ours`: what the tree read.
fn lost(phase: &Phase, measured: &Measured, ours: Option<&Measured>) -> Option<String> {
    let Measured { operations: all, found, wrong, .. } = measured;
    if *wrong > 0 {
        return Some(format!("{wrong} of {all} operations read what is not their key's"));
    }
    if phase.all_found && found < all {
        return Some(format!("only {found} of {all} operations found their key"));
    }
    let scans_only = phase.mix.single() == Some(Op::Scan);
    let ours = ours.filter(|ours| scans_only && ours.read != measured.read)?;
    Some(format!("scans read {} entries, and not {}", measured.read, ours.read))
}

fn rounds<K: BenchKey, V: BenchValue>(
    plan: &Plan,
    scratch: &Scratch,
    output: &Output,
    special: Special,
) -> Outcome<Results> {
    let mut competitors = no_results(plan);
    let steps = plan.rounds * (plan.phases.len() * (1 + competitors.len()) + 1);
    let bar = output.progress("measuring", Some(steps as u64));
    let mut ours = Ours { phases: vec![PhaseResult::default(); plan.phases.len()], pages: Pages::default() };
    let (mut last, mut recovery, mut all_lost) = (None, Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let store = TreeStore::<K, V>::create(&plan.setup, scratch)?;
        let domain = store.info().domain;
        let runner = |competitor: &Competitor| runner::<K, V>(competitor, (plan, domain), scratch, special);
        let runners = plan.against.iter().map(runner).collect::<Outcome<Vec<_>>>()?;
        let mut keys = Keys { seed: plan.seed, order: plan.order.clone(), count: 0 };
        let mut loaded = None;
        for (number, phase) in plan.phases.iter().enumerate() {
            bar.set_message(phase.name.clone());
            let (streams, added) = stream::draw(phase, &keys, plan.threads, number as u64);
            let turn = Turn { plan, phase, number, round, streams: &streams, bar: &bar };
            turn.run::<K, V>(&store, &mut ours, &runners, &mut competitors)?;
            all_lost.extend(turn.lost(&ours, &competitors));
            keys.count += added;
            if loaded.is_none() {
                loaded = Some(((store.info(), store.huge_bytes()), store.stats()?));
            }
        }
        drop(runners);
        bar.set_message("recovery");
        let (store, took) = store.recover(&plan.setup, scratch)?;
        recovery.push(took.as_secs_f64());
        for result in &mut competitors {
            if let Competitor::Store(rival) = result.competitor {
                let took = kill::reopen::<K, V>(rival, &plan.to_kill(domain), scratch)?;
                result.reopened.push(took.as_secs_f64());
            }
        }
        bar.inc(1);
        let recovered = store.stats()?.items;
        last = loaded.map(|(info, loaded)| (info, loaded, recovered));
        drop(store);
        scratch.remove();
    }
    bar.finish_and_clear();
    let Some(((info, huge_bytes), loaded, recovered)) = last else {
        return Err(Failure::usage("--rounds must be 1 or more"));
    };
    let per_key = |bytes: u64| bytes as f64 / loaded.items.max(1) as f64;
    let (pm_bytes_per_key, dram_bytes_per_key) = (per_key(loaded.pm_bytes), per_key(loaded.dram_bytes));
    let (Ours { phases, pages }, lost) = (ours, all_lost);
    Ok(Results {
        info,
        huge_bytes,
        phases,
        pm_bytes_per_key,
        dram_bytes_per_key,
        recovery,
        recovered,
        competitors,
        pages,
        lost,
    })
}

/// Results of the tree.
struct Ours {
    phases: Vec<PhaseResult>,
    pages: Pages,
}

/// One phase of one round.
struct Turn<'a> {
    plan: &'a Plan,
    phase: &'a Phase,
    number: usize,
    round: usize,
    streams: &'a [Stream],
    bar: &'a ProgressBar,
}

impl Turn<'_> {
    /// Runs the phase on all stores, in the order of the round.
    fn run<K: BenchKey, V: BenchValue>(
        &self,
        store: &TreeStore<K, V>,
        ours: &mut Ours,
        runners: &[Option<Box<dyn Runner>>],
        competitors: &mut [CompetitorResult],
    ) -> Outcome {
        let (phase, number, parameters) = (self.phase, self.number, self.plan.parameters());
        for turn in self.plan.order_of(self.round) {
            interrupt::check("the bench is not finished")?;
            // Later rounds reuse memory.
            let before = (self.round == 0 && number == 0).then(Pages::of_process);
            let took = |pages: &mut Pages| {
                *pages = before.map_or(*pages, |before| Pages::of_process().since(before));
            };
            match turn.checked_sub(1) {
                None => {
                    ours.phases[number].rounds.push(run::phase::<K, V>(
                        store,
                        phase,
                        self.streams,
                        parameters,
                    )?);
                    took(&mut ours.pages);
                }
                Some(at) => {
                    let result = &mut competitors[at];
                    let skips = result.competitor.skips(phase, self.plan.threads).is_some();
                    if let Some(runner) = runners[at].as_ref().filter(|_| !skips) {
                        let measured = runner.run(phase, self.streams, parameters);
                        let measured =
                            measured.map_err(|failure| failure.within(result.competitor.name()))?;
                        result.phases[number].rounds.push(measured);
                    }
                    took(&mut result.pages);
                }
            }
            self.bar.inc(1);
        }
        Ok(())
    }

    /// Returns descriptions of data that stores lost or changed.
    fn lost(&self, ours: &Ours, competitors: &[CompetitorResult]) -> Vec<String> {
        let ours = ours.phases[self.number].rounds.last();
        let named =
            |name: String, what| format!("{name}, round {}, {}: {what}", self.round + 1, self.phase.name);
        let mut all: Vec<String> = ours
            .and_then(|ours| lost(self.phase, ours, None))
            .into_iter()
            .map(|what| named(self.plan.setup.design.to_string(), what))
            .collect();
        for result in competitors {
            let measured = result.phases.get(self.number).and_then(|phase| phase.rounds.get(self.round));
            let what = measured.and_then(|measured| lost(self.phase, measured, ours));
            all.extend(what.map(|what| named(result.competitor.name(), what)));
        }
        all
    }
}

impl Plan {
    /// Returns the parameters for wrappers for PiBench.
    fn told(&self) -> pibench::Told {
        let Self { key, value, threads, .. } = *self;
        pibench::Told { key, value, threads, max_bytes: self.setup.max_bytes }
    }

    /// Returns the load of stores whose process is killed.
    fn to_kill(&self, domain: Domain) -> kill::Load {
        let Self { key, value, seed, .. } = *self;
        let records = self.phases.first().map_or(1, |load| load.operations);
        kill::Load { domain, max_bytes: self.setup.max_bytes, records, seed, key, value }
    }

    /// Returns the parameters of phases for threads.
    pub fn parameters(&self) -> PhaseParameters {
        let Self { key, value, batch, group, dependent, perf, .. } = *self;
        PhaseParameters { key, value, batch, group, dependent, perf }
    }
}
