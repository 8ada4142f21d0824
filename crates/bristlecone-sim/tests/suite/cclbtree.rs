//! Crashes of CCL-BTree, in small leaves, with a log of a few entries a chunk.

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_pm::Geometry;
use bristlecone_sim::systems::TreeOp::{self, Close, Create, Insert, Remove};
use bristlecone_sim::systems::{Forest, Items, Words, tree_scenarios};
use bristlecone_sim::{Budget, Mode, Report, Scenario, explore};

const MODES: [Mode; 3] = [Mode::Prefix, Mode::Subset, Mode::Eadr];

fn forest<I: Items>(options: &[(&'static str, u64)]) -> Forest<I> {
    let mut all = vec![("inner_bytes", 256), ("collector_threads", 0)];
    all.extend(options);
    Forest {
        geometry: Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 3 },
        design: Design::CclBTree.into(),
        options: all,
        items: PhantomData,
    }
}

/// Explores the scenarios and fails with everything that was found.
fn survives<I: Items>(
    forest: &Forest<I>,
    scenarios: &[Scenario<TreeOp>],
    modes: &[Mode],
    budget: Budget,
) -> Report {
    let mut total = Report { scenario: "all".to_owned(), ..Report::default() };
    for scenario in scenarios {
        for mode in modes {
            let report = explore(forest, scenario, *mode, budget);
            println!("{report}");
            total.merge(report);
        }
    }
    println!("{total}");
    total.assert_clean();
    total
}

/// What is enough for shapes that have the same steps as another one.
fn brief() -> Budget {
    Budget { exhaustive: 128, sampled: 32, nested: (32, 8), ..Budget::quick() }
}

fn small<I: Items>() -> Forest<I> {
    forest(&[("leaf_slots", 4), ("log_entries", 5)])
}

fn base() -> Forest<Words> {
    forest(&[("leaf_slots", 4), ("batch", 0)])
}

/// One entry a chunk: every other write begins or ends a collection.
fn restless() -> Forest<Words> {
    forest(&[("leaf_slots", 4), ("log_entries", 1)])
}

/// All slots of a chunk are leaves, of which a merge gives one back that the next split takes.
fn reuse() -> Scenario<TreeOp> {
    let removed = [72, 96, 40].into_iter().flat_map(|first| (first..first + 8).step_by(2));
    let setup = (0..=60).map(|key| Insert("t", key * 2, key));
    let setup = [Create("t")].into_iter().chain(setup).chain(removed.take(11).map(|key| Remove("t", key)));
    Scenario {
        name: "reuse-of-a-leaf",
        creation: false,
        setup: setup.collect(),
        ops: vec![Remove("t", 46), Insert("t", 19, 1), Remove("t", 19)],
        then: vec![Insert("t", 21, 2)],
    }
}

/// Chunks of the log have used up their generations.
fn generations() -> Scenario<TreeOp> {
    let updates = |range: std::ops::Range<u64>| range.map(|n| Insert("t", n % 3, n));
    Scenario {
        name: "generations",
        creation: false,
        setup: [Create("t")].into_iter().chain(updates(0..GENERATIONS_USED)).collect(),
        ops: updates(GENERATIONS_USED..GENERATIONS_USED + 12).collect(),
        then: vec![Insert("t", 1, 1), Insert("t", 7, 2), Remove("t", 2), Close, Insert("t", 3, 3)],
    }
}

/// Writes until chunks of a restless log have had 255 generations.
const GENERATIONS_USED: u64 = 760;

#[test]
fn words() {
    survives(&small::<Words>(), &tree_scenarios(), &MODES, Budget { exhaustive: 512, ..brief() });
}

#[test]
fn words_in_larger_batches() {
    let options = [("leaf_slots", 6), ("batch", 4), ("log_entries", 7)];
    survives(&forest::<Words>(&options), &tree_scenarios(), &[Mode::Subset], brief());
}

#[test]
fn words_all_logged() {
    let options = [("leaf_slots", 5), ("log_entries", 4), ("log_all", 1)];
    survives(&forest::<Words>(&options), &tree_scenarios(), &[Mode::Subset], brief());
}

#[test]
fn words_without_buffers() {
    survives(&base(), &tree_scenarios(), &[Mode::Subset], brief());
    survives(&base(), &[reuse()], &MODES, brief());
}

#[test]
fn words_collected_naively() {
    let options = [("leaf_slots", 4), ("log_entries", 5), ("naive_collection", 1)];
    survives(&forest::<Words>(&options), &tree_scenarios(), &[Mode::Subset], brief());
}

#[test]
fn words_collected_at_every_turn() {
    survives(&restless(), &tree_scenarios(), &[Mode::Subset], brief());
    let report = survives(&restless(), &[generations()], &MODES, brief());
    let erased = report.sites.iter().any(|site| site.step == "log recycle.1");
    assert!(erased, "no chunk came to its last generation");
}
