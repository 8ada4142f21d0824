//! The suites, and the cells that each leaves out.

use bristlecone::Design::{self, CclBTree};
use bristlecone::Domain;

use crate::cell::{self, Cell};
use crate::codec::Codec;
use crate::configuration::SHORT_LOGS;
use crate::level::{TestLevel, in_share};
use crate::pool_size::{DOMAINS, FILE_CHUNK, SMALL_CHUNK};
use crate::sampling::{covering, seed};

/// A suite of tests.
#[derive(Debug)]
pub struct Suite {
    /// The name of the module that runs it.
    pub name: &'static str,
    /// Cells that it does not run.
    pub excludes: &'static [Exclusion],
}

/// Cells that a suite leaves out.
#[derive(Debug)]
pub struct Exclusion {
    /// Returns whether a cell is one of them.
    pub holds: fn(&Cell) -> bool,
    /// The reason.
    pub why: &'static str,
}

const fn but(holds: fn(&Cell) -> bool, why: &'static str) -> Exclusion {
    Exclusion { holds, why }
}

const OF_FILES: Exclusion =
    but(|cell| cell.pool_size.chunk_bytes != FILE_CHUNK, "a pool in a file has chunks of 2 MiB");
const OF_LARGE_CHUNKS: Exclusion = but(
    |cell| cell.pool_size.chunk_bytes > 2 * SMALL_CHUNK,
    "a word is tried in a millisecond only where recovery has little to read",
);
const OF_SHORT_LOGS: Exclusion = but(
    |cell| cell.pool_size.chunk_bytes == FILE_CHUNK && SHORT_LOGS.contains(&cell.configuration),
    "each few entries of the log would take a chunk of 2 MiB",
);
const OF_FULL: Exclusion =
    but(|cell| cell.pool_size.name == "tight", "the pool would be full: see full_pool");
const OF_ONE_PROCESS: Exclusion = but(
    |cell| cell.configuration.design == CclBTree && cell.configuration.option("collector_threads") != Some(0),
    "a collector's thread would work on when the operation is cut short",
);
const OF_TWO_TREES: Exclusion = but(
    |cell| matches!(cell.codec, Codec::Notes | Codec::Labels),
    "every pool of the suite has a tree of words and one of texts",
);
const OF_LARGE: Exclusion = but(
    |cell| !cell.configuration.tiny,
    "a scenario of a dozen operations changes no structure in leaves so large",
);
const OF_LARGE_POOLS: Exclusion = but(
    |cell| cell.pool_size.chunk_bytes > 2 * SMALL_CHUNK,
    "a simulated pool is copied for each of its images",
);
const OF_LARGE_LEAVES: Exclusion = but(
    |cell| !cell.configuration.tiny && cell.pool_size.chunk_bytes != FILE_CHUNK,
    "a chunk of few KiB holds hardly a leaf so large",
);
const OF_SIMULATED_FILES: Exclusion = but(
    Cell::has_journal,
    "in memory it makes the stores of eadr; tests of the library's module journal simulate its files",
);
const OF_LIVE_JOURNAL: Exclusion = but(
    Cell::has_journal,
    "the pool's pages alone are cut short; journal::tests kills at every step of an entry",
);
const OF_SLOW_OPENINGS: Exclusion =
    but(Cell::has_journal, "a word is tried in a millisecond; a journal would be restored each time");
const OF_LIMITED_FILES: Exclusion = but(
    Cell::has_journal,
    "a limit on the size of files ends a journal, and other pools go on: see failing_calls",
);
const OF_FLUSHES: Exclusion = but(
    |cell| matches!(cell.domain, Domain::Adr | Domain::Eadr | Domain::Msync),
    "it differs by its flushes alone, which the explorer tests",
);
const OF_LONG_RECORDS: Exclusion = but(
    |cell| cell.codec == Codec::Notes && cell.pool_size.chunk_bytes != FILE_CHUNK,
    "a chunk of few KiB holds no record of 5,000 bytes",
);

/// Every suite.
#[rustfmt::skip]
pub mod suites {
    use super::*;

    /// Every operation against a model.
    pub const MODEL: Suite = Suite { name: "model", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Many threads.
    pub const CONCURRENCY: Suite = Suite { name: "concurrency", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Processes that are killed.
    pub const KILL: Suite = Suite { name: "kill", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Damaged pools.
    pub const CORRUPTION: Suite = Suite { name: "corruption", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Full pools.
    pub const FULL_POOL: Suite = Suite {
        name: "full_pool",
        excludes: &[OF_FILES, OF_SHORT_LOGS, but(|cell| cell.pool_size.name != "tight", "it takes too long to fill")],
    };
    /// Freed space.
    pub const DELETED: Suite = Suite { name: "freed_space", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Crashes at every store.
    pub const CUT_SHORT: Suite =
        Suite { name: "crash_at_every_store", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL, OF_ONE_PROCESS, OF_TWO_TREES, OF_LIVE_JOURNAL] };
    /// Damaged words, one at a time.
    pub const WORDS: Suite = Suite { name: "damaged_words", excludes: &[OF_LARGE_CHUNKS, OF_SLOW_OPENINGS] };
    /// Data saved from damaged pools.
    pub const SALVAGE: Suite = Suite { name: "salvage", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Recovery on several threads.
    pub const RECOVERY: Suite = Suite { name: "recovery", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Pools that are only read.
    pub const READ_ONLY: Suite = Suite { name: "read_only", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Heap space in use.
    pub const HEAP: Suite = Suite { name: "heap", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Pools that another process writes to.
    pub const FOLLOW: Suite = Suite { name: "follow", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Batches, transactions and snapshots.
    pub const TRANSACTIONS: Suite = Suite { name: "transactions", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL, OF_FLUSHES] };
    /// Children that inherit a pool.
    pub const FORK: Suite = Suite { name: "fork", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL, OF_FLUSHES] };
    /// Crashes, and interleavings of several threads.
    pub const EXPLORER: Suite = Suite { name: "trees", excludes: &[OF_LARGE, OF_LARGE_POOLS, OF_SIMULATED_FILES] };
    /// Processes that are killed until a failure.
    pub const SOAK: Suite = Suite { name: "round", excludes: &[OF_SHORT_LOGS, OF_LARGE_LEAVES, OF_LONG_RECORDS, OF_LIMITED_FILES] };
    /// Operations generated by a fuzzer.
    pub const FUZZ: Suite = Suite { name: "operations", excludes: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
}

/// Every suite that draws from the table. Others use one particular configuration: `figures`, `one_line` and `lock_free`
/// count its operations, and mutations are tried in the smallest tree pool in which each is detected.
pub const SUITES: &[Suite] = &[
    suites::MODEL,
    suites::CONCURRENCY,
    suites::KILL,
    suites::CORRUPTION,
    suites::FULL_POOL,
    suites::DELETED,
    suites::CUT_SHORT,
    suites::WORDS,
    suites::SALVAGE,
    suites::RECOVERY,
    suites::READ_ONLY,
    suites::HEAP,
    suites::FOLLOW,
    suites::TRANSACTIONS,
    suites::FORK,
    suites::EXPLORER,
    suites::SOAK,
    suites::FUZZ,
];

impl Suite {
    /// Returns the reason why a cell is left out, if it is.
    pub fn why_not(&self, cell: &Cell) -> Option<&'static str> {
        self.excludes.iter().find(|left| (left.holds)(cell)).map(|left| left.why)
    }

    /// Returns all cells of the suite.
    pub fn cells(&self) -> Vec<Cell> {
        cell::all().filter(|cell| self.why_not(cell).is_none()).collect()
    }

    /// Returns one of the drawn cells of each design, for suites with long runs per cell; all cells if requested.
    pub fn sampled_of_each_design(&self) -> Vec<Cell> {
        self.sampled_of_each_design_where(|_| true)
    }

    /// As [`sampled_of_each_design`](Self::sampled_of_each_design), of the cells that a test is for.
    pub fn sampled_of_each_design_where(&self, is_for: impl Fn(&Cell) -> bool) -> Vec<Cell> {
        let (mut drawn, how) = self.sample(true);
        drawn.retain(is_for);
        let drawn = if asked().is_none() { first_of_each_design(&drawn) } else { drawn };
        self.tell(drawn, &how)
    }

    /// Returns the cells of this run of the suite, and prints them.
    pub fn sampled(&self) -> Vec<Cell> {
        let (drawn, how) = self.sample(false);
        self.tell(drawn, &how)
    }

    /// Returns the domains of the suite's cells but [`Domain::Process`], for programs whose tests choose their own
    /// trees: in shared memory they have pools of that domain, and then run again in each of these.
    pub fn other_domains(&self) -> Vec<Domain> {
        let cells = self.cells();
        let has = |domain: &Domain| cells.iter().any(|cell| cell.domain == *domain);
        DOMAINS.into_iter().filter(|domain| *domain != Domain::Process && has(domain)).collect()
    }

    /// Draws the cells of this run, with a description; a quick run has a share of them, unless `in_full` is set.
    fn sample(&self, in_full: bool) -> (Vec<Cell>, String) {
        let (all, seed) = (self.cells(), seed());
        match asked() {
            Some(asked) if asked == "all" => (all, asked),
            Some(asked) => {
                let named = all.into_iter().filter(|cell| cell.to_string().contains(&asked));
                (named.collect(), format!("BRISTLECONE_CELLS={asked}"))
            }
            None => {
                let mut drawn = covering(all, seed);
                if !in_full && TestLevel::of_run() == TestLevel::Quick {
                    drawn = quick(&drawn);
                }
                (drawn, format!("BRISTLECONE_SEED={seed} BRISTLECONE_TEST_LEVEL={}", TestLevel::of_run()))
            }
        }
    }

    /// Prints the cells of this run.
    fn tell(&self, drawn: Vec<Cell>, how: &str) -> Vec<Cell> {
        println!("{}: {} of {} cells ({how})", self.name, drawn.len(), self.cells().len());
        drawn.iter().for_each(|cell| println!("  {cell}"));
        drawn
    }
}

/// Returns the requested cells: by name, or all of them.
fn asked() -> Option<String> {
    let all = || (TestLevel::of_run() == TestLevel::Long).then(|| "all".to_owned());
    std::env::var("BRISTLECONE_CELLS").ok().or_else(all)
}

/// Returns the first of the cells of each design.
fn first_of_each_design(cells: &[Cell]) -> Vec<Cell> {
    let first = |design| cells.iter().copied().find(|cell| cell.configuration.design == design);
    Design::ALL.iter().filter_map(|design| first(*design)).collect()
}

/// A quick run takes one of this many drawn cells.
const SHARE: u64 = 12;

/// Returns a share of the drawn cells, with at least one of each design.
fn quick(drawn: &[Cell]) -> Vec<Cell> {
    let share = drawn.iter().enumerate().filter(|(number, _)| in_share(*number, SHARE));
    let mut some: Vec<_> = share.map(|(_, cell)| *cell).collect();
    for first in first_of_each_design(drawn) {
        if some.iter().all(|cell| cell.configuration.design != first.configuration.design) {
            some.push(first);
        }
    }
    some
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{configurations, goals};
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Each cell must run somewhere, and so must each configuration where crashes are explored or files are used.
    #[test]
    fn suites_together_run_every_cell_and_shape() {
        for cell in crate::all() {
            let runs = SUITES.iter().any(|suite| suite.why_not(&cell).is_none());
            let large_or_few = OF_LARGE_POOLS.holds;
            // The library's module `journal` has its own pools of small chunks, over a simulated disk.
            let simulated = cell.has_journal() && (OF_FILES.holds)(&cell);
            let large = !large_or_few(&cell) && !cell.configuration.tiny;
            let known = simulated || large || (OF_SHORT_LOGS.holds)(&cell);
            assert!(runs || known, "{cell} runs nowhere");
        }
        for configuration in configurations() {
            let of_shape =
                |suite: &Suite| suite.cells().iter().any(|cell| cell.configuration == configuration);
            assert!(SUITES.iter().any(of_shape), "{configuration} runs nowhere");
        }
    }

    #[test]
    fn suites_leave_out_only_what_a_reason_names() {
        for suite in SUITES {
            for Exclusion { holds, why } in suite.excludes {
                assert!(!why.is_empty() && crate::all().any(|cell| holds(&cell)), "{}: {why}", suite.name);
            }
            let (all, cells) = (crate::all().collect::<Vec<_>>(), suite.cells());
            let left = all.iter().filter(|cell| suite.why_not(cell).is_some()).count();
            assert_eq!(left + cells.len(), all.len(), "{}", suite.name);
            // A day's cells must cover everything that a suite runs.
            let shown = |cells: &[Cell]| cells.iter().flat_map(goals).collect::<BTreeSet<_>>();
            assert_eq!(shown(&covering(cells.clone(), seed())), shown(&cells), "{}", suite.name);
            for design in bristlecone::Design::ALL {
                assert!(
                    cells.iter().any(|cell| cell.configuration.design == *design),
                    "{}: no {design}",
                    suite.name
                );
            }
        }
    }

    #[test]
    fn a_quick_share_has_every_design() {
        let cells = suites::MODEL.cells();
        let drawn = covering(cells, seed());
        let share = quick(&drawn);
        for design in Design::ALL {
            assert!(share.iter().any(|cell| cell.configuration.design == *design), "no {design}");
        }
        if TestLevel::of_run() == TestLevel::Quick {
            assert!(share.len() * 2 < drawn.len(), "{} of {}", share.len(), drawn.len());
        }
    }

    /// A suite in the table that no test draws from would never run.
    #[test]
    fn suites_of_the_table_each_have_a_test_that_draws_from_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let places = [
            "crates/bristlecone/tests/suite",
            "verify/explore/tests/explore",
            "lab/tool/src/soak",
            "verify/fuzz/fuzz_targets",
        ];
        for suite in SUITES {
            let file = format!("{}.rs", suite.name);
            let mut files: Vec<_> = places.iter().map(|place| root.join(place).join(&file)).collect();
            // Or it is a separate program.
            let program = std::fs::read_dir(root.join("crates/bristlecone/tests").join(suite.name));
            files.extend(program.into_iter().flatten().map(|entry| entry.unwrap().path()));
            let texts: Vec<_> = files.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect();
            assert!(!texts.is_empty(), "there is no {file}");
            assert!(
                texts.iter().any(|text| text.contains("suites::")),
                "{file} does not draw from the table"
            );
        }
    }
}
