//! Crashes of SSTree, in small leaves of every shape.

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_pm::Geometry;
use bristlecone_sim::systems::{Forest, Items, Texts, Words, tree_scenarios};
use bristlecone_sim::{Budget, Mode, Report, explore};

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
fn survives<I: Items>(forest: &Forest<I>, modes: &[Mode]) {
    let mut total = Report { scenario: "all".to_owned(), ..Report::default() };
    for scenario in &tree_scenarios() {
        for mode in modes {
            let report = explore(forest, scenario, *mode, Budget::quick());
            println!("{report}");
            total.merge(report);
        }
    }
    println!("{total}");
    total.assert_clean();
}

#[test]
fn words_in_leaves_of_one_subnode() {
    survives(&forest::<Words>(128, 1), &[Mode::Subset]);
}

#[test]
fn words_in_leaves_of_two_subnodes() {
    survives(&forest::<Words>(128, 2), &[Mode::Subset]);
}

#[test]
fn words_in_leaves_of_three_subnodes() {
    survives(&forest::<Words>(128, 3), &MODES);
}

#[test]
fn words_in_leaves_of_four_larger_subnodes() {
    survives(&forest::<Words>(192, 4), &[Mode::Subset]);
}

#[test]
fn texts() {
    survives(&forest::<Texts>(128, 3), &[Mode::Prefix]);
}
