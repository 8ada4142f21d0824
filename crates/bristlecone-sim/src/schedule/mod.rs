//! Several threads at once, by chosen turns, and a crash.
//!
//! Threads hand over to each other at every access to the medium and wherever they wait, as drawn
//! from a seed. The trace of all of them has one order. Afterwards crashes are put at arbitrary events of
//! it: what is recovered must be durably linearizable (see [`history`]).
//!
//! ```text
//! (seed, number) -> plan: what is there, what 2 or 3 threads do     shared by PER_PLAN schedules
//!                -> who is next at each turn                        one run, one trace
//!                -> CRASHES times: an event, and an image there     recovered, checked, judged
//! ```

mod history;
mod plan;
mod planned;
mod turn;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bristlecone_pm::{Step, wait};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use self::history::Entry;
pub use self::history::{Answer, Deed};
pub use self::plan::Plan;
pub use self::planned::Planned;
pub(crate) use self::turn::offer;
use self::turn::{Sticky, number_of};
use crate::cache::{Cache, Mode};
use crate::campaign::in_parallel;
use crate::describe::describe;
use crate::image::{Dice, Possible, mix};
use crate::lines::LineMap;
use crate::memory::{Line, Memory};
use crate::progress::Progress;
use crate::report::{Crash, Failure, Report};
use crate::sim::{Mutation, Sim};
use crate::system::guarded;
use crate::trace::Event;

/// The name that stands in the place of a scenario's.
pub const SCHEDULES: &str = "schedules";

/// Schedules of one plan.
const PER_PLAN: u64 = 32;
/// Crashes of one schedule.
const CRASHES: usize = 4;
/// Turns after which a schedule counts as hung.
const TURNS_MAX: usize = 500_000;
const STACK_BYTES: usize = 512 << 10;

/// Keys with values on persistent memory, which several threads may use at once.
pub trait Registers: Clone + Send + Sync + 'static {
    /// The structure, open.
    type Live: Send + Sync + 'static;

    /// Fresh, zeroed memory for it.
    fn memory(&self) -> Memory;

    /// Creates it on zeroed memory.
    fn create(&self, sim: &Sim) -> Result<Self::Live, String>;

    /// Opens what stands in the memory of `sim`, recovering it.
    fn open(&self, sim: &Sim) -> Result<Self::Live, String>;

    /// Does something; any thread may.
    fn act(&self, live: &Self::Live, deed: &Deed) -> Result<Answer, String>;

    /// What is there at first, and what the threads do. `roll` draws a number below its argument.
    fn plan(&self, roll: &mut dyn FnMut(usize) -> usize) -> Plan {
        Plan::draw(roll)
    }

    /// Checks every invariant and reads everything. Nobody does anything else meanwhile.
    fn contents(&self, live: &Self::Live) -> Result<BTreeMap<u64, u64>, String>;
}

/// Which schedules are run.
#[derive(Debug, Clone)]
pub struct Schedules {
    /// What everything is drawn from.
    pub seed: u64,
    /// The number of the first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// The crash models, by turns.
    pub modes: Vec<Mode>,
    /// Workers.
    pub threads: usize,
}

/// Runs schedules, each with crashes.
pub fn explore_schedules<R: Registers>(registers: &R, wanted: &Schedules, progress: &Progress) -> Report {
    explore_schedules_with(registers, wanted, None, progress)
}

/// The same with the code under test behaving as if it were changed.
pub fn explore_schedules_with<R: Registers>(
    registers: &R,
    wanted: &Schedules,
    mutation: Option<Mutation>,
    progress: &Progress,
) -> Report {
    let Schedules { seed, first, count, .. } = *wanted;
    let plans: Vec<u64> = (first / PER_PLAN..(first + count).div_ceil(PER_PLAN)).collect();
    let reports = in_parallel(&plans, wanted.threads, |plan| {
        let mut report = Report::default();
        let numbers = plan * PER_PLAN..(plan + 1) * PER_PLAN;
        let numbers = numbers.start.max(first)..numbers.end.min(first + count);
        let mut stage = None;
        for number in numbers {
            if progress.is_stopped() {
                report.interrupted = true;
                break;
            }
            let mode = wanted.modes[(number % wanted.modes.len() as u64) as usize];
            let stage = match &mut stage {
                Some(stage) => stage,
                none => match Stage::new(registers, seed, *plan, mutation) {
                    Ok(ready) => none.insert(ready),
                    Err(what) => {
                        report.failures.push(failure(number, mode, Vec::new(), what));
                        break;
                    }
                },
            };
            report.schedules += 1;
            if let Err(failure) = stage.run(registers, (seed, number), mode, &mut report) {
                report.failures.push(*failure);
                // What an interrupted schedule left behind is not worth going on with.
                break;
            }
            progress.opened_one();
        }
        report
    });
    let mut total = Report { scenario: SCHEDULES.to_owned(), ..Report::default() };
    reports.into_iter().for_each(|report| total.merge(report));
    total
}

fn failure(number: u64, mode: Mode, crashes: Vec<Crash>, what: String) -> Failure {
    Failure { scenario: SCHEDULES.to_owned(), mode, crashes, what, schedule: Some(number) }
}

/// What the schedules of one plan share.
struct Stage {
    plan: Plan,
    at_first: BTreeMap<u64, u64>,
    base: Arc<[Line]>,
    /// What threads run on, and what crashes leave.
    memories: [Memory; 2],
    mutation: Option<Mutation>,
}

/// What one schedule did.
struct Ran {
    trace: Vec<Event>,
    history: Vec<Entry>,
    /// How much of the trace there was when the threads began.
    start: usize,
    contents: BTreeMap<u64, u64>,
}

impl Ran {
    /// Publishes that came while an operation of another thread was under way.
    fn raced(&self) -> impl Iterator<Item = Step> {
        self.trace.iter().enumerate().skip(self.start).filter_map(|(at, event)| {
            let Event::Store { thread, publish: Some(step), .. } = event else { return None };
            let under_way = |entry: &&Entry| entry.began <= at && at < entry.ended;
            let mut others = self.history.iter().filter(under_way);
            others.any(|entry| number_of(entry.thread) != *thread).then_some(*step)
        })
    }
}

impl Stage {
    fn new<R: Registers>(
        registers: &R,
        seed: u64,
        plan: u64,
        mutation: Option<Mutation>,
    ) -> Result<Self, String> {
        let mut dice = Dice(mix(seed) ^ mix(plan));
        let plan = registers.plan(&mut |below| dice.roll(below));
        let memories = [registers.memory(), registers.memory()];
        let sim = Sim::new(&memories[0]);
        guarded(|| {
            let live = registers.create(&sim)?;
            plan.before
                .iter()
                .try_for_each(|(key, access)| registers.act(&live, &Deed::Of(*key, *access)).map(drop))
        })?;
        let base = (0..memories[0].lines() as u32).map(|line| memories[0].line(line)).collect();
        let at_first = plan.at_first();
        Ok(Self { plan, at_first, base, memories, mutation })
    }

    fn run<R: Registers>(
        &mut self,
        registers: &R,
        (seed, number): (u64, u64),
        mode: Mode,
        report: &mut Report,
    ) -> Result<(), Box<Failure>> {
        let mut dice = Dice(mix(seed) ^ mix(number).rotate_left(32));
        let ran = self.interleave(registers, mode, dice.next(), report);
        let failed = |crashes, what| Box::new(failure(number, mode, crashes, what));
        let ran = ran.map_err(|what| failed(Vec::new(), what))?;
        ran.raced().for_each(|step| *report.raced.entry(step).or_default() += 1);
        let told = |what: String| {
            let entries = ran.history.iter().map(|entry| format!("\n  {}", tell(entry)));
            what + &entries.collect::<String>()
        };
        history::judge(&ran.history, ran.trace.len(), &self.at_first, &ran.contents)
            .map_err(|what| failed(Vec::new(), told(format!("without a crash: {what}"))))?;
        for _ in 0..CRASHES {
            report.crash_points += 1;
            let at = ran.start + dice.roll(ran.trace.len() - ran.start + 1);
            let mut cache = Cache::over(mode, Arc::clone(&self.base), LineMap::default());
            ran.trace[..at].iter().for_each(|event| cache.feed(event));
            let possible = cache.possible();
            let mut choice = draw(&possible, &mut dice);
            let mut outcome = self.recover(registers, &cache, &possible, &choice, &ran, at, report);
            if outcome.is_err() {
                possible.shrink(&mut choice, |choice| {
                    let again = self.recover(registers, &cache, &possible, choice, &ran, at, report);
                    let fails = again.is_err();
                    if fails {
                        outcome = again;
                    }
                    fails
                });
            }
            outcome.map_err(|what| {
                let during = format!("operations of {} threads", self.plan.threads.len());
                let crash = describe(&[], &possible, &choice, (&ran.trace, at), 1);
                failed(vec![Crash { during, ..crash }], told(what))
            })?;
        }
        Ok(())
    }

    /// Lets the threads run by turns.
    fn interleave<R: Registers>(
        &self,
        registers: &R,
        mode: Mode,
        seed: u64,
        report: &mut Report,
    ) -> Result<Ran, String> {
        let memory = &self.memories[0];
        for (line, contents) in self.base.iter().enumerate() {
            memory.set_line(line as u32, contents);
        }
        let sim = Sim::explored(memory, mode, self.mutation);
        let mut config = Config::new();
        config.stack_size = STACK_BYTES;
        config.failure_persistence = FailurePersistence::None;
        config.max_steps = MaxSteps::FailAfter(TURNS_MAX);
        let outcome = Arc::new(Mutex::new(None));
        let ran = guarded(|| {
            let (sim, registers, plan) = (sim.clone(), registers.clone(), self.plan.clone());
            let outcome = Arc::clone(&outcome);
            Runner::new(Sticky::new(seed), config)
                .run(move || *wait::lock(&outcome) = Some(interleaved(&registers, &sim, &plan)));
            Ok(())
        });
        turn::end();
        let trace = sim.take_trace();
        report.sites.extend(trace.iter().filter_map(Event::site));
        report.mutated |= sim.was_mutated();
        ran?;
        let outcome = wait::lock(&outcome).take();
        let (history, start, contents) = outcome.ok_or("the schedule did not end")??;
        Ok(Ran { trace, history, start, contents })
    }

    /// Opens what a crash leaves and judges it.
    #[expect(clippy::too_many_arguments, reason = "one image of one crash of one schedule")]
    fn recover<R: Registers>(
        &self,
        registers: &R,
        cache: &Cache,
        possible: &Possible,
        choice: &[usize],
        ran: &Ran,
        at: usize,
        report: &mut Report,
    ) -> Result<(), String> {
        report.images += 1;
        report.opened += 1;
        let memory = &self.memories[1];
        for (line, contents) in self.base.iter().enumerate() {
            memory.set_line(line as u32, contents);
        }
        cache.durable().iter().for_each(|(line, contents)| memory.set_line(*line, contents));
        for (kept, at) in possible.lines.iter().zip(choice) {
            memory.set_line(kept.line, &kept.contents[*at]);
        }
        let found = guarded(|| {
            let live = registers.open(&Sim::explored(memory, cache.mode(), self.mutation))?;
            registers.contents(&live)
        })?;
        history::judge(&ran.history, at, &self.at_first, &found)
    }
}

/// Nothing, everything, or anything.
fn draw(possible: &Possible, dice: &mut Dice) -> Vec<usize> {
    let kind = dice.roll(4);
    let lines = possible.lines.iter();
    lines
        .map(|kept| match kind {
            0 => 0,
            1 => kept.all,
            _ => dice.roll(kept.contents.len()),
        })
        .collect()
}

fn tell(entry: &Entry) -> String {
    let Entry { thread, deed, answer, called, returned, began, ended } = entry;
    format!("thread {thread}: {deed:?} from {called} to {returned} (events {began} to {ended}): {answer:?}")
}

type Interleaved = Result<(Vec<Entry>, usize, BTreeMap<u64, u64>), String>;

/// What the first simulated thread does: it opens, starts the others, and looks at the end.
fn interleaved<R: Registers>(registers: &R, sim: &Sim, plan: &Plan) -> Interleaved {
    turn::begin(0);
    let live = Arc::new(registers.open(sim)?);
    let start = sim.events();
    let clock = Arc::new(AtomicU64::new(0));
    sim.take_turns(true);
    let threads: Vec<_> = plan.threads.iter().cloned().enumerate().collect();
    let threads = threads.into_iter().map(|(thread, deeds)| {
        let (registers, live, sim) = (registers.clone(), Arc::clone(&live), sim.clone());
        let clock = Arc::clone(&clock);
        shuttle::thread::spawn(move || {
            turn::begin(thread + 1);
            let act = |deed: Deed| {
                let (called, began) = (clock.fetch_add(1, Relaxed), sim.events());
                let answer = registers.act(&live, &deed).map_err(|what| format!("{deed:?}: {what}"))?;
                let (returned, ended) = (clock.fetch_add(1, Relaxed), sim.events());
                Ok(Entry { thread, deed, answer, called, returned, began, ended })
            };
            deeds.into_iter().map(act).collect::<Result<Vec<_>, String>>()
        })
    });
    let threads: Vec<_> = threads.collect();
    let mut history = Vec::new();
    for thread in threads {
        history.extend(thread.join().map_err(|_| "a thread panicked")??);
    }
    sim.take_turns(false);
    turn::begin(0);
    let contents = registers.contents(&live)?;
    drop(live);
    Ok((history, start, contents))
}
