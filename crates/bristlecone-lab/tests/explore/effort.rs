//! What a run takes of what there is to explore: all of it, or, where it is to be quick, a share that differs from day
//! to day.

use bristlecone_baselines::Baseline;
use bristlecone_cells::by_effort;
pub use bristlecone_cells::share;
use bristlecone_sim::{Budget, Mode, PER_PLAN};

/// The baselines that take as long as all others together: leaves get their changes by a log.
pub const LONGEST: [Baseline; 2] = [Baseline::DpTree, Baseline::BeTree];

/// Returns the modes that this run explores: a quick run one of the three.
pub fn modes() -> Vec<Mode> {
    share(Mode::ALL, 3)
}

/// Schedules of twenty plans: of fewer a share that meets something says little.
const FEWEST: u64 = 20 * PER_PLAN;

/// Returns how many schedules this run explores of what `ci` explores so many of; `BRISTLECONE_SCHEDULES` asks for another
/// number.
pub fn schedules(ci: u64) -> u64 {
    let asked = std::env::var("BRISTLECONE_SCHEDULES").ok().map(|asked| asked.parse().expect("a number"));
    asked.unwrap_or_else(|| by_effort((ci / 20).max(FEWEST).min(ci), ci, 10 * ci))
}

/// Returns a budget as it is, or where a run is to be quick an eighth of it.
pub fn affordable(budget: Budget) -> Budget {
    let less = |runs: u64| by_effort(runs.div_ceil(8), runs, runs);
    let nested = (less(budget.nested.0), less(budget.nested.1));
    Budget { exhaustive: less(budget.exhaustive), sampled: less(budget.sampled), nested, ..budget }
}
