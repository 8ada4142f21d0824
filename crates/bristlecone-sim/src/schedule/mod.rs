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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bristlecone_pm::{Step, wait};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use self::history::Entry;
pub use self::history::{Answer, Deed};
pub use self::plan::Plan;
pub use self::planned::Planned;
pub(crate) use self::turn::{At, offer};
use self::turn::{Course, Steps, Taken, number_of};
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
/// Crashes of one schedule, each of which others may follow.
const CRASHES: usize = 4;
/// The second within the recovery from the first, or in what follows it, and so on.
const CRASHES_IN_A_ROW: usize = 3;
/// Turns after which a schedule counts as hung.
const TURNS_MAX: usize = 500_000;
/// Steps that a schedule has, before any was counted: accesses to DRAM, to the medium, decisions.
const STEPS: Steps = [2000, 500, 200];
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
        let mut stage = None;
        // What the courses of a plan are varied from ran before them.
        for number in plan * PER_PLAN..((plan + 1) * PER_PLAN).min(first + count) {
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
            if number < first {
                let _ = stage.begin(registers, &mut dice_of(seed, number), mode, &mut Report::default());
                continue;
            }
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
    /// Courses that met something new in this plan.
    kept: Vec<Kept>,
    met: BTreeSet<(Step, Step)>,
    /// How many steps the last schedule of each kind had.
    steps: Steps,
}

/// A course that is worth varying, and how often its threads changed.
struct Kept(Course, u64);

/// What ran until a crash may come.
struct Ran {
    /// What the medium held when it began.
    base: Arc<[Line]>,
    /// What the structure held when it began.
    before: BTreeMap<u64, u64>,
    trace: Vec<Event>,
    history: Vec<Entry>,
    /// How much of the trace there was when a crash may come at first.
    start: usize,
    contents: BTreeMap<u64, u64>,
}

impl Ran {
    /// Returns each named step with the last one of every other thread that was amid an operation then, in order.
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

    /// Returns the publishes that came while an operation of another thread was under way.
    fn published_amid(&self) -> impl Iterator<Item = Step> {
        self.trace.iter().enumerate().skip(self.start).filter_map(|(at, event)| {
            let Event::Store { thread, publish: Some(step), .. } = event else { return None };
            let under_way = |entry: &&Entry| entry.began <= at && at < entry.ended;
            let mut others = self.history.iter().filter(under_way);
            others.any(|entry| number_of(entry.thread) != *thread).then_some(*step)
        })
    }

    fn told(&self, what: String) -> String {
        let entries = self.history.iter().map(|entry| format!("\n  {}", tell(entry)));
        what + &entries.collect::<String>()
    }
}

/// One crash of a run, and what follows it.
struct AfterCrash<'a> {
    cache: &'a Cache,
    possible: &'a Possible,
    at: usize,
    /// What is done once it is recovered.
    deeds: &'a [Deed],
    /// Recovers by turns of several threads, as drawn from this.
    turns: Option<u64>,
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
        let base = memories[0].snapshot();
        let at_first = plan.at_first();
        let (kept, met) = (Vec::new(), BTreeSet::new());
        Ok(Self { plan, at_first, base, memories, mutation, kept, met, steps: STEPS })
    }

    /// Draws how the threads take their turns: anew, or as in a schedule that met something new, up to a point.
    fn course(&self, dice: &mut Dice) -> Course {
        let seed = dice.next();
        if self.kept.is_empty() || dice.roll(2) == 0 {
            return Course::new(seed, self.steps);
        }
        let Kept(course, changes) = &self.kept[dice.roll(self.kept.len())];
        course.forked(dice.roll(*changes as usize + 1) as u64, seed)
    }

    /// Runs a schedule without crashes and keeps its course if it met something new.
    fn begin<R: Registers>(
        &mut self,
        registers: &R,
        dice: &mut Dice,
        mode: Mode,
        report: &mut Report,
    ) -> Result<Ran, String> {
        let course = self.course(dice);
        let (ran, taken) = self.interleave(registers, mode, &course, report)?;
        let (kind, steps) = taken.steps;
        self.steps[kind] = steps;
        let before = self.met.len();
        self.met.extend(ran.raced());
        if self.met.len() > before {
            self.kept.push(Kept(course, taken.changes));
        }
        Ok(ran)
    }

    fn run<R: Registers>(
        &mut self,
        registers: &R,
        (seed, number): (u64, u64),
        mode: Mode,
        report: &mut Report,
    ) -> Result<(), Box<Failure>> {
        let mut dice = dice_of(seed, number);
        let failed = |what| Box::new(failure(number, mode, Vec::new(), what));
        let ran = self.begin(registers, &mut dice, mode, report).map_err(failed)?;
        ran.published_amid().for_each(|step| *report.raced.entry(step).or_default() += 1);
        report.pairs.extend(self.met.iter().copied());
        history::judge(&ran.history, ran.trace.len(), &self.at_first, &ran.contents)
            .map_err(|what| failed(ran.told(format!("without a crash: {what}"))))?;
        for _ in 0..CRASHES {
            let mut crashes = Vec::new();
            self.crash(registers, mode, &ran, &mut dice, &mut crashes, report)
                .map_err(|what| Box::new(failure(number, mode, std::mem::take(&mut crashes), what)))?;
        }
        Ok(())
    }

    /// Crashes somewhere in what ran, recovers, goes on, and crashes again.
    fn crash<R: Registers>(
        &self,
        registers: &R,
        mode: Mode,
        ran: &Ran,
        dice: &mut Dice,
        crashes: &mut Vec<Crash>,
        report: &mut Report,
    ) -> Result<(), String> {
        report.crash_points += 1;
        // What was lost long before shows at the end, too.
        let events = ran.trace.len() - ran.start;
        let at = ran.start + if dice.roll(4) == 0 { events } else { dice.roll(events + 1) };
        let mut cache = Cache::over(mode, Arc::clone(&ran.base), LineMap::default());
        ran.trace[..at].iter().for_each(|event| cache.feed(event));
        let possible = cache.possible();
        let mut choice = draw(&possible, dice);
        let goes_on = crashes.len() + 1 < CRASHES_IN_A_ROW && dice.roll(2) == 0;
        let deeds = if goes_on { self.plan.more(&mut |below| dice.roll(below)) } else { Vec::new() };
        let turns = (dice.roll(4) == 0).then(|| dice.next());
        let crash = AfterCrash { cache: &cache, possible: &possible, at, deeds: &deeds, turns };
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
        let told = describe(&[], &possible, &choice, (&ran.trace, at), 1);
        crashes.push(Crash { during, ..told });
        let ran = outcome.map_err(|what| ran.told(what))?;
        if goes_on { self.crash(registers, mode, &ran, dice, crashes, report) } else { Ok(()) }
    }

    /// Lets the threads run by turns.
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
        let ran = by_turns(course, {
            let sim = sim.clone();
            move || interleaved(&registers, &sim, &plan)
        });
        let trace = sim.take_trace();
        report.sites.extend(trace.iter().filter_map(Event::site));
        report.mutated |= sim.was_mutated();
        let ((history, start, contents), taken) = ran?;
        let (base, before) = (Arc::clone(&self.base), self.at_first.clone());
        Ok((Ran { base, before, trace, history, start, contents }, taken))
    }

    /// Opens what a crash leaves, judges it, and goes on with it.
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
        let AfterCrash { cache, possible, at, deeds, turns } = crash;
        cache.durable().iter().for_each(|(line, contents)| memory.set_line(*line, contents));
        for (kept, at) in possible.lines.iter().zip(choice) {
            memory.set_line(kept.line, &kept.contents[*at]);
        }
        let base = if deeds.is_empty() { Arc::default() } else { memory.snapshot() };
        let sim = Sim::explored(memory, cache.mode(), self.mutation);
        let (before, history, contents) = match turns {
            None => guarded(|| turn::as_first(|| went_on(registers, &sim, deeds)))?,
            Some(seed) => {
                let (registers, sim, deeds) = (registers.clone(), sim.clone(), deeds.to_vec());
                let alone = move || {
                    turn::begin(0);
                    turn::take(&sim, true);
                    let went_on = went_on(&registers, &sim, &deeds);
                    turn::take(&sim, false);
                    went_on
                };
                by_turns(&Course::new(*seed, STEPS), alone)?.0
            }
        };
        history::judge(&ran.history, *at, &ran.before, &before)?;
        let trace = sim.take_trace();
        history::judge(&history, trace.len(), &before, &contents)
            .map_err(|what| format!("after recovery: {what}"))?;
        Ok(Ran { base, before, trace, history, start: 0, contents })
    }
}

fn dice_of(seed: u64, number: u64) -> Dice {
    Dice(mix(seed) ^ mix(number).rotate_left(32))
}

/// Runs `main` as the first of several simulated threads, which take turns in a course.
fn by_turns<T: Send + 'static>(
    course: &Course,
    main: impl Fn() -> Result<T, String> + Send + Sync + 'static,
) -> Result<(T, Taken), String> {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(TURNS_MAX);
    let outcome = Arc::new(Mutex::new(None));
    turn::prepare(course);
    let ran = guarded(|| {
        let outcome = Arc::clone(&outcome);
        Runner::new(turn::Others::new(), config).run(move || *wait::lock(&outcome) = Some(main()));
        Ok(())
    });
    let taken = turn::end();
    ran?;
    let outcome = wait::lock(&outcome).take();
    Ok((outcome.ok_or("the schedule did not end")??, taken))
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

/// Does deeds one after the other, as thread `thread`.
fn act_all<R: Registers>(
    registers: &R,
    live: &R::Live,
    sim: &Sim,
    (thread, clock): (usize, &AtomicU64),
    deeds: &[Deed],
) -> Result<Vec<Entry>, String> {
    let act = |deed: &Deed| {
        let (called, began) = (clock.fetch_add(1, Relaxed), sim.events());
        let answer = registers.act(live, deed).map_err(|what| format!("{deed:?}: {what}"))?;
        let (returned, ended) = (clock.fetch_add(1, Relaxed), sim.events());
        Ok(Entry { thread, deed: deed.clone(), answer, called, returned, began, ended })
    };
    deeds.iter().map(act).collect()
}

type WentOn = Result<(BTreeMap<u64, u64>, Vec<Entry>, BTreeMap<u64, u64>), String>;

/// Opens, reads everything, does something, and reads everything again.
fn went_on<R: Registers>(registers: &R, sim: &Sim, deeds: &[Deed]) -> WentOn {
    let live = registers.open(sim)?;
    let before = registers.contents(&live)?;
    let history = act_all(registers, &live, sim, (0, &AtomicU64::new(0)), deeds)?;
    let contents = if deeds.is_empty() { before.clone() } else { registers.contents(&live)? };
    Ok((before, history, contents))
}

type Interleaved = Result<(Vec<Entry>, usize, BTreeMap<u64, u64>), String>;

/// What the first simulated thread does: it opens, starts the others, and looks at the end.
fn interleaved<R: Registers>(registers: &R, sim: &Sim, plan: &Plan) -> Interleaved {
    turn::begin(0);
    let live = Arc::new(registers.open(sim)?);
    let start = sim.events();
    let clock = Arc::new(AtomicU64::new(0));
    turn::take(sim, true);
    let (granted, refused) = plan.room;
    sim.refuse_room(granted, refused);
    let threads: Vec<_> = plan.threads.iter().cloned().enumerate().collect();
    let threads = threads.into_iter().map(|(thread, deeds)| {
        let (registers, live, sim) = (registers.clone(), Arc::clone(&live), sim.clone());
        let clock = Arc::clone(&clock);
        shuttle::thread::spawn(move || {
            turn::begin(thread + 1);
            act_all(&registers, &live, &sim, (thread, &clock), &deeds)
        })
    });
    let threads: Vec<_> = threads.collect();
    let mut history = Vec::new();
    for thread in threads {
        history.extend(thread.join().map_err(|_| "a thread panicked")??);
    }
    turn::take(sim, false);
    turn::begin(0);
    sim.refuse_room(u64::MAX, 0);
    let contents = registers.contents(&live)?;
    drop(live);
    Ok((history, start, contents))
}
