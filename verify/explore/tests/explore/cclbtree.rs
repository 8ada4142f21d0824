//! Crashes of CCL-BTree, in small leaves, with a log of a few entries a chunk.

use bristlecone::Design;
use bristlecone_explore::proofs::accepted;
use bristlecone_explore::proofs::cclbtree::{base, in_place, reuse, small, tree_pool, written_through};
use bristlecone_explore::targets::TreeOp::{self, Close, Create, Insert, Remove, Upsert};
use bristlecone_explore::targets::{Items, Notes, Texts, TreePool, Words, tree_scenarios};
use bristlecone_pm::Geometry;
use bristlecone_sim::{Budget, Mode, Report, Scenario, explore};

use crate::effort::{modes, share};
use crate::mutations::every_step_is_needed;

const MODES: [Mode; 3] = [Mode::Prefix, Mode::Subset, Mode::Eadr];

/// Explores the scenarios and fails with all issues.
fn survives<I: Items>(
    tree_pool: &TreePool<I>,
    scenarios: &[Scenario<TreeOp>],
    modes: &[Mode],
    budget: Budget,
) -> Report {
    let all: Vec<_> =
        scenarios.iter().flat_map(|scenario| modes.iter().map(move |mode| (scenario, *mode))).collect();
    explored(tree_pool, &all, budget)
}

/// Explores some of the scenarios in a quick run.
fn some_survive<I: Items>(
    tree_pool: &TreePool<I>,
    scenarios: &[Scenario<TreeOp>],
    modes: &[Mode],
    budget: Budget,
) {
    let all = scenarios.iter().flat_map(|scenario| modes.iter().map(move |mode| (scenario, *mode)));
    explored(tree_pool, &share(all, SHARE), budget);
}

/// A quick run takes one in this many scenarios and modes.
const SHARE: u64 = 16;

fn explored<I: Items>(tree_pool: &TreePool<I>, some: &[(&Scenario<TreeOp>, Mode)], budget: Budget) -> Report {
    let mut total = Report { scenario: "all".to_owned(), ..Report::default() };
    for (scenario, mode) in some {
        let report = explore(tree_pool, scenario, *mode, budget);
        println!("{report}");
        total.merge(report);
    }
    println!("{total}");
    total.assert_clean();
    total
}

/// Returns a sufficient budget for shapes with the same steps as another one.
fn brief() -> Budget {
    Budget { exhaustive: 128, sampled: 32, nested: (32, 8), ..Budget::quick() }
}

/// One entry a chunk: every other write begins or ends a collection.
fn restless() -> TreePool<Words> {
    tree_pool(&[("leaf_slots", 4), ("log_entries", 1)])
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

/// Writes until chunks of a restless log have used up their generations.
const GENERATIONS_USED: u64 = 380;

#[test]
fn words_survive_every_crash() {
    some_survive(&small::<Words>(), &tree_scenarios(), &MODES, Budget { exhaustive: 512, ..brief() });
}

#[test]
fn words_in_larger_batches_survive_every_crash() {
    let options = [("leaf_slots", 6), ("batch", 4), ("log_entries", 7)];
    some_survive(&tree_pool::<Words>(&options), &tree_scenarios(), &[Mode::Subset], brief());
}

#[test]
fn words_all_logged_survive_every_crash() {
    let options = [("leaf_slots", 5), ("log_entries", 4), ("log_all", 1)];
    some_survive(&tree_pool::<Words>(&options), &tree_scenarios(), &[Mode::Subset], brief());
}

#[test]
fn words_without_buffers_survive_every_crash() {
    some_survive(&base(), &tree_scenarios(), &[Mode::Subset], brief());
    some_survive(&base(), &[reuse()], &MODES, brief());
}

#[test]
fn words_collected_naively_survive_every_crash() {
    let options = [("leaf_slots", 4), ("log_entries", 5), ("naive_collection", 1)];
    some_survive(&tree_pool::<Words>(&options), &tree_scenarios(), &[Mode::Subset], brief());
}

#[test]
fn words_collected_at_every_rotation_survive_every_crash() {
    some_survive(&restless(), &tree_scenarios(), &[Mode::Subset], brief());
    some_survive(&restless(), &[generations()], &MODES, brief());
}

/// Keys and values out of line.
#[test]
fn texts_survive_every_crash() {
    some_survive(
        &small::<Texts>(),
        &tree_scenarios(),
        &MODES,
        Budget { exhaustive: 32, sampled: 16, depth: 1, ..brief() },
    );
}

/// Keys that the leaf has or lacks, that are buffered or were removed, get values by writes that do not
/// read, and then are changed by others that do.
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
fn blind_upserts_survive_every_crash() {
    some_survive(&small::<Words>(), &[unseen()], &MODES, brief());
    some_survive(&small::<Notes>(), &[unseen()], &[Mode::Subset], brief());
    some_survive(&small::<Texts>(), &[unseen()], &[Mode::Subset], Budget { exhaustive: 32, ..brief() });
    let larger = tree_pool::<Words>(&[("leaf_slots", 6), ("batch", 4), ("log_entries", 7)]);
    some_survive(&larger, &[unseen()], &[Mode::Subset], brief());
}

#[test]
fn full_pool_write_persists_values_before_leaves_name_them() {
    let (tree_pool, scenario) = written_through();
    let budget = Budget { depth: 1, ..Budget::of(32) };
    let report = survives(&tree_pool, std::slice::from_ref(&scenario), &MODES, budget);
    assert!(report.sites.iter().any(|site| site.step == "cclbtree flush.2 records"), "all was logged");
}

#[test]
fn full_pool_update_changes_items_in_place() {
    let budget = Budget { depth: 1, ..Budget::of(32) };
    let (words, in_words) = in_place::<Words>();
    let (texts, in_texts) = in_place::<Texts>();
    let mut report = survives(&words, &[in_words], &modes(), budget);
    report.merge(survives(&texts, &[in_texts], &modes(), budget));
    for step in ["cclbtree place.1", "cclbtree place.2"] {
        assert!(report.sites.iter().any(|site| site.step == step), "{step} was not passed");
    }
}

/// The same, for buffered items: they are changed and removed although the log has no space either,
/// because entries may follow the copies of a collection.
fn pending<I: Items>() -> (TreePool<I>, Scenario<TreeOp>) {
    let shape = tree_pool::<I>(&[("leaf_slots", 4), ("log_entries", 80)]);
    let tree_pool = TreePool { geometry: Geometry { chunks_max: 12, ..shape.geometry }, ..shape };
    let (held, first) = ((0..64).map(|n| n * 12), |leaf: u64| leaf * 48 + 4);
    let ours = held.chain((0..8).flat_map(|leaf| [first(leaf), first(leaf) + 4]));
    let theirs = (0..1000).map(|n| Insert("u", n * 4, n * 4));
    let setup = [Create("t")].into_iter().chain(ours.map(|key| Insert("t", key, key)));
    let fill_log = (0..120).map(|n| Insert("t", first(n % 8), 4 * n));
    let setup = accepted(&tree_pool, setup.chain([Create("u")]).chain(theirs).chain(fill_log));
    let ops = (0..4).flat_map(|leaf| [Insert("t", first(leaf) + 4, 1000), Remove("t", first(leaf))]);
    // After a crash during a collection its copies take the chunk that was reserved for them.
    let then = vec![Insert("t", 24, 1004), Remove("t", 48), Close, Remove("t", 60)];
    (tree_pool, Scenario { name: "pending", creation: false, setup, ops: ops.collect(), then })
}

#[test]
fn full_pool_changes_and_removes_what_pends() {
    let budget = Budget { depth: 1, ..Budget::of(32) };
    let (tree_pool, scenario) = pending::<Words>();
    survives(&tree_pool, &[scenario], &MODES, budget);
}

#[test]
fn every_flush_fence_and_order_is_needed() {
    every_step_is_needed(Design::CclBTree, 30, &[]);
}
