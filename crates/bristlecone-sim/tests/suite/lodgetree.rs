//! LodgeTree: logs that one straggler keeps alive, and what a flush may write.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

use bristlecone::{Design, Domain, Pool, Tree};
use bristlecone_pm::{Geometry, LINE_BYTES, PoolFile};
use bristlecone_sim::systems::TreeOp::{
    self, Close, Create, Insert, InsertNew, Remove, Swap, Update, Upsert,
};
use bristlecone_sim::systems::{Forest, Items, Texts, Words, tree_scenarios};
use bristlecone_sim::{Budget, Event, Memory, Mode, Report, Scenario, Sim, Table, explore, mutate};

const MODES: [Mode; 3] = [Mode::Prefix, Mode::Subset, Mode::Eadr];

fn forest<I: Items>() -> Forest<I> {
    Forest {
        geometry: Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 3 },
        design: Design::LodgeTree.into(),
        options: vec![("node_slots", 6), ("leaf_slots", 3), ("log_entries", 4), ("inner_bytes", 256)],
        items: PhantomData,
    }
}

fn roomy<I: Items>() -> Forest<I> {
    Forest { geometry: Geometry { chunks_max: 64, ..forest::<I>().geometry }, ..forest::<I>() }
}

/// Entries of a log, one of which is a straggler's.
const STRAGGLER_LOG: u64 = 8;

/// Flushes write one leaf each, so that much stays in the buffers.
fn single() -> Forest<Words> {
    let mut single = roomy();
    single.options.retain(|(name, _)| *name != "log_entries");
    single.options.extend([("flush_leaves", 1), ("log_entries", STRAGGLER_LOG)]);
    single
}

/// Key 1 is written beside a straggler, the last key, whose node nobody else writes to. Then key 1 is
/// written or removed again and again, and flushed, and its logs are used again: all but the
/// straggler's, which has the oldest value.
fn straggler(name: &'static str, rounds: u64, removed: bool) -> Scenario<TreeOp> {
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

/// Log after log has one item that goes to a node where nobody flushes it, until there are so many
/// that these are logged again.
fn stragglers() -> Scenario<TreeOp> {
    let write = |key, value| Insert("t", key, value);
    let fill = (0..96).map(|n| write(n * 37 % 96 * 10, n));
    let log = |n: u64| {
        let others = (0..STRAGGLER_LOG - 1).map(move |other| write(2000 + other, n));
        [write(n * 7 % 24 * 40, 100 + n)].into_iter().chain(others)
    };
    Scenario {
        name: "stragglers",
        creation: false,
        setup: [Create("t")].into_iter().chain(fill).chain((0..24).flat_map(log)).collect(),
        ops: (24..34).flat_map(log).collect(),
        then: vec![Insert("t", 50, 1), Close, Remove("t", 40), Insert("t", 40, 2), Close],
    }
}

/// Writes that do not ask what was there: over items of a leaf, over buffered ones, over nothing; then every
/// kind of operation on what nobody has looked for. Until they are flushed, and beyond.
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
fn what_nobody_looked_for_survives() {
    let budget = Budget { exhaustive: 64, sampled: 32, nested: (16, 8), ..Budget::quick() };
    for mode in MODES {
        explore(&forest::<Words>(), &blind(), mode, budget).assert_clean();
        explore(&forest::<Texts>(), &blind(), mode, budget).assert_clean();
    }
}

fn survives<I: Items>(budget: Budget) -> Report {
    let mut total = Report { scenario: "all".to_owned(), ..Report::default() };
    for scenario in [straggler("straggler", 6, false), straggler("straggler-removed", 3, true)] {
        for mode in MODES {
            let report = explore(&forest::<I>(), &scenario, mode, budget);
            println!("{report}");
            total.merge(report);
        }
    }
    total.assert_clean();
    total
}

#[test]
fn an_old_value_in_a_straggling_log_stays_dead() {
    let budget = Budget { exhaustive: 64, sampled: 32, nested: (16, 8), ..Budget::quick() };
    let words = survives::<Words>(budget);
    assert!(words.sites.iter().any(|site| site.step == "log recycle.1"), "no log was used again");
    survives::<Texts>(Budget { exhaustive: 16, sampled: 8, depth: 1, ..budget });
}

#[test]
fn what_stands_in_the_oldest_logs_is_logged_again() {
    let budget = Budget { exhaustive: 64, sampled: 32, nested: (16, 8), ..Budget::quick() };
    for mode in MODES {
        let report = explore(&single(), &stragglers(), mode, budget);
        assert!(report.sites.iter().any(|site| site.step == "lodgetree walk.2"), "nothing was logged again");
        report.assert_clean();
    }
}

/// Does something to a new tree of a forest's kind.
fn run<I: Items, R>(forest: &Forest<I>, work: impl FnOnce(&Sim, &Tree<I::K, I::V, Sim>) -> R) -> R {
    let memory = Memory::new(forest.geometry.max_bytes() as usize);
    let sim = Sim::new(&memory);
    let file = PoolFile::create_in(memory.region(), forest.geometry, Domain::Adr, sim.clone()).unwrap();
    let pool = Pool::on(file, 1);
    let tree = pool.tree_options("t").design(Design::LodgeTree);
    let tree = forest.options.iter().fold(tree, |tree, (name, value)| tree.option(name, *value));
    let done = work(&sim, &tree.create().unwrap());
    pool.simulate_crash();
    done
}

/// What one flush did.
#[derive(Clone, Debug, Default)]
struct Flush {
    leaves: BTreeSet<usize>,
    splits: usize,
}

/// What a write flushed, in one tree of usual leaves.
fn flushes(events: Vec<Event>) -> Vec<Flush> {
    const LEAF_BYTES: usize = 512;
    let (mut flushes, mut flush) = (Vec::new(), Flush::default());
    for event in events {
        match event {
            Event::Flush { line, step, .. } if step.starts_with("lodgetree") => {
                flush.leaves.insert(line as usize * LINE_BYTES / LEAF_BYTES);
            }
            Event::Store { publish: Some("lodgetree split.2"), .. } => flush.splits += 1,
            // A flush ends by itself, or with the log entry behind it.
            Event::Fence { step: "lodgetree flush.4" | "log append.2", .. } if !flush.leaves.is_empty() => {
                flushes.push(std::mem::take(&mut flush));
            }
            _ => {}
        }
    }
    assert!(flush.leaves.is_empty(), "leaves are written by flushes only");
    flushes
}

/// A flush writes `flush_leaves` leaves, or it splits one leaf and writes that and the new one. A
/// write needs one, unless all that is buffered are single items of leaves that split for them.
#[test]
fn a_flush_writes_few_leaves_and_splits_one_at_most() {
    const WRITES: u64 = 20_000;
    let noise = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for flush_leaves in [1, 2, 4] {
        for (name, order) in [
            ("uniform", Box::new(noise) as Box<dyn Fn(u64) -> u64>),
            ("skewed", Box::new(move |n| if n % 5 < 4 { noise(n % 700) >> 3 } else { noise(n) })),
            ("ascending", Box::new(|n| n)),
        ] {
            let large = Forest::<Words> {
                geometry: Geometry { chunk_bytes: 1 << 16, chunks_max: 120, trees_max: 1 },
                options: vec![("flush_leaves", flush_leaves)],
                ..forest()
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

/// A leaf is full, a removal is buffered for it, and a new item takes the removed one's slot. When the new
/// one is not logged, a crash could leave it with the value of the removed one.
#[test]
fn slots_of_removed_items_are_given_up_before_they_are_used_again() {
    slots_are_used_again::<Words>();
    slots_are_used_again::<Texts>();

    let (full, _, keys) = filled();
    // The first items of two leaves in the middle.
    let (first, second) = (600, 630);
    let scenarios = (0..4).map(|cut| {
        // The log's last entry is one of the first removals', for some cut.
        let kept = keys[..keys.len() - cut].iter().map(|key| Insert("t", *key, *key));
        let new = |key| Insert("t", key + 11, 5);
        let ops = vec![Remove("t", first), Remove("t", second), new(first), new(second)];
        let setup = [Create("t")].into_iter().chain(kept).collect();
        (Scenario { name: "full", creation: false, setup, ops, then: vec![] }, Mode::Subset)
    });
    let budget = Budget { depth: 1, ..Budget::of(32) };
    let table = mutate(&full, &scenarios.collect::<Vec<_>>(), budget, "lodgetree flush.1");
    println!("{table}");
    assert!(!table.sites.is_empty() && table.survivors().is_empty(), "{table}");
}

/// Lives go on so long that what was freed by mistake would be used again; seeds give crashes after many
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
    // Records that others' readers hold up must not fill the pool.
    let roomy = roomy::<I>();
    for seed in 0..16 {
        let budget = Budget { exhaustive: 256, depth: 1, life_crashes: 1, seed, ..Budget::quick() };
        for mode in MODES {
            let report = explore(&roomy, &scenario, mode, budget);
            assert!(
                report.sites.iter().any(|site| site.step == "lodgetree flush.1"),
                "no slot was used again"
            );
            report.assert_clean();
        }
    }
}

/// Without room for a log, values out of line go over old ones in their leaves; they have to be there
/// before anybody refers to them.
#[test]
fn a_full_pool_writes_values_before_leaves_name_them() {
    let full =
        Forest { geometry: Geometry { chunks_max: 12, ..forest::<Texts>().geometry }, ..forest::<Texts>() };
    // The leaves run out first: there are slots for values, all of one size, when nothing can be logged.
    let keys = accepted(&full, (0..1000).map(|n| n * 4));
    println!("{} keys fill the pool", keys.len());
    let setup = [Create("t")].into_iter().chain(keys.iter().map(|key| Insert("t", *key, *key)));
    let ops = (0..16).map(|n| Insert("t", keys[n % 4 * 20 + n / 8], 1000 + 4 * n as u64));
    let scenario =
        Scenario { name: "full", creation: false, setup: setup.collect(), ops: ops.collect(), then: vec![] };
    let budget = Budget { depth: 1, ..Budget::of(32) };
    for mode in MODES {
        explore(&full, &scenario, mode, budget).assert_clean();
    }
    let table = mutate(&full, &[(scenario, Mode::Subset)], budget, "lodgetree flush.2 records");
    println!("{table}");
    assert!(!table.sites.is_empty() && table.survivors().is_empty(), "{table}");
}

/// Without room for a log or a leaf, what is in a leaf is changed in its place.
#[test]
fn a_full_pool_changes_items_in_place() {
    let (full, first, keys) = filled();
    let more = &keys[first as usize..];
    println!("{first} keys and {more:?} fill the pool");
    let setup = [Create("t")].into_iter().chain(keys.iter().map(|key| Insert("t", *key, *key))).collect();
    let ops = more.iter().rev().step_by(2).take(6).flat_map(|key| {
        let first = key - key % 10;
        [Insert("t", first, 1000), Upsert("t", first + 10, 1000), Remove("t", first + 10)]
    });
    let scenario = Scenario {
        name: "full",
        creation: false,
        setup,
        ops: ops.collect(),
        then: vec![Insert("t", 0, 5), Remove("t", 300), Remove("t", 330)],
    };
    let budget = Budget { depth: 1, ..Budget::of(32) };
    for mode in MODES {
        explore(&full, &scenario, mode, budget).assert_clean();
    }
    let table = mutate(&full, &[(scenario, Mode::Subset)], budget, "lodgetree place");
    println!("{table}");
    assert!(!table.sites.is_empty() && table.survivors().is_empty(), "{table}");
}

/// A pool, and the keys that fill it: so many (the number) ten apart, leaf after leaf; then two more for
/// each leaf, until nothing can be logged any more.
fn filled() -> (Forest<Words>, u64, Vec<u64>) {
    let full =
        Forest { geometry: Geometry { chunks_max: 6, ..forest::<Words>().geometry }, ..forest::<Words>() };
    let leaves = accepted(&full, (0..1000).map(|n| n * 10)).len() as u64 - 30;
    let more = (0..leaves / 3).flat_map(|leaf| [leaf * 30 + 1, leaf * 30 + 2]);
    let keys = accepted(&full, (0..leaves).map(|n| n * 10).chain(more));
    (full, leaves, keys)
}

/// Those of some keys that a pool has room for, one after the other.
fn accepted<I: Items>(forest: &Forest<I>, keys: impl Iterator<Item = u64>) -> Vec<u64> {
    run(forest, |_, tree| {
        let insert =
            |key| I::with_key(key, |of_key| I::with_value(key, |value| tree.insert(of_key, value).is_ok()));
        keys.filter(|key| insert(*key)).collect()
    })
}

/// Whether something is flushed because the walk has no room for copies of it.
fn flushes_what_fits(events: &[Event]) -> bool {
    let mut walked = false;
    events.iter().any(|event| match event {
        Event::Fence { step: "lodgetree walk.2", .. } => {
            walked = true;
            false
        }
        Event::Flush { step, .. } => {
            walked &= !step.starts_with("log append");
            walked && *step == "lodgetree flush.2"
        }
        _ => false,
    })
}

/// Writes numbers to keys in a pool that short logs and items fill, some of them in vain; which of the writes
/// had what is buffered flushed for want of room for copies.
fn crowd(full: &Forest<Words>, keys: u64, writes: u64) -> Vec<u64> {
    run(full, |sim, tree| {
        let (mut model, mut flushing) = (BTreeMap::new(), Vec::new());
        for n in 0..writes {
            sim.take_trace();
            if tree.insert(crowding(n, keys), n).is_ok() {
                model.insert(crowding(n, keys), n);
            }
            flushing.extend(flushes_what_fits(&sim.take_trace()).then_some(n));
        }
        assert!(tree.iter().eq(model) && tree.check().is_empty(), "{keys} keys");
        flushing
    })
}

fn crowding(n: u64, keys: u64) -> u64 {
    n * 37 % keys
}

/// In a pool full of short logs the walk cannot always copy what is buffered: that goes to leaves with room.
#[test]
fn what_cannot_be_logged_again_goes_to_leaves() {
    let of_chunks =
        |chunks_max| Forest { geometry: Geometry { chunks_max, ..forest::<Words>().geometry }, ..forest() };
    for chunks_max in 8..24 {
        for keys in [30, 60, 90, 120, 150, 200] {
            crowd(&of_chunks(chunks_max), keys, 600);
        }
    }
    let (full, keys) = (of_chunks(10), 90);
    let flushing = crowd(&full, keys, 600);
    assert!(flushing.len() >= 10, "writes {flushing:?}");
    let write = |n| Insert("t", crowding(n, keys), n);
    let scenario = |n: u64| Scenario {
        name: "crowded",
        creation: false,
        setup: [Create("t")].into_iter().chain((0..n).map(write)).collect(),
        ops: (n..n + 8).map(write).collect(),
        // Recovery may have to keep logs longer: then there is no room for more.
        then: vec![],
    };
    let budget = Budget { depth: 1, ..Budget::of(32) };
    for n in &flushing {
        for mode in MODES {
            explore(&full, &scenario(*n), mode, budget).assert_clean();
        }
    }
}

/// Not here: `place` and `flush.1`, which have tests of their own, and `merge.3`.
#[test]
fn every_flush_fence_and_order_is_needed() {
    let budget = Budget { life_crashes: 1, threads: 2, ..Budget::of(32) };
    let scenarios = |names: &[&str]| -> Vec<_> {
        let all = tree_scenarios().into_iter().filter(|scenario| names.contains(&scenario.name));
        all.map(|scenario| (scenario, Mode::Subset)).collect()
    };
    let mut table = Table::default();
    for (sites, names) in [
        ("lodgetree create", &["creation"][..]),
        ("lodgetree flush.2", &["insert"]),
        ("lodgetree flush.3", &["insert"]),
        ("lodgetree flush.4", &["insert"]),
        ("lodgetree split", &["insert", "creation", "split-ascending"]),
        ("lodgetree merge.2", &["delete"]),
    ] {
        table.merge(mutate(&forest::<Words>(), &scenarios(names), budget, sites));
    }
    table.merge(mutate(&single(), &[(stragglers(), Mode::Subset)], budget, "lodgetree walk"));
    for sites in ["lodgetree write", "lodgetree split.1 fence"] {
        table.merge(mutate(&forest::<Texts>(), &scenarios(&["insert"]), budget, sites));
    }
    println!("{table}");
    assert!(table.survivors().is_empty(), "{table}");
    let steps: BTreeSet<_> = table.sites.iter().map(|site| site.step).collect();
    assert_eq!(steps.len(), 13, "{steps:?}");
}
