//! Crashes of SSTree, in small leaves of every shape.

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_pm::Geometry;
use bristlecone_sim::systems::{Forest, Items, Texts, Words, tree_scenarios};
use bristlecone_sim::{Budget, Mode, Report, explore, mutate};

const MODES: [Mode; 3] = [Mode::Prefix, Mode::Subset, Mode::Eadr];

fn forest<I: Items>(subnode_bytes: u64, max_subnodes: u64) -> Forest<I> {
    Forest {
        geometry: Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 3 },
        design: Design::SsTree,
        options: vec![("subnode_bytes", subnode_bytes), ("max_subnodes", max_subnodes), ("inner_bytes", 256)],
        items: PhantomData,
    }
}

/// Explores every scenario and fails with everything that was found.
fn survives<I: Items>(forest: &Forest<I>, modes: &[Mode], budget: Budget) {
    let mut total = Report { scenario: "all".to_owned(), ..Report::default() };
    for scenario in &tree_scenarios() {
        for mode in modes {
            let report = explore(forest, scenario, *mode, budget);
            println!("{report}");
            total.merge(report);
        }
    }
    println!("{total}");
    total.assert_clean();
}

#[test]
fn words_in_leaves_of_one_subnode() {
    survives(&forest::<Words>(128, 1), &[Mode::Subset], Budget::quick());
}

#[test]
fn words_in_leaves_of_two_subnodes() {
    survives(&forest::<Words>(128, 2), &[Mode::Subset], Budget::quick());
}

#[test]
fn words_in_leaves_of_three_subnodes() {
    survives(&forest::<Words>(128, 3), &MODES, Budget::quick());
}

#[test]
fn words_in_leaves_of_four_larger_subnodes() {
    survives(&forest::<Words>(192, 4), &[Mode::Subset], Budget::quick());
}

#[test]
fn words_with_delegated_fingerprints() {
    let mut forest = forest::<Words>(128, 3);
    forest.options.push(("delegate_fingerprints", 1));
    survives(&forest, &[Mode::Subset], Budget::quick());
}

#[test]
fn texts() {
    survives(
        &forest::<Texts>(128, 3),
        &MODES,
        Budget { exhaustive: 256, sampled: 64, nested: (32, 16), ..Budget::quick() },
    );
}

#[test]
fn every_flush_and_fence_is_needed() {
    let scenarios: Vec<_> = tree_scenarios().into_iter().map(|scenario| (scenario, Mode::Subset)).collect();
    let budget =
        Budget { exhaustive: 256, sampled: 64, nested: (64, 16), life_crashes: 1, ..Budget::quick() };
    let table = mutate(&forest::<Words>(128, 3), &scenarios, budget, "sstree");
    println!("{table}");
    assert!(table.survivors().is_empty(), "{table}");
}

#[test]
fn every_flush_and_fence_of_records_is_needed() {
    let scenarios: Vec<_> = tree_scenarios()
        .into_iter()
        .filter(|scenario| ["insert", "expand", "update", "move"].contains(&scenario.name))
        .map(|scenario| (scenario, Mode::Subset))
        .collect();
    let budget = Budget { exhaustive: 128, sampled: 32, nested: (16, 8), ..Budget::quick() };
    for sites in ["sstree insert.1", "sstree update.1"] {
        let table = mutate(&forest::<Texts>(128, 3), &scenarios, budget, sites);
        println!("{table}");
        assert!(table.survivors().is_empty(), "{table}");
    }
}
