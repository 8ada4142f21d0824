//! Several threads in a chosen interleaving, and a crash.
//!
//! Threads switch at accesses to the medium and wherever they wait, as drawn from a seed. Their
//! trace has one global order. Afterwards crashes are placed at arbitrary events of it: the
//! recovered state must be durably linearizable (see [`history`]).
//!
//! ```text
//! (seed, number) -> plan: initial items, operations of 2-3 threads  shared by PER_PLAN schedules
//!                -> next thread at each switch                       one run, one trace
//!                -> CRASHES times: an event, and an image of it     recovered, checked, verified
//! ```

pub(crate) mod history;
pub(crate) mod linearizability;
pub(crate) mod plan;
pub(crate) mod planned;
pub(crate) mod registers;
mod runner;
mod threads;
mod together;
mod turn;

use self::registers::{PER_PLAN, Registers, SCHEDULES, Schedules};
use self::runner::{PlanRunner, failure};
use crate::medium::mutation::Mutation;
use crate::parallel::in_parallel;
use crate::report::Report;
use crate::report::progress::Progress;

/// Runs schedules, each with crashes.
pub fn explore_schedules<R: Registers>(registers: &R, wanted: &Schedules, progress: &Progress) -> Report {
    explore_schedules_with(registers, wanted, None, progress)
}

/// Runs schedules with a mutation of the code under test.
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
        let mut runner = None;
        // Courses of a plan are variations of earlier ones, which must run first.
        for number in plan * PER_PLAN..((plan + 1) * PER_PLAN).min(first + count) {
            if progress.is_stopped() {
                report.interrupted = true;
                break;
            }
            let mode = wanted.modes[(number % wanted.modes.len() as u64) as usize];
            let runner = match &mut runner {
                Some(runner) => runner,
                none => match PlanRunner::new(registers, seed, *plan, mutation) {
                    Ok(ready) => none.insert(ready),
                    Err(what) => {
                        report.failures.push(failure(number, mode, Vec::new(), what));
                        break;
                    }
                },
            };
            if number < first {
                runner.pass(registers, (seed, number), mode);
                continue;
            }
            report.schedules += 1;
            if let Err(failure) = runner.run(registers, (seed, number), mode, &mut report) {
                report.failures.push(*failure);
                // The remains of an interrupted schedule are discarded.
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
