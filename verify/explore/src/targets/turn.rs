//! The rounds of a run without end: cells of the table drawn from seeds, one after the other.

use std::fmt;

use bristlecone_matrix::suites;
use bristlecone_random::Generator;
use bristlecone_sim::{Budget, Mode, Progress, Report, Round, Schedules, Subject, explore_rounds};

use crate::targets::shapes::{mode_of, subject_of};

/// Number of images remembered in one round: if more are visited, each further crash point has a
/// few.
const REMEMBERED: usize = 1 << 16;
/// Runs of a crash point: initial number, and how often it is doubled.
const RUNS: (u64, usize) = (4, 9);
/// Maximum number of nested crashes.
const DEPTH: usize = 3;
/// Maximum number of schedules of each round.
const SCHEDULES: usize = 256;

/// A round drawn from a seed: a cell, one of its scenarios, a budget, and schedules of its threads.
pub struct Turn {
    subject: Box<dyn Subject>,
    scenario: usize,
    mode: Mode,
    budget: Budget,
    schedules: u64,
}

impl Turn {
    /// Draws a round. The same seed gives the same round.
    pub fn of(seed: u64, threads: usize) -> Self {
        let mut generator = Generator::new(seed);
        let mut draw = |below: usize| generator.index(below);
        let cells = suites::EXPLORER.cells();
        let cell = &cells[draw(cells.len())];
        let subject = subject_of(cell);
        let scenario = draw(subject.scenarios().len());
        let (fewest, doublings) = RUNS;
        let runs = fewest << draw(doublings);
        let depth = 1 + draw(DEPTH) as u32;
        let budget = Budget { depth, seed, threads, remembered: REMEMBERED, ..Budget::of(runs) };
        let schedules = 1 + draw(SCHEDULES) as u64;
        Self { subject, scenario, mode: mode_of(cell), budget, schedules }
    }

    /// Returns the name of the explored subject.
    pub fn subject(&self) -> &str {
        self.subject.name()
    }

    /// Returns the budget of the exploration.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    fn round(&self) -> Round<'_> {
        Round { subject: self.subject.as_ref(), scenario: self.scenario, mode: self.mode }
    }

    /// Explores the scenario and, if that survives, the schedules.
    pub fn explore(&self, progress: &Progress) -> Report {
        let explored = explore_rounds(&[self.round()], self.budget, progress, &|_, _| {});
        let mut report = explored.into_iter().flatten().next().unwrap_or_default();
        let Budget { seed, threads, .. } = self.budget;
        let wanted = Schedules { seed, first: 0, count: self.schedules, modes: vec![self.mode], threads };
        if report.failures.is_empty()
            && !progress.is_stopped()
            && let Some(interleaved) = self.subject.schedules(&wanted, progress)
        {
            report.merge(interleaved);
        }
        report
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.round())
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("round", &self.to_string()).field("budget", &self.budget).finish()
    }
}
