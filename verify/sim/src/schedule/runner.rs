//! The schedules of one plan: interleaved threads, and the crashes after them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bristlecone_pm::Step;

use super::history::{self, Entry, Operation};
use super::plan::Plan;
use super::registers::{Registers, SCHEDULES};
use super::threads::{by_turns, interleaved, recover_and_continue};
use super::together;
use super::turn::{self, Course, Steps, Taken, number_of};
use crate::medium::guard::guarded;
use crate::medium::mutation::Mutation;
use crate::medium::sim::Sim;
use crate::model::cache::Cache;
use crate::model::image::Possible;
use crate::model::lines::LineMap;
use crate::model::memory::{Line, Memory};
use crate::model::mode::Mode;
use crate::model::trace::Event;
use crate::report::describe::describe;
use crate::report::{Crash, Failure, Report};
use bristlecone_random::{Generator, mix};

/// Number of crashes of one schedule, each of which others may follow.
const CRASHES: usize = 4;
/// Maximum number of nested crashes: the second is in the recovery from the first, or in the
/// operations after it, and so on.
const CRASHES_IN_A_ROW: usize = 3;
/// Assumed number of steps of a schedule before any was counted: accesses to DRAM, to the medium,
/// decisions.
const STEPS: Steps = [2000, 500, 200, 50];

/// State shared by the schedules of one plan.
pub(super) struct PlanRunner {
    plan: Plan,
    at_first: BTreeMap<u64, u64>,
    base: Arc<[Line]>,
    /// Memory of the threads, and memory for images after crashes.
    memories: [Memory; 2],
    mutation: Option<Mutation>,
    /// Courses that covered a new pair of steps in this plan.
    kept: Vec<Kept>,
    pairs: BTreeSet<(Step, Step)>,
    /// Number of steps of the last schedule of each kind.
    steps: Steps,
}

/// A course worth varying, and its number of thread switches.
struct Kept(Course, u64);

/// A run in which a crash may happen.
struct Ran {
    /// Contents of the medium at its start.
    base: Arc<[Line]>,
    /// Contents of the structure at its start.
    before: BTreeMap<u64, u64>,
    trace: Vec<Event>,
    history: Vec<Entry>,
    /// Length of the trace before the first possible crash.
    start: usize,
    contents: BTreeMap<u64, u64>,
}

impl Ran {
    /// Returns each named step with the last one of every other thread that was in an operation
    /// then, in order.
    fn raced(&self) -> Vec<(Step, Step)> {
        let mut last: BTreeMap<u32, (usize, Step)> = BTreeMap::new();
        let mut raced = Vec::new();
        for (at, event) in self.trace.iter().enumerate().skip(self.start) {
            let Some((thread, step)) = event.by() else { continue };
            let under_way = |entry: &&Entry| entry.began <= at && at < entry.ended;
            for entry in self.history.iter().filter(under_way) {
                let other = number_of(entry.thread);
                let since = last.get(&other).filter(|(since, _)| other != thread && *since >= entry.began);
                raced.extend(since.map(|(_, other)| (step, *other)));
            }
            last.insert(thread, (at, step));
        }
        raced
    }

    /// Returns the publishes during an operation of another thread.
    fn published_amid(&self) -> impl Iterator<Item = Step> {
        self.trace.iter().enumerate().skip(self.start).filter_map(|(at, event)| {
            let Event::Store { thread, publish: Some(step), .. } = event else { return None };
            let under_way = |entry: &&Entry| entry.began <= at && at < entry.ended;
            let mut others = self.history.iter().filter(under_way);
            others.any(|entry| number_of(entry.thread) != *thread).then_some(*step)
        })
    }

    fn described(&self, what: String) -> String {
        let entries = self.history.iter().map(|entry| format!("\n  {}", describe_entry(entry)));
        what + &entries.collect::<String>()
    }
}

/// One crash of a run, and the continuation after it.
struct AfterCrash<'a> {
    cache: &'a Cache,
    possible: &'a Possible,
    at: usize,
    /// Operations after the recovery.
    operations: &'a [Operation],
    /// Seed for a recovery with several interleaved threads.
    turns: Option<u64>,
}

impl PlanRunner {
    pub(super) fn new<R: Registers>(
        registers: &R,
        seed: u64,
        plan: u64,
        mutation: Option<Mutation>,
    ) -> Result<Self, String> {
        let mut generator = Generator::new(mix(seed) ^ mix(plan));
        let plan = registers.plan(&mut |below| generator.index(below));
        let memories = [registers.memory(), registers.memory()];
        let sim = Sim::new(&memories[0]);
        guarded(|| {
            let live = registers.create(&sim)?;
            plan.before
                .iter()
                .try_for_each(|(key, access)| registers.act(&live, &Operation::On(*key, *access)).map(drop))
        })?;
        let base = memories[0].snapshot();
        let at_first = plan.at_first();
        let (kept, pairs) = (Vec::new(), BTreeSet::new());
        Ok(Self { plan, at_first, base, memories, mutation, kept, pairs, steps: STEPS })
    }

    /// Draws an interleaving: a new one, or a variation of a schedule that covered a new pair.
    fn course(&self, generator: &mut Generator) -> Course {
        let seed = generator.word();
        if self.kept.is_empty() || generator.index(2) == 0 {
            return Course::new(seed, self.steps);
        }
        let Kept(course, changes) = &self.kept[generator.index(self.kept.len())];
        course.forked(generator.index(*changes as usize + 1) as u64, seed)
    }

    /// Runs a schedule without crashes and keeps its course if it covered a new pair.
    fn begin<R: Registers>(
        &mut self,
        registers: &R,
        generator: &mut Generator,
        mode: Mode,
        report: &mut Report,
    ) -> Result<Ran, String> {
        let course = self.course(generator);
        let (ran, taken) = self.interleave(registers, mode, &course, report)?;
        let (kind, steps) = taken.steps;
        self.steps[kind] = steps;
        taken.named.iter().for_each(|(step, times)| *report.raced.entry(step).or_default() += times);
        let before = self.pairs.len();
        self.pairs.extend(ran.raced());
        if self.pairs.len() > before {
            self.kept.push(Kept(course, taken.changes));
        }
        Ok(ran)
    }

    /// Runs a schedule that later ones may vary, without crashes.
    pub(super) fn pass<R: Registers>(&mut self, registers: &R, (seed, number): (u64, u64), mode: Mode) {
        // A failure belongs to that schedule.
        let _ = self.begin(registers, &mut generator_of(seed, number), mode, &mut Report::default());
    }

    /// Runs a schedule, verifies it, and crashes in it.
    pub(super) fn run<R: Registers>(
        &mut self,
        registers: &R,
        (seed, number): (u64, u64),
        mode: Mode,
        report: &mut Report,
    ) -> Result<(), Box<Failure>> {
        let mut generator = generator_of(seed, number);
        let failed = |what| Box::new(failure(number, mode, Vec::new(), what));
        let ran = self.begin(registers, &mut generator, mode, report).map_err(failed)?;
        ran.published_amid().for_each(|step| *report.raced.entry(step).or_default() += 1);
        report.pairs.extend(self.pairs.iter().copied());
        verify(&ran.history, ran.trace.len(), &self.at_first, &ran.contents)
            .map_err(|what| failed(ran.described(format!("without a crash: {what}"))))?;
        for _ in 0..CRASHES {
            let mut crashes = Vec::new();
            self.crash(registers, mode, &ran, &mut generator, &mut crashes, report)
                .map_err(|what| Box::new(failure(number, mode, std::mem::take(&mut crashes), what)))?;
        }
        Ok(())
    }

    /// Crashes somewhere in a run, recovers, continues, and crashes again.
    fn crash<R: Registers>(
        &self,
        registers: &R,
        mode: Mode,
        ran: &Ran,
        generator: &mut Generator,
        crashes: &mut Vec<Crash>,
        report: &mut Report,
    ) -> Result<(), String> {
        report.crash_points += 1;
        // Data lost long before is also missing at the end.
        let events = ran.trace.len() - ran.start;
        let at = ran.start + if generator.index(4) == 0 { events } else { generator.index(events + 1) };
        let mut cache = Cache::over(mode, Arc::clone(&ran.base), LineMap::default());
        ran.trace[..at].iter().for_each(|event| cache.feed(event));
        let possible = cache.possible();
        let mut choice = draw(&possible, generator);
        let goes_on = crashes.len() + 1 < CRASHES_IN_A_ROW && generator.index(2) == 0;
        let operations =
            if goes_on { self.plan.more(&mut |below| generator.index(below)) } else { Vec::new() };
        // A plan may have no key to continue with.
        let goes_on = !operations.is_empty();
        let turns = (generator.index(4) == 0).then(|| generator.word());
        let crash = AfterCrash { cache: &cache, possible: &possible, at, operations: &operations, turns };
        let mut outcome = self.recover(registers, &crash, &choice, ran, report);
        if outcome.is_err() {
            possible.shrink(&mut choice, |choice| {
                let again = self.recover(registers, &crash, choice, ran, report);
                let fails = again.is_err();
                if fails {
                    outcome = again;
                }
                fails
            });
        }
        let during = match crashes.len() {
            0 => format!("operations of {} threads", self.plan.threads.len()),
            _ => "recovery, or what followed it".to_owned(),
        };
        let described = describe(&[], &possible, &choice, (&ran.trace, at), 1);
        crashes.push(Crash { during, ..described });
        let ran = outcome.map_err(|what| ran.described(what))?;
        if goes_on { self.crash(registers, mode, &ran, generator, crashes, report) } else { Ok(()) }
    }

    /// Runs the threads interleaved.
    fn interleave<R: Registers>(
        &self,
        registers: &R,
        mode: Mode,
        course: &Course,
        report: &mut Report,
    ) -> Result<(Ran, Taken), String> {
        let memory = &self.memories[0];
        memory.restore(&self.base);
        let sim = Sim::explored(memory, mode, self.mutation);
        let (registers, plan) = (registers.clone(), self.plan.clone());
        let ran = by_turns(&self.plan, course, {
            let sim = sim.clone();
            move || interleaved(&registers, &sim, &plan)
        });
        let trace = sim.take_trace();
        report.sites.note(&trace);
        report.mutated |= sim.was_mutated();
        let ((history, start, contents), taken) = ran?;
        let (base, before) = (Arc::clone(&self.base), self.at_first.clone());
        Ok((Ran { base, before, trace, history, start, contents }, taken))
    }

    /// Opens the image of a crash, verifies it, and continues with it.
    fn recover<R: Registers>(
        &self,
        registers: &R,
        crash: &AfterCrash<'_>,
        choice: &[usize],
        ran: &Ran,
        report: &mut Report,
    ) -> Result<Ran, String> {
        report.images += 1;
        report.opened += 1;
        let memory = &self.memories[1];
        memory.restore(&ran.base);
        let AfterCrash { cache, possible, at, operations, turns } = crash;
        cache.durable().iter().for_each(|(line, contents)| memory.set_line(*line, contents));
        for (kept, at) in possible.lines.iter().zip(choice) {
            memory.set_line(kept.line, &kept.contents[*at]);
        }
        let base = if operations.is_empty() { Arc::default() } else { memory.snapshot() };
        let sim = Sim::explored(memory, cache.mode(), self.mutation);
        let (before, history, contents) = match turns {
            None => guarded(|| turn::as_first(|| recover_and_continue(registers, &sim, operations)))?,
            Some(seed) => {
                let (registers, sim, operations) = (registers.clone(), sim.clone(), operations.to_vec());
                let alone = move || {
                    turn::begin(0);
                    turn::take(&sim, true);
                    let recover_and_continue = recover_and_continue(&registers, &sim, &operations);
                    turn::take(&sim, false);
                    recover_and_continue
                };
                by_turns(&self.plan, &Course::new(*seed, STEPS), alone)?.0
            }
        };
        verify(&ran.history, *at, &ran.before, &before)?;
        let trace = sim.take_trace();
        verify(&history, trace.len(), &before, &contents)
            .map_err(|what| format!("after recovery: {what}"))?;
        Ok(Ran { base, before, trace, history, start: 0, contents })
    }
}

pub(super) fn failure(number: u64, mode: Mode, crashes: Vec<Crash>, what: String) -> Failure {
    Failure { scenario: SCHEDULES.to_owned(), mode, crashes, what, schedule: Some(number) }
}

fn generator_of(seed: u64, number: u64) -> Generator {
    Generator::new(mix(seed) ^ mix(number).rotate_left(32))
}

/// Draws an image: keeping nothing, everything, or a random choice.
fn draw(possible: &Possible, generator: &mut Generator) -> Vec<usize> {
    let kind = generator.index(4);
    let lines = possible.lines.iter();
    lines
        .map(|kept| match kind {
            0 => 0,
            1 => kept.all,
            _ => generator.index(kept.contents.len()),
        })
        .collect()
}

fn describe_entry(entry: &Entry) -> String {
    let Entry { thread, operation, answer, called, returned, began, ended } = entry;
    format!(
        "thread {thread}: {operation:?} from {called} to {returned} (events {began} to {ended}): {answer:?}"
    )
}

/// Verifies the state after a crash before event `at`: of each key, and of atomic groups.
fn verify(
    history: &[Entry],
    at: usize,
    before: &BTreeMap<u64, u64>,
    found: &BTreeMap<u64, u64>,
) -> Result<(), String> {
    history::verify(history, at, before, found)?;
    together::verify(history, at, before, found)
}
