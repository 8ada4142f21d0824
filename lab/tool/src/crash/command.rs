//! `bristlecone-lab crash`: explores every crash that a design must survive.

use std::time::Instant;

use bristlecone::Design;
use bristlecone_baselines::AnyDesign;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::{Output, grouped};
use bristlecone_cli::{interrupt, size};
use bristlecone_explore::EXPLAINED;
use bristlecone_explore::proofs::baselines::AS_PUBLISHED;
use bristlecone_explore::proofs::nbtree::changed_among_threads;
use bristlecone_explore::proofs::{proofs_of, prove};
use bristlecone_explore::targets::{POOL, all_subjects, paged_pool_subject, pool_subject, subjects_of};
use bristlecone_sim::{
    Budget, Case, Mode, Progress, Report, Round, Schedules, Site, Subject, Table, explore_rounds,
    mutate_rounds, rounds, unknown_scenario,
};
use clap::Args;

use super::forever;
use super::outcome::{self, Explored, Outcome as Explorations, Stopped};
use crate::bench::run::processors;

/// Explore every crash of a design in the simulator
///
/// Each scenario runs once on a simulated medium. At every distinguishable crash point, every image that the
/// crash could leave is opened with the real recovery, checked, compared with the acknowledged operations,
/// operated on, and crashed again. No pool file is touched.
#[derive(Args, Debug)]
#[command(after_help = "\
Subjects are `pool` and the shapes of each design, such as sstree-words-3. Their subnodes, leaves and nodes are so \
small that every structure change occurs soon.

Modes: prefix is x86, subset is ARM and page write-back, eadr is caches that survive.

A failing case is printed as a name that --replay takes. The exit code is 1 if anything failed or a mutation \
survived, and 130 after Ctrl-C, which reports the work done until then.

10^8 images and 10^6 schedules a shape overnight, in a build with `--features turns`:
  bristlecone-lab crash --budget 1M --depth 3 --schedules 1M

Random shapes and options, until Ctrl-C:
  bristlecone-lab crash --forever")]
pub struct Crash {
    /// Subject: pool, sstree, nbtree, cclbtree, lodgetree or wotree [default: all of these]; or one of the
    /// baselines native, wbtree, fastfair, lbtree, fptree, utree, flatstore, dptree, betree and pactree.
    #[arg(long, value_parser = subject)]
    design: Option<String>,
    /// Explore only this scenario.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Explore only this crash model: prefix, subset or eadr [default: all; mutations: subset]
    #[arg(long)]
    mode: Option<Mode>,
    /// Number of nested crashes: 2 is a crash, and a crash in the recovery from it.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=9))]
    depth: u32,
    /// Open at most this many images of one crash point; points with more are sampled.
    #[arg(long, value_name = "IMAGES", default_value = "4096", value_parser = size::parse_count)]
    budget: u64,
    /// Then remove, shift, swap or lose each flush, fence and publish, one at a time, and fail if an exploration
    /// does not detect it.
    #[arg(long)]
    mutations: bool,
    /// Also lose each other store and compare-and-swap, and remove each order within a line.
    #[arg(long, requires = "mutations")]
    stores: bool,
    /// Then run this many schedules of two or three threads on every shape of a design, interleaved by the seed,
    /// with crashes at arbitrary points. Threads switch at accesses to the medium and, in a build with
    /// `--features turns`, at locks and accesses to DRAM.
    #[arg(long, value_name = "N", default_value = "0", value_parser = size::parse_count)]
    schedules: u64,
    /// Repeat one failed case, by the name in its report.
    #[arg(long, value_name = "CASE", conflicts_with_all = ["design", "scenario", "mode", "mutations", "stores", "schedules", "from"])]
    replay: Option<Case>,
    /// Seed of samples and continuations: the same seed gives the same images.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Start with this round, as printed by an interrupted run.
    #[arg(long, value_name = "SUBJECT/SCENARIO/MODE")]
    from: Option<String>,
    /// Explore random shapes, options, kinds of items, domains and pool sizes that are small enough, drawn from
    /// the seed and its successors, until a failure; prints its progress once a minute.
    #[arg(long, conflicts_with_all = ["design", "scenario", "mode", "depth", "budget", "mutations", "stores", "schedules", "replay", "from", "memory"])]
    forever: bool,
    /// Stop after this many draws.
    #[arg(long, value_name = "N", requires = "forever", value_parser = clap::value_parser!(u64).range(1..))]
    turns: Option<u64>,
    /// Number of workers [default: one per processor]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Memory for remembering images, so that none is opened twice; when it is full, crash points are sampled
    /// [default: half of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
}

/// Parses a subject's name.
fn subject(name: &str) -> Result<String, String> {
    if name != POOL {
        name.parse::<AnyDesign>().map_err(|error| format!("{error}, and pool"))?;
    }
    Ok(name.to_owned())
}

/// Bytes of one remembered image or continuation, including the overhead of its table.
const BYTES_REMEMBERED: u64 = 160;

impl Crash {
    pub fn run(&self, output: &mut Output) -> Outcome {
        if let Some(case) = &self.replay {
            return replay(case, output);
        }
        if self.forever {
            let progress = Progress::default();
            return std::thread::scope(|scope| {
                let watcher = scope.spawn(|| watch(&progress));
                let done = forever::run(self.seed, self.turns, self.threads(), &progress, output);
                progress.stop();
                watcher.join().expect("the watcher only waits");
                done
            });
        }
        let subjects = self.subjects()?;
        let rounds = self.rounds(&subjects)?;
        let budget = self.budget()?;
        let started = Instant::now();
        let mut outcome = Explorations::new(self.seed, budget);
        let progress = Progress::default();
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| watch(&progress));
            self.explore(&rounds, budget, &progress, output, &mut outcome);
            if self.schedules > 0 && outcome.is_clean() && outcome.stopped.is_none() {
                self.interleave(&subjects, budget, &progress, output, &mut outcome);
            }
            if self.mutations && outcome.is_clean() && outcome.stopped.is_none() {
                let table = self.mutate(&outcome.explored, budget, &progress, output);
                outcome.stopped = table.interrupted.then_some(Stopped::Mutating);
                outcome.mutations = Some(table);
            }
            progress.stop();
            watcher.join().expect("the watcher only waits");
        });
        outcome.seconds = started.elapsed().as_secs_f64();
        outcome.show(output)?;
        match &outcome {
            outcome if outcome.stopped.is_some() => Err(Failure::Shown(Exit::Interrupted)),
            outcome if outcome.is_clean() => Ok(()),
            _ => Err(Failure::Shown(Exit::Failed)),
        }
    }

    fn subjects(&self) -> Outcome<Vec<Box<dyn Subject>>> {
        let Some(name) = &self.design else {
            let trees = Design::ALL.iter().flat_map(|design| subjects_of(*design));
            return Ok(pools().into_iter().chain(trees).collect());
        };
        if name == POOL {
            return Ok(pools().into());
        }
        let subjects = subjects_of(name.parse::<AnyDesign>()?);
        if subjects.is_empty() {
            return Err(Failure::usage(format!("{name} has no shapes to explore yet")));
        }
        Ok(subjects)
    }

    fn rounds<'a>(&self, subjects: &'a [Box<dyn Subject>]) -> Outcome<Vec<Round<'a>>> {
        let modes = self.mode.map_or(Mode::ALL.to_vec(), |mode| vec![mode]);
        let mut rounds = rounds(subjects.iter().map(Box::as_ref), &modes);
        if let Some(name) = &self.scenario {
            rounds.retain(|round| round.scenario() == name);
            if rounds.is_empty() {
                let subjects = subjects.iter().map(Box::as_ref);
                return Err(Failure::usage(unknown_scenario(name, subjects)));
            }
        }
        if let Some(name) = &self.from {
            let first = rounds.iter().position(|round| round.to_string() == *name);
            let first = first.ok_or_else(|| {
                Failure::usage(format!("no round {name:?} among those selected: they are like {}", rounds[0]))
            })?;
            rounds.drain(..first);
        }
        Ok(rounds)
    }

    fn threads(&self) -> usize {
        self.threads.map_or_else(|| processors().len().max(1), usize::from)
    }

    fn budget(&self) -> Outcome<Budget> {
        if self.budget == 0 {
            return Err(Failure::usage("--budget must be 1 or more: with 0 images nothing is explored"));
        }
        let threads = self.threads();
        let memory = self.memory.unwrap_or_else(|| available_memory() / 2);
        // Every worker remembers images and continuations.
        let remembered = (memory / BYTES_REMEMBERED / 2 / threads as u64).max(1) as usize;
        Ok(Budget { depth: self.depth, seed: self.seed, remembered, threads, ..Budget::of(self.budget) })
    }

    fn explore<'a>(
        &self,
        rounds: &[Round<'a>],
        budget: Budget,
        progress: &Progress,
        output: &Output,
        outcome: &mut Explorations<'a>,
    ) {
        let bar = output.progress("exploring", Some(rounds.len() as u64));
        let reports = explore_rounds(rounds, budget, progress, &|round, _| {
            bar.set_message(format!("{round}, {} images", grouped(progress.opened())));
            bar.inc(1);
        });
        bar.finish_and_clear();
        let unfinished = |report: &Option<Report>| report.as_ref().is_none_or(|report| report.interrupted);
        let next = rounds.iter().zip(&reports).find(|(_, report)| unfinished(report));
        outcome.stopped = next.map(|(round, _)| Stopped::Exploring(*round));
        let explored = rounds.iter().zip(reports);
        outcome.explored = explored
            .filter_map(|(round, report)| Some(Explored { round: *round, report: report? }))
            .collect();
    }

    /// Runs schedules of everything that threads share.
    fn interleave(
        &self,
        subjects: &[Box<dyn Subject>],
        budget: Budget,
        progress: &Progress,
        output: &Output,
        outcome: &mut Explorations<'_>,
    ) {
        let bar = output.progress("interleaving", None);
        let modes = self.mode.map_or(Mode::ALL.to_vec(), |mode| vec![mode]);
        for subject in subjects {
            bar.set_message(format!("{}, {} images", subject.name(), grouped(progress.opened())));
            let Budget { seed, threads, .. } = budget;
            let wanted = Schedules { seed, first: 0, count: self.schedules, modes: modes.clone(), threads };
            let report = subject.schedules(&wanted, progress);
            outcome.interleaved.extend(report.map(|report| (subject.name().to_owned(), report)));
            bar.inc(1);
        }
        let interrupted = outcome.interleaved.iter().any(|(_, report)| report.interrupted);
        outcome.stopped = interrupted.then_some(Stopped::Interleaving);
        bar.finish_and_clear();
    }

    /// Mutates the rounds that were explored without a failure, in the mode that has most images.
    fn mutate(
        &self,
        explored: &[Explored<'_>],
        budget: Budget,
        progress: &Progress,
        output: &Output,
    ) -> Table {
        // Most mutations are detected immediately: a small budget and frequent crashes find them soonest.
        let Budget { remembered, threads, seed, .. } = budget;
        let runs = self.budget.min(256);
        let budget = Budget { remembered, threads, seed, continuation_crashes: 1, ..Budget::of(runs) };
        let mode = self.mode.unwrap_or(Mode::Subset);
        let mut table = Table::default().explained_by(EXPLAINED);
        for design in designs_of(explored) {
            let bar = output.progress("mutating", None);
            // If only one scenario is selected, only that is mutated.
            let is_whole = self.scenario.is_none() && self.from.is_none() && mode == Mode::Subset;
            if is_whole && design != POOL {
                let design = design.parse::<AnyDesign>().expect("a subject begins with its design");
                bar.set_message(format!("steps of {design}"));
                table.merge(prove(&proofs_of(design), threads, progress));
            }
            let rounds: Vec<_> = explored
                .iter()
                .filter(|Explored { round, .. }| round.mode == mode && design_of(round) == design)
                .map(|Explored { round, report }| (*round, report.clone()))
                .collect();
            let each = |mutation| {
                bar.set_message(format!("{mutation}"));
                bar.inc(1);
            };
            // The pool's sites are mutated where the pool is tested alone.
            let is_of_design = |site: &Site| design == POOL || !site.is_of_pool();
            let is_selected = |site: &Site| self.stores || site.is_named();
            let is_left = |site: &Site| {
                is_selected(site) && !table.sites.contains(site) && !AS_PUBLISHED.contains(&site.step)
            };
            let others =
                mutate_rounds(&rounds, budget, &|site| is_of_design(site) && is_left(site), progress, &each);
            table.merge(others);
            if self.stores && is_whole && design == Design::NbTree.name() {
                bar.set_message("what threads do for each other");
                let among_threads = changed_among_threads(&|site| table.has_left(site));
                table.merge(among_threads);
            }
            bar.finish_and_clear();
        }
        table
    }
}

/// Returns the shapes of the pool without trees.
fn pools() -> [Box<dyn Subject>; 2] {
    [pool_subject(), paged_pool_subject()]
}

fn design_of<'a>(round: &Round<'a>) -> &'a str {
    let name = round.subject.name();
    name.split_once('-').map_or(name, |(design, _)| design)
}

fn designs_of<'a>(explored: &[Explored<'a>]) -> Vec<&'a str> {
    let mut designs: Vec<_> = explored.iter().map(|explored| design_of(&explored.round)).collect();
    designs.dedup();
    designs
}

/// Stops the explorer at Ctrl-C, or returns when it is stopped anyway.
fn watch(progress: &Progress) {
    while !progress.is_stopped() {
        if interrupt::asked() {
            progress.stop();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn replay(case: &Case, output: &mut Output) -> Outcome {
    let subjects = all_subjects();
    let known = || subjects.iter().map(|subject| subject.name()).collect::<Vec<_>>().join(", ");
    let subject = subjects
        .iter()
        .find(|subject| subject.name() == case.subject)
        .ok_or_else(|| Failure::usage(format!("unknown subject {:?}: there is {}", case.subject, known())))?;
    let report = subject.replay(case).map_err(Failure::usage)?;
    outcome::show_replay(case, &report, output)?;
    if report.failures.is_empty() { Ok(()) } else { Err(Failure::Shown(Exit::Failed)) }
}

/// Returns the available memory in bytes, as estimated by the system; 1 GiB if unknown.
fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.map_or(1 << 30, |kibibytes| kibibytes << 10)
}
