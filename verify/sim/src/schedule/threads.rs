//! Simulated threads, alone and interleaved.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bristlecone_pm::sync::wait;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use super::history::{Entry, Operation};
use super::plan::Plan;
use super::registers::Registers;
use super::turn::{self, Course, Taken};
use crate::medium::guard::guarded;
use crate::medium::sim::Sim;

/// Number of switches after which a schedule counts as hung, and the additional number for each key
/// that is written before its threads start.
const TURNS_MAX: usize = 500_000;
const TURNS_A_KEY: usize = 400;
const STACK_BYTES: usize = 512 << 10;

/// Runs `main` as the first of several simulated threads of a plan, which are interleaved by a
/// course.
pub(super) fn by_turns<T: Send + 'static>(
    plan: &Plan,
    course: &Course,
    main: impl Fn() -> Result<T, String> + Send + Sync + 'static,
) -> Result<(T, Taken), String> {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(TURNS_MAX + TURNS_A_KEY * (plan.before.len() + plan.warm.len()));
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

/// Runs operations in order, as thread `thread`.
fn apply_all<R: Registers>(
    registers: &R,
    live: &R::Live,
    sim: &Sim,
    (thread, clock): (usize, &AtomicU64),
    operations: &[Operation],
) -> Result<Vec<Entry>, String> {
    let act = |operation: &Operation| {
        let (called, began) = (clock.fetch_add(1, Relaxed), sim.events());
        let answer = registers.act(live, operation).map_err(|what| format!("{operation:?}: {what}"))?;
        let (returned, ended) = (clock.fetch_add(1, Relaxed), sim.events());
        Ok(Entry { thread, operation: operation.clone(), answer, called, returned, began, ended })
    };
    operations.iter().map(act).collect()
}

pub(super) type Continued = Result<(BTreeMap<u64, u64>, Vec<Entry>, BTreeMap<u64, u64>), String>;

/// Opens the structure, reads everything, applies some operations, and reads everything again.
pub(super) fn recover_and_continue<R: Registers>(
    registers: &R,
    sim: &Sim,
    operations: &[Operation],
) -> Continued {
    let live = registers.open(sim)?;
    let before = registers.contents(&live)?;
    let history = apply_all(registers, &live, sim, (0, &AtomicU64::new(0)), operations)?;
    let contents = if operations.is_empty() { before.clone() } else { registers.contents(&live)? };
    Ok((before, history, contents))
}

pub(super) type Interleaved = Result<(Vec<Entry>, usize, BTreeMap<u64, u64>), String>;

/// Runs the first simulated thread: it opens, starts the others, and reads everything at the end.
pub(super) fn interleaved<R: Registers>(registers: &R, sim: &Sim, plan: &Plan) -> Interleaved {
    turn::begin(0);
    let live = Arc::new(registers.open(sim)?);
    for (key, access) in &plan.warm {
        registers.act(&live, &Operation::On(*key, *access))?;
    }
    let start = sim.events();
    let clock = Arc::new(AtomicU64::new(0));
    turn::take(sim, true);
    let (granted, refused) = plan.room;
    sim.refuse_room(granted, refused);
    let threads: Vec<_> = plan.threads.iter().cloned().enumerate().collect();
    let threads = threads.into_iter().map(|(thread, operations)| {
        let (registers, live, sim) = (registers.clone(), Arc::clone(&live), sim.clone());
        let clock = Arc::clone(&clock);
        shuttle::thread::spawn(move || {
            turn::begin(thread + 1);
            apply_all(&registers, &live, &sim, (thread, &clock), &operations)
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
