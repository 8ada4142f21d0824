//! LodgeTree, in small leaves, with a log of a few entries.

use std::marker::PhantomData;

use bristlecone::{Design, Pool, Tree};
use bristlecone_pm::{Geometry, PoolFile};

use super::{Proof, Steps, insert, named, scenario};
use crate::explore::Budget;
use crate::memory::Memory;
use crate::sim::Sim;
use crate::system::Scenario;
use crate::systems::TreeOp::{self, Close, Create, Elsewhere, Insert, Remove, Upsert};
use crate::systems::{Forest, Items, Texts, Words};

/// The smallest nodes and leaves, and four entries to a chunk of the log.
pub fn forest<I: Items>() -> Forest<I> {
    Forest {
        geometry: Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 3 },
        design: Design::LodgeTree.into(),
        options: vec![("node_slots", 6), ("leaf_slots", 3), ("log_entries", 4), ("inner_bytes", 256)],
        items: PhantomData,
    }
}

/// The same in a larger pool.
pub fn roomy<I: Items>() -> Forest<I> {
    Forest { geometry: Geometry { chunks_max: 64, ..forest::<I>().geometry }, ..forest::<I>() }
}

/// Entries of a log, one of which is a straggler's.
pub const STRAGGLER_LOG: u64 = 8;

/// Flushes write one leaf each, so that much stays in the buffers.
pub fn single() -> Forest<Words> {
    let mut single = roomy();
    single.options.retain(|(name, _)| *name != "log_entries");
    single.options.extend([("flush_leaves", 1), ("log_entries", STRAGGLER_LOG)]);
    single
}

/// Log after log has one item that goes to a node where nobody flushes it, until there are so many
/// that these are logged again.
pub fn stragglers() -> Scenario<TreeOp> {
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

/// Does something to a new tree of a forest's kind.
///
/// # Panics
///
/// If there is no room for one.
pub fn run<I: Items, R>(forest: &Forest<I>, work: impl FnOnce(&Sim, &Tree<I::K, I::V, Sim>) -> R) -> R {
    let memory = Memory::new(forest.geometry.max_bytes() as usize);
    let sim = Sim::new(&memory);
    let file = PoolFile::create_in(memory.region(), forest.geometry, sim.domain(), sim.clone()).unwrap();
    let pool = Pool::on(file, 1);
    let tree = pool.tree_options("t").design(Design::LodgeTree);
    let tree = forest.options.iter().fold(tree, |tree, (name, value)| tree.option(name, *value));
    let done = work(&sim, &tree.create().unwrap());
    pool.simulate_crash();
    done
}

/// A pool, and the keys that fill it: so many (the number) ten apart, leaf after leaf; then two more for
/// each leaf, until nothing can be logged any more.
pub fn filled() -> (Forest<Words>, u64, Vec<u64>) {
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

/// A leaf is full, a removal is buffered for it, and a new item takes the removed one's slot. When the new
/// one is not logged, a crash could leave it with the value of the removed one.
fn given_up() -> (Forest<Words>, Vec<Scenario<TreeOp>>) {
    let (full, _, keys) = filled();
    // The first items of two leaves in the middle.
    let (first, second) = (600, 630);
    let scenarios = (0..4).map(|cut| {
        // The log's last entry is one of the first removals', for some cut.
        let kept = keys[..keys.len() - cut].iter().copied().map(insert);
        let new = |key| Insert("t", key + 11, 5);
        scenario("full", kept, [Remove("t", first), Remove("t", second), new(first), new(second)], vec![])
    });
    (full, scenarios.collect())
}

/// Without room for a log, values out of line go over old ones in their leaves; they have to be there
/// before anybody refers to them.
pub fn written_through() -> (Forest<Texts>, Scenario<TreeOp>) {
    let full =
        Forest { geometry: Geometry { chunks_max: 12, ..forest::<Texts>().geometry }, ..forest::<Texts>() };
    // The leaves run out first: there are slots for values, all of one size, when nothing can be logged.
    let keys = accepted(&full, (0..1000).map(|n| n * 4));
    let ops = (0..16).map(|n| Insert("t", keys[n % 4 * 20 + n / 8], 1000 + 4 * n as u64));
    let scenario = scenario("full", keys.iter().copied().map(insert), ops.collect::<Vec<_>>(), vec![]);
    (full, scenario)
}

/// Without room for a log or a leaf, what is in a leaf is changed in its place.
pub fn in_place() -> (Forest<Words>, Scenario<TreeOp>) {
    let (full, first, keys) = filled();
    let more = &keys[first as usize..];
    let ops = more.iter().rev().step_by(2).take(6).flat_map(|key| {
        let first = key - key % 10;
        [Insert("t", first, 1000), Upsert("t", first + 10, 1000), Remove("t", first + 10)]
    });
    let ops: Vec<_> = ops.collect();
    let then = vec![Insert("t", 0, 5), Remove("t", 300), Remove("t", 330)];
    (full, scenario("full", keys.iter().copied().map(insert), ops, then))
}

/// Leaves merge at the end of removals, by threads that fence nothing more; then others split into what became
/// free, where all leaves of a chunk are taken.
fn merged() -> Vec<Scenario<TreeOp>> {
    let of = |keys: u64| {
        let setup = (0..keys).map(|key| insert(key * 10));
        let removed = (3..9).map(|at| Elsewhere(Box::new(Remove("t", at * 10))));
        let more = (0..12).map(|at| insert(keys * 10 + at));
        scenario("merged", setup, removed.chain(more).collect::<Vec<_>>(), vec![])
    };
    [24, 32, 40, 48, 56, 64, 72, 80].map(of).into()
}

type Scenarios = fn() -> Vec<Scenario<TreeOp>>;

/// Groups of steps, each with what notices a change there soonest.
pub(super) fn proofs() -> Vec<Proof> {
    let starting = Steps::Starting;
    let budget = Budget { life_crashes: 1, ..Budget::of(32) };
    let shallow = Budget { depth: 1, ..Budget::of(32) };
    let groups: [(&str, Scenarios); 6] = [
        ("lodgetree create", || named(&["creation"])),
        ("lodgetree flush.2", || named(&["insert"])),
        ("lodgetree flush.3", || named(&["insert"])),
        ("lodgetree flush.4", || named(&["insert"])),
        ("lodgetree split", || named(&["insert", "creation", "split-ascending"])),
        ("lodgetree merge.2", || named(&["delete"])),
    ];
    let words = groups.into_iter().map(|(steps, scenarios)| {
        Proof::by_crashes(starting(steps), budget, move || (forest::<Words>(), scenarios()))
    });
    let texts = ["lodgetree write", "lodgetree split.1 fence"]
        .into_iter()
        .map(|steps| Proof::by_crashes(starting(steps), budget, || (forest::<Texts>(), named(&["insert"]))));
    let others = [
        Proof::by_crashes(starting("lodgetree walk"), budget, || (single(), vec![stragglers()])),
        Proof::by_crashes(starting("lodgetree merge.3"), shallow, || (forest::<Words>(), merged())),
        Proof::by_crashes(starting("lodgetree flush.1"), shallow, given_up),
        Proof::by_crashes(starting("lodgetree flush.2 records"), shallow, || {
            let (full, scenario) = written_through();
            (full, vec![scenario])
        }),
        Proof::by_crashes(starting("lodgetree place"), shallow, || {
            let (full, scenario) = in_place();
            (full, vec![scenario])
        }),
    ];
    words.chain(texts).chain(others).collect()
}
