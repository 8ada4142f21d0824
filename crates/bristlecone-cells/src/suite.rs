//! The suites, and what each leaves out.

use bristlecone::Design::{self, CclBTree};

use crate::cell::{self, Cell};
use crate::codec::Codec;
use crate::draw::{covering, seed};
use crate::effort::{Effort, in_share};
use crate::room::{FILE_CHUNK, SMALL_CHUNK};
use crate::shape::SHORT_LOGS;

/// A suite of tests.
#[derive(Debug)]
pub struct Suite {
    /// The name of the module that runs it.
    pub name: &'static str,
    /// What it does not run.
    pub leaves_out: &'static [LeftOut],
}

/// Cells that a suite leaves out.
#[derive(Debug)]
pub struct LeftOut {
    /// Whether a cell is among them.
    pub holds: fn(&Cell) -> bool,
    /// Why.
    pub why: &'static str,
}

const fn but(holds: fn(&Cell) -> bool, why: &'static str) -> LeftOut {
    LeftOut { holds, why }
}

const OF_FILES: LeftOut =
    but(|cell| cell.room.chunk_bytes != FILE_CHUNK, "a pool in a file has chunks of 2 MiB");
const OF_LARGE_CHUNKS: LeftOut = but(
    |cell| cell.room.chunk_bytes > 2 * SMALL_CHUNK,
    "a word is tried in a millisecond only where recovery has little to read",
);
const OF_SHORT_LOGS: LeftOut = but(
    |cell| cell.room.chunk_bytes == FILE_CHUNK && SHORT_LOGS.contains(&cell.shape),
    "each few entries of the log would take a chunk of 2 MiB",
);
const OF_FULL: LeftOut = but(|cell| cell.room.name == "tight", "the pool would be full: see full_pool");
const OF_ONE_PROCESS: LeftOut = but(
    |cell| cell.shape.design == CclBTree && cell.shape.option("collector_threads") != Some(0),
    "a collector's thread would work on when the operation is cut short",
);
const OF_TWO_TREES: LeftOut = but(
    |cell| matches!(cell.codec, Codec::Notes | Codec::Labels),
    "every pool of the suite has a tree of words and one of texts",
);
const OF_LARGE: LeftOut =
    but(|cell| !cell.shape.tiny, "a scenario of a dozen operations changes no structure in leaves so large");
const OF_LARGE_POOLS: LeftOut =
    but(|cell| cell.room.chunk_bytes > 2 * SMALL_CHUNK, "a simulated pool is copied for each of its images");
const OF_LARGE_LEAVES: LeftOut = but(
    |cell| !cell.shape.tiny && cell.room.chunk_bytes != FILE_CHUNK,
    "a chunk of few KiB holds hardly a leaf so large",
);
const OF_LONG_RECORDS: LeftOut = but(
    |cell| cell.codec == Codec::Notes && cell.room.chunk_bytes != FILE_CHUNK,
    "a chunk of few KiB holds no record of 5,000 bytes",
);

/// Every suite.
#[rustfmt::skip]
pub mod suites {
    use super::*;

    /// Every operation against a model.
    pub const MODEL: Suite = Suite { name: "model", leaves_out: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Many threads.
    pub const CONCURRENCY: Suite = Suite { name: "concurrency", leaves_out: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Processes that are killed.
    pub const KILL: Suite = Suite { name: "kill", leaves_out: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Damaged pools.
    pub const CORRUPTION: Suite = Suite { name: "corruption", leaves_out: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Pools without room.
    pub const FULL_POOL: Suite = Suite {
        name: "full_pool",
        leaves_out: &[OF_FILES, OF_SHORT_LOGS, but(|cell| cell.room.name != "tight", "it takes too long to fill")],
    };
    /// Space that is free again.
    pub const DELETED: Suite = Suite { name: "deleted", leaves_out: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Work that ends at every store.
    pub const CUT_SHORT: Suite =
        Suite { name: "cut_short", leaves_out: &[OF_FILES, OF_SHORT_LOGS, OF_FULL, OF_ONE_PROCESS, OF_TWO_TREES] };
    /// Damaged words, one at a time.
    pub const WORDS: Suite = Suite { name: "words", leaves_out: &[OF_LARGE_CHUNKS] };
    /// What is saved of damaged pools.
    pub const SALVAGE: Suite = Suite { name: "salvage", leaves_out: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Recovery on several threads.
    pub const RECOVERY: Suite = Suite { name: "recovery", leaves_out: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Pools that are only read.
    pub const READ_ONLY: Suite = Suite { name: "read_only", leaves_out: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// What is in use of the heap.
    pub const HEAP: Suite = Suite { name: "heap", leaves_out: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Pools that another process writes to.
    pub const FOLLOW: Suite = Suite { name: "follow", leaves_out: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
    /// Crashes, and the schedules of several threads.
    pub const EXPLORER: Suite = Suite { name: "trees", leaves_out: &[OF_LARGE, OF_LARGE_POOLS] };
    /// Processes that are killed until something fails.
    pub const SOAK: Suite = Suite { name: "round", leaves_out: &[OF_SHORT_LOGS, OF_LARGE_LEAVES, OF_LONG_RECORDS] };
    /// Operations that a fuzzer makes up.
    pub const FUZZ: Suite = Suite { name: "operations", leaves_out: &[OF_FILES, OF_SHORT_LOGS, OF_FULL] };
}

/// Every suite that draws from the table. Others look at one shape because of what that is: `figures`, `one_line`
/// and `lock_free` count what it does, and mutations are tried in the smallest tree pool where each is noticed.
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
    suites::EXPLORER,
    suites::SOAK,
    suites::FUZZ,
];

impl Suite {
    /// Returns why a cell is left out, if it is.
    pub fn why_not(&self, cell: &Cell) -> Option<&'static str> {
        self.leaves_out.iter().find(|left| (left.holds)(cell)).map(|left| left.why)
    }

    /// Returns all cells of the suite.
    pub fn cells(&self) -> Vec<Cell> {
        cell::all().filter(|cell| self.why_not(cell).is_none()).collect()
    }

    /// Returns one of the drawn cells of each design, for suites of which one takes long; all cells if these
    /// are asked for.
    pub fn drawn_of_each_design(&self) -> Vec<Cell> {
        let (drawn, how) = self.draw(true);
        let drawn = if asked().is_none() { first_of_each_design(&drawn) } else { drawn };
        self.tell(drawn, &how)
    }

    /// Returns the cells that this run of the suite takes, and prints them.
    pub fn drawn(&self) -> Vec<Cell> {
        let (drawn, how) = self.draw(false);
        self.tell(drawn, &how)
    }

    /// Draws the cells of this run, and says how; a quick run has a share of them, unless it is to have them `in_full`.
    fn draw(&self, in_full: bool) -> (Vec<Cell>, String) {
        let (all, seed) = (self.cells(), seed());
        match asked() {
            Some(asked) if asked == "all" => (all, asked),
            Some(asked) => {
                let named = all.into_iter().filter(|cell| cell.to_string().contains(&asked));
                (named.collect(), format!("BRISTLECONE_CELLS={asked}"))
            }
            None => {
                let mut drawn = covering(all, seed);
                if !in_full && Effort::of_run() == Effort::Quick {
                    drawn = quick(&drawn);
                }
                (drawn, format!("BRISTLECONE_SEED={seed} BRISTLECONE_EFFORT={}", Effort::of_run()))
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

/// Returns which cells were asked for: by name, or all of them.
fn asked() -> Option<String> {
    let all = || (Effort::of_run() == Effort::Long).then(|| "all".to_owned());
    std::env::var("BRISTLECONE_CELLS").ok().or_else(all)
}

/// Returns the first of the cells of each design.
fn first_of_each_design(cells: &[Cell]) -> Vec<Cell> {
    let first = |design| cells.iter().copied().find(|cell| cell.shape.design == design);
    Design::ALL.iter().filter_map(|design| first(*design)).collect()
}

/// Of so many drawn cells a quick run takes one.
const SHARE: u64 = 12;

/// Returns a share of drawn cells, with one of each design at least.
fn quick(drawn: &[Cell]) -> Vec<Cell> {
    let share = drawn.iter().enumerate().filter(|(number, _)| in_share(*number, SHARE));
    let mut some: Vec<_> = share.map(|(_, cell)| *cell).collect();
    for first in first_of_each_design(drawn) {
        if some.iter().all(|cell| cell.shape.design != first.shape.design) {
            some.push(first);
        }
    }
    some
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{goals, shapes};
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Each cell runs somewhere, and so does each shape where crashes are explored or files are used.
    #[test]
    fn suites_together_run_every_cell_and_shape() {
        for cell in crate::all() {
            let runs = SUITES.iter().any(|suite| suite.why_not(&cell).is_none());
            let large_or_few = OF_LARGE_POOLS.holds;
            let known = !large_or_few(&cell) && !cell.shape.tiny || (OF_SHORT_LOGS.holds)(&cell);
            assert!(runs || known, "{cell} runs nowhere");
        }
        for shape in shapes() {
            let of_shape = |suite: &Suite| suite.cells().iter().any(|cell| cell.shape == shape);
            assert!(SUITES.iter().any(of_shape), "{shape} runs nowhere");
        }
    }

    #[test]
    fn suites_leave_out_only_what_a_reason_names() {
        for suite in SUITES {
            for LeftOut { holds, why } in suite.leaves_out {
                assert!(!why.is_empty() && crate::all().any(|cell| holds(&cell)), "{}: {why}", suite.name);
            }
            let (all, cells) = (crate::all().collect::<Vec<_>>(), suite.cells());
            let left = all.iter().filter(|cell| suite.why_not(cell).is_some()).count();
            assert_eq!(left + cells.len(), all.len(), "{}", suite.name);
            // Of what a suite runs, a day's cells show everything.
            let shown = |cells: &[Cell]| cells.iter().flat_map(goals).collect::<BTreeSet<_>>();
            assert_eq!(shown(&covering(cells.clone(), seed())), shown(&cells), "{}", suite.name);
            for design in bristlecone::Design::ALL {
                assert!(cells.iter().any(|cell| cell.shape.design == *design), "{}: no {design}", suite.name);
            }
        }
    }

    #[test]
    fn a_quick_share_has_every_design() {
        let cells = suites::MODEL.cells();
        let drawn = covering(cells, seed());
        let share = quick(&drawn);
        for design in Design::ALL {
            assert!(share.iter().any(|cell| cell.shape.design == *design), "no {design}");
        }
        if Effort::of_run() == Effort::Quick {
            assert!(share.len() * 2 < drawn.len(), "{} of {}", share.len(), drawn.len());
        }
    }

    /// A suite of the table that no test draws from would claim what never runs.
    #[test]
    fn suites_of_the_table_each_have_a_test_that_draws_from_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let places = [
            "crates/bristlecone/tests/suite",
            "crates/bristlecone-lab/tests/explore",
            "crates/bristlecone-lab/src/soak",
            "fuzz/fuzz_targets",
        ];
        for suite in SUITES {
            let file = format!("{}.rs", suite.name);
            let mut files: Vec<_> = places.iter().map(|place| root.join(place).join(&file)).collect();
            // Or it is a program of its own.
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
