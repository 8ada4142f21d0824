//! Crashes of every design at each step of a few operations, simulated: a share of what `verify/explore` explores.

use bristlecone::Design;
use bristlecone_explore::targets::subjects_of;
use bristlecone_sim::{Budget, Mode, Progress, Report, explore_rounds, rounds};

/// Crash points of which each scenario tries every image.
const RUNS: u64 = 4;
/// Scenarios of a design.
const SCENARIOS: usize = 6;

#[test]
fn every_design_survives_crashes_at_each_step() {
    for &design in Design::ALL {
        let subjects = subjects_of(design);
        let mut some = rounds(subjects.iter().map(Box::as_ref), &[Mode::Subset]);
        let step = some.len().div_ceil(SCENARIOS);
        let mut at = 0..;
        some.retain(|_| at.next().is_some_and(|at: usize| at.is_multiple_of(step)));
        let budget = Budget { threads: 2, depth: 1, ..Budget::of(RUNS) };
        let reports = explore_rounds(&some, budget, &Progress::default(), &|_, _| {});
        let mut total = Report { scenario: design.to_string(), ..Report::default() };
        reports.iter().flatten().for_each(|report| total.merge(report.clone()));
        println!("{total}");
        total.assert_clean();
        assert!(total.images > 100, "{total}");
    }
}
