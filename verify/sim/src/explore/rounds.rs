//! Many explorations on all cores.

use crate::explore::budget::Budget;
use crate::explore::subject::Subject;
use crate::model::mode::Mode;
use crate::parallel::in_parallel;
use crate::report::Report;
use crate::report::progress::Progress;

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
    /// Returns the scenario's name.
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

/// Returns every scenario of the subjects in every mode.
pub fn rounds<'a>(subjects: impl IntoIterator<Item = &'a dyn Subject>, modes: &[Mode]) -> Vec<Round<'a>> {
    let mut rounds = Vec::new();
    for subject in subjects {
        for scenario in 0..subject.scenarios().len() {
            rounds.extend(modes.iter().map(|mode| Round { subject, scenario, mode: *mode }));
        }
    }
    rounds
}

/// Explores all rounds with the budget's number of workers: a worker for each round, or several for
/// a round if rounds are few. Calls `each` with every completed round. Rounds that did not begin
/// because the exploration was stopped have no report.
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
