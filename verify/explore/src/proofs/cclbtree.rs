//! CCL-BTree, in small leaves, with a log of a few entries a chunk.

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_pm::Geometry;
use bristlecone_sim::{Access, Budget, Scenario};

use super::{Proof, Steps, accepted, named};
use crate::targets::TreeOp::{self, Close, Create, Insert, Many, Remove};
use crate::targets::{Items, Texts, TreePool, Words};

/// Returns trees with some options, and inner nodes that split early.
pub fn tree_pool<I: Items>(options: &[(&'static str, u64)]) -> TreePool<I> {
    // The log of small trees is collected as early as in the paper.
    let mut all = vec![("inner_bytes", 256), ("collector_threads", 0), ("log_percent", 20)];
    all.extend(options);
    TreePool {
        geometry: Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 3 },
        design: Design::CclBTree.into(),
        options: all,
        items: PhantomData,
    }
}

/// Returns the smallest leaves, and five entries to a chunk of the log.
pub fn small<I: Items>() -> TreePool<I> {
    tree_pool(&[("leaf_slots", 4), ("log_entries", 5)])
}

/// Leaves without buffers, and no log.
pub fn base() -> TreePool<Words> {
    tree_pool(&[("leaf_slots", 4), ("batch", 0)])
}

/// Returns a scenario: all slots of a chunk are leaves, of which a merge frees one that the next split takes.
pub fn reuse() -> Scenario<TreeOp> {
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

/// Returns a scenario: without space for the log, values out of line are written over old ones in their leaves.
/// They must be durable before anything refers to them.
pub fn written_through() -> (TreePool<Texts>, Scenario<TreeOp>) {
    let tree_pool =
        TreePool { geometry: Geometry { chunks_max: 12, ..small::<Texts>().geometry }, ..small::<Texts>() };
    let fill = (0..1000).map(|n| Insert("t", n * 4, n * 4));
    let setup = accepted(&tree_pool, [Create("t")].into_iter().chain(fill));
    let key = |at: usize| at as u64 % 4 * 80 + at as u64 / 8 * 4;
    let ops = (0..16).map(|n| Insert("t", key(n), 1000 + 4 * n as u64));
    let scenario =
        Scenario { name: "written-through", creation: false, setup, ops: ops.collect(), then: vec![] };
    (tree_pool, scenario)
}

/// Returns a scenario: leaves of one tree hold more than they have space for, and another tree takes the space
/// that they need. Then the contents of a leaf are changed in place.
pub fn in_place<I: Items>() -> (TreePool<I>, Scenario<TreeOp>) {
    let tree_pool =
        TreePool { geometry: Geometry { chunks_max: 12, ..small::<I>().geometry }, ..small::<I>() };
    // 16 full leaves, and in the buffers of some two more keys.
    let items = (0..64).map(|n| n * 12).chain((0..8).flat_map(|leaf| [leaf * 48 + 4, leaf * 48 + 8]));
    let others = (0..1000).map(|n| Insert("u", n * 4, n * 4));
    let setup = [Create("t")].into_iter().chain(items.map(|key| Insert("t", key, key)));
    let setup = accepted(&tree_pool, setup.chain([Create("u")]).chain(others));
    let ops = (0..8).flat_map(|leaf| [Insert("t", leaf * 48 + 24, 1000), Remove("t", leaf * 48 + 36)]);
    let then = vec![Insert("t", 24, 1004), Remove("t", 48), Close, Remove("t", 60)];
    (tree_pool, Scenario { name: "in-place", creation: false, setup, ops: ops.collect(), then })
}

/// Returns a scenario: calls of two keys fill the buffers of two leaves, and then flush them, also together with a key that
/// is logged.
fn grouped() -> Scenario<TreeOp> {
    let setup = [Create("t")].into_iter().chain((0..24).map(|at| Insert("t", at * 7 % 24 * 4, at)));
    let inserted = |keys: [u64; 2]| Many("t", keys.map(|key| (key, Access::Insert(300 + key))).into());
    let ops = [[1, 93], [2, 94], [3, 95], [5, 45], [46, 91], [6, 47]].map(inserted);
    Scenario { name: "grouped", creation: false, setup: setup.collect(), ops: ops.into(), then: vec![] }
}

type Scenarios = fn() -> Vec<Scenario<TreeOp>>;

/// Returns groups of steps, each with the test that detects a mutation there soonest.
pub(super) fn proofs() -> Vec<Proof> {
    let budget = Budget { continuation_crashes: 1, ..Budget::of(32) };
    let starting = Steps::Starting;
    let groups: [(&str, Scenarios); 5] = [
        ("cclbtree create", || named(&["creation", "begun"])),
        ("cclbtree flush", || named(&["insert", "delete"])),
        ("cclbtree split", || named(&["insert", "creation"])),
        ("cclbtree merge", || named(&["delete", "close"])),
        ("cclbtree collect", || named(&["expand", "churn"])),
    ];
    let words = groups.into_iter().map(|(steps, scenarios)| {
        Proof::by_crashes(starting(steps), budget, move || (small::<Words>(), scenarios()))
    });
    let in_place_only = Budget { depth: 1, continuation_crashes: 32, ..budget };
    let others = [
        Proof::by_crashes(starting("cclbtree flush.2"), budget, || (base(), named(&["update"]))),
        Proof::by_crashes(starting("cclbtree merge.3"), budget, || (base(), vec![reuse()])),
        Proof::by_crashes(Steps::Among(&["log copy.2 group", "log copy.3 group"]), budget, || {
            (small::<Words>(), vec![grouped()])
        }),
        Proof::by_crashes(starting("cclbtree write"), budget, || {
            (small::<Texts>(), named(&["insert", "expand", "update"]))
        }),
        Proof::by_crashes(starting("cclbtree flush.2 records"), budget, || {
            let (full, scenario) = written_through();
            (full, vec![scenario])
        }),
        Proof::by_crashes(starting("cclbtree place"), in_place_only, || {
            let (full, scenario) = in_place::<Texts>();
            (full, vec![scenario])
        }),
    ];
    words.chain(others).collect()
}
