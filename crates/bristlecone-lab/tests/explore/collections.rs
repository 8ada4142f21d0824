//! Logs that are emptied while leaves split: what pends in a leaf that came meanwhile is not forgotten.

use bristlecone::Design;
use bristlecone_lab::targets::{TreePool, Words};
use bristlecone_pm::Geometry;
use bristlecone_sim::{Access, Mode, Operation, Plan, Planned, Progress, Schedules, explore_schedules};

use crate::effort::schedules;

/// Keys that are there at first, in leaves that an ascending load left full.
const KEYS: u64 = 16;
const SCHEDULES: u64 = 10_000;

/// One thread writes to the first leaf, so that logs fill and turn; another one brings keys behind the last one,
/// which splits the last leaf, and what it brings then pends in the new one.
fn split_meanwhile(draw: &mut dyn FnMut(usize) -> usize) -> Plan {
    let mut before: Vec<_> = (0..KEYS).map(|key| (key, Access::Insert(key))).collect();
    before.extend((0..draw(6) as u64).map(|at| (KEYS + at, Access::Upsert(100 + at))));
    let written = |key, at| Operation::On(key, Access::Upsert(1000 + at));
    let first = draw(3) as u64;
    let turning = (0..4 + draw(3) as u64).map(|at| written((first + at) % 3, at)).collect();
    let next = before.len() as u64;
    let splitting = (0..3 + draw(4) as u64).map(|at| written(next + at, 10 + at)).collect();
    let mut threads = vec![turning, splitting];
    if draw(3) == 0 {
        threads.push(vec![Operation::Scan, Operation::On(next, Access::Remove)]);
    }
    Plan::new(before, threads)
}

/// Explores schedules of a design, and fails if leaves hardly ever split, or logs were hardly ever emptied, under
/// the eyes of others.
fn survives(design: Design, options: &[(&'static str, u64)], split: &str) {
    let geometry = Geometry { chunk_bytes: 4096, chunks_max: 40, trees_max: 3 };
    let registers = TreePool::<Words> {
        geometry,
        design: design.into(),
        options: options.to_vec(),
        items: std::marker::PhantomData,
    };
    let planned = Planned { registers, plan: split_meanwhile };
    let count = schedules(SCHEDULES);
    let wanted = Schedules { seed: 3, first: 0, count, modes: Mode::ALL.to_vec(), threads: 2 };
    let report = explore_schedules(&planned, &wanted, &Progress::default());
    println!("{report}, raced: {:?}", report.raced);
    report.assert_clean();
    for step in [split, "log recycle.1"] {
        let raced = report.raced.get(step).copied().unwrap_or_default();
        assert!(raced * 4 > count, "{step}: {raced} times while others were at work");
    }
}

#[test]
fn cclbtree_split_during_a_collection_survives_crashes() {
    let options = [("leaf_slots", 4), ("log_entries", 2), ("inner_bytes", 256), ("collector_threads", 0)];
    survives(Design::CclBTree, &options, "cclbtree split.2");
}

#[test]
fn lodgetree_split_during_a_compaction_survives_crashes() {
    let options = [("node_slots", 6), ("leaf_slots", 3), ("log_entries", 2), ("inner_bytes", 256)];
    survives(Design::LodgeTree, &options, "lodgetree split.2");
}
