//! LodgeTree, in small leaves, with a log of a few entries.

use std::marker::PhantomData;

use bristlecone::lab::pool_on_any;
use bristlecone::{Design, Tree};
use bristlecone_pm::{Geometry, PoolFile};
use bristlecone_sim::{Budget, Memory, Scenario, Sim};

use super::{Proof, Steps, accepted, insert, named, scenario};
use crate::targets::TreeOp::{self, Close, Create, Elsewhere, Insert, Remove, Upsert};
use crate::targets::{Items, Texts, TreePool, Words, any_medium};

/// Returns a pool of the smallest nodes and leaves, and four entries to a chunk of the log.
pub fn tree_pool<I: Items>() -> TreePool<I> {
    TreePool {
        geometry: Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 3 },
        design: Design::LodgeTree.into(),
        options: vec![("node_slots", 6), ("leaf_slots", 3), ("log_entries", 4), ("inner_bytes", 256)],
        items: PhantomData,
    }
}

/// Returns a larger pool with the same sizes.
pub fn in_larger_pool<I: Items>() -> TreePool<I> {
    TreePool { geometry: Geometry { chunks_max: 64, ..tree_pool::<I>().geometry }, ..tree_pool::<I>() }
}

/// Entries of a log, one of which pins an old segment.
pub const STRAGGLER_LOG: u64 = 8;

/// Flushes write one leaf each, so that many items stay in the buffers.
pub fn single() -> TreePool<Words> {
    let mut single = in_larger_pool();
    single.options.retain(|(name, _)| *name != "log_entries");
    single.options.extend([("flush_leaves", 1), ("log_entries", STRAGGLER_LOG)]);
    single
}

/// Returns a scenario: each log has one item that is moved to a node where no write flushes it, until there are enough
/// for these to be logged again.
pub fn old_entry() -> Scenario<TreeOp> {
    let write = |key, value| Insert("t", key, value);
    let fill = (0..96).map(|n| write(n * 37 % 96 * 10, n));
    let log = |n: u64| {
        let others = (0..STRAGGLER_LOG - 1).map(move |other| write(2000 + other, n));
        [write(n * 7 % 24 * 40, 100 + n)].into_iter().chain(others)
    };
    Scenario {
        name: "old-entry",
        creation: false,
        setup: [Create("t")].into_iter().chain(fill).chain((0..24).flat_map(log)).collect(),
        ops: (24..34).flat_map(log).collect(),
        then: vec![Insert("t", 50, 1), Close, Remove("t", 40), Insert("t", 40, 2), Close],
    }
}

/// Runs work on a new tree of a tree pool.
///
/// # Panics
///
/// If there is no space for one.
pub fn run<I: Items, R>(tree_pool: &TreePool<I>, work: impl FnOnce(&Sim, &Tree<I::K, I::V>) -> R) -> R {
    let memory = Memory::of_pool(&tree_pool.geometry);
    let sim = Sim::new(&memory);
    let file = PoolFile::create_in(sim.region(), tree_pool.geometry, sim.domain(), any_medium(&sim)).unwrap();
    let pool = pool_on_any(file).unwrap();
    let tree = pool.tree_options("t").design(Design::LodgeTree);
    let tree = tree_pool.options.iter().fold(tree, |tree, (name, value)| tree.option(name, *value));
    let done = work(&sim, &tree.create().unwrap());
    pool.simulate_crash();
    done
}

/// Leaves of the first tree of a full pool: all of a chunk.
const LEAVES: u64 = 64;
/// Those of them whose buffers hold two keys more than they have space for.
const OVERFLOWING: u64 = 16;

/// Returns a full pool, and the operations that fill it: a tree that holds more than its leaves have space for,
/// without the `missing` last of its keys, and another one that takes the space that those would need.
fn filled<I: Items>(missing: usize) -> (TreePool<I>, Vec<TreeOp>) {
    let full = tree_pool::<I>();
    let more = (0..OVERFLOWING).flat_map(|leaf| [leaf * 30 + 1, leaf * 30 + 2]);
    let items: Vec<_> = (0..LEAVES * 3).map(|n| n * 10).chain(more).map(insert).collect();
    let items = items[..items.len() - missing].iter().cloned();
    let others = (0..1000).map(|n| Insert("u", n * 10, n));
    let ops = accepted(&full, [Create("t")].into_iter().chain(items).chain([Create("u")]).chain(others));
    (full, ops)
}

/// Returns a scenario: a leaf is full, a removal is buffered for it, and a new item takes the removed one's slot. If
/// the new one is not logged, a crash could combine it with the value of the removed one.
fn given_up() -> (TreePool<Words>, Vec<Scenario<TreeOp>>) {
    // The first items of two full leaves.
    let [first, second] = [OVERFLOWING * 30, (OVERFLOWING + 1) * 30];
    let new = |key| Insert("t", key + 11, 5);
    let ops = || vec![Remove("t", first), Remove("t", second), new(first), new(second)];
    // The log's last entry belongs to one of the first removals in some of the scenarios.
    let scenarios = (0..4).map(|missing| Scenario {
        name: "full",
        creation: false,
        setup: filled::<Words>(missing).1,
        ops: ops(),
        then: vec![],
    });
    (filled::<Words>(0).0, scenarios.collect())
}

/// Returns a scenario: without space for a log, values out of line are written over old ones in their leaves. They
/// must be durable before anything refers to them.
pub fn written_through() -> (TreePool<Texts>, Scenario<TreeOp>) {
    let full = TreePool {
        geometry: Geometry { chunks_max: 12, ..tree_pool::<Texts>().geometry },
        ..tree_pool::<Texts>()
    };
    // Leaves run out first: when nothing can be logged, there are still slots for values, which have one size.
    let setup = accepted(&full, [Create("t")].into_iter().chain((0..1000).map(|n| insert(n * 4))));
    let ops = (0..16).map(|n| Insert("t", (n % 4 * 20 + n / 8) * 4, 1000 + 4 * n));
    (full, Scenario { name: "full", creation: false, setup, ops: ops.collect(), then: vec![] })
}

/// Returns a scenario: without space for a log or a leaf, the contents of a leaf are changed in place.
pub fn in_place<I: Items>() -> (TreePool<I>, Scenario<TreeOp>) {
    let (full, setup) = filled::<I>(0);
    let ops = (OVERFLOWING - 6..OVERFLOWING).flat_map(|leaf| {
        let first = leaf * 30;
        [Insert("t", first, 1000), Upsert("t", first + 10, 1000), Remove("t", first + 10)]
    });
    let then = vec![Insert("t", 0, 5), Remove("t", 300), Remove("t", 330)];
    (full, Scenario { name: "full", creation: false, setup, ops: ops.collect(), then })
}

/// Leaves merge at the end of removals, by threads that do not fence again; then others split into the freed leaves,
/// where all leaves of a chunk are taken.
fn merged() -> Vec<Scenario<TreeOp>> {
    let of = |keys: u64| {
        let setup = (0..keys).map(|key| insert(key * 10));
        let removed = (3..9).map(|at| Elsewhere(Box::new(Remove("t", at * 10))));
        let more = (0..12).map(|at| insert(keys * 10 + at));
        scenario("merged", setup, removed.chain(more).collect::<Vec<_>>(), vec![])
    };
    [24, 32, 40, 48, 56, 64, 72, 80].map(of).into_iter().chain([192].map(merged_in_a_full_chunk)).collect()
}

/// Returns merges in a chunk whose leaves were all taken and of which enough are free again for it to be reused: the
/// leaf that a merge frees is used next.
fn merged_in_a_full_chunk(keys: u64) -> Scenario<TreeOp> {
    let remove = |at: u64| Elsewhere(Box::new(Remove("t", at * 10)));
    let setup = (0..keys).map(|key| insert(key * 10)).chain((96..180).map(remove));
    let more = (0..12).map(|at| insert(3000 + at));
    scenario("merged-in-a-full-chunk", setup, (3..9).map(remove).chain(more).collect::<Vec<_>>(), vec![])
}

type Scenarios = fn() -> Vec<Scenario<TreeOp>>;

/// Returns groups of steps, each with the test that detects a mutation there soonest.
pub(super) fn proofs() -> Vec<Proof> {
    let starting = Steps::Starting;
    let budget = Budget { continuation_crashes: 1, ..Budget::of(32) };
    let shallow = Budget { depth: 1, ..Budget::of(32) };
    // There are many operations before and after a compaction pass; one that does not wait loses its copies at the
    // first crash.
    let few = Budget { depth: 1, continuation_crashes: u32::MAX, ..Budget::of(4) };
    let groups: [(&str, Scenarios); 6] = [
        ("lodgetree create", || named(&["creation", "begun"])),
        ("lodgetree flush.2", || named(&["insert"])),
        ("lodgetree flush.3", || named(&["insert"])),
        ("lodgetree flush.4", || named(&["insert"])),
        ("lodgetree split", || named(&["insert", "creation", "split-ascending"])),
        ("lodgetree merge.2", || named(&["delete"])),
    ];
    let words = groups.into_iter().map(|(steps, scenarios)| {
        Proof::by_crashes(starting(steps), budget, move || (tree_pool::<Words>(), scenarios()))
    });
    let texts = ["lodgetree write", "lodgetree split.1 fence"].into_iter().map(|steps| {
        Proof::by_crashes(starting(steps), budget, || (tree_pool::<Texts>(), named(&["insert"])))
    });
    let others = [
        Proof::by_crashes(starting("lodgetree compact"), few, || (single(), vec![old_entry()])),
        Proof::by_crashes(starting("lodgetree merge.3"), shallow, || (tree_pool::<Words>(), merged())),
        Proof::by_crashes(starting("lodgetree flush.1"), shallow, given_up),
        Proof::by_crashes(starting("lodgetree flush.2 records"), shallow, || {
            let (full, scenario) = written_through();
            (full, vec![scenario])
        }),
        Proof::by_crashes(starting("lodgetree place"), shallow, || {
            let (full, scenario) = in_place::<Texts>();
            (full, vec![scenario])
        }),
    ];
    words.chain(texts).chain(others).collect()
}
