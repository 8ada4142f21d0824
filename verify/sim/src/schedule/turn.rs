//! Interleaves several simulated threads on one system thread.
//!
//! At each step of a thread another one may run. Steps are accesses to the medium and, in a build with the feature
//! `turns`, each access to DRAM that threads share: versions, nodes of the index, buffers, epochs. Some schedules
//! switch threads only at decisions: at locks, publishes, fences and named steps of algorithms; and some only at named
//! steps.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use bristlecone_pm::sync::epoch::{self, Frees};
use bristlecone_pm::sync::wait::{Turn, simulate_parallel, simulate_steps, simulate_waiting};
use bristlecone_pm::{Step, assume_thread_index, thread_index};
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

use crate::medium::sim::Sim;
use crate::medium::thread::{At, assume_thread, thread};
use bristlecone_random::Generator;

/// Numbers of simulated threads begin here, far from those of real threads.
const FIRST: u32 = 1 << 30;
/// Maximum number of simulated threads of a run.
const THREADS_MAX: usize = 8;
/// The minimum kinds of steps at which threads switch; a schedule draws one.
const LEAST_OF: [At; 6] = [At::Memory, At::Medium, At::Decision, At::Decision, At::Named, At::Named];
/// Number of steps after which a run counts as hung.
const STEPS_MAX: u64 = 50_000_000;

/// An interleaving: everything is drawn from the seed, and from another one after a given number of switches.
#[derive(Debug, Clone)]
pub(super) struct Course {
    seed: u64,
    /// Expected number of steps of each kind.
    steps: Steps,
    forks: Vec<(u64, u64)>,
}

/// Number of steps of a schedule from each kind on, in the order of [`At`].
pub(super) type Steps = [u64; 4];

impl Course {
    pub(super) fn new(seed: u64, steps: Steps) -> Self {
        Self { seed, steps, forks: Vec::new() }
    }

    /// Returns a course that is the same up to a number of switches, and continues with another seed.
    pub(super) fn forked(&self, changes: u64, seed: u64) -> Self {
        let before = self.forks.iter().copied().filter(|(at, _)| *at < changes);
        Self { forks: before.chain([(changes, seed)]).collect(), ..self.clone() }
    }
}

thread_local! {
    /// Steps of a lower kind are ignored.
    static LEAST: Cell<At> = const { Cell::new(At::Medium) };
    /// How often the threads were at each named step in DRAM.
    static NAMED: RefCell<BTreeMap<Step, u64>> = const { RefCell::new(BTreeMap::new()) };
    /// Number of steps until the next switch.
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static TURNS: RefCell<Turns> = const {
        RefCell::new(Turns {
            generator: Generator::new(0), forks: Vec::new(), gap: 1, strict: None, behind: Vec::new(), changes: 0, drawn: 0, steps: 0
        })
    };
}

/// The random state of the present schedule.
struct Turns {
    generator: Generator,
    forks: Vec<(u64, u64)>,
    /// Upper limit of the steps between two switches. It is drawn, so that some schedules have many switches and others
    /// one at the worst point.
    gap: usize,
    /// Remaining spontaneous switches, if limited. A preempted thread then continues only when all others wait or have
    /// finished: switches are few, and the intervals between them long.
    strict: Option<u32>,
    /// Preempted threads, the last one at the end.
    behind: Vec<TaskId>,
    changes: u64,
    /// Drawn number of steps from the last switch to the next one.
    drawn: u64,
    /// Number of steps until the last switch.
    steps: u64,
}

impl Turns {
    /// Draws the number of steps until the next switch.
    fn draw(&mut self) -> u64 {
        self.drawn = match &mut self.strict {
            Some(0) => STEPS_MAX,
            Some(left) => {
                *left -= 1;
                self.generator.index(self.gap) as u64
            }
            None => self.generator.index(self.gap) as u64,
        };
        self.drawn
    }

    /// Returns the generator for one more switch.
    fn next(&mut self) -> &mut Generator {
        if let Some((_, seed)) = self.forks.iter().find(|(at, _)| *at == self.changes) {
            self.generator = Generator::new(*seed);
        }
        self.changes += 1;
        &mut self.generator
    }
}

/// Returns the trace number of the simulated thread with this index in a plan.
pub(super) fn number_of(thread: usize) -> u32 {
    FIRST + 1 + thread as u32
}

/// Makes the calling thread the simulated one with this number.
pub(super) fn begin(number: usize) {
    assume_thread(Some(FIRST + number as u32));
    assume_thread_index(Some(number));
    simulate_waiting(Some(wait));
}

/// Runs a function on the calling thread as the first simulated one, without switches.
pub(super) fn as_first<T>(run: impl FnOnce() -> T) -> T {
    struct Named;
    impl Drop for Named {
        fn drop(&mut self) {
            assume_thread(None);
            assume_thread_index(None);
        }
    }
    assume_thread(Some(FIRST));
    assume_thread_index(Some(0));
    let _named = Named;
    run()
}

/// Prepares a course.
pub(super) fn prepare(course: &Course) {
    let mut generator = Generator::new(course.seed);
    let least = LEAST_OF[generator.index(LEAST_OF.len())];
    LEAST.set(least);
    let strict = (generator.index(2) == 0).then(|| [1, 1, 2, 4][generator.index(4)]);
    // The thread switches after `gap` steps on average, at most after twice that; or a given number of switches is
    // spread over the schedule.
    let gap = match strict {
        Some(changes) => 2 * course.steps[least as usize] as usize / (changes as usize + 1) + 1,
        None => 2 * [1, 3, 10, 30, 100][generator.index(5)] - 1,
    };
    let mut turns = Turns {
        generator,
        forks: course.forks.clone(),
        gap,
        strict,
        behind: Vec::new(),
        changes: 0,
        drawn: 0,
        steps: 0,
    };
    LEFT.set(if strict.is_some() { turns.draw() } else { 0 });
    TURNS.set(turns);
    epoch::simulate(THREADS_MAX, Frees::Early);
    simulate_parallel(Some(in_parallel));
}

/// Enables or disables thread switches.
pub(super) fn take(sim: &Sim, whether: bool) {
    sim.take_turns(whether.then_some(offer));
    simulate_steps(whether.then_some(offer_in_memory));
}

/// Statistics of a course.
pub(super) struct Taken {
    /// Number of thread switches.
    pub(super) changes: u64,
    /// The kind of steps, and their number.
    pub(super) steps: (usize, u64),
    /// How often the threads were at each named step in DRAM.
    pub(super) named: BTreeMap<Step, u64>,
}

/// Ends the simulation on the calling thread.
pub(super) fn end() -> Taken {
    assume_thread(None);
    assume_thread_index(None);
    simulate_waiting(None);
    simulate_steps(None);
    simulate_parallel(None);
    epoch::simulate(0, Frees::Early);
    let (changes, steps) = TURNS.with_borrow(|turns| (turns.changes, turns.steps + turns.drawn));
    Taken { changes, steps: (LEAST.get() as usize, steps.saturating_sub(LEFT.get())), named: NAMED.take() }
}

fn offer_in_memory(turn: Turn) {
    offer(match turn {
        Turn::Cost(_) => return,
        Turn::Access(_) => At::Memory,
        Turn::Crossing => At::Decision,
        Turn::Named(step) => {
            NAMED.with_borrow_mut(|named| *named.entry(step).or_default() += 1);
            At::Named
        }
    });
}

/// Lets a simulated thread run next, possibly the same.
fn offer(at: At) {
    if at < LEAST.get() {
        return;
    }
    match LEFT.get() {
        0 => change(),
        left => LEFT.set(left - 1),
    }
}

#[cold]
fn change() {
    let steps = TURNS.with_borrow_mut(|turns| {
        turns.steps += turns.drawn + 1;
        LEFT.set(turns.draw());
        turns.steps
    });
    if std::thread::panicking() {
        return;
    }
    assert!(steps < STEPS_MAX, "the schedule does not end: millions of steps so far");
    as_before(|| shuttle::thread::sleep(Duration::ZERO));
}

/// Lets another thread run next.
fn wait() {
    as_before(shuttle::thread::yield_now);
}

/// Switches threads, and afterwards restores which simulated thread the system thread represents.
fn as_before(switch: impl FnOnce()) {
    let (number, index) = (thread(), thread_index());
    switch();
    assume_thread(Some(number));
    assume_thread_index(Some(index));
}

/// Runs `work` on `threads` simulated threads, of which the calling one is the first.
fn in_parallel(threads: usize, work: &(dyn Fn() + Sync)) {
    let (own, index) = (thread() - FIRST, thread_index());
    assert_eq!(own as usize, index, "threads of threads are not simulated");
    shuttle::thread::scope(|scope| {
        for number in 1..threads.min(THREADS_MAX - index) {
            scope.spawn(move || {
                begin(index + number);
                work();
            });
        }
        work();
    });
    begin(index);
}

/// Continues with another thread whenever one offers a switch.
#[derive(Debug)]
pub(super) struct Others {
    over: bool,
}

impl Others {
    pub(super) fn new() -> Self {
        Self { over: false }
    }
}

impl Scheduler for Others {
    fn new_execution(&mut self) -> Option<Schedule> {
        (!std::mem::replace(&mut self.over, true)).then(|| Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, _waits: bool) -> Option<TaskId> {
        let others: Vec<_> =
            runnable.iter().map(|task| task.id()).filter(|id| Some(*id) != current).collect();
        match others.len() {
            0 => current,
            count => Some(TURNS.with_borrow_mut(|turns| {
                let drawn = others[turns.next().index(count)];
                if turns.strict.is_none() {
                    return drawn;
                }
                turns.behind.retain(|task| Some(*task) != current);
                turns.behind.extend(current);
                let place = |task: &TaskId| turns.behind.iter().position(|behind| behind == task);
                let ahead: Vec<_> = others.iter().filter(|task| place(task).is_none()).collect();
                match ahead.is_empty() {
                    true => *others.iter().min_by_key(|task| place(task)).expect("there are others"),
                    false if ahead.contains(&&drawn) => drawn,
                    false => *ahead[0],
                }
            })),
        }
    }

    fn next_u64(&mut self) -> u64 {
        TURNS.with_borrow_mut(|turns| turns.generator.word())
    }
}
