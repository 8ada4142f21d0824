//! The explorer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::cache::{Cache, Mode};
use crate::lines::Lines;
use crate::met::Met;
use crate::points::{Allowed, walk};
use crate::report::{Crash, Failure, Report};
use crate::run::Run;
use crate::sim::{Mutation, Sim};
use crate::stage::Stage;
use crate::system::{Scenario, System, guarded};
use crate::trace::Event;

/// How far an exploration goes.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Crash points that need at most this many runs are exhausted: one run stands for all images
    /// that differ only in lines which nobody reads.
    pub exhaustive: u64,
    /// Of others, so many images are drawn beside the extremes.
    pub sampled: u64,
    /// The same two for crashes inside recovery.
    pub nested: (u64, u64),
    /// How many crashes in a row: 1 is a crash with an undisturbed recovery.
    pub depth: u32,
    /// One in so many lives after a recovery crashes inside its last operation, too.
    pub life_crashes: u32,
    /// Workers.
    pub threads: usize,
}

impl Budget {
    /// What a test run on few cores can afford.
    pub fn quick() -> Self {
        Self { exhaustive: 4096, sampled: 1024, nested: (256, 64), depth: 2, life_crashes: 8, threads: 2 }
    }
}

/// Explores every crash of a scenario.
pub fn explore<S: System>(system: &S, scenario: &Scenario<S::Op>, mode: Mode, budget: Budget) -> Report {
    explore_with(system, scenario, mode, budget, None)
}

/// [`explore`], with the code under test behaving as if it were changed.
pub fn explore_with<S: System>(
    system: &S,
    scenario: &Scenario<S::Op>,
    mode: Mode,
    budget: Budget,
    mutation: Option<Mutation>,
) -> Report {
    let mut report = Report { scenario: format!("{} ({mode})", scenario.name), ..Report::default() };
    let memory = system.memory();
    let start = Cache::new(mode, &memory);
    let sim = Sim::mutated(&memory, mutation);
    let mut run = Run::new(system, scenario);
    let ran = guarded(|| run.perform(&sim));
    run.trace = sim.take_trace();
    report.sites.extend(run.trace.iter().filter_map(Event::site));
    report.mutated |= sim.was_mutated();
    if let Err(what) = ran {
        let name = scenario.name.to_owned();
        report.failures.push(Failure { scenario: name, mode, crashes: Vec::new(), what });
        return report;
    }
    let explorer = Explorer {
        run: &run,
        start,
        mode,
        budget,
        mutation,
        next_point: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        images: Met::default(),
        lives: Met::default(),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..budget.threads.max(1)).map(|_| scope.spawn(|| explorer.work())).collect();
        for worker in workers {
            report.merge(worker.join().expect("a worker of the explorer panicked"));
        }
    });
    report
}

pub(crate) struct Explorer<'a, S: System> {
    pub(crate) run: &'a Run<'a, S>,
    start: Cache,
    pub(crate) mode: Mode,
    pub(crate) budget: Budget,
    pub(crate) mutation: Option<Mutation>,
    next_point: AtomicUsize,
    pub(crate) stop: AtomicBool,
    pub(crate) images: Met<Allowed>,
    pub(crate) lives: Met<()>,
}

/// What one worker carries from image to image.
pub(crate) struct Worker {
    pub(crate) stage: Stage,
    pub(crate) report: Report,
    pub(crate) crashes: Vec<Crash>,
    /// The lines that the exploration under way has read.
    pub(crate) reads: Lines,
}

impl<S: System> Explorer<'_, S> {
    fn work(&self) -> Report {
        let mut cache = self.start.clone();
        let mut events = self.run.trace.iter().enumerate().peekable();
        while let Some((_, event)) = events.next_if(|(_, event)| !matches!(event, Event::Mark(_))) {
            cache.feed(event);
        }
        cache.rebase();
        let memory = self.run.system.memory();
        let reads = Lines::none(&memory);
        let stage = Stage::new(memory, cache.base());
        let mut worker = Worker { stage, report: Report::default(), crashes: Vec::new(), reads };
        let first = events.peek().map_or(self.run.trace.len(), |(at, _)| *at);
        let mut mine = self.next_point.fetch_add(1, Relaxed);
        let mut point = 0;
        let allowed = Allowed { from: 0, to: 0 };
        let walked =
            walk(self.mode, &mut cache, first, &self.run.trace, allowed, &mut |cache, at, allowed| {
                if self.stop.load(Relaxed) {
                    return Ok(());
                }
                if point == mine {
                    mine = self.next_point.fetch_add(1, Relaxed);
                    worker.report.crash_points += 1;
                    self.crash(&mut worker, cache, (&self.run.trace, at), allowed, 1)?;
                }
                point += 1;
                Ok(())
            });
        if let Err(what) = walked {
            self.stop.store(true, Relaxed);
            let (scenario, crashes) = (self.run.scenario.name.to_owned(), worker.crashes);
            let failure = Failure { scenario, mode: self.mode, crashes, what };
            worker.report.failures.push(failure);
        }
        worker.report
    }
}
