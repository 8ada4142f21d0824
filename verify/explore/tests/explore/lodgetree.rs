//! LodgeTree: logs that one entry keeps alive, and what a flush may write.

use std::collections::{BTreeMap, BTreeSet};

use bristlecone::Design;
use bristlecone_explore::proofs::lodgetree::{
    in_larger_pool, in_place, old_entry, run, single, tree_pool, written_through,
};
use bristlecone_explore::targets::TreeOp::{
    self, Close, Create, Insert, InsertNew, Remove, Swap, Update, Upsert,
};
use bristlecone_explore::targets::{Items, Texts, TreePool, Words};
use bristlecone_matrix::{TestLevel, takes};
use bristlecone_pm::{Geometry, LINE_BYTES};
use bristlecone_sim::{Budget, Event, Report, Scenario, explore};

use crate::effort::{affordable, modes};
use crate::mutations::every_step_is_needed;

/// Key 1 is written beside an old entry, that of the last key, whose node no other write reaches. Then key 1 is
/// repeatedly written or removed, and flushed, and its logs are reused: all but the one of the old entry, which has
/// the oldest value.
fn old_entry_reached(name: &'static str, rounds: u64, removed: bool) -> Scenario<TreeOp> {
    let write = |key, value| Insert("t", key, value);
    let mut setup = vec![Create("t")];
    setup.extend((0..24).map(|key| write(key * 7 % 24, key)));
    setup.extend([write(1, 10), write(40, 10)]);
    let round = |round: u64| {
        let last = if removed { Remove("t", 1) } else { write(1, 60 + round) };
        let others = (2..6).map(move |key| write(key, 20 + round));
        [write(1, 20 + round), last].into_iter().chain(others)
    };
    Scenario {
        name,
        creation: false,
        setup,
        ops: (0..rounds).flat_map(round).collect(),
        then: vec![Insert("t", 50, 1), Close, Remove("t", 2), Insert("t", 1, 2), Close],
    }
}

/// Writes that do not read the previous value: over items of a leaf, over buffered ones, over absent keys;
/// then every kind of operation on keys that no write has looked up. Until they are flushed, and beyond.
fn blind() -> Scenario<TreeOp> {
    let write = |key, value| Upsert("t", key, value);
    let setup = [Create("t")].into_iter().chain((0..10).map(|key| write(key * 7 % 10 * 2, key)));
    let fresh = (0..10).map(|key| write(key * 3 % 10 * 2 + key % 2, 50 + key));
    let others = [
        Remove("t", 6),
        InsertNew("t", 11, 1),
        Update("t", 4, 70),
        write(4, 71),
        Swap("t", 4, 71, 72),
        Remove("t", 11),
        write(11, 73),
        Insert("t", 8, 74),
        Close,
        write(8, 75),
        Remove("t", 8),
    ];
    Scenario {
        name: "blind",
        creation: false,
        setup: setup.collect(),
        ops: fresh.chain(others).chain((0..8).map(|key| write(20 + key, key))).collect(),
        then: vec![write(8, 1), Remove("t", 2), write(2, 2), Close, Remove("t", 4), write(30, 3)],
    }
}

#[test]
fn blind_upserts_survive_every_crash() {
    let budget = Budget { exhaustive: 64, sampled: 32, nested: (16, 8), ..Budget::quick() };
    for mode in modes() {
        explore(&tree_pool::<Words>(), &blind(), mode, budget).assert_clean();
        explore(&tree_pool::<Texts>(), &blind(), mode, budget).assert_clean();
    }
}

fn survives<I: Items>(budget: Budget) -> Report {
    let mut total = Report { scenario: "all".to_owned(), ..Report::default() };
    for scenario in
        [old_entry_reached("old-entry", 6, false), old_entry_reached("old-entry-removed", 3, true)]
    {
        for mode in modes() {
            let report = explore(&tree_pool::<I>(), &scenario, mode, budget);
            println!("{report}");
            total.merge(report);
        }
    }
    total.assert_clean();
    total
}

#[test]
fn recovery_leaves_old_values_of_straggling_logs_out() {
    let budget = Budget { exhaustive: 64, sampled: 32, nested: (16, 8), ..Budget::quick() };
    let words = survives::<Words>(budget);
    assert!(words.sites.iter().any(|site| site.step == "log recycle.1"), "no log was used again");
    survives::<Texts>(Budget { exhaustive: 16, sampled: 8, depth: 1, ..budget });
}

#[test]
fn compaction_logs_what_the_oldest_logs_hold_again() {
    if !takes(TestLevel::Ci, "compactions of the oldest logs") {
        return;
    }
    let budget = affordable(Budget { exhaustive: 64, sampled: 32, nested: (16, 8), ..Budget::quick() });
    for mode in modes() {
        let report = explore(&single(), &old_entry(), mode, budget);
        assert!(
            report.sites.iter().any(|site| site.step == "lodgetree compact.2"),
            "nothing was logged again"
        );
        report.assert_clean();
    }
}

/// Effects of one flush.
#[derive(Clone, Debug, Default)]
struct Flush {
    leaves: BTreeSet<usize>,
    splits: usize,
}

/// Returns the flushes of writes, in one tree of default leaves.
fn flushes(events: Vec<Event>) -> Vec<Flush> {
    const LEAF_BYTES: usize = 512;
    let (mut flushes, mut flush) = (Vec::new(), Flush::default());
    for event in events {
        match event {
            Event::Flush { line, step, .. } if step.starts_with("lodgetree") => {
                flush.leaves.insert(line as usize * LINE_BYTES / LEAF_BYTES);
            }
            Event::Store { publish: Some("lodgetree split.2"), .. } => flush.splits += 1,
            // A flush ends by itself, or with the log entry after it.
            Event::Fence { step: "lodgetree flush.4" | "log append.2", .. } if !flush.leaves.is_empty() => {
                flushes.push(std::mem::take(&mut flush));
            }
            _ => {}
        }
    }
    assert!(flush.leaves.is_empty(), "leaves are written by flushes only");
    flushes
}

/// A flush writes `flush_leaves` leaves, or it splits one leaf and writes that and the new one. A write needs
/// one flush, unless all buffered items are single items of leaves that split for them.
#[test]
fn flush_writes_few_leaves_and_splits_one_at_most() {
    const WRITES: u64 = 20_000;
    let noise = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for flush_leaves in [1, 2, 4] {
        for (name, order) in [
            ("uniform", Box::new(noise) as Box<dyn Fn(u64) -> u64>),
            ("skewed", Box::new(move |n| if n % 5 < 4 { noise(n % 700) >> 3 } else { noise(n) })),
            ("ascending", Box::new(|n| n)),
        ] {
            let large = TreePool::<Words> {
                geometry: Geometry { chunk_bytes: 1 << 16, chunks_max: 120, trees_max: 1 },
                options: vec![("flush_leaves", flush_leaves)],
                ..tree_pool()
            };
            let writes: Vec<_> = run(&large, |sim, tree| {
                let write = |key| {
                    sim.take_trace();
                    tree.insert(key, key).unwrap();
                    flushes(sim.take_trace())
                };
                (0..WRITES).map(order).map(write).collect()
            });
            let all: Vec<_> = writes.iter().flatten().collect();
            let splits: usize = all.iter().map(|flush| flush.splits).sum();
            let several = writes.iter().filter(|flushes| flushes.len() > 1).count();
            println!(
                "{name}, {flush_leaves} leaves: {} flushes, {splits} splits, {several} writes flushed again",
                all.len()
            );
            assert!(splits > 100, "{name}: {splits} splits");
            for Flush { leaves, splits } in all {
                let most = if *splits == 0 { flush_leaves as usize } else { 2 };
                assert!(*splits <= 1 && leaves.len() <= most, "{splits} splits, leaves {leaves:?}");
            }
            assert!(several as u64 * 5000 <= WRITES, "{name}: {several} writes flushed more than once");
        }
    }
}

/// A leaf is full, a removal is buffered for it, and a new item takes the removed one's slot.
#[test]
fn flush_frees_slots_of_removed_items_durably_before_reuse() {
    slots_are_used_again::<Words>();
    slots_are_used_again::<Texts>();
}

/// Lives last long enough that memory freed by mistake would be reused; seeds give crashes after many
/// lengths.
fn slots_are_used_again<I: Items>() {
    let write = |key, value| Insert("t", key, value);
    let full = [write(10, 1), write(20, 2), write(30, 3), write(10, 4), write(20, 5)];
    let setup = [Create("t")].into_iter().chain(full).chain([Remove("t", 20), write(40, 6)]);
    let then = (0..900).map(|n| write([10, 30, 50][n as usize % 3], 10 + 4 * n));
    let scenario = Scenario {
        name: "slots-of-removed-items",
        creation: false,
        setup: setup.collect(),
        ops: vec![write(50, 7)],
        then: [write(51, 2)].into_iter().chain(then).collect(),
    };
    // Records held by other readers must not fill the pool.
    let in_larger_pool = in_larger_pool::<I>();
    for seed in 0..16 {
        let budget = Budget { exhaustive: 256, depth: 1, continuation_crashes: 1, seed, ..Budget::quick() };
        for mode in modes() {
            let report = explore(&in_larger_pool, &scenario, mode, budget);
            assert!(
                report.sites.iter().any(|site| site.step == "lodgetree flush.1"),
                "no slot was used again"
            );
            report.assert_clean();
        }
    }
}

#[test]
fn full_pool_write_persists_values_before_leaves_name_them() {
    let (full, scenario) = written_through();
    let budget = Budget { depth: 1, ..Budget::of(32) };
    for mode in modes() {
        explore(&full, &scenario, mode, budget).assert_clean();
    }
}

#[test]
fn full_pool_update_changes_items_in_place() {
    changed_in_place::<Words>(&["lodgetree place.1", "lodgetree place.2"]);
    changed_in_place::<Texts>(&["lodgetree place.1", "lodgetree place.2", "lodgetree place.2 fence"]);
}

fn changed_in_place<I: Items>(steps: &[&str]) {
    let (full, scenario) = in_place::<I>();
    let budget = Budget { depth: 1, ..Budget::of(32) };
    for mode in modes() {
        let report = explore(&full, &scenario, mode, budget);
        report.assert_clean();
        for step in steps {
            assert!(report.sites.iter().any(|site| site.step == *step), "nothing passes {step}");
        }
    }
}

/// Returns whether a flush happened because the compaction pass had no space for copies.
fn flushes_what_fits(events: &[Event]) -> bool {
    let mut compacted = false;
    events.iter().any(|event| match event {
        Event::Fence { step: "lodgetree compact.2", .. } => {
            compacted = true;
            false
        }
        Event::Flush { step, .. } => {
            compacted &= !step.starts_with("log append");
            compacted && *step == "lodgetree flush.2"
        }
        _ => false,
    })
}

/// Writes numbers to keys in a pool that short logs and items fill; some writes fail. Returns which of the
/// writes, before the first failure, flushed buffered items for lack of space for copies.
fn crowd(full: &TreePool<Words>, keys: u64, writes: u64) -> Vec<u64> {
    run(full, |sim, tree| {
        let (mut model, mut flushing, mut in_vain) = (BTreeMap::new(), Vec::new(), None);
        for n in 0..writes {
            sim.take_trace();
            if tree.insert(crowding(n, keys), n).is_ok() {
                model.insert(crowding(n, keys), n);
            } else {
                in_vain = in_vain.or(Some(n));
            }
            flushing.extend(flushes_what_fits(&sim.take_trace()).then_some(n));
        }
        assert!(tree.iter().map(Result::unwrap).eq(model) && tree.check().is_empty(), "{keys} keys");
        flushing.retain(|n| in_vain.is_none_or(|in_vain| n + CROWDED <= in_vain));
        flushing
    })
}

/// Number of explored writes of a crowd.
const CROWDED: u64 = 8;

fn crowding(n: u64, keys: u64) -> u64 {
    n * 37 % keys
}

/// In a pool full of short logs the compaction pass cannot always copy buffered items: they are written to
/// leaves with free slots.
#[test]
fn full_pool_compaction_flushes_what_it_cannot_log() {
    let of_chunks = |chunks_max| TreePool {
        geometry: Geometry { chunks_max, ..tree_pool::<Words>().geometry },
        ..tree_pool()
    };
    let budget = Budget { depth: 1, ..Budget::of(32) };
    let mut explored = 0;
    for chunks_max in 8..24 {
        for keys in [60, 150, 300, 800] {
            let full = of_chunks(chunks_max);
            let write = |n| Insert("t", crowding(n, keys), n);
            for n in crowd(&full, keys, 1200) {
                let scenario = Scenario {
                    name: "crowded",
                    creation: false,
                    setup: [Create("t")].into_iter().chain((0..n).map(write)).collect(),
                    ops: (n..n + CROWDED).map(write).collect(),
                    // Recovery may have to keep logs longer: then there is no space for more.
                    then: vec![],
                };
                modes().into_iter().for_each(|mode| explore(&full, &scenario, mode, budget).assert_clean());
                explored += 1;
            }
        }
    }
    assert!(explored >= 15, "{explored} passes had no room for copies");
}

#[test]
fn every_flush_fence_and_order_is_needed() {
    every_step_is_needed(Design::LodgeTree, 29, &[]);
}
