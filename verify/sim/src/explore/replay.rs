//! Repeats one case.

use crate::explore::budget::Budget;
use crate::explore::explorer::{Explorer, Worker};
use crate::explore::points::{Allowed, walk};
use crate::explore::run::Run;
use crate::explore::system::{Scenario, System};
use crate::explore::verify::{self, keep};
use crate::model::cache::Cache;
use crate::model::image::Possible;
use crate::model::mode::Mode;
use crate::model::trace::Event;
use crate::report::Report;
use crate::report::case::{Case, CrashAt};
use crate::report::describe::describe;
use crate::report::progress::Progress;

/// Repeats the crashes of a case and checks the resulting image.
///
/// # Errors
///
/// If the case does not fit the present code.
pub fn replay<S: System>(system: &S, scenario: &Scenario<S::Op>, case: &Case) -> Result<Report, String> {
    let Case { mode, seed, continuation_crashes, .. } = *case;
    let mut report = Report { scenario: format!("{} ({mode})", scenario.name), ..Report::default() };
    let mut run = Run::new(system, scenario);
    let performed = Explorer::perform(&mut run, mode, None, &mut report);
    let (Ok(start), Some((first, rest))) = (performed, case.crashes.split_first()) else {
        return Ok(report);
    };
    // Only the crashes of the case.
    let budget = Budget { depth: 0, continuation_crashes, seed, ..Budget::quick() };
    let progress = Progress::default();
    let explorer = Explorer::new(&run, start, mode, budget, None, &progress);
    let (mut worker, mut cache, first_event) = explorer.begin(0);
    worker.report.crash_points = 1;
    let allowed = Allowed { from: 0, to: 0 };
    let moment = moment(mode, &mut cache, first_event, &run.trace, allowed, first.event)?;
    let found = explorer.follow(&mut worker, &moment, (&run.trace, first), rest, 1)?;
    report.merge(explorer.conclude(worker, found));
    Ok(report)
}

fn unfit(what: impl std::fmt::Display) -> String {
    format!("the case does not fit this code: {what}; find it again")
}

/// The state of all lines at a crash point, and the allowed states after it.
struct Moment {
    cache: Cache,
    allowed: Allowed,
}

fn moment(
    mode: Mode,
    cache: &mut Cache,
    first: usize,
    trace: &[Event],
    allowed: Allowed,
    event: usize,
) -> Result<Moment, String> {
    let mut found = None;
    walk(mode, cache, first, trace, allowed, &mut |cache, at, allowed| {
        if at == event {
            found = Some(Moment { cache: cache.clone(), allowed });
        }
        Ok(())
    })?;
    found.ok_or_else(|| unfit(format_args!("there is no crash point at event {event}")))
}

fn chosen(possible: &Possible, crash: &CrashAt) -> Result<Vec<usize>, String> {
    let mut choice = vec![0; possible.lines.len()];
    for wanted in &crash.choices {
        let at = possible.lines.iter().position(|kept| kept.line == wanted.line);
        let at = at.filter(|at| wanted.contents < possible.lines[*at].contents.len());
        let none = || unfit(format_args!("line {} has no choice {}", wanted.line, wanted.contents));
        choice[at.ok_or_else(none)?] = wanted.contents;
    }
    Ok(choice)
}

impl<S: System> Explorer<'_, S> {
    /// Crashes at a point and continues with the rest of the case. The outer error: the case does
    /// not fit.
    fn follow(
        &self,
        worker: &mut Worker,
        moment: &Moment,
        (trace, crash): (&[Event], &CrashAt),
        rest: &[CrashAt],
        depth: u32,
    ) -> Result<Result<(), String>, String> {
        let possible = moment.cache.possible();
        let choice = chosen(&possible, crash)?;
        let image = keep(&possible, &choice, moment.cache.durable().clone());
        worker.crashes.push(describe(&self.run.ops, &possible, &choice, (trace, crash.event), depth));
        let case = verify::Case { base: moment.cache.base(), image: &image, allowed: moment.allowed, depth };
        let Some((next, rest)) = rest.split_first() else {
            *if depth == 1 { &mut worker.report.images } else { &mut worker.report.nested_images } += 1;
            return Ok(self.verify(worker, &case));
        };
        let recovered = match self.recover(worker, &case) {
            Ok(Some(recovered)) => recovered,
            Ok(None) => return Err(unfit("nothing is there to recover")),
            Err(what) => return Ok(Err(what)),
        };
        let (index, recovery) = (recovered.index, recovered.recovery().to_vec());
        let between = || unfit("no crash is explored in the recovery of what lies between two states");
        let index = index.ok_or_else(between)?;
        self.run.system.abandon(recovered.live);
        worker.scratch.note(&recovered.sim.take_trace());
        let mut found = None;
        self.walk_recovery(&case, &recovery, index, &mut |cache, at, allowed| {
            if at == next.event {
                found = Some(Moment { cache: cache.clone(), allowed });
            }
            Ok(())
        })?;
        let moment =
            found.ok_or_else(|| unfit(format_args!("recovery has no crash point {}", next.event)))?;
        self.follow(worker, &moment, (&recovery, next), rest, depth + 1)
    }
}
