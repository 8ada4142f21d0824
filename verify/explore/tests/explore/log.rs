//! Crashes of the write-ahead log alone, which trees share.

use bristlecone_explore::proofs::log::{Entries, budget, scenarios};
use bristlecone_sim::{Mode, explore};

/// Each step is mutated, too: together with those of the trees that have a log.
#[test]
fn entries_survive_and_recycled_ones_do_not_return() {
    for scenario in scenarios() {
        for mode in Mode::ALL {
            let report = explore(&Entries, &scenario, mode, budget());
            println!("{report}");
            report.assert_clean();
        }
    }
}
