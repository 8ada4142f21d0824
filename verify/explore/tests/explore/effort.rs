//! The part of the explorations that a run takes: all, or in a quick run a share that differs from day to day.

use bristlecone_baselines::Baseline;
use bristlecone_matrix::by_level;
pub use bristlecone_matrix::share;
use bristlecone_sim::{Budget, Mode, PER_PLAN};

/// The baselines that take as long as all others together: their leaves are changed through a log.
pub const LONGEST: [Baseline; 2] = [Baseline::DpTree, Baseline::BeTree];

/// Returns the modes of this run: one of the three in a quick run.
pub fn modes() -> Vec<Mode> {
    share(Mode::ALL, 3)
}

/// Schedules of twenty plans: a share of fewer is not significant.
const FEWEST: u64 = 20 * PER_PLAN;

/// Returns the number of schedules of this run, where `ci` is the full number; `BRISTLECONE_SCHEDULES` sets another
/// one.
pub fn schedules(ci: u64) -> u64 {
    let asked = std::env::var("BRISTLECONE_SCHEDULES").ok().map(|asked| asked.parse().expect("a number"));
    asked.unwrap_or_else(|| by_level((ci / 20).max(FEWEST).min(ci), ci, 10 * ci))
}

/// Returns a budget, reduced to an eighth in a quick run.
pub fn affordable(budget: Budget) -> Budget {
    let less = |runs: u64| by_level(runs.div_ceil(8), runs, runs);
    let nested = (less(budget.nested.0), less(budget.nested.1));
    Budget { exhaustive: less(budget.exhaustive), sampled: less(budget.sampled), nested, ..budget }
}
