//! Mutations: does anybody notice when a flush, a fence or an order is missing?

use std::collections::BTreeMap;
use std::fmt;

use crate::cache::Mode;
use crate::explore::{Budget, explore, explore_with};
use crate::report::Report;
use crate::sim::Mutation;
use crate::system::{Scenario, System};
use crate::trace::SiteKind;

/// Which mutations were noticed, and by which scenario.
#[derive(Debug, Default)]
pub struct Table {
    /// The scenario that failed under a mutation, or `None` for a survivor.
    pub rows: BTreeMap<String, Option<String>>,
}

impl Table {
    /// The mutations that nothing noticed.
    pub fn survivors(&self) -> Vec<&str> {
        self.rows.iter().filter(|(_, by)| by.is_none()).map(|(name, _)| name.as_str()).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.keys().map(String::len).max().unwrap_or(0);
        for (name, by) in &self.rows {
            writeln!(f, "{name:width$}  {}", by.as_deref().unwrap_or("SURVIVED"))?;
        }
        let killed = self.rows.len() - self.survivors().len();
        write!(f, "{killed} of {} mutations killed", self.rows.len())
    }
}

/// Explores the scenarios with one site after the other removed, shifted or swapped: those sites
/// whose names begin with `sites`.
///
/// # Panics
///
/// If a scenario fails without any mutation.
pub fn mutate<S: System>(
    system: &S,
    scenarios: &[(Scenario<S::Op>, Mode)],
    budget: Budget,
    sites: &str,
) -> Table {
    let mut passes = Vec::new();
    for (scenario, mode) in scenarios {
        let report = explore(system, scenario, *mode, budget);
        report.assert_clean();
        passes.push(report);
    }
    let mut table = Table::default();
    for site in passes.iter().flat_map(|report: &Report| report.sites.clone()) {
        if !site.step.starts_with(sites) {
            continue;
        }
        let mutations = match site.kind {
            SiteKind::Flush => vec![Mutation::Remove(site), Mutation::Shift(site.step)],
            SiteKind::Fence => vec![Mutation::Remove(site)],
            SiteKind::Publish => vec![Mutation::Swap(site.step)],
        };
        for mutation in mutations {
            let name = match mutation {
                Mutation::Remove(site) => format!("remove {site}"),
                Mutation::Shift(_) => format!("shift {site}"),
                Mutation::Swap(_) => format!("swap {site}"),
            };
            if table.rows.contains_key(&name) {
                continue;
            }
            let mut mutated = false;
            let killer = scenarios.iter().zip(&passes).find(|((scenario, mode), pass)| {
                pass.sites.contains(&site) && {
                    let report = explore_with(system, scenario, *mode, budget, Some(mutation));
                    mutated |= report.mutated;
                    !report.failures.is_empty()
                }
            });
            // A publish that is the first store of its operation has nothing to swap with.
            if mutated || killer.is_some() {
                let by =
                    |((scenario, mode), _): (&(Scenario<_>, Mode), _)| format!("{} ({mode})", scenario.name);
                table.rows.insert(name, killer.map(by));
            }
        }
    }
    table
}
