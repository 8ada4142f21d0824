//! Simulated threads: coroutines on one system thread, of which the one with the least virtual time runs.

use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use bristlecone_pm::sync::epoch::{self, Frees};
use bristlecone_pm::sync::wait::{Access, Turn, Use, simulate_steps, simulate_waiting};
use bristlecone_pm::sync::{HAS_TURNS, assume_thread_index};
use bristlecone_pm::{Domain, LINE_BYTES, Part, Region};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::Time;
use super::conflicts::{self, Conflicts};
use super::directory::THREADS_MAX;
use super::heap;
use super::machine::Machine;
use super::shared::Shared;
use super::state::{Bytes, State};
use super::tally::{CoreTallies, Hot, Latencies};
use crate::counts::{KINDS, OUTSIDE};
use crate::parts::Layout;

/// Bytes of the stack of a simulated thread.
const STACK_BYTES: usize = 1 << 20;
/// Number of functions recorded for a line that moves often.
const CALLERS: usize = 6;

/// A machine that runs a number of threads.
pub struct Cores {
    run: Box<Run>,
    medium: Shared,
    begun: Time,
}

/// Result of running threads.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Virtual time until the last thread finished, in seconds.
    pub seconds: f64,
    /// Counts by the kind of operation.
    pub tallies: CoreTallies,
    /// Latencies by the kind of operation.
    pub latencies: Latencies,
    /// The lines that moved between cores most often.
    pub hot: Vec<Hot>,
    /// Number of lines that moved between cores.
    pub lines_moved: usize,
}

/// The calling simulated thread.
#[derive(Clone, Copy, Debug)]
pub struct Simulated(());

type Switch = Yielder<(), ()>;

/// What the simulated threads share.
struct Run {
    state: RefCell<State>,
    /// The other threads, by time.
    waiting: RefCell<BinaryHeap<Reverse<(Time, usize)>>>,
    current: Cell<usize>,
    switches: RefCell<Vec<*const Switch>>,
    /// The functions that accessed a line when it had moved often, if wanted.
    callers: Option<RefCell<HashMap<u32, Vec<String>>>>,
    conflicts: OnceCell<Arc<Conflicts>>,
}

thread_local! {
    /// The run whose simulated threads the calling thread executes.
    static RUN: Cell<*const Run> = const { Cell::new(std::ptr::null()) };
}

impl std::fmt::Debug for Cores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cores").field("medium", &self.medium).finish_non_exhaustive()
    }
}

impl Cores {
    /// Creates a machine that runs `threads` threads over a pool with this region and layout. With `callers`, the
    /// functions are recorded that access the lines that move most. Until it is dropped, the calling thread allocates
    /// from the [`SimulatorHeap`](super::SimulatorHeap), if the program has one.
    ///
    /// # Errors
    ///
    /// In one line: the machine is invalid or has fewer threads, or the build lacks the feature `turns`.
    pub fn new(
        machine: &Machine,
        threads: usize,
        (region, layout): (&Region, Layout),
        domain: Domain,
        callers: bool,
    ) -> Result<Self, String> {
        check_visible(HAS_TURNS)?;
        machine.check()?;
        if !(1..=THREADS_MAX).contains(&threads) {
            return Err(format!("{threads} threads: the directory holds 1 to {THREADS_MAX}"));
        }
        if threads > machine.threads() {
            return Err(format!("{threads} threads: {machine} runs {} at the same time", machine.threads()));
        }
        let bytes = Bytes { base: region.base().addr(), length: layout.geometry.max_bytes() as usize };
        let medium = Shared::new((region, layout), domain);
        let run = Box::new(Run {
            state: RefCell::new(State::new(machine, threads, bytes)),
            waiting: RefCell::default(),
            current: Cell::new(0),
            switches: RefCell::new(vec![std::ptr::null(); threads]),
            callers: callers.then(RefCell::default),
            conflicts: OnceCell::new(),
        });
        heap::allocate_in(heap::Place::NewHeap);
        epoch::simulate(threads, Frees::Usual);
        Ok(Self { run, medium, begun: 0 })
    }

    /// Has the accesses of all threads noted there.
    pub fn observe(&self, conflicts: Arc<Conflicts>) {
        _ = self.run.conflicts.set(conflicts);
    }

    /// Returns the medium under the pool.
    pub fn medium(&self) -> Shared {
        self.medium.clone()
    }

    /// Runs `body` on every thread, with its number, and returns the results in order. The threads begin at the same
    /// time. The caches stay warm from the call before.
    ///
    /// # Panics
    ///
    /// If `body` panics, and if an operation does not end within ten seconds of virtual time.
    pub fn run<R>(&mut self, body: impl Fn(Simulated, usize) -> R) -> Vec<R> {
        let threads = self.run.switches.borrow().len();
        self.begun = self.run.state.borrow_mut().meet();
        let results: Vec<RefCell<Option<R>>> = (0..threads).map(|_| RefCell::new(None)).collect();
        let _simulating = Simulating::begin(&self.run);
        let coroutine = |number: usize| {
            let (run, body, results) = (&*self.run, &body, &results);
            let stack = DefaultStack::new(STACK_BYTES).expect("memory for the stack of a simulated thread");
            let main = move |switch: &Switch, ()| {
                run.switches.borrow_mut()[number] = switch;
                let result = body(Simulated(()), number);
                results[number].replace(Some(result));
            };
            // SAFETY: the coroutines are dropped, and thereby unwound, before what they borrow.
            unsafe { Coroutine::<(), (), (), DefaultStack>::with_stack_unchecked(stack, main) }
        };
        let mut coroutines: Vec<_> = (0..threads).map(coroutine).collect();
        let run = &*self.run;
        *run.waiting.borrow_mut() = (0..threads).map(|number| Reverse((self.begun, number))).collect();
        loop {
            let Some(Reverse((_, number))) = run.waiting.borrow_mut().pop() else { break };
            run.current.set(number);
            assume_thread_index(Some(number));
            if let CoroutineResult::Yield(()) = coroutines[number].resume(()) {
                let time = run.state.borrow().threads[number].time;
                run.waiting.borrow_mut().push(Reverse((time, number)));
            }
        }
        drop(coroutines);
        results.into_iter().map(|result| result.into_inner().expect("every thread has finished")).collect()
    }

    /// Returns the counts and times since the last call, with this many of the lines that moved most.
    pub fn take(&mut self, hot: usize) -> Outcome {
        let mut state = self.run.state.borrow_mut();
        let seconds = (state.meet() - self.begun) as f64 / 1e12;
        let moved = state.take_moved(usize::MAX);
        let callers = self.run.callers.as_ref().map(RefCell::take).unwrap_or_default();
        let hottest = moved.iter().take(hot).map(|(line, moved)| Hot {
            moved: u64::from(*moved),
            place: place(self.medium.place(state.address(*line))),
            callers: callers.get(line).cloned().unwrap_or_default(),
        });
        Outcome {
            seconds,
            hot: hottest.collect(),
            lines_moved: moved.len(),
            tallies: std::mem::take(&mut state.tallies),
            latencies: std::mem::take(&mut state.latencies),
        }
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        epoch::simulate(0, Frees::Usual);
        heap::allocate_in(heap::Place::System);
    }
}

fn place(found: Option<(Part, usize)>) -> String {
    match found {
        None => "DRAM".to_owned(),
        Some((Part::Leaf, offset)) => format!("leaf at {offset:#x}"),
        Some((Part::Log, offset)) => format!("log at {offset:#x}"),
        Some((Part::Other, offset)) => format!("pool at {offset:#x}"),
    }
}

/// Makes the calling thread execute the threads of a run, until it is dropped.
struct Simulating;

impl Simulating {
    fn begin(run: &Run) -> Self {
        RUN.set(run);
        simulate_steps(Some(turn));
        simulate_waiting(Some(pause));
        Self
    }
}

impl Drop for Simulating {
    fn drop(&mut self) {
        RUN.set(std::ptr::null());
        simulate_steps(None);
        simulate_waiting(None);
        assume_thread_index(None);
    }
}

impl Simulated {
    /// Executes an operation of a kind from 1 to 15, and records its latency.
    ///
    /// # Panics
    ///
    /// If the kind is out of range.
    pub fn operation<R>(self, kind: u8, run: impl FnOnce() -> R) -> R {
        assert!(kind != OUTSIDE && usize::from(kind) < KINDS, "kind {kind}");
        with(|run| run.state.borrow_mut().begin(run.current.get(), kind));
        let result = run();
        with(|run| run.state.borrow_mut().end(run.current.get()));
        result
    }
}

/// Calls `act` if the calling thread is simulated.
#[inline]
fn with(act: impl FnOnce(&Run)) {
    let run = RUN.get();
    // A panic unwinds the threads: their destructors take no steps.
    if !run.is_null() && !std::thread::panicking() {
        // SAFETY: `Simulating` clears the pointer before the run is dropped.
        act(unsafe { &*run });
    }
}

impl Run {
    /// Lets threads with less virtual time run first.
    #[inline]
    fn turn(&self) {
        let number = self.current.get();
        let own = (self.state.borrow().threads[number].time, number);
        let is_first = self.waiting.borrow().peek().is_none_or(|Reverse(next)| own < *next);
        if !is_first {
            let switch = self.switches.borrow()[number];
            // SAFETY: the pointer is that of the running coroutine, whose main function has not returned.
            unsafe { (*switch).suspend(()) };
        }
    }

    /// Takes a step. The caller then executes the access: when the line has arrived, as on a processor. Otherwise a
    /// thread that waits for a contended line would compare the value from before its wait, and fail.
    fn step(&self, address: usize, by: Use) {
        self.turn();
        self.note(address, by);
        let mut state = self.state.borrow_mut();
        state.step(self.current.get(), address, by);
        if !state.often.is_empty() {
            self.note_callers(std::mem::take(&mut state.often));
        }
        drop(state);
        self.turn();
    }

    #[inline]
    fn note(&self, address: usize, by: Use) {
        if let Some(conflicts) = self.conflicts.get() {
            conflicts.touch(self.current.get(), address, by);
        }
    }

    #[cold]
    fn note_callers(&self, lines: Vec<u32>) {
        let Some(callers) = &self.callers else { return };
        // What a backtrace allocates depends on where the system has loaded the program.
        heap::allocate_in(heap::Place::System);
        let now = own_functions(&std::backtrace::Backtrace::force_capture().to_string());
        for line in lines {
            callers.borrow_mut().insert(line, now.clone());
        }
        heap::allocate_in(heap::Place::Heap);
    }
}

impl Conflicts {
    /// Runs `body` on the calling thread, whose accesses are counted as those of this number.
    ///
    /// # Panics
    ///
    /// If the number is not below [`Conflicts::THREADS_MAX`].
    pub fn on_thread<R>(&self, number: usize, body: impl FnOnce() -> R) -> R {
        struct Observing;
        impl Drop for Observing {
            fn drop(&mut self) {
                simulate_steps(None);
                // SAFETY: nothing is noted any more.
                unsafe { conflicts::observe(None) };
            }
        }
        assert!(number < Self::THREADS_MAX, "thread {number}");
        // SAFETY: `Observing` ends it before `self` can end.
        unsafe { conflicts::observe(Some((self, number))) };
        let _observing = Observing;
        simulate_steps(Some(turn));
        body()
    }
}

/// Fails in a build in which designs do not pass on their accesses to DRAM.
fn check_visible(has_turns: bool) -> Result<(), String> {
    match has_turns {
        true => Ok(()),
        false => {
            Err("accesses to DRAM are not visible in this build: build with --features turns".to_owned())
        }
    }
}

/// Returns the functions of a backtrace that belong to the code under test, innermost first.
fn own_functions(backtrace: &str) -> Vec<String> {
    let names = backtrace.lines().filter_map(|line| line.trim_start().split_once(": ")).map(|(_, name)| name);
    let is_own = |name: &&str| {
        name.contains("bristlecone")
            && !name.contains("bristlecone_device")
            && !name.contains("bristlecone_pm::sync")
    };
    let names = names.take_while(|name| !name.contains("bristlecone_lab"));
    names.filter(is_own).take(CALLERS).map(str::to_owned).collect()
}

/// Takes a step of the calling thread.
#[inline]
pub(super) fn step(address: usize, by: Use) {
    with(|run| run.step(address, by));
    conflicts::note(address, by);
}

/// Fetches the lines of a slice.
pub(super) fn read_lines(address: usize, bytes: usize) {
    let end = (address + bytes).div_ceil(LINE_BYTES);
    let lines = (address / LINE_BYTES..end).map(|line| line * LINE_BYTES);
    lines.clone().for_each(|line| conflicts::note(line, Use::Load));
    with(|run| {
        run.turn();
        lines.for_each(|line| run.note(line, Use::Load));
        run.state.borrow_mut().read_lines(run.current.get(), address, bytes);
    });
}

/// Flushes a line of the medium.
pub(super) fn flush(address: usize) {
    with(|run| {
        run.turn();
        run.state.borrow_mut().flush(run.current.get(), address);
    });
}

/// Waits for the flushes of the calling thread.
pub(super) fn wait_for_flushes() {
    with(|run| {
        run.turn();
        run.state.borrow_mut().drain(run.current.get());
    });
}

fn turn(turn: Turn) {
    match turn {
        Turn::Access(Access { address, by }) | Turn::Cost(Access { address, by }) => step(address, by),
        Turn::Crossing | Turn::Named(_) => {}
    }
}

fn pause() {
    with(|run| {
        run.state.borrow_mut().pause(run.current.get());
        run.turn();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_turns_is_refused_in_one_line() {
        assert!(check_visible(true).is_ok());
        let error = check_visible(false).unwrap_err();
        assert!(error.contains("--features turns") && !error.contains('\n'), "{error}");
    }
}
