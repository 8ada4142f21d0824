//! Subjects of exploration by name, independent of their operations.

use std::collections::BTreeSet;

use crate::explore::budget::Budget;
use crate::explore::explorer::explore_with;
use crate::explore::replay::replay;
use crate::explore::system::{Scenario, System};
use crate::medium::mutation::Mutation;
use crate::model::mode::Mode;
use crate::report::Report;
use crate::report::case::{Case, CrashAt};
use crate::report::progress::Progress;
use crate::schedule::registers::{SCHEDULES, Schedules};

/// A system with its scenarios.
pub trait Subject: Sync {
    /// Returns its name in cases and reports.
    fn name(&self) -> &str;

    /// Returns the names of its scenarios.
    fn scenarios(&self) -> Vec<&'static str>;

    /// Explores the scenario of this number.
    fn explore(
        &self,
        scenario: usize,
        mode: Mode,
        budget: Budget,
        mutation: Option<Mutation>,
        progress: &Progress,
    ) -> Report;

    /// Repeats one case.
    ///
    /// # Errors
    ///
    /// If the case does not fit the present code, or names another subject's scenario.
    fn replay(&self, case: &Case) -> Result<Report, String>;

    /// Runs schedules of several threads; `None` if threads do not share the subject.
    fn schedules(&self, wanted: &Schedules, progress: &Progress) -> Option<Report>;
}

/// A [`Subject`] composed of its parts.
#[derive(Debug, Clone)]
pub struct Prepared<S: System> {
    /// The name.
    pub name: String,
    /// The explored system.
    pub system: S,
    /// Its scenarios.
    pub scenarios: Vec<Scenario<S::Op>>,
}

impl<S: System> Subject for Prepared<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn scenarios(&self) -> Vec<&'static str> {
        self.scenarios.iter().map(|scenario| scenario.name).collect()
    }

    fn explore(
        &self,
        scenario: usize,
        mode: Mode,
        budget: Budget,
        mutation: Option<Mutation>,
        progress: &Progress,
    ) -> Report {
        explore_with(&self.system, &self.scenarios[scenario], mode, budget, mutation, progress)
    }

    fn schedules(&self, wanted: &Schedules, progress: &Progress) -> Option<Report> {
        self.system.schedules(wanted, progress)
    }

    fn replay(&self, case: &Case) -> Result<Report, String> {
        if case.scenario == SCHEDULES {
            return replay_schedule(&self.system, case);
        }
        let scenario = self.scenarios.iter().find(|scenario| scenario.name == case.scenario);
        replay(&self.system, scenario.ok_or_else(|| unknown_scenario(&case.scenario, [self]))?, case)
    }
}

/// One scenario of a system, without names.
pub(crate) struct Lone<'a, S: System> {
    pub(crate) system: &'a S,
    pub(crate) scenario: &'a Scenario<S::Op>,
}

impl<S: System> Subject for Lone<'_, S> {
    fn name(&self) -> &str {
        "alone"
    }

    fn scenarios(&self) -> Vec<&'static str> {
        vec![self.scenario.name]
    }

    fn explore(
        &self,
        _: usize,
        mode: Mode,
        budget: Budget,
        mutation: Option<Mutation>,
        progress: &Progress,
    ) -> Report {
        explore_with(self.system, self.scenario, mode, budget, mutation, progress)
    }

    fn schedules(&self, wanted: &Schedules, progress: &Progress) -> Option<Report> {
        self.system.schedules(wanted, progress)
    }

    fn replay(&self, case: &Case) -> Result<Report, String> {
        replay(self.system, self.scenario, case)
    }
}

/// Runs the one schedule that a case names.
fn replay_schedule<S: System>(system: &S, case: &Case) -> Result<Report, String> {
    let [CrashAt { event, .. }] = case.crashes[..] else {
        return Err("a case of schedules has one number: find it again".to_owned());
    };
    let Case { seed, mode, .. } = *case;
    let wanted = Schedules { seed, first: event as u64, count: 1, modes: vec![mode], threads: 1 };
    let report = system.schedules(&wanted, &Progress::default());
    report.ok_or_else(|| format!("no threads share {}: it has no schedules", case.subject))
}

/// Returns the error for a scenario that no subject has.
pub fn unknown_scenario<'a, T: Subject + ?Sized + 'a>(
    name: &str,
    subjects: impl IntoIterator<Item = &'a T>,
) -> String {
    let known: BTreeSet<_> = subjects.into_iter().flat_map(Subject::scenarios).collect();
    let known: Vec<_> = known.into_iter().collect();
    format!("unknown scenario {name:?}: there is {}", known.join(", "))
}
