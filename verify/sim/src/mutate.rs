//! Mutations: verifies that explorations detect a missing flush, fence or order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::explore::budget::Budget;
use crate::explore::rounds::{Round, explore_rounds};
use crate::explore::subject::Lone;
use crate::explore::system::{Scenario, System};
use crate::medium::mutation::{Mutation, mutations_of};
use crate::model::mode::Mode;
use crate::model::trace::{Site, SiteKind};
use crate::parallel::in_parallel;
use crate::report::case::Case;
use crate::report::progress::Progress;
use crate::report::{Failure, Report};
use crate::schedule::registers::{Registers, SCHEDULES, Schedules};
use crate::schedule::{explore_schedules, explore_schedules_with};

/// Undetectable mutations: their printed form up to the location; their number; the reason.
pub type Explanation = (&'static str, usize, &'static str);

/// Detected mutations, and the rounds that detected them.
#[derive(Debug, Default)]
pub struct Table {
    /// Sites that were mutated.
    pub sites: BTreeSet<Site>,
    /// The round that failed under a mutation, or `None` for a survivor.
    pub rows: BTreeMap<String, Option<String>>,
    /// Failures without a mutation: then mutations cannot be judged.
    pub failures: Vec<Failure>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// Undetectable mutations.
    pub explanations: &'static [Explanation],
}

impl Table {
    /// Sets the explanations of undetectable mutations.
    pub fn explained_by(self, explanations: &'static [Explanation]) -> Self {
        Self { explanations, ..self }
    }

    fn known(&self, mutation: &str) -> Option<&'static Explanation> {
        self.explanations.iter().find(|(name, ..)| mutation.starts_with(name))
    }

    /// Returns whether every mutation was detected or is explained, and nothing failed without one.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty() && self.survivors().is_empty()
    }

    /// Fails a test, and prints everything, unless every mutation was detected.
    ///
    /// # Panics
    ///
    /// If a mutation was not detected, or something failed without any.
    pub fn assert_clean(&self) {
        assert!(self.is_clean(), "{self}");
    }

    /// Returns a table that reports a failure without a mutation.
    fn broken(failures: Vec<Failure>) -> Self {
        Self { failures, ..Self::default() }
    }

    /// Returns the reason why a mutation is undetectable, if it was not detected and the reason is known.
    pub fn explained(&self, mutation: &str) -> Option<&'static str> {
        let unnoticed = self.rows.get(mutation).is_some_and(Option::is_none);
        self.known(mutation).filter(|_| unnoticed).map(|(.., reason)| *reason)
    }

    /// Returns whether a mutation of this site was not tried yet, or not detected.
    pub fn lacks(&self, site: &Site) -> bool {
        let is_noticed =
            |mutation: Mutation| self.rows.get(&mutation.to_string()).is_some_and(Option::is_some);
        !mutations_of(*site).into_iter().all(is_noticed)
    }

    /// Returns whether a mutation of this site is among the survivors.
    pub fn has_left(&self, site: &Site) -> bool {
        let site = site.to_string();
        self.survivors().iter().any(|name| name.ends_with(&site))
    }

    /// Returns the undetected mutations that are not explained.
    pub fn survivors(&self) -> Vec<&str> {
        let unnoticed = self.rows.iter().filter(|(_, by)| by.is_none()).map(|(name, _)| name.as_str());
        let mut explained: BTreeMap<&str, usize> = BTreeMap::new();
        let is_left = |name: &&str| {
            self.known(name).is_none_or(|(explanation, times, _)| {
                let count = explained.entry(*explanation).or_default();
                *count += 1;
                *count > *times
            })
        };
        unnoticed.filter(is_left).collect()
    }

    /// Adds other results: a mutation survives if no round detected it.
    pub fn merge(&mut self, other: Table) {
        self.sites.extend(other.sites);
        for (name, by) in other.rows {
            let noticed = self.rows.entry(name).or_default();
            *noticed = noticed.take().or(by);
        }
        self.failures.extend(other.failures);
        self.interrupted |= other.interrupted;
        if self.explanations.is_empty() {
            self.explanations = other.explanations;
        }
    }

    /// Returns the number of detected mutations.
    pub fn killed(&self) -> usize {
        self.rows.values().flatten().count()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.keys().map(String::len).max().unwrap_or(0);
        for (name, by) in &self.rows {
            let unnoticed =
                || self.known(name).map_or("SURVIVED".to_owned(), |(.., reason)| format!("({reason})"));
            writeln!(f, "{name:width$}  {}", by.clone().unwrap_or_else(unnoticed))?;
        }
        for failure in &self.failures {
            writeln!(f, "without any change: {failure}")?;
        }
        let tried = if self.interrupted { " tried so far" } else { "" };
        write!(f, "{} of {} mutations{tried} killed", self.killed(), self.rows.len())
    }
}

/// Explores the scenarios with one site after the other removed, shifted or swapped. Covers the sites whose
/// names begin with `sites`.
pub fn mutate<S: System>(
    system: &S,
    scenarios: &[(Scenario<S::Op>, Mode)],
    budget: Budget,
    sites: &str,
) -> Table {
    mutate_among(system, scenarios, budget, &|site| site.step.starts_with(sites), &Progress::default())
}

/// Explores them for the wanted sites, until the end or until `progress` is stopped.
pub fn mutate_among<S: System>(
    system: &S,
    scenarios: &[(Scenario<S::Op>, Mode)],
    budget: Budget,
    wanted: &dyn Fn(&Site) -> bool,
    progress: &Progress,
) -> Table {
    let lone = scenarios.iter().map(|(scenario, mode)| (Lone { system, scenario }, *mode));
    let lone: Vec<_> = lone.collect();
    let rounds = lone.iter().map(|(subject, mode)| Round { subject, scenario: 0, mode: *mode });
    let rounds: Vec<_> = rounds.collect();
    let reports = explore_rounds(&rounds, budget, progress, &|_, _| {});
    let rounds: Vec<_> = rounds.into_iter().zip(reports.into_iter().flatten()).collect();
    let failures: Vec<_> = rounds.iter().flat_map(|(_, report)| report.failures.clone()).collect();
    if !failures.is_empty() {
        return Table::broken(failures);
    }
    mutate_rounds(&rounds, budget, wanted, progress, &|_| {})
}

/// Runs schedules of threads with one site after the other removed, shifted or swapped, until one fails.
/// Covers the sites whose names begin with `sites`: for those that need several threads.
pub fn mutate_schedules<R: Registers>(registers: &R, wanted: &Schedules, sites: &str) -> Table {
    mutate_schedules_among(registers, wanted, &|site| site.step.starts_with(sites), &Progress::default())
}

/// Runs them for the chosen sites, until the end or until `progress` is stopped.
pub fn mutate_schedules_among<R: Registers>(
    registers: &R,
    wanted: &Schedules,
    chosen: &dyn Fn(&Site) -> bool,
    progress: &Progress,
) -> Table {
    let unchanged = explore_schedules(registers, wanted, progress);
    if !unchanged.failures.is_empty() {
        return Table::broken(unchanged.failures);
    }
    let chosen = |site: &Site| site.kind != SiteKind::Derived && chosen(site);
    let sites: BTreeSet<_> = unchanged.sites.iter().copied().filter(chosen).collect();
    let end = wanted.first + wanted.count;
    let row = |mutation: Mutation| {
        let mut mutated = false;
        let parts = (wanted.first..end).step_by(SCHEDULES_AT_ONCE);
        let killer = parts.into_iter().find_map(|first| {
            let count = (end - first).min(SCHEDULES_AT_ONCE as u64);
            let part = Schedules { first, count, ..wanted.clone() };
            let report = explore_schedules_with(registers, &part, Some(mutation), progress);
            mutated |= report.mutated;
            // All of them passed without the mutation: a failure after a crash is caused by it.
            let fit = report.failures.iter().filter(|failure| !failure.crashes.is_empty());
            let numbers = fit.filter_map(|failure| failure.schedule);
            numbers.min().map(|number| format!("{SCHEDULES}/{number}"))
        });
        let counts = killer.is_some() || mutated && !progress.is_stopped();
        counts.then(|| (mutation.to_string(), killer))
    };
    let rows = sites.iter().flat_map(|site| mutations_of(*site)).filter_map(row).collect();
    Table { sites, rows, interrupted: progress.is_stopped(), ..Table::default() }
}

/// Number of schedules between checks whether one has failed.
const SCHEDULES_AT_ONCE: usize = 1024;

/// Mutates one site after the other, of those that are `wanted`, and explores the rounds that pass it until
/// one of them fails. Rounds come with the report of the unmutated code, which has the sites that they pass.
/// Calls `each` with every decided mutation.
pub fn mutate_rounds(
    rounds: &[(Round<'_>, Report)],
    budget: Budget,
    wanted: &dyn Fn(&Site) -> bool,
    progress: &Progress,
    each: &(dyn Fn(Mutation) + Sync),
) -> Table {
    let passed = rounds.iter().flat_map(|(_, report)| report.sites.iter().copied());
    let sites: BTreeSet<_> = passed.filter(wanted).collect();
    let mutations: Vec<_> = sites
        .iter()
        .flat_map(|site| mutations_of(*site).into_iter().map(move |mutation| (*site, mutation)))
        .collect();
    let alone = Budget { threads: 1, ..budget };
    let rows = in_parallel(&mutations, budget.threads, |(site, mutation)| {
        let mut mutated = false;
        let (mut failures, mut killed) = (Vec::new(), Vec::new());
        let killer = rounds.iter().find(|(round, report)| {
            report.sites.contains(site) && !progress.is_stopped() && {
                let Round { subject, scenario, mode } = *round;
                let report = subject.explore(scenario, mode, alone, Some(*mutation), progress);
                mutated |= report.mutated;
                let (fit, others): (Vec<_>, Vec<_>) =
                    report.failures.into_iter().partition(|failure| is_of_mutation(*round, failure, alone));
                failures.extend(others);
                killed = fit;
                report.mutated && !killed.is_empty()
            }
        });
        each(*mutation);
        let killer = killer.map(|(round, _)| round.to_string());
        if site.kind == SiteKind::Derived {
            // Its loss must be undetectable.
            failures.extend(killed);
            return (None, failures);
        }
        // A publish that is the first store of its operation has no store to swap with.
        let counts = killer.is_some() || mutated && !progress.is_stopped();
        (counts.then(|| (mutation.to_string(), killer)), failures)
    });
    let (rows, failures): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let (rows, failures) = (rows.into_iter().flatten().collect(), failures.concat());
    Table { sites, rows, failures, interrupted: progress.is_stopped(), ..Table::default() }
}

/// Returns whether the mutation caused a failure: the failure needs a crash, and without the mutation the
/// same crash is harmless or impossible.
fn is_of_mutation(round: Round<'_>, failure: &Failure, budget: Budget) -> bool {
    let case = Case::of(failure, round.subject.name(), budget.seed, budget.continuation_crashes);
    let unchanged = || round.subject.replay(&case);
    !failure.crashes.is_empty() && unchanged().map_or(true, |report| report.failures.is_empty())
}
