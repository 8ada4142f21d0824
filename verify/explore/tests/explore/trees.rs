//! Crashes of every design, in the shapes of [`subjects_of`]: a design is one line here.

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_baselines::{AnyDesign, Baseline};
use bristlecone_explore::EXPLAINED;
use bristlecone_explore::targets::{TreePool, Words, mode_of, subject_of, subjects_of, tree_scenarios};
use bristlecone_matrix::{Cell, Codec, TestLevel, by_level, seed, suites, takes, tell};
use bristlecone_pm::Geometry;
use bristlecone_sim::{
    Budget, Mode, Progress, Report, Schedules, Seen, Sim, Site, System, explore_rounds, mutate_rounds, rounds,
};

use crate::corpus::run_corpus;
use crate::effort::{LONGEST, schedules, share};

/// Runs of one crash point where every mutation is tried: most are detected immediately.
const MUTATED_RUNS: u64 = 64;

fn progress() -> Progress {
    Progress::default()
}

/// Explores the shapes, the first one in every mode. Then, if `mutated`, mutates each flush, fence and publish
/// outside the pool, and expects its detection.
fn explored(
    design: impl Into<AnyDesign>,
    runs: u64,
    shapes: &[&str],
    images: u64,
    sampled: [u64; 2],
    mutated: bool,
) {
    let design = design.into();
    let mut subjects = subjects_of(design);
    subjects.retain(|subject| shapes.iter().any(|shape| subject.name() == format!("{design}-{shape}")));
    assert_eq!(subjects.len(), shapes.len(), "{shapes:?}");
    let (first, others) = subjects.split_first().expect("a design has shapes");
    let mut rounds_of_all = rounds([first.as_ref()], &Mode::ALL);
    rounds_of_all.extend(rounds(others.iter().map(Box::as_ref), &[Mode::Subset]));
    let all = rounds_of_all.len();
    let rounds_of_all = share(rounds_of_all, ROUNDS);
    let is_whole = rounds_of_all.len() == all;
    let mut budget = Budget { threads: 2, ..Budget::of(runs) };
    if matches!(design, AnyDesign::Baseline(baseline) if LONGEST.contains(&baseline)) {
        // Crashes inside recoveries of the Bε-tree take as long as the rest of a quick run.
        budget.depth = by_level(1, budget.depth, budget.depth);
    }
    let reports = explore_rounds(&rounds_of_all, budget, &progress(), &|_, report| println!("{report}"));
    let mut total = Report { scenario: design.to_string(), ..Report::default() };
    reports.iter().flatten().for_each(|report| total.merge(report.clone()));
    println!("{total}");
    total.assert_clean();
    tell(&format!("{} of {all} rounds: {total}", rounds_of_all.len()));
    if !is_whole {
        // The figures are those of all rounds.
        if mutated {
            takes(TestLevel::Ci, &format!("every flush, fence and publish of {design}"));
        }
        return;
    }
    assert!(total.images + total.nested_images >= images, "{total}");
    for (depth, percent) in total.depths.iter().zip(sampled) {
        assert!(depth.sampled * 100 <= depth.points * percent, "more than {percent} in 100 sampled: {total}");
    }
    if !mutated {
        return;
    }

    let budget = Budget { threads: 2, continuation_crashes: 1, ..Budget::of(MUTATED_RUNS) };
    let rounds: Vec<_> = rounds_of_all.into_iter().zip(reports.into_iter().flatten()).collect();
    let rounds: Vec<_> = rounds.into_iter().filter(|(round, _)| round.mode == Mode::Subset).collect();
    let wanted = |site: &Site| !site.is_of_pool() && site.is_named();
    let table = mutate_rounds(&rounds, budget, &wanted, &progress(), &|_| {}).explained_by(EXPLAINED);
    println!("{table}");
    tell(&format!("{design}: {} of {} mutations killed", table.killed(), table.rows.len()));
    assert!(table.survivors().is_empty(), "{table}");
}

/// Schedules of a design, over all its shapes.
const SCHEDULES: u64 = 10_000;
/// A quick run explores one round in this many.
const ROUNDS: u64 = 12;

/// Publishes of structure changes that must happen while another thread is in an operation, and their minimum
/// number in that many schedules.
fn targets(design: AnyDesign) -> &'static [(&'static str, u64)] {
    match design {
        AnyDesign::Library(Design::SsTree) => {
            &[("sstree split.2", 100), ("sstree expand.2", 30), ("sstree reclaim.3", 100)]
        }
        AnyDesign::Library(Design::NbTree) => {
            &[("nbtree copy.2", 800), ("nbtree link.2", 300), ("nbtree free.2", 100)]
        }
        AnyDesign::Library(Design::CclBTree) => &[
            ("cclbtree split.2", 400),
            ("cclbtree merge.3", 150),
            ("log copy.3", 150),
            ("log recycle.1", 4000),
        ],
        AnyDesign::Library(Design::LodgeTree) => {
            &[("lodgetree split.2", 300), ("lodgetree merge.3", 300), ("log recycle.1", 1000)]
        }
        AnyDesign::Library(Design::WoTree) => &[("wotree split.3", 100), ("wotree free.3", 100)],
        AnyDesign::Library(_) | AnyDesign::Baseline(_) => &[],
    }
}

fn interleaved(design: impl Into<AnyDesign>) {
    let design = design.into();
    let subjects = subjects_of(design);
    let mut total = Report::default();
    if takes(TestLevel::Ci, &format!("the corpus of {design}")) {
        subjects.iter().for_each(|subject| total.merge(run_corpus(subject.as_ref(), &progress())));
        println!("{}: {} pairs of steps in the corpus", design, total.pairs.len());
    }
    let asked = schedules(SCHEDULES);
    let count = asked.saturating_sub(total.schedules).div_ceil(subjects.len() as u64).max(1);
    for subject in &subjects {
        let wanted = Schedules { seed: seed(), first: 0, count, modes: Mode::ALL.to_vec(), threads: 2 };
        let report = subject.schedules(&wanted, &progress()).expect("threads share trees");
        println!("{}: {report}", subject.name());
        report.assert_clean();
        assert_eq!(report.schedules, count);
        total.merge(report);
    }
    println!("{:?}", total.raced);
    for (step, least) in targets(design) {
        let raced = total.raced.get(step).copied().unwrap_or_default();
        // The minimum is that of `SCHEDULES` schedules.
        assert!(
            asked < SCHEDULES || raced >= *least,
            "{step}: {raced} times while others were at work, of {least} at least"
        );
    }
    let Report { schedules, pairs, .. } = &total;
    tell(&format!("{schedules} schedules of {}, {} pairs of steps", subjects[0].name(), pairs.len()));
}

/// Scenarios without space would test nothing if no space were ever requested, or none ever became free.
#[test]
fn room_is_refused_and_comes_back() {
    for design in Design::ALL {
        let cells = suites::EXPLORER.cells();
        let cell =
            cells.iter().find(|cell| cell.configuration.design == *design && cell.codec == Codec::Words);
        let Cell { configuration: shape, pool_size: room, .. } = cell.expect("every design keeps words");
        let geometry = Geometry { chunk_bytes: room.chunk_bytes, chunks_max: room.chunks_max, trees_max: 3 };
        let options = shape.options.to_vec();
        let tree_pool =
            TreePool::<Words> { geometry, design: AnyDesign::from(*design), options, items: PhantomData };
        let mut refused = 0;
        for scenario in tree_scenarios().iter().filter(|scenario| scenario.name.starts_with("short")) {
            let mut live = System::create(&tree_pool, &Sim::new(&System::memory(&tree_pool))).unwrap();
            for op in scenario.setup.iter().chain(&scenario.ops) {
                let answer = tree_pool.apply(&mut live, op).unwrap();
                let is_refused = answer == format!("{:?}", Seen::Refused);
                assert!(!is_refused || tree_pool.refusal(op).is_some(), "{design} refuses {op:?} with room");
                refused += u64::from(is_refused);
            }
            tree_pool.abandon(live);
        }
        println!("{design}: {refused} operations refused");
        assert!(refused > 0, "{design} never refused");
    }
}

/// Explores the drawn cells: each with two of the scenarios, different ones each day, one of which has crashes
/// inside recoveries; and with a few schedules. A quick run takes one scenario of each cell.
#[test]
fn drawn_cells_survive() {
    let scenarios = by_level(1, 2, 2);
    let mut total = Report::default();
    for (at, cell) in suites::EXPLORER.sampled().into_iter().enumerate() {
        let subject = subject_of(&cell);
        let mut rounds = rounds([subject.as_ref()], &[mode_of(&cell)]);
        let some = |number: usize| (number + at + seed() as usize) % rounds.len() < scenarios;
        let some: Vec<_> = (0..rounds.len()).map(some).collect();
        let mut some = some.into_iter();
        rounds.retain(|_| some.next() == Some(true));
        // If more images are visited than remembered, each further crash point has a few.
        let few = Budget { remembered: 1 << 13, extremes: 4, lines: 16, threads: 2, ..Budget::of(4) };
        // With one scenario, every other cell has crashes inside its recoveries.
        let depths = if scenarios == 1 && (at + seed() as usize) % 2 == 1 { [1, 2] } else { [2, 1] };
        for (round, depth) in rounds.into_iter().zip(depths) {
            let budget = Budget { depth, ..few };
            for report in explore_rounds(&[round], budget, &progress(), &|_, _| {}).into_iter().flatten() {
                println!("{cell}: {report}");
                report.assert_clean();
                total.merge(report);
            }
        }
        let wanted = Schedules { seed: seed(), first: 0, count: 32, modes: vec![mode_of(&cell)], threads: 2 };
        let report = subject.schedules(&wanted, &progress()).expect("threads share trees");
        println!("{cell}: {report}");
        report.assert_clean();
    }
    tell(&format!("drawn cells, scenarios of each {scenarios}: {total}"));
}

macro_rules! designs {
    ($($name:ident: $design:expr, $runs:literal, $shapes:expr, $images:literal, $sampled:expr, $mutated:literal;)+) => {
        $(
            mod $name {
                use super::*;

                #[test]
                fn survives_every_crash_and_needs_every_flush() {
                    explored($design, $runs, &$shapes, $images, $sampled, $mutated);
                }

                #[test]
                fn threads_may_crash_anywhere() {
                    interleaved($design);
                }
            }
        )+
    };
}

// Runs of one crash point before its images are sampled, the explored shapes, the minimum number of decided
// images, the percentage of crash points whose images may be sampled at each depth, and whether mutations are
// tried here: those of others are in `mutations.rs`.
designs! {
    sstree: Design::SsTree, 4096,
        ["words-3", "words-2", "words-1", "words-4", "words-delegated", "texts-3"], 2_000_000, [0, 1], true;
    nbtree: Design::NbTree, 64, ["words-7"], 1_000_000, [2, 3], false;
    cclbtree: Design::CclBTree, 64, ["words-4", "words-6", "texts-4"], 1_000_000, [100, 100], false;
    lodgetree: Design::LodgeTree, 16, ["words-3", "words-7"], 20_000, [100, 100], false;
    wotree: Design::WoTree, 16, ["words-2", "words-4", "words-32", "words-logged", "texts-2"], 100_000, [2, 2], false;
    native: Baseline::Native, 16, ["words-2"], 1_000, [100, 100], false;
    wbtree: Baseline::WbTree, 16, ["words-2"], 1_000, [100, 100], false;
    fastfair: Baseline::FastFair, 16, ["words-2"], 1_000, [100, 100], false;
    lbtree: Baseline::LbTree, 16, ["words-2", "words-4", "words-8"], 1_000, [100, 100], false;
    fptree: Baseline::FpTree, 16, ["words-2"], 1_000, [100, 100], false;
    utree: Baseline::UTree, 16, ["words-2"], 1_000, [100, 100], false;
    flatstore: Baseline::FlatStore, 16, ["words-2"], 1_000, [100, 100], false;
    dptree: Baseline::DpTree, 16, ["words-2"], 1_000, [100, 100], false;
    betree: Baseline::BeTree, 16, ["words-2"], 1_000, [100, 100], false;
    pactree: Baseline::PacTree, 16, ["words-2", "words-4"], 1_000, [100, 100], false;
}
