//! Many explorations on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::cache::Mode;
use crate::explore::Budget;
use crate::progress::Progress;
use crate::report::Report;
use crate::subject::Subject;

/// One scenario of one subject in one mode.
#[derive(Clone, Copy)]
pub struct Round<'a> {
    /// The subject.
    pub subject: &'a dyn Subject,
    /// The number of the scenario.
    pub scenario: usize,
    /// The crash model.
    pub mode: Mode,
}

impl Round<'_> {
    /// The scenario's name.
    pub fn scenario(&self) -> &'static str {
        self.subject.scenarios()[self.scenario]
    }
}

impl std::fmt::Debug for Round<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Display for Round<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.subject.name(), self.scenario(), self.mode)
    }
}

/// Every scenario of the subjects in every mode.
pub fn rounds<'a>(subjects: impl IntoIterator<Item = &'a dyn Subject>, modes: &[Mode]) -> Vec<Round<'a>> {
    let mut rounds = Vec::new();
    for subject in subjects {
        for scenario in 0..subject.scenarios().len() {
            rounds.extend(modes.iter().map(|mode| Round { subject, scenario, mode: *mode }));
        }
    }
    rounds
}

/// Explores all rounds on as many workers as the budget has, a round each, or several to a round
/// where rounds are few. `each` hears of every round that ended. Rounds that were never begun because
/// somebody stopped it have no report.
pub fn explore_rounds(
    rounds: &[Round<'_>],
    budget: Budget,
    progress: &Progress,
    each: &(dyn Fn(&Round<'_>, &Report) + Sync),
) -> Vec<Option<Report>> {
    let threads = (budget.threads / rounds.len().max(1)).max(1);
    in_parallel(rounds, budget.threads, |round| {
        (!progress.is_stopped()).then(|| {
            let budget = Budget { threads, ..budget };
            let report = round.subject.explore(round.scenario, round.mode, budget, None, progress);
            each(round, &report);
            report
        })
    })
}

/// Does the same to all items, on so many threads.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<_> = items.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while let Some((item, result)) =
                    Some(next.fetch_add(1, Relaxed)).and_then(|at| items.get(at).zip(results.get(at)))
                {
                    *result.lock().expect("it is locked once") = Some(work(item));
                }
            });
        }
    });
    let results = results.into_iter().map(|result| result.into_inner().expect("it is locked once"));
    results.map(|result| result.expect("every item was worked on")).collect()
}
