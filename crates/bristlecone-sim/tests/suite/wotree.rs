//! Crashes of WO-tree in nodes of more than two lines, which `trees.rs` has, and of byte strings.

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_pm::Geometry;
use bristlecone_sim::systems::{Forest, Items, Texts, Words, tree_scenarios};
use bristlecone_sim::{Budget, Mode, Report, explore};

/// What is affordable at every change; `bristlecone crash` goes further.
fn budget() -> Budget {
    Budget { exhaustive: 64, sampled: 16, nested: (8, 4), ..Budget::quick() }
}

fn forest<I: Items>(node_lines: u64) -> Forest<I> {
    Forest {
        geometry: Geometry { chunk_bytes: 4096, chunks_max: 32, trees_max: 3 },
        design: Design::WoTree.into(),
        options: vec![("node_lines", node_lines)],
        items: PhantomData,
    }
}

/// Explores scenarios and fails with everything that was found.
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
fn words_in_nodes_of_four_lines() {
    survives(&forest::<Words>(4), &[Mode::Subset], budget());
}

#[test]
fn words_in_nodes_of_thirty_two_lines() {
    survives(&forest::<Words>(32), &[Mode::Subset], Budget { depth: 1, ..budget() });
}

/// Opening asks of every slot of every chunk whether it is live, so few images are affordable.
#[test]
fn texts() {
    let budget = Budget { exhaustive: 16, sampled: 8, depth: 1, life_crashes: 1 << 20, ..budget() };
    let mut total = Report::default();
    for scenario in tree_scenarios().iter().filter(|scenario| ["insert", "split"].contains(&scenario.name)) {
        total.merge(explore(&forest::<Texts>(2), scenario, Mode::Subset, budget));
    }
    println!("{total}");
    total.assert_clean();
}
