//! Batches in a full pool: an impossible batch changes nothing, and no crash makes an open require
//! space.

use std::collections::BTreeMap;

use bristlecone::Design;
use bristlecone_explore::targets::{BatchOp, BatchPool, Items, Notes, REFUSED, Texts, Words, full_scenarios};
use bristlecone_matrix::{TestLevel, share, takes};
use bristlecone_pm::Geometry;
use bristlecone_sim::{Budget, Mode, Prepared, Sim, System};

use super::crashes::{GEOMETRY, explore, subject};

/// Number of free chunks: none for the writes, some, or as many as are set aside for them and a few
/// more.
const LEFT: [u64; 4] = [0, 2, 9, 14];

fn full<A: Items, B: Items>(a: Design, b: Design, left: u64) -> Prepared<BatchPool<A, B>> {
    let mut full = subject::<A, B>(a, b);
    full.name = format!("{}-{left}", full.name);
    full.system.geometry = Geometry { chunks_max: 40, ..GEOMETRY };
    full.scenarios = full_scenarios(left);
    full
}

fn survive<A: Items, B: Items>(a: Design, b: Design, budget: Budget) {
    for left in share(LEFT, 4) {
        explore(&full::<A, B>(a, b, left), &[Mode::Subset], budget);
    }
}

/// Runs every scenario without a crash, and counts the results of batches.
fn answers<A: Items, B: Items>(subject: &Prepared<BatchPool<A, B>>) -> BTreeMap<String, usize> {
    let mut answers = BTreeMap::new();
    for scenario in &subject.scenarios {
        let sim = Sim::new(&System::memory(&subject.system));
        let mut live = System::create(&subject.system, &sim).unwrap();
        let mut state = subject.system.fresh();
        for op in scenario.setup.iter().chain(&scenario.ops).chain(&scenario.then) {
            let before = state.clone();
            let due = subject.system.predict(&mut state, op);
            let answer = subject.system.apply(&mut live, op).unwrap();
            if answer == REFUSED {
                state = before;
            } else {
                assert_eq!(answer, due, "{op:?}");
            }
            let answer = if answer.parse::<u64>().is_ok() { "removed".to_owned() } else { answer };
            if matches!(op, BatchOp::Full(op) if matches!(**op, BatchOp::Batch(..) | BatchOp::Range(..))) {
                *answers.entry(answer).or_default() += 1;
            }
            assert_eq!(subject.system.observe(&live).unwrap(), state, "{op:?}");
        }
    }
    answers
}

#[test]
fn a_full_pool_refuses_some_batches_and_has_room_for_others() {
    let mut total = BTreeMap::<String, usize>::new();
    for left in LEFT {
        let pairs = [
            answers(&full::<Words, Texts>(Design::SsTree, Design::NbTree, left)),
            answers(&full::<Texts, Words>(Design::CclBTree, Design::WoTree, left)),
            answers(&full::<Words, Notes>(Design::LodgeTree, Design::SsTree, left)),
        ];
        println!("{left} chunks left: {pairs:?}");
        pairs.into_iter().flatten().for_each(|(answer, count)| *total.entry(answer).or_default() += count);
    }
    assert!(total["done"] > 20 && total["removed"] > 20 && total[REFUSED] > 10, "{total:?}");
}

#[test]
fn batches_of_sstree_and_nbtree_in_a_full_pool_survive_every_crash() {
    survive::<Words, Texts>(Design::SsTree, Design::NbTree, Budget::of(16));
}

#[test]
fn batches_of_cclbtree_and_wotree_in_a_full_pool_survive_every_crash() {
    if takes(TestLevel::Ci, "batches over cclbtree and wotree in a full pool") {
        survive::<Texts, Words>(Design::CclBTree, Design::WoTree, Budget::of(16));
    }
}

#[test]
fn batches_of_lodgetree_and_sstree_in_a_full_pool_survive_every_crash() {
    if takes(TestLevel::Ci, "batches over lodgetree and sstree in a full pool") {
        survive::<Words, Notes>(Design::LodgeTree, Design::SsTree, Budget::of(16));
    }
}

/// A crash in the recovery from a crash, in a full pool.
#[test]
fn replay_in_a_full_pool_survives_its_own_crashes() {
    if !takes(TestLevel::Ci, "crashes of replay in a full pool, in depth") {
        return;
    }
    let budget = Budget { depth: 2, nested: (8, 4), ..Budget::of(12) };
    explore(&full::<Words, Words>(Design::SsTree, Design::NbTree, 0), &[Mode::Subset], budget);
    explore(&full::<Words, Words>(Design::CclBTree, Design::WoTree, 0), &[Mode::Subset], budget);
    explore(&full::<Words, Words>(Design::LodgeTree, Design::WoTree, 0), &[Mode::Subset], budget);
}
