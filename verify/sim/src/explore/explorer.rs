//! The explorer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::explore::budget::Budget;
use crate::explore::points::{Allowed, walk};
use crate::explore::run::Run;
use crate::explore::scratch::Scratch;
use crate::explore::system::{Scenario, System};
use crate::explore::visited::Visited;
use crate::medium::guard::guarded;
use crate::medium::mutation::Mutation;
use crate::medium::sim::Sim;
use crate::model::cache::Cache;
use crate::model::lines::WordSet;
use crate::model::mode::Mode;
use crate::model::trace::Event;
use crate::report::progress::Progress;
use crate::report::{Crash, Failure, Report};

/// Explores every crash of a scenario.
pub fn explore<S: System>(system: &S, scenario: &Scenario<S::Op>, mode: Mode, budget: Budget) -> Report {
    explore_with(system, scenario, mode, budget, None, &Progress::default())
}

/// Explores every crash of a scenario with a mutation of the code under test, until the end or until `progress` is
/// stopped.
pub fn explore_with<S: System>(
    system: &S,
    scenario: &Scenario<S::Op>,
    mode: Mode,
    budget: Budget,
    mutation: Option<Mutation>,
    progress: &Progress,
) -> Report {
    let mut report = Report { scenario: format!("{} ({mode})", scenario.name), ..Report::default() };
    let mut run = Run::new(system, scenario);
    let performed = Explorer::perform(&mut run, mode, mutation, &mut report);
    let Ok(start) = performed else {
        return report;
    };
    let explorer = &Explorer::new(&run, start, mode, budget, mutation, progress);
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..budget.threads.max(1)).map(|number| scope.spawn(move || explorer.work(number))).collect();
        for worker in workers {
            report.merge(worker.join().expect("a worker of the explorer panicked"));
        }
    });
    report.interrupted = progress.is_stopped();
    report
}

pub(crate) struct Explorer<'a, S: System> {
    pub(crate) run: &'a Run<'a, S>,
    start: Cache,
    pub(crate) mode: Mode,
    pub(crate) budget: Budget,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) progress: &'a Progress,
    next_point: AtomicUsize,
    /// Whether a worker found a failure.
    failed: AtomicBool,
    pub(crate) images: Visited<Allowed>,
    pub(crate) continuations: Visited<()>,
}

/// State of one worker, reused from image to image.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) scratch: Scratch,
    pub(crate) report: Report,
    pub(crate) crashes: Vec<Crash>,
    /// The words that the present exploration has read.
    pub(crate) reads: WordSet,
}

/// Assigns the calling thread its index, which selects a cache of slots, before the threads of a scenario get theirs:
/// explorations then do not depend on earlier runs.
fn take_index() {
    let _: Option<usize> = bristlecone_pm::own_thread_index();
}

impl<'a, S: System> Explorer<'a, S> {
    pub(crate) fn new(
        run: &'a Run<'a, S>,
        start: Cache,
        mode: Mode,
        budget: Budget,
        mutation: Option<Mutation>,
        progress: &'a Progress,
    ) -> Self {
        Self {
            run,
            start,
            mode,
            budget,
            mutation,
            progress,
            next_point: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            images: Visited::with_room_for(budget.remembered),
            continuations: Visited::with_room_for(budget.remembered),
        }
    }

    /// Performs the run from which all crashes are derived, and returns the earlier contents of the medium.
    pub(crate) fn perform(
        run: &mut Run<'_, S>,
        mode: Mode,
        mutation: Option<Mutation>,
        report: &mut Report,
    ) -> Result<Cache, ()> {
        take_index();
        let memory = run.system.memory();
        let start = Cache::new(mode, &memory);
        let sim = Sim::explored(&memory, mode, mutation);
        let ran = guarded(|| run.perform(&sim));
        run.trace = sim.take_trace();
        report.sites.note(&run.trace);
        report.mutated |= sim.was_mutated();
        ran.map(|()| start).map_err(|what| {
            let scenario = run.scenario.name.to_owned();
            report.failures.push(Failure { scenario, mode, crashes: Vec::new(), what, schedule: None });
        })
    }

    /// Returns whether the exploration should stop.
    pub(crate) fn is_over(&self) -> bool {
        self.failed.load(Relaxed) || self.progress.is_stopped()
    }

    /// Returns a worker before the first crash point: its cache, and the number of the first event.
    pub(crate) fn begin(&self, number: usize) -> (Worker, Cache, usize) {
        take_index();
        let mut cache = self.start.clone();
        let trace = &self.run.trace;
        let first = trace.iter().position(|event| matches!(event, Event::Mark(_))).unwrap_or(trace.len());
        trace[..first].iter().for_each(|event| cache.feed(event));
        cache.rebase();
        let memory = self.run.system.memory();
        let reads = WordSet::none(&memory);
        let scratch = Scratch::new(memory, cache.base());
        (Worker { number, scratch, report: Report::default(), crashes: Vec::new(), reads }, cache, first)
    }

    fn work(&self, number: usize) -> Report {
        let (mut worker, mut cache, first) = self.begin(number);
        let mut mine = self.next_point.fetch_add(1, Relaxed);
        let mut point = 0;
        let allowed = Allowed { from: 0, to: 0 };
        let walked =
            walk(self.mode, &mut cache, first, &self.run.trace, allowed, &mut |cache, at, allowed| {
                if point == mine && !self.is_over() {
                    mine = self.next_point.fetch_add(1, Relaxed);
                    worker.report.crash_points += 1;
                    self.crash(&mut worker, cache, (&self.run.trace, at), allowed, 1)?;
                }
                point += 1;
                Ok(())
            });
        self.conclude(worker, walked)
    }

    /// Returns the report of a worker that finished or failed.
    pub(crate) fn conclude(&self, mut worker: Worker, outcome: Result<(), String>) -> Report {
        if let Err(what) = outcome {
            self.failed.store(true, Relaxed);
            let (scenario, crashes) = (self.run.scenario.name.to_owned(), worker.crashes);
            let failure = Failure { scenario, mode: self.mode, crashes, what, schedule: None };
            worker.report.failures.push(failure);
        }
        worker.report
    }
}
