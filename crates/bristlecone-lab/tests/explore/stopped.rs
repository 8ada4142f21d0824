//! A thread stops at the worst moment of an operation, others go on, and crashes come: orders of steps that schedules
//! hardly ever come to, because much has to happen in one place.

use bristlecone_lab::proofs::{cclbtree, lodgetree, nbtree};
use bristlecone_lab::targets::TreeOp::{self, Begin, Create, Finish, Insert, Proceed};
use bristlecone_lab::targets::{Items, Texts, TreePool, Words};
use bristlecone_pm::{Geometry, Step};
use bristlecone_sim::{Budget, Mode, Report, Scenario, Sim, System, explore};

const BUDGET: u64 = 32;

fn write(key: u64, value: u64) -> TreeOp {
    Insert("t", key, value)
}

fn scenario(name: &'static str, setup: Vec<TreeOp>, ops: Vec<TreeOp>) -> Scenario<TreeOp> {
    let setup = [Create("t")].into_iter().chain(setup).collect();
    Scenario { name, creation: false, setup, ops, then: vec![] }
}

/// Explores a scenario in every mode.
fn survives<I: Items>(tree_pool: &TreePool<I>, scenario: &Scenario<TreeOp>) -> Report {
    let budget = Budget { depth: 1, ..Budget::of(BUDGET) };
    let mut total = Report::default();
    for mode in Mode::ALL {
        let report = explore(tree_pool, scenario, mode, budget);
        report.assert_clean();
        total.merge(report);
    }
    total
}

/// Returns the numbers of those writes which come to a step, one after the other: each is begun after all before it.
fn coming_to<I: Items>(tree_pool: &TreePool<I>, writes: &[TreeOp], step: Step) -> Vec<usize> {
    let comes = |number: &usize| {
        let mut live = System::create(tree_pool, &Sim::new(&System::memory(tree_pool))).unwrap();
        let mut apply = |op: &TreeOp| System::apply(tree_pool, &mut live, op);
        apply(&Create("t")).unwrap();
        writes[..*number].iter().for_each(|op| _ = apply(op).unwrap());
        let comes = apply(&Begin(Box::new(writes[*number].clone()), step)).is_ok();
        System::abandon(tree_pool, live);
        comes
    };
    (0..writes.len()).filter(comes).collect()
}

/// A collection begins, and before the log rotates a leaf splits: what pends in the new leaf is in the old log, and has to
/// be copied.
#[test]
fn cclbtree_leaves_that_came_before_the_log_rotated_are_collected() {
    let mut tree_pool = cclbtree::tree_pool::<Words>(&[("leaf_slots", 4), ("log_entries", 2)]);
    tree_pool.geometry = Geometry { chunks_max: 64, ..tree_pool.geometry };
    let fill = (0..16).map(|key| write(key, key));
    let writes: Vec<_> = fill.chain((0..24).map(|n| write(n % 3, 100 + n))).collect();
    let collecting = coming_to(&tree_pool, &writes, "log rotate");
    assert!(collecting.len() > 2, "{collecting:?}");
    let mut split = 0;
    for number in collecting.into_iter().filter(|number| *number >= 16).take(2) {
        for more in 3..9 {
            let slow = Box::new(writes[number].clone());
            let setup = writes[..number].iter().cloned().chain([Begin(slow.clone(), "log rotate")]);
            let ops = (0..more).map(|at| write(1000 + at, at)).chain([Finish(slow)]);
            let ops = ops.chain((0..6).map(|n| write(n % 3, 200 + n)));
            let report =
                survives(&tree_pool, &scenario("split-before-rotation", setup.collect(), ops.collect()));
            let passed = |step| report.sites.iter().any(|site| site.step == step);
            split += usize::from(passed("cclbtree split.2") && passed("log recycle.1"));
        }
    }
    assert!(split > 3, "{split} times a leaf was split and a log emptied");
}

/// A thread writes a key again that is buffered, and stops before its entry is durable: the log of the key's older entry,
/// of which nothing else is needed, is not used again.
#[test]
fn lodgetree_an_entry_is_needed_until_its_successor_is_durable() {
    let tree_pool = lodgetree::roomy::<Words>();
    /// Keys of other nodes than the first one's.
    const BUSY: u64 = 900;
    let fill = || (0..24).map(|at| write(at * 40, at));
    for key in [1, 81, 161] {
        for between in 0..4 {
            let slow = Box::new(write(key, 5));
            let busy = |count: u64, value: u64| (0..count).map(move |n| write(BUSY + n % 2, value + n));
            let setup = fill().chain(busy(between, 50)).chain([write(key, 5)]).chain(busy(8, 60));
            let setup = setup.chain([Begin(slow.clone(), "log append.2")]);
            let ops = busy(12, 80).chain([Finish(slow)]);
            let report = survives(&tree_pool, &scenario("released", setup.collect(), ops.collect()));
            assert!(report.sites.iter().any(|site| site.step == "log recycle.1"), "no log was used again");
        }
    }
}

/// Two threads bring one key. The slower one empties its slot again, and stops before that is durable: until it is, the
/// key's record, which the slot names, is no other key's.
#[test]
fn nbtree_a_key_is_given_back_when_its_slot_is_durably_empty() {
    // Keys whose records all have slots of one size, of which a thread takes 64 at a time.
    let key = |at: u64| 3 + 4 * at;
    const SLOTS: u64 = 64;
    let mut reused = 0;
    for filled in SLOTS - 8..=SLOTS {
        // The last leaf of an ascending load has room.
        let twin = key(2000);
        let slow = Box::new(write(twin, 1));
        let fill = (0..filled).map(|at| write(key(1000 + at), 0));
        let setup = fill.chain([Begin(slow.clone(), "nbtree insert.3"), write(twin, 1)]);
        let setup = setup.chain([Proceed("nbtree insert.3")]);
        let ops = (0..8).map(|at| write(key(at), 4)).chain([Finish(slow)]);
        let scenario = scenario("twins", setup.collect(), ops.collect());
        let budget = Budget { depth: 1, ..Budget::of(BUDGET) };
        let report = explore(&nbtree::small::<Texts>(), &scenario, Mode::Subset, budget);
        let is_there = |failure: &bristlecone_sim::Failure| failure.to_string().contains("never came to");
        if report.failures.iter().any(is_there) {
            // The leaf had no room for both.
            continue;
        }
        report.assert_clean();
        reused += 1;
    }
    assert!(reused > 3, "{reused} of the slower threads found the other one's key");
}
