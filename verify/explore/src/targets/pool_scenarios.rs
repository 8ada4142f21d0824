//! The scenarios of the pool without trees: creation, directory, chunks, closing, opening.

use super::pool::BagOp::{self, Close, Create, CreateWith, Drop, Put, Raise, Rename, Replace, Take, Touch};
use bristlecone_sim::Scenario;

fn then() -> Vec<BagOp> {
    let mut then = vec![Drop("b"), Drop("c"), Create("then"), Create("a"), Create("b")];
    then.extend((50..55).map(|mark| Put("then", mark)));
    then.extend([Take("then", 50), Drop("a"), Create("a"), Put("a", 9), Close, Put("b", 60)]);
    then
}

/// A name of several words, whose entry is reused for shorter ones.
const LONG: &str = "bag of words";

/// Returns the scenarios of the pool.
pub fn pool_scenarios() -> Vec<Scenario<BagOp>> {
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
            name: "two-threads",
            creation: false,
            setup: vec![Create("a")],
            ops: vec![Touch("a"), Put("a", 1), Take("a", 1), Touch("a"), Put("a", 2)],
            then: then(),
        },
        Scenario {
            name: "names",
            creation: false,
            setup: vec![Create(LONG), Put(LONG, 1), Put(LONG, 2)],
            ops: vec![
                Drop(LONG),
                Create("b"),
                Close,
                Put("b", 3),
                CreateWith("c", 4),
                Close,
                Drop("c"),
                Create(LONG),
            ],
            then: then(),
        },
        Scenario {
            name: "rename",
            creation: false,
            setup: vec![Create(LONG), Put(LONG, 1), Create("b")],
            // Twice, so that one intent overwrites another; and with an entry that belongs to
            // another tree by then.
            ops: vec![
                Rename(LONG, "a"),
                Rename("b", LONG),
                Put("a", 2),
                Drop("a"),
                Create("c"),
                Put("c", 3),
                Rename("c", "b"),
                Close,
            ],
            // At most two bags exist when this begins, at any point, and there is space for four.
            then: vec![
                Create("then"),
                Put("then", 50),
                Rename("then", "else"),
                Put("else", 51),
                Close,
                Rename("else", "then"),
                Take("then", 50),
                Drop("then"),
                Create("b"),
                Put("b", 60),
            ],
        },
        Scenario {
            name: "replace",
            creation: false,
            setup: [Create("a"), Create("b")].into_iter().chain(fill("a", 0..5)).collect(),
            ops: vec![
                Replace("a", 6),
                Put("a", 7),
                Replace("a", 8),
                Rename("a", "c"),
                Replace("c", 9),
                Close,
            ],
            then: then(),
        },
        Scenario {
            name: "raise",
            creation: false,
            // All chunks, and then two more.
            setup: [Create("a"), Create("b"), Put("b", 90)].into_iter().chain(fill("a", 0..36)).collect(),
            ops: vec![Raise(1), Put("a", 36), Put("b", 91), Raise(2), Close, Put("a", 37)],
            // Begins anywhere, also where all chunks are taken: the chunk of `b` has space for two
            // more.
            then: vec![Put("b", 50), Drop("a"), Create("then"), Close, Put("b", 51), Rename("b", "a"), Close],
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
