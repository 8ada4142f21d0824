//! Crashes of the pool: creation, directory, chunks, closing, opening.

use bristlecone_pm::Geometry;
use bristlecone_sim::systems::BagOp::{self, Close, Create, Drop, Put, Take, Touch};
use bristlecone_sim::systems::Bags;
use bristlecone_sim::{Budget, Mode, Scenario, explore, mutate};

fn bags() -> Bags {
    Bags { geometry: Geometry { chunk_bytes: 4096, chunks_max: 10, trees_max: 4 } }
}

fn then() -> Vec<BagOp> {
    let mut then = vec![Drop("b"), Drop("c"), Create("then"), Create("a"), Create("b")];
    then.extend((50..55).map(|mark| Put("then", mark)));
    then.extend([Take("then", 50), Drop("a"), Create("a"), Put("a", 9), Close, Put("b", 60)]);
    then
}

fn scenarios() -> Vec<Scenario<BagOp>> {
    let fill = |bag, marks: std::ops::Range<u64>| marks.map(move |mark| Put(bag, mark));
    vec![
        Scenario {
            name: "creation",
            creation: true,
            setup: vec![],
            ops: vec![Create("a"), Put("a", 1), Close, Create("b"), Drop("a"), Create("c"), Close],
            then: then(),
        },
        Scenario {
            name: "chunks",
            creation: false,
            setup: vec![Create("a"), Create("b")],
            ops: fill("a", 0..6)
                .chain([Put("b", 10), Take("a", 0), Take("a", 4), Take("a", 5)])
                .chain(fill("b", 11..16))
                .chain([Close, Put("a", 20)])
                .collect(),
            then: then(),
        },
        Scenario {
            name: "two threads",
            creation: false,
            setup: vec![Create("a")],
            ops: vec![Touch("a"), Put("a", 1), Take("a", 1), Touch("a"), Put("a", 2)],
            then: then(),
        },
        Scenario {
            name: "drop",
            creation: false,
            setup: [Create("a"), Create("b")].into_iter().chain(fill("a", 0..9)).collect(),
            ops: [Put("b", 9), Drop("a"), Create("c"), Put("c", 1), Close]
                .into_iter()
                .chain(fill("b", 20..28))
                .chain([Drop("b"), Create("a"), Put("a", 2)])
                .collect(),
            then: then(),
        },
    ]
}

#[test]
fn the_pool_survives_every_crash() {
    for scenario in &scenarios() {
        for mode in [Mode::Prefix, Mode::Subset, Mode::Eadr] {
            let report = explore(&bags(), scenario, mode, Budget::quick());
            println!("{report}");
            report.assert_clean();
        }
    }
}

#[test]
fn every_flush_and_fence_of_the_pool_is_needed() {
    let scenarios: Vec<_> = scenarios().into_iter().map(|scenario| (scenario, Mode::Subset)).collect();
    let table = mutate(&bags(), &scenarios, Budget::quick(), "");
    println!("{table}");
    assert!(table.survivors().is_empty(), "{table}");
}
