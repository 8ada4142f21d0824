//! Crashes of CCL-BTree, in small leaves, with a log of a few entries a chunk.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_pm::Geometry;
use bristlecone_sim::systems::TreeOp::{self, Close, Create, Insert, Remove, Upsert};
use bristlecone_sim::systems::{Forest, Items, Texts, Words, tree_scenarios};
use bristlecone_sim::{Budget, Mode, Report, Scenario, Sim, System, Table, explore, mutate};

const MODES: [Mode; 3] = [Mode::Prefix, Mode::Subset, Mode::Eadr];

fn forest<I: Items>(options: &[(&'static str, u64)]) -> Forest<I> {
    // The log of small trees is collected as early as the paper's.
    let mut all = vec![("inner_bytes", 256), ("collector_threads", 0), ("log_percent", 20)];
    all.extend(options);
    Forest {
        geometry: Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 3 },
        design: Design::CclBTree.into(),
        options: all,
        items: PhantomData,
    }
}

/// Explores the scenarios and fails with everything that was found.
fn survives<I: Items>(
    forest: &Forest<I>,
    scenarios: &[Scenario<TreeOp>],
    modes: &[Mode],
    budget: Budget,
) -> Report {
    let mut total = Report { scenario: "all".to_owned(), ..Report::default() };
    for scenario in scenarios {
        for mode in modes {
            let report = explore(forest, scenario, *mode, budget);
            println!("{report}");
            total.merge(report);
        }
    }
    println!("{total}");
    total.assert_clean();
    total
}

/// What is enough for shapes that have the same steps as another one.
fn brief() -> Budget {
    Budget { exhaustive: 128, sampled: 32, nested: (32, 8), ..Budget::quick() }
}

fn small<I: Items>() -> Forest<I> {
    forest(&[("leaf_slots", 4), ("log_entries", 5)])
}

fn base() -> Forest<Words> {
    forest(&[("leaf_slots", 4), ("batch", 0)])
}

/// One entry a chunk: every other write begins or ends a collection.
fn restless() -> Forest<Words> {
    forest(&[("leaf_slots", 4), ("log_entries", 1)])
}

/// All slots of a chunk are leaves, of which a merge gives one back that the next split takes.
fn reuse() -> Scenario<TreeOp> {
    let removed = [72, 96, 40].into_iter().flat_map(|first| (first..first + 8).step_by(2));
    let setup = (0..=60).map(|key| Insert("t", key * 2, key));
    let setup = [Create("t")].into_iter().chain(setup).chain(removed.take(11).map(|key| Remove("t", key)));
    Scenario {
        name: "reuse-of-a-leaf",
        creation: false,
        setup: setup.collect(),
        ops: vec![Remove("t", 46), Insert("t", 19, 1), Remove("t", 19)],
        then: vec![Insert("t", 21, 2)],
    }
}

/// Chunks of the log have used up their generations.
fn generations() -> Scenario<TreeOp> {
    let updates = |range: std::ops::Range<u64>| range.map(|n| Insert("t", n % 3, n));
    Scenario {
        name: "generations",
        creation: false,
        setup: [Create("t")].into_iter().chain(updates(0..GENERATIONS_USED)).collect(),
        ops: updates(GENERATIONS_USED..GENERATIONS_USED + 12).collect(),
        then: vec![Insert("t", 1, 1), Insert("t", 7, 2), Remove("t", 2), Close, Insert("t", 3, 3)],
    }
}

/// Writes until chunks of a restless log have had 255 generations.
const GENERATIONS_USED: u64 = 760;

#[test]
fn words() {
    survives(&small::<Words>(), &tree_scenarios(), &MODES, Budget { exhaustive: 512, ..brief() });
}

#[test]
fn words_in_larger_batches() {
    let options = [("leaf_slots", 6), ("batch", 4), ("log_entries", 7)];
    survives(&forest::<Words>(&options), &tree_scenarios(), &[Mode::Subset], brief());
}

#[test]
fn words_all_logged() {
    let options = [("leaf_slots", 5), ("log_entries", 4), ("log_all", 1)];
    survives(&forest::<Words>(&options), &tree_scenarios(), &[Mode::Subset], brief());
}

#[test]
fn words_without_buffers() {
    survives(&base(), &tree_scenarios(), &[Mode::Subset], brief());
    survives(&base(), &[reuse()], &MODES, brief());
}

#[test]
fn words_collected_naively() {
    let options = [("leaf_slots", 4), ("log_entries", 5), ("naive_collection", 1)];
    survives(&forest::<Words>(&options), &tree_scenarios(), &[Mode::Subset], brief());
}

#[test]
fn words_collected_at_every_turn() {
    survives(&restless(), &tree_scenarios(), &[Mode::Subset], brief());
    survives(&restless(), &[generations()], &MODES, brief());
}

/// Keys and values out of line.
#[test]
fn texts() {
    survives(
        &small::<Texts>(),
        &tree_scenarios(),
        &MODES,
        Budget { exhaustive: 32, sampled: 16, depth: 1, ..brief() },
    );
}

/// Word keys with values out of line.
#[derive(Clone, Copy)]
struct Notes;

impl Items for Notes {
    type K = u64;
    type V = &'static str;

    fn with_key<R>(number: u64, show: impl FnOnce(u64) -> R) -> R {
        show(number)
    }
    fn with_value<R>(number: u64, show: impl FnOnce(&str) -> R) -> R {
        Texts::with_value(number, show)
    }
    fn key_number(key: &u64) -> Result<u64, String> {
        Ok(*key)
    }
    fn value_number(value: &String) -> Result<u64, String> {
        Texts::value_number(value)
    }
}

/// Keys that the leaf has or has not, that pend or were removed, are given values by writes that do not
/// look, and then changed by others that do.
fn unseen() -> Scenario<TreeOp> {
    let setup =
        (0..12).map(|n| if n % 4 == 3 { Insert("t", n * 7 % 24, n) } else { Upsert("t", n * 7 % 24, n) });
    let key = |n: u64| n * 5 % 24;
    let ops = (0..28).map(|n| match n % 7 {
        3 => Remove("t", key(n - 1)),
        4 => Upsert("t", key(n - 2), 100 + n),
        6 => Insert("t", key(n), 100 + n),
        _ => Upsert("t", key(n), 100 + n),
    });
    let then =
        (0..9).map(|n| Upsert("t", n * 11 % 27, 200 + n)).chain([Remove("t", 11), Close, Remove("t", 5)]);
    let then = then.chain((0..9).map(|n| Upsert("t", n * 5 % 27, 300 + n))).chain([Remove("t", 10), Close]);
    Scenario {
        name: "unseen",
        creation: false,
        setup: [Create("t")].into_iter().chain(setup).collect(),
        ops: ops.collect(),
        then: then.collect(),
    }
}

#[test]
fn upserts_that_do_not_look() {
    survives(&small::<Words>(), &[unseen()], &MODES, brief());
    survives(&small::<Notes>(), &[unseen()], &[Mode::Subset], brief());
    survives(&small::<Texts>(), &[unseen()], &[Mode::Subset], Budget { exhaustive: 32, ..brief() });
    let larger = forest::<Words>(&[("leaf_slots", 6), ("batch", 4), ("log_entries", 7)]);
    survives(&larger, &[unseen()], &[Mode::Subset], brief());
}

/// The scenarios of these names.
fn named(names: &[&str]) -> Vec<Scenario<TreeOp>> {
    let all = tree_scenarios().into_iter();
    all.filter(|scenario| names.contains(&scenario.name)).collect()
}

/// Operations that a pool has room for, one after the other.
fn accepted<I: Items>(forest: &Forest<I>, ops: impl Iterator<Item = TreeOp>) -> Vec<TreeOp> {
    let mut live = forest.create(&Sim::new(&forest.memory())).unwrap();
    let accepted = ops.filter(|op| forest.apply(&mut live, op).is_ok()).collect();
    forest.abandon(live);
    accepted
}

/// Without room for the log, values out of line go over old ones in their leaves; they have to be there
/// before anybody refers to them.
fn written_through() -> (Forest<Texts>, Scenario<TreeOp>) {
    let forest =
        Forest { geometry: Geometry { chunks_max: 12, ..small::<Texts>().geometry }, ..small::<Texts>() };
    let fill = (0..1000).map(|n| Insert("t", n * 4, n * 4));
    let setup = accepted(&forest, [Create("t")].into_iter().chain(fill));
    let key = |at: usize| at as u64 % 4 * 80 + at as u64 / 8 * 4;
    let ops = (0..16).map(|n| Insert("t", key(n), 1000 + 4 * n as u64));
    let scenario =
        Scenario { name: "written-through", creation: false, setup, ops: ops.collect(), then: vec![] };
    (forest, scenario)
}

#[test]
fn a_full_pool_writes_values_before_leaves_name_them() {
    let (forest, scenario) = written_through();
    let budget = Budget { depth: 1, ..Budget::of(32) };
    let report = survives(&forest, std::slice::from_ref(&scenario), &MODES, budget);
    assert!(report.sites.iter().any(|site| site.step == "cclbtree flush.2 records"), "all was logged");
}

/// Leaves of one tree hold more than they have room for, and another tree takes the room that they
/// need: then what a leaf holds is changed in its place.
fn in_place<I: Items>() -> (Forest<I>, Scenario<TreeOp>) {
    let forest = Forest { geometry: Geometry { chunks_max: 12, ..small::<I>().geometry }, ..small::<I>() };
    // 16 full leaves, and with their buffers two keys more for some.
    let ours = (0..64).map(|n| n * 12).chain((0..8).flat_map(|leaf| [leaf * 48 + 4, leaf * 48 + 8]));
    let theirs = (0..1000).map(|n| Insert("u", n * 4, n * 4));
    let setup = [Create("t")].into_iter().chain(ours.map(|key| Insert("t", key, key)));
    let setup = accepted(&forest, setup.chain([Create("u")]).chain(theirs));
    let ops = (0..8).flat_map(|leaf| [Insert("t", leaf * 48 + 24, 1000), Remove("t", leaf * 48 + 36)]);
    let then = vec![Insert("t", 24, 1004), Remove("t", 48), Close, Remove("t", 60)];
    (forest, Scenario { name: "in-place", creation: false, setup, ops: ops.collect(), then })
}

#[test]
fn a_full_pool_changes_items_in_place() {
    let budget = Budget { depth: 1, ..Budget::of(32) };
    let (words, in_words) = in_place::<Words>();
    let (texts, in_texts) = in_place::<Texts>();
    let mut report = survives(&words, &[in_words], &MODES, budget);
    report.merge(survives(&texts, &[in_texts], &MODES, budget));
    for step in ["cclbtree place.1", "cclbtree place.2"] {
        assert!(report.sites.iter().any(|site| site.step == step), "{step} was not passed");
    }
}

/// The same, with what pends in the buffers: it changes and goes although the log has no room either,
/// because entries may stand behind the copies that a collection made.
fn pending<I: Items>() -> (Forest<I>, Scenario<TreeOp>) {
    let shape = forest::<I>(&[("leaf_slots", 4), ("log_entries", 80)]);
    let forest = Forest { geometry: Geometry { chunks_max: 12, ..shape.geometry }, ..shape };
    let (held, first) = ((0..64).map(|n| n * 12), |leaf: u64| leaf * 48 + 4);
    let ours = held.chain((0..8).flat_map(|leaf| [first(leaf), first(leaf) + 4]));
    let theirs = (0..1000).map(|n| Insert("u", n * 4, n * 4));
    let setup = [Create("t")].into_iter().chain(ours.map(|key| Insert("t", key, key)));
    let fill_log = (0..120).map(|n| Insert("t", first(n % 8), 4 * n));
    let setup = accepted(&forest, setup.chain([Create("u")]).chain(theirs).chain(fill_log));
    let ops = (0..4).flat_map(|leaf| [Insert("t", first(leaf) + 4, 1000), Remove("t", first(leaf))]);
    // After a crash amid a collection its copies take the chunk that was spared for them.
    let then = vec![Insert("t", 24, 1004), Remove("t", 48), Close, Remove("t", 60)];
    (forest, Scenario { name: "pending", creation: false, setup, ops: ops.collect(), then })
}

#[test]
fn a_full_pool_changes_and_removes_what_pends() {
    let budget = Budget { depth: 1, ..Budget::of(32) };
    let (forest, scenario) = pending::<Words>();
    survives(&forest, &[scenario], &MODES, budget);
}

/// Groups of sites, each with what notices a change there soonest.
#[test]
fn every_flush_fence_and_order_is_needed() {
    let budget = Budget { life_crashes: 1, threads: 2, ..Budget::of(32) };
    let mut table = Table::default();
    for (sites, names) in [
        ("cclbtree create", &["creation"][..]),
        ("cclbtree flush", &["insert", "delete"]),
        ("cclbtree split", &["insert", "creation"]),
        ("cclbtree merge", &["delete", "close"]),
        ("cclbtree collect", &["expand", "churn"]),
    ] {
        table.merge(mutate(&small::<Words>(), &in_subset(named(names)), budget, sites));
    }
    table.merge(mutate(&base(), &in_subset(vec![reuse()]), budget, "cclbtree merge.3"));
    let texts = in_subset(named(&["insert", "expand", "update"]));
    table.merge(mutate(&small::<Texts>(), &texts, budget, "cclbtree write"));
    let (full, scenario) = written_through();
    table.merge(mutate(&full, &in_subset(vec![scenario]), budget, "cclbtree flush.2 records"));
    let (full, scenario) = in_place::<Texts>();
    let budget = Budget { depth: 1, life_crashes: 32, ..budget };
    table.merge(mutate(&full, &in_subset(vec![scenario]), budget, "cclbtree place"));
    println!("{table}");
    assert!(table.survivors().is_empty(), "{table}");
    let steps: BTreeSet<_> = table.sites.iter().map(|site| site.step).collect();
    assert_eq!(steps.len(), 18, "{steps:?}");
}

fn in_subset(scenarios: Vec<Scenario<TreeOp>>) -> Vec<(Scenario<TreeOp>, Mode)> {
    scenarios.into_iter().map(|scenario| (scenario, Mode::Subset)).collect()
}
