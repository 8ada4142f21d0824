//! The sites that the scenarios of all trees pass.

use std::collections::BTreeSet;

use bristlecone_baselines::AnyDesign;
use bristlecone_sim::{Budget, Mode, Progress, Site, explore_rounds, rounds};

use crate::targets::subjects_of;

/// Returns the sites outside the pool that the scenarios of a design pass, in every named shape, and their
/// recoveries.
pub fn sites_passed(design: impl Into<AnyDesign>) -> BTreeSet<Site> {
    let subjects = subjects_of(design);
    let all = rounds(subjects.iter().map(Box::as_ref), &[Mode::Subset]);
    // A few images of each crash point, without further crashes.
    let few = Budget { sampled: 4, extremes: 0, depth: 1, continuation_crashes: u32::MAX, ..Budget::of(1) };
    let budget = Budget { threads: 2, ..few };
    let reports = explore_rounds(&all, budget, &Progress::default(), &|_, _| {});
    let passed = reports.iter().flatten().flat_map(|report| report.sites.iter().copied());
    passed.filter(|site| !site.is_of_pool()).collect()
}
