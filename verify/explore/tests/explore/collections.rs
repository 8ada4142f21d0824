//! Logs that are emptied while leaves split: buffered items of a new leaf are not forgotten.

use bristlecone::Design;
use bristlecone_explore::targets::{TreePool, Words};
use bristlecone_pm::Geometry;
use bristlecone_sim::{Access, Operation, Plan, Way};

use crate::effort::schedules;
use crate::planned::raced;

/// Initial keys, in leaves that an ascending load left full.
const KEYS: u64 = 16;
const SCHEDULES: u64 = 10_000;

/// One thread writes to the first leaf, so that logs fill and rotate. Another one inserts keys behind the last one,
/// which splits the last leaf; its further keys are buffered in the new leaf.
fn split_meanwhile(draw: &mut dyn FnMut(usize) -> usize) -> Plan {
    let mut before: Vec<_> = (0..KEYS).map(|key| (key, Access::Insert(key))).collect();
    before.extend((0..draw(6) as u64).map(|at| (KEYS + at, Access::Upsert(100 + at))));
    let next = before.len() as u64;
    // The log has a few entries already, or is about to rotate.
    before.extend((0..draw(8) as u64).map(|at| (at % 3, Access::Upsert(500 + at))));
    let written = |key, at| Operation::On(key, Access::Upsert(1000 + at));
    let first = draw(3) as u64;
    let turning = (0..1 + draw(6) as u64).map(|at| written((first + at) % 3, at)).collect();
    let splitting = (0..3 + draw(4) as u64).map(|at| written(next + at, 10 + at)).collect();
    let mut threads = vec![turning, splitting];
    if draw(3) == 0 {
        threads.push(vec![Operation::Scan(Way::draw(draw)), Operation::On(next, Access::Remove)]);
    }
    let plan = Plan::new(before, threads);
    if draw(4) == 0 { plan } else { plan.warm_from(0) }
}

/// One thread writes a key again whose last entry alone pins a full log; another one fills logs meanwhile, and empties
/// those without live entries.
fn released_meanwhile(draw: &mut dyn FnMut(usize) -> usize) -> Plan {
    let mut before: Vec<_> = (0..KEYS).map(|key| (key, Access::Insert(key))).collect();
    let written = |key, at| (key, Access::Upsert(1000 + at));
    before.extend([written(1, 1), written(KEYS - 1, 2), written(KEYS - 1, 3)]);
    before.extend((0..draw(3) as u64).map(|at| written(KEYS - 1, 10 + at)));
    let again = (0..1 + draw(2) as u64).map(|at| Operation::On(1, Access::Upsert(20 + at))).collect();
    let filling =
        (0..3 + draw(4) as u64).map(|at| Operation::On(KEYS - 1, Access::Upsert(30 + at))).collect();
    Plan::new(before, vec![again, filling]).warm_from(KEYS as usize)
}

/// Explores schedules of a design, and fails if too few of them reach the steps for which the plan is made.
fn survives(
    design: Design,
    options: &[(&'static str, u64)],
    plan: fn(&mut dyn FnMut(usize) -> usize) -> Plan,
    steps: &[(&str, u64)],
) {
    let geometry = Geometry { chunk_bytes: 4096, chunks_max: 40, trees_max: 3 };
    let (design, options) = (design.into(), options.to_vec());
    let registers = TreePool::<Words> { geometry, design, options, items: std::marker::PhantomData };
    raced(registers, plan, (3, schedules(SCHEDULES)), steps);
}

const CCLBTREE: [(&str, u64); 4] =
    [("leaf_slots", 4), ("log_entries", 2), ("inner_bytes", 256), ("collector_threads", 0)];
const LODGETREE: [(&str, u64); 4] =
    [("node_slots", 6), ("leaf_slots", 3), ("log_entries", 2), ("inner_bytes", 256)];

#[test]
fn cclbtree_split_during_a_collection_survives_crashes() {
    survives(
        Design::CclBTree,
        &CCLBTREE,
        split_meanwhile,
        &[("cclbtree split.2", 4), ("log pass", 4), ("log recycle.1", 4)],
    );
}

#[test]
fn lodgetree_split_while_logs_are_emptied_survives_crashes() {
    survives(
        Design::LodgeTree,
        &LODGETREE,
        split_meanwhile,
        &[("lodgetree split.2", 4), ("log recycle.1", 4)],
    );
}

#[test]
fn lodgetree_entries_go_when_their_successors_are_durable() {
    survives(Design::LodgeTree, &LODGETREE, released_meanwhile, &[("log recycle.1", 8)]);
}
