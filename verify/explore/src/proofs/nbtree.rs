//! NBTree: operations of one thread, and helping among several.

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_pm::Geometry;
use bristlecone_sim::{
    Access, Budget, Mode, Operation, Plan, Planned, Progress, Scenario, Schedules, Site, Table, mutate_among,
    mutate_schedules_among,
};

use super::{Proof, Steps, insert, named, scenario};
use crate::targets::TreeOp::{self, Begin, Elsewhere, Finish, Insert, InsertNew, Remove, Rest, Update};
use crate::targets::{Items, Texts, TreePool, Words};

/// Slots of a small leaf.
pub const SLOTS: u64 = 7;
/// Slots of a leaf of which few fit a chunk.
const MANY: u64 = 31;
/// Keys of an ascending load that takes all blocks of its first chunk except one: two for each leaf after the first
/// one, of which every other one is replaced.
const FULL_CHUNK: u64 = 4 * MANY;

/// Keys that leave one slot of their line in a small leaf free, and one more key of that line: if two threads insert
/// it, it is in two lines.
const HOME: [u64; 2] = [0, 2];
const TWIN: u64 = 3;

/// Leaves of seven slots.
pub fn small<I: Items>() -> TreePool<I> {
    tree_pool(128)
}

/// Returns a pool of eight blocks to a chunk.
pub fn wide() -> TreePool<Words> {
    tree_pool(512)
}

fn tree_pool<I: Items>(block_bytes: u64) -> TreePool<I> {
    TreePool {
        geometry: Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 3 },
        design: Design::NbTree.into(),
        options: vec![("block_bytes", block_bytes), ("inner_bytes", 256)],
        items: PhantomData,
    }
}

fn remove(key: u64) -> TreeOp {
    Remove("t", key)
}

fn elsewhere(op: TreeOp) -> TreeOp {
    Elsewhere(Box::new(op))
}

/// Returns a scenario: a leaf is replaced, and then every item is removed. Seals are never flushed, so a crash may
/// leave the items in the block of the old leaf, which recovery makes the first leaf of the empty tree.
fn emptied() -> Scenario<TreeOp> {
    scenario(
        "emptied",
        (0..SLOTS).map(insert),
        [insert(SLOTS)].into_iter().chain((0..=SLOTS).map(remove)),
        vec![],
    )
}

/// Returns word values that are stored in records.
fn boxed() -> Scenario<TreeOp> {
    let boxed = 0xa5c3_96e1_0000_0000;
    let ops = [Insert("t", 1, boxed), Update("t", 1, boxed + 1), Insert("t", 2, boxed), remove(1)];
    scenario("boxed", [], ops, vec![Insert("t", 2, 5), Insert("t", 3, boxed + 2)])
}

/// Returns a scenario: the crash comes while one leaf is being replaced, slot by slot, because a stopped thread is
/// about to change a value there. Values that recovery restores must be durable before another thread splits the
/// other leaf, in the blocks of the draft.
fn unsealed() -> Scenario<TreeOp> {
    let key = |at| at * 10;
    let slow = Box::new(Update("t", key(2 * SLOTS - 1), 7));
    let setup = (0..2 * SLOTS).map(key).map(insert).chain([Begin(slow.clone(), "nbtree update.2")]);
    let then = vec![elsewhere(insert(5))];
    scenario("unsealed", setup, [insert(key(2 * SLOTS)), Finish(slow)], then)
}

/// Returns a scenario: the crash comes while one leaf is being replaced, and no thread is about to change it.
fn stopped() -> Scenario<TreeOp> {
    scenario("stopped", (0..SLOTS).map(insert), [insert(SLOTS)], vec![insert(SLOTS + 1)])
}

/// Returns a scenario: the first leaf loses its last item during the crash, and recovery frees its block. Then the
/// other leaf is split into it.
fn empty() -> Scenario<TreeOp> {
    let key = |at| at * 10;
    let setup = (0..2 * SLOTS).map(key).map(insert).chain((0..SLOTS - 1).map(key).map(remove));
    scenario("empty", setup, [remove(key(SLOTS - 1))], vec![insert(key(SLOTS) + 5)])
}

/// Returns a scenario: a thread has replaced a leaf and stops. Another one writes to the new leaf meanwhile.
fn replaced() -> Scenario<TreeOp> {
    let slow = Box::new(insert(SLOTS));
    let setup = (0..SLOTS).map(insert).chain([Begin(slow.clone(), "nbtree link.3")]);
    scenario("replaced", setup, [insert(SLOTS + 1), Finish(slow)], vec![])
}

/// Returns a scenario: a thread stops before its draft is installed, and another thread's draft is installed. The
/// first thread finds its key there, so it does not fence again. The operation is a split into the blocks of the old
/// leaf and of the draft.
fn discarded() -> Scenario<TreeOp> {
    let key = |at| at * 10;
    let slow = Box::new(InsertNew("t", 5, 1));
    let setup = (0..FULL_CHUNK).map(key).map(insert);
    // The draft takes freed blocks.
    let setup = setup.chain([Rest, Begin(slow.clone(), "nbtree link.1")]);
    // Memory retired by a thread that ends is reused before memory that others retire later.
    let setup = setup.chain([elsewhere(insert(5)), Finish(slow), Rest]);
    scenario("discarded", setup, [insert(key(FULL_CHUNK))], vec![])
}

/// Returns a scenario: the first leaf loses its last item, by a thread that does not fence again, and is freed. The
/// operation is a split into its block.
fn freed() -> Scenario<TreeOp> {
    let emptied = (0..MANY - 1).map(remove).chain([elsewhere(remove(MANY - 1)), Rest]);
    scenario("freed", (0..FULL_CHUNK).map(insert).chain(emptied), [insert(FULL_CHUNK)], vec![])
}

/// Returns a scenario: two threads insert the same key. One stops before it joins the leaf, and then finds that the
/// other one did. Recovery may find the key in two slots, and after the removal it must be in neither.
fn twins() -> Scenario<TreeOp> {
    let slow = Box::new(Insert("t", TWIN, 1));
    let setup = HOME.into_iter().map(insert).chain([Begin(slow.clone(), "nbtree insert.3"), insert(TWIN)]);
    scenario("twins", setup, [Finish(slow), remove(TWIN)], vec![remove(TWIN)])
}

/// Returns a scenario: a thread has assigned a slot to a new key, without a value so far, and stops. Another one
/// finds the key there and stores its first value. A crash may keep the value only together with the key, which was
/// not flushed yet.
pub fn brought_without_value() -> Scenario<TreeOp> {
    const KEY: u64 = 5;
    let slow = Box::new(InsertNew("t", KEY, 1));
    let setup = [insert(KEY + 1), Begin(slow.clone(), "nbtree update.2")];
    let ops = [TreeOp::Upsert("t", KEY, 7), Finish(slow), remove(KEY)];
    scenario("brought without value", setup, ops, vec![insert(KEY)])
}

/// Returns a plan of the twins in any order; the removal, and further keys in other lines, may come before the slower
/// thread is done.
fn twins_and_removal(_: &mut dyn FnMut(usize) -> usize) -> Plan {
    let bring = |value| vec![Operation::On(TWIN, Access::Insert(value))];
    let more = [1, 4].into_iter().map(|key| Operation::On(key, Access::Insert(key)));
    let removal = [Operation::On(TWIN, Access::Remove)].into_iter().chain(more).collect();
    let before = HOME.map(|key| (key, Access::Insert(key))).into();
    Plan::new(before, vec![bring(101), bring(102), removal])
}

/// Returns a plan: two threads replace a full leaf, and a third one removes its keys meanwhile. Changes of both
/// drafts after the copy must be durable before either draft is installed.
fn removed_meanwhile(_: &mut dyn FnMut(usize) -> usize) -> Plan {
    let of = |key, access| Operation::On(key, access);
    let bring = |key| vec![of(key, Access::Insert(key))];
    let removals = (1..4).map(|key| of(key, Access::Remove)).collect();
    let before = (0..SLOTS).map(|key| (key, Access::Insert(key))).collect();
    Plan::new(before, vec![bring(SLOTS), bring(SLOTS + 1), removals])
}

/// Returns a plan: one thread replaces a full leaf, another one gives its keys new values meanwhile, and a third
/// one reads them.
fn updated_meanwhile(_: &mut dyn FnMut(usize) -> usize) -> Plan {
    let of = |key, access| Operation::On(key, access);
    let bring = |key| vec![of(key, Access::Insert(key))];
    let updates = (1..4).map(|key| of(key, Access::Update(100 + key))).collect();
    let reads = (1..4).map(|key| of(key, Access::Get)).collect();
    let before = (0..SLOTS).map(|key| (key, Access::Insert(key))).collect();
    Plan::new(before, vec![bring(SLOTS), updates, reads])
}

/// Returns scenarios in which blocks are reused: in small leaves, and where few fit a chunk.
pub fn reuses() -> [(TreePool<Words>, Vec<Scenario<TreeOp>>, Budget); 2] {
    let in_small = vec![
        emptied(),
        boxed(),
        unsealed(),
        stopped(),
        empty(),
        replaced(),
        twins(),
        brought_without_value(),
    ];
    let in_wide = vec![freed(), discarded()];
    [(small(), in_small, Budget::of(64)), (wide(), in_wide, Budget { depth: 1, ..Budget::of(64) })]
}

type Scenarios = fn() -> Vec<Scenario<TreeOp>>;

fn schedules_in(modes: &[Mode]) -> Schedules {
    Schedules { seed: 0, first: 0, count: 4096, modes: modes.to_vec(), threads: 1 }
}

fn planned(plan: fn(&mut dyn FnMut(usize) -> usize) -> Plan) -> Planned<TreePool<Words>> {
    Planned { registers: small(), plan }
}

/// Mutates the chosen sites where threads interact: in plans of replacements, and in any plans.
pub fn changed_among_threads(chosen: &dyn Fn(&Site) -> bool) -> Table {
    let (wanted, progress) = (schedules_in(&[Mode::Prefix, Mode::Subset]), Progress::default());
    let budget = Budget { continuation_crashes: 1, depth: 1, ..Budget::of(32) };
    let mut table = mutate_among(
        &small::<Words>(),
        &[(brought_without_value(), Mode::Subset)],
        budget,
        chosen,
        &progress,
    );
    table.merge(mutate_schedules_among(&small::<Words>(), &wanted, chosen, &progress));
    for plan in [twins_and_removal, removed_meanwhile, updated_meanwhile] {
        table.merge(mutate_schedules_among(&planned(plan), &wanted, chosen, &progress));
    }
    table
}

/// Returns groups of steps, each with the test that detects a mutation there soonest.
pub(super) fn proofs() -> Vec<Proof> {
    let budget = Budget { continuation_crashes: 1, depth: 1, ..Budget::of(32) };
    let groups: [(&str, Scenarios); 10] = [
        ("nbtree create", || [named(&["creation", "begun"]), vec![emptied()]].concat()),
        ("nbtree update.1", || vec![boxed()]),
        ("nbtree insert.2", || named(&["insert"])),
        ("nbtree insert.3", || vec![twins()]),
        ("nbtree insert.4", || named(&["insert", "many-new"])),
        ("nbtree update.3", || named(&["update", "many-old"])),
        ("nbtree many", || named(&["many-new", "many-old"])),
        ("nbtree copy", || vec![unsealed()]),
        ("nbtree link.2", || vec![replaced(), unsealed()]),
        ("nbtree recover", || vec![empty(), unsealed()]),
    ];
    let of_wide: [(&str, Scenarios); 2] =
        [("nbtree link.1", || vec![discarded()]), ("nbtree free", || vec![freed()])];
    let starting = Steps::Starting;
    let crashes = groups.into_iter().map(|(steps, scenarios)| {
        Proof::by_crashes(starting(steps), budget, move || (small::<Words>(), scenarios()))
    });
    let wide = of_wide
        .into_iter()
        .map(|(steps, scenarios)| Proof::by_crashes(starting(steps), budget, move || (wide(), scenarios())));
    let texts = ["nbtree insert.1", "nbtree update.1"].into_iter().map(|steps| {
        Proof::by_crashes(starting(steps), budget, || (small::<Texts>(), named(&["insert", "update"])))
    });
    // Steps at which threads help each other.
    let schedules = ["nbtree read.2", "nbtree sync.2"].into_iter().map(|steps| {
        Proof::by_schedules(starting(steps), schedules_in(&[Mode::Prefix, Mode::Subset]), small::<Words>())
    });
    let twins = planned(twins_and_removal);
    let twins = Proof::by_schedules(starting("nbtree insert.3"), schedules_in(&[Mode::Subset]), twins);
    let (removed, modes) = (planned(removed_meanwhile), [Mode::Prefix, Mode::Subset]);
    let removed = Proof::by_schedules(starting("nbtree sync.2"), schedules_in(&modes), removed);
    let updated = planned(updated_meanwhile);
    let updated = Proof::by_schedules(starting("nbtree sync.2"), schedules_in(&modes), updated);
    crashes.chain(wide).chain(texts).chain(schedules).chain([twins, removed, updated]).collect()
}
