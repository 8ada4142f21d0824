//! The scenarios of batches and transactions.

use bristlecone_sim::Scenario;

use super::batch_pool::BatchOp::{
    self, Add, Batch, Close, Create, Drop, Fill, Full, Put, Range, View, ViewRange,
};
use super::batch_pool::Place;

/// Returns keys of both trees with the same new value.
fn both(keys: impl IntoIterator<Item = u64>, value: u64) -> Vec<Place> {
    keys.into_iter().flat_map(|key| [(0, key, Some(value)), (1, key, Some(value + 1))]).collect()
}

/// Returns a continuation from any state: trees may exist or not, with or without a log.
fn then() -> Vec<BatchOp> {
    vec![
        Create(0),
        Create(1),
        Put((0, 3, Some(70))),
        Batch(both([3, 4], 71), vec![(0, 3, Some(70))]),
        Put((1, 4, None)),
        Close,
        Batch(vec![(0, 3, None), (1, 90, Some(91))], vec![]),
        Put((1, 90, Some(92))),
    ]
}

fn scenario(name: &'static str, setup: Vec<BatchOp>, ops: Vec<BatchOp>) -> Scenario<BatchOp> {
    let setup = [Create(0), Create(1)].into_iter().chain(setup).collect();
    Scenario { name, creation: false, setup, ops, then: then() }
}

/// Returns the scenarios of batches: few changes, splits, records in several parts, conditions, and trees that are
/// created and dropped.
pub fn batch_scenarios() -> Vec<Scenario<BatchOp>> {
    let puts = |keys: std::ops::Range<u64>| keys.flat_map(|key| both([key * 10], 5)).map(Put);
    vec![
        scenario(
            "batches",
            puts(0..4).collect(),
            vec![
                Batch(both([10, 15], 20), vec![]),
                // A record that is not done must not undo these.
                Put((0, 10, Some(30))),
                Put((1, 15, None)),
                Batch(vec![(0, 10, None), (1, 20, Some(40)), (0, 30, Some(41)), (1, 99, None)], vec![]),
                Add((0, 30), (1, 20)),
                Put((1, 20, Some(50))),
                Close,
                Batch(both([10], 60), vec![]),
            ],
        ),
        scenario(
            "splits",
            puts(0..12).collect(),
            vec![
                Batch(both((0..6).map(|key| key * 20 + 5), 20), vec![]),
                Batch(both([1, 2, 3, 4], 30), vec![]),
            ],
        ),
        scenario(
            "parts",
            puts(0..3).collect(),
            vec![
                Batch(both((0..9).map(|key| key * 3), 20), vec![]),
                Batch(both([0, 30], 30), vec![]),
                Batch(both((0..9).map(|key| key * 2), 40), vec![]),
                Put((0, 2, Some(50))),
            ],
        ),
        scenario(
            "conditions",
            puts(0..3).collect(),
            vec![
                Batch(both([10, 15], 20), vec![(0, 10, Some(5)), (1, 10, Some(6)), (1, 15, None)]),
                Batch(both([20], 30), vec![(0, 10, Some(5))]),
                Batch(vec![(1, 10, Some(31))], vec![(0, 10, Some(20)), (0, 77, None)]),
                View(vec![(0, 10, None), (1, 11, Some(40)), (0, 12, Some(41)), (1, 15, Some(42))]),
            ],
        ),
        scenario(
            "ranges",
            puts(0..12).collect(),
            vec![
                Range(0, 20, 60),
                // The removal of a range that is not done must not undo these.
                Put((0, 30, Some(30))),
                Range(1, 0, 75),
                Put((1, 5, Some(31))),
                // No item, one, and those that were written since.
                Range(0, 40, 60),
                Range(0, 110, 111),
                ViewRange(0, 0, 90),
                Put((0, 40, Some(32))),
                Close,
                Range(1, 0, 1000),
                Put((1, 50, Some(33))),
            ],
        ),
        scenario(
            "ranges and drops",
            puts(0..6).collect(),
            vec![
                Range(1, 0, 40),
                Batch(both([10, 15], 20), vec![]),
                Range(0, 10, 100),
                Drop(0),
                Range(1, 0, 100),
                Create(0),
                Batch(both([10], 40), vec![]),
                Range(0, 0, 100),
            ],
        ),
        scenario(
            "drops",
            puts(0..3).collect(),
            vec![
                Batch(both([10, 15], 20), vec![]),
                Drop(0),
                Batch(vec![(1, 10, Some(30)), (1, 11, Some(31))], vec![]),
                Create(0),
                Batch(both([10], 40), vec![]),
                Drop(1),
                Close,
            ],
        ),
        Scenario {
            name: "creation",
            creation: true,
            setup: vec![],
            ops: vec![
                Create(0),
                Create(1),
                Batch(both([1], 10), vec![]),
                Close,
                Batch(both([2], 20), vec![]),
            ],
            then: then(),
        },
    ]
}

/// Returns scenarios of batches in a pool with this many free chunks. A batch that finds no space changes nothing, and
/// never requests space again after the crash.
pub fn full_scenarios(chunks: u64) -> Vec<Scenario<BatchOp>> {
    let puts = |keys: std::ops::Range<u64>| keys.flat_map(|key| both([key * 10], 5)).map(Put);
    let full = |ops: Vec<BatchOp>| ops.into_iter().map(|op| Full(Box::new(op))).collect::<Vec<_>>();
    let setup = || {
        // The log takes its chunk before all are taken.
        let log = [Batch(both([5], 6), vec![]), Fill(chunks)];
        [Create(0), Create(1)].into_iter().chain(puts(0..4)).chain(log).collect::<Vec<_>>()
    };
    let then = || {
        full(vec![
            Put((0, 3, Some(70))),
            Batch(vec![(0, 3, None), (1, 10, Some(71)), (0, 12, Some(72))], vec![]),
            Put((1, 20, None)),
            Close,
            Batch(both([11], 73), vec![]),
        ])
    };
    let scenario =
        |name, ops| Scenario { name, creation: false, setup: setup(), ops: full(ops), then: then() };
    vec![
        scenario(
            "changes without room",
            vec![
                // New keys, existing keys, and removed keys.
                Batch(vec![(0, 10, Some(20)), (1, 11, Some(21)), (0, 20, None), (1, 20, None)], vec![]),
                Put((0, 10, Some(30))),
                Batch(vec![(0, 0, None), (1, 0, None), (0, 30, None)], vec![]),
                Batch(vec![(0, 13, Some(40)), (1, 10, Some(41)), (0, 10, None)], vec![]),
                Close,
                Batch(vec![(0, 14, Some(50)), (1, 14, Some(51))], vec![]),
            ],
        ),
        scenario(
            "splits without room",
            vec![
                Batch(both((0..12).map(|key| key * 7 + 1), 20), vec![]),
                Put((1, 30, None)),
                Batch(both((0..12).map(|key| key * 7 + 2), 30), vec![]),
                Batch((0..4).flat_map(|key| [(0, key * 10, None), (1, key * 10, None)]).collect(), vec![]),
                Batch(both([33, 34], 40), vec![]),
            ],
        ),
        scenario(
            "ranges without room",
            vec![
                Range(0, 0, 25),
                Range(1, 5, 25),
                Put((0, 10, Some(30))),
                Batch(both((0..6).map(|key| key * 7 + 1), 20), vec![]),
                Range(1, 0, 100),
                Put((1, 20, Some(31))),
                Close,
                Range(0, 0, 100),
            ],
        ),
    ]
}
