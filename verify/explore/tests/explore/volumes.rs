//! Keys and values of many lines, at the limits of all size classes of records.

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_explore::targets::TreeOp::{self, Close, Create, Insert, Remove, Update};
use bristlecone_explore::targets::{TreePool, Volumes};
use bristlecone_matrix::{TestLevel, configurations, takes};
use bristlecone_pm::Geometry;
use bristlecone_sim::{Budget, Mode, Scenario, explore};

/// Numbers whose keys and values have every length that [`Volumes`] has.
const NUMBERS: u64 = 36;

fn tree_pool(design: Design) -> TreePool<Volumes> {
    let shape =
        configurations().find(|shape| shape.design == design && shape.tiny).expect("it has a tiny shape");
    // Every class has its own chunks, and the largest has one slot to a chunk.
    let geometry = Geometry { chunk_bytes: 256 << 10, chunks_max: 96, trees_max: 1 };
    TreePool { geometry, design: design.into(), options: shape.options.to_vec(), items: PhantomData }
}

/// Few exist at a time: recovery and checks read them all.
fn scenario() -> Scenario<TreeOp> {
    let insert = |number| Insert("t", number, number);
    let ops = (2..NUMBERS).flat_map(|number| {
        let longer = Update("t", number - 1, (number + 12) % NUMBERS);
        [insert(number), longer, Remove("t", number - 2)]
    });
    Scenario {
        name: "volumes",
        creation: false,
        setup: vec![Create("t"), insert(0), insert(1)],
        ops: ops.collect(),
        then: vec![insert(35), Close, Remove("t", 35)],
    }
}

#[test]
fn keys_and_values_of_many_lines_survive() {
    if !takes(TestLevel::Ci, "keys and values of many lines") {
        return;
    }
    // Arbitrary images only: a record has hundreds of lines, and half of the images lack any given
    // one.
    let few = Budget { exhaustive: 2, sampled: 6, extremes: 0, ..Budget::quick() };
    let budget = Budget { depth: 1, continuation_crashes: 64, threads: 2, ..few };
    for design in Design::ALL {
        let report = explore(&tree_pool(*design), &scenario(), Mode::Subset, budget);
        println!("{design}: {report}");
        report.assert_clean();
        assert!(report.crash_points > 100, "{report}");
    }
}
