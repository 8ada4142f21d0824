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
mod stage;
mod threads;
mod turn;

use std::collections::BTreeMap;

pub use self::history::{Answer, Deed};
pub use self::plan::Plan;
pub use self::planned::Planned;
use self::stage::Stage;
pub(crate) use self::turn::{At, offer};
use crate::cache::Mode;
use crate::campaign::in_parallel;
use crate::memory::Memory;
use crate::progress::Progress;
use crate::report::{Crash, Failure, Report};
use crate::sim::{Mutation, Sim};

/// The name that stands in the place of a scenario's.
pub const SCHEDULES: &str = "schedules";

/// Schedules of one plan.
pub const PER_PLAN: u64 = 32;

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
                stage.pass(registers, (seed, number), mode);
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
