//! Trees that are created with items in them: after every crash they exist with all of these, or
//! not at all.

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_baselines::AnyDesign;
use bristlecone_explore::targets::{Items, Texts, TreePool, Words, load_scenarios};
use bristlecone_matrix::{Cell, Codec, TestLevel, suites, takes};
use bristlecone_pm::Geometry;
use bristlecone_sim::{Budget, Explanation, Mode, Progress, Site, explore, mutate_among};

use crate::effort::modes;

/// The first explored shape of a design, in a pool with space for a loaded tree and another one.
fn pool_of<I: Items>(design: Design, codec: Codec) -> TreePool<I> {
    let cells = suites::EXPLORER.cells();
    let cell = cells.iter().find(|cell| cell.configuration.design == design && cell.codec == codec);
    let Cell { configuration: shape, pool_size: room, .. } = cell.expect("every design keeps these items");
    let geometry = Geometry { chunk_bytes: room.chunk_bytes, chunks_max: 2 * room.chunks_max, trees_max: 3 };
    TreePool {
        geometry,
        design: AnyDesign::from(design),
        options: shape.options.to_vec(),
        items: PhantomData,
    }
}

fn survives<I: Items>(codec: Codec) {
    for design in Design::ALL {
        let tree_pool = pool_of::<I>(*design, codec);
        for scenario in load_scenarios() {
            for mode in modes() {
                // Leaves of a tree that does not exist yet may have any contents.
                let budget = Budget { depth: 1, threads: 2, ..Budget::of(8) };
                let report = explore(&tree_pool, &scenario, mode, budget);
                println!("{design}: {report}");
                report.assert_clean();
            }
        }
    }
}

#[test]
fn loaded_words_are_there_or_not() {
    survives::<Words>(Codec::Words);
}

#[test]
fn loaded_texts_are_there_or_not() {
    if !takes(TestLevel::Ci, "loads of texts") {
        return;
    }
    survives::<Texts>(Codec::Texts);
}

/// Undetectable mutations.
const UNSEEN: &[Explanation] =
    &[("swap publish \"nbtree load.1\"", 1, "no reader finds the leaves before the fence of all of them")];

#[test]
fn every_flush_of_a_load_is_needed() {
    let budget = Budget { continuation_crashes: 1, depth: 1, threads: 2, ..Budget::of(16) };
    let scenarios: Vec<_> = load_scenarios().into_iter().map(|scenario| (scenario, Mode::Subset)).collect();
    let wanted = |site: &Site| site.step.starts_with("nbtree load");
    let words = pool_of::<Words>(Design::NbTree, Codec::Words);
    let mut table = mutate_among(&words, &scenarios, budget, &wanted, &Progress::default());
    let texts = pool_of::<Texts>(Design::NbTree, Codec::Texts);
    table.merge(mutate_among(&texts, &scenarios, budget, &wanted, &Progress::default()));
    let table = table.explained_by(UNSEEN);
    println!("{table}");
    assert!(table.killed() > 0);
    table.assert_clean();
}
