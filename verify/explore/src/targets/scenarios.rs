//! The common scenarios of trees, in small leaves: each kind of operation and of structure change.

use super::tree_op::TreeOp::{
    self, Close, Create, CreateBare, Drop, Elsewhere, Insert, InsertNew, Load, Many, Remove, RemoveIf, Short,
    Swap, Update,
};
use bristlecone_sim::{Access, Scenario};

const TREE: &str = "t";

/// Returns keys in an order that neither ascends nor descends.
fn shuffled(keys: u64) -> impl Iterator<Item = u64> {
    (0..keys).map(move |at| at * 7 % keys)
}

fn inserts(keys: impl Iterator<Item = u64>) -> Vec<TreeOp> {
    keys.map(|key| Insert(TREE, key, key)).collect()
}

fn removes(keys: impl Iterator<Item = u64>) -> Vec<TreeOp> {
    keys.map(|key| Remove(TREE, key)).collect()
}

fn scenario(name: &'static str, setup: Vec<TreeOp>, ops: Vec<TreeOp>) -> Scenario<TreeOp> {
    let setup = [Create(TREE)].into_iter().chain(setup).collect();
    Scenario { name, creation: false, setup, ops, then: continuation() }
}

/// Returns a continuation for any recovered pool: every kind of operation, and enough of them for every kind of
/// structure change.
fn continuation() -> Vec<TreeOp> {
    let mut then = vec![Insert(TREE, 3, 103), Remove(TREE, 11), Update(TREE, 5, 105)];
    then.extend((60..68).map(|key| Insert(TREE, key, key)));
    then.extend([Swap(TREE, 6, 6, 106), InsertNew(TREE, 2, 102), Close, Insert(TREE, 30, 130)]);
    then.extend(removes((0..70).step_by(3)));
    then.extend([Create("u"), Insert("u", 1, 1), Drop("u")]);
    then.extend(inserts(20..26));
    then.extend([Drop(TREE), Create(TREE)]);
    then.extend(inserts(40..48));
    then
}

/// Returns the scenarios of trees.
pub fn tree_scenarios() -> Vec<Scenario<TreeOp>> {
    let mut all = vec![Scenario {
        name: "creation",
        creation: true,
        setup: vec![Create(TREE)],
        ops: vec![
            Insert(TREE, 1, 1),
            Close,
            Elsewhere(Box::new(Create("u"))),
            Insert("u", 5, 5),
            Drop(TREE),
            Create(TREE),
        ],
        then: continuation(),
    }];
    // The first leaf of a tree that is already live is not committed by the directory. Former contents of its memory
    // must not be found.
    all.push(Scenario {
        name: "begun",
        creation: false,
        setup: [Create("u"), Create(TREE)].into_iter().chain(inserts(0..5)).chain([Drop(TREE)]).collect(),
        ops: vec![CreateBare(TREE), Elsewhere(Box::new(Insert(TREE, 1, 1)))],
        then: continuation(),
    });
    all.extend(growth());
    all.extend(shortage());
    all.extend(changes());
    all.extend(groups());
    all.extend(shrinking());
    all.extend(reuse());
    all
}

fn growth() -> Vec<Scenario<TreeOp>> {
    vec![
        scenario("insert", vec![], inserts(shuffled(8))),
        scenario("expand", inserts(shuffled(20).take(5)), inserts(shuffled(20).skip(5).take(9))),
        scenario("split", inserts(shuffled(20).take(16)), inserts(shuffled(20).skip(16).chain(20..28))),
        scenario("split-ascending", inserts(0..14), inserts(14..34)),
        scenario("split-descending", inserts((20..40).rev()), inserts((8..20).rev())),
    ]
}

/// Returns scenarios in which the medium refuses space, once or until further notice, and each operation is repeated.
fn shortage() -> Vec<Scenario<TreeOp>> {
    let short = |op: &TreeOp, granted, refused| Short(Box::new(op.clone()), granted, refused);
    let never = |op: TreeOp| [short(&op, 0, u64::MAX), op];
    let once = |op: TreeOp| [short(&op, 0, 1), op.clone(), short(&op, 1, u64::MAX), op];
    let churn = (0..9).map(|at| match at % 6 {
        5 => Remove(TREE, at % 5),
        _ => Insert(TREE, at * 3 % 5, 100 + at),
    });
    vec![
        scenario(
            "short",
            vec![],
            [short(&Create("u"), 0, u64::MAX), Create("u")]
                .into_iter()
                .chain(inserts(shuffled(10)).into_iter().flat_map(never))
                .collect(),
        ),
        scenario("short-of-one", full_chunk(), inserts(even(384..390)).into_iter().flat_map(once).collect()),
        scenario("short-of-logs", inserts(0..5), churn.flat_map(never).collect()),
        scenario(
            "short-delete",
            inserts(shuffled(12)),
            removes(shuffled(12)).into_iter().flat_map(never).collect(),
        ),
    ]
}

fn changes() -> Vec<Scenario<TreeOp>> {
    let moves = [13, 14, 15].map(|at| Remove(TREE, at * 7 % 20));
    let updates = [0, 7, 14, 1, 8, 15, 2, 9, 16, 3].map(|key| Update(TREE, key, 50 + key));
    vec![
        scenario(
            "update",
            inserts(shuffled(12)),
            (0..12)
                .map(|key| Update(TREE, key, 50 + key))
                .chain([Swap(TREE, 7, 0, 1), Swap(TREE, 7, 57, 1), Insert(TREE, 3, 4)])
                .chain([
                    RemoveIf(TREE, 7, 57),
                    RemoveIf(TREE, 61, 1),
                    RemoveIf(TREE, 7, 1),
                    Insert(TREE, 7, 1),
                ])
                .chain([InsertNew(TREE, 7, 2), InsertNew(TREE, 63, 2), Update(TREE, 62, 1)])
                .collect(),
        ),
        // Repeated changes of few keys: logs fill, wrap, and are collected.
        scenario(
            "churn",
            inserts(0..5),
            (0..24)
                .map(|at| match at % 6 {
                    5 => Remove(TREE, at % 5),
                    _ => Insert(TREE, at * 3 % 5, 100 + at),
                })
                .collect(),
        ),
        scenario(
            "move",
            inserts(shuffled(20).take(16)),
            moves.into_iter().chain(updates).chain(inserts(50..52)).collect(),
        ),
        scenario(
            "close",
            inserts(shuffled(20)),
            vec![Close, Update(TREE, 4, 5), Close, Remove(TREE, 4), Insert(TREE, 40, 1), Close],
        ),
    ]
}

/// Returns scenarios of multi-key calls, few of whose keys share a leaf: a crash may leave any subset of a call's
/// changes.
fn groups() -> Vec<Scenario<TreeOp>> {
    let apart = || (0..24).map(|at| at * 7 % 24 * 4);
    let written = |keys: &[u64], write: fn(u64) -> Access| {
        Many(TREE, keys.iter().map(|key| (*key, write(300 + key))).collect())
    };
    let inserted = |keys: &[u64]| written(keys, Access::Insert);
    let upserted = |keys: &[u64]| written(keys, Access::Upsert);
    let removed = |keys: &[u64]| Many(TREE, keys.iter().map(|key| (*key, Access::Remove)).collect());
    vec![
        scenario(
            "many-new",
            inserts(apart()),
            vec![
                inserted(&[1, 93]),
                inserted(&[2, 94]),
                upserted(&[3, 45]),
                upserted(&[46, 91]),
                Insert(TREE, 5, 5),
                inserted(&[6, 6]),
                upserted(&[41, 42, 43, 47]),
                Insert(TREE, 90, 90),
            ],
        ),
        scenario(
            "many-old",
            inserts(apart()),
            vec![
                upserted(&[0, 92]),
                inserted(&[4, 44, 4]),
                removed(&[0, 88]),
                removed(&[4, 84, 4, 7]),
                inserted(&[0, 88]),
                Many(TREE, [0, 4, 44, 93].map(|key| (key, Access::Get)).into()),
                removed(&(0..24).map(|at| at * 4).collect::<Vec<_>>()),
            ],
        ),
    ]
}

/// Returns scenarios of trees that are created with items in them, of one leaf and of several; only designs of the
/// library support this.
pub fn load_scenarios() -> Vec<Scenario<TreeOp>> {
    let next = |name, keys| {
        vec![Remove(name, 0), Insert(name, keys, keys), Insert(name, keys / 2, 7), Remove(name, 1)]
    };
    let of = |name, keys| Scenario {
        name,
        creation: false,
        setup: vec![Create("u"), Insert("u", 1, 1)],
        ops: [Load(TREE, keys), Elsewhere(Box::new(Insert("u", 2, 2)))]
            .into_iter()
            .chain(next(TREE, keys))
            .collect(),
        then: [Load(TREE, keys)].into_iter().chain(next(TREE, keys)).collect(),
    };
    vec![of("load-little", 5), of("load", 50)]
}

fn shrinking() -> Vec<Scenario<TreeOp>> {
    vec![
        scenario("delete", inserts(shuffled(20)), removes(shuffled(20))),
        scenario("delete-ascending", inserts(0..40), removes(0..40)),
        scenario("delete-descending", inserts(shuffled(20).chain(20..40)), removes((0..40).rev())),
        scenario(
            "drop",
            inserts(0..30),
            vec![
                Create("u"),
                Insert("u", 1, 1),
                Drop(TREE),
                Create("v"),
                Insert("v", 1, 2),
                Insert("u", 2, 2),
                Close,
                Create(TREE),
                Insert(TREE, 1, 1),
                Drop("v"),
                Drop("u"),
            ],
        ),
    ]
}

/// Fills exactly as many leaves as one chunk holds where leaves have three subnodes of six slots, so that the next
/// freed leaf is reused next. Leaf `i` has the even keys from `36 * i` on.
fn full_chunk() -> Vec<TreeOp> {
    inserts((0..192).map(|key| key * 2))
}

fn even(keys: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    keys.step_by(2)
}

/// Returns scenarios with short continuations: recovery's changes must be durable before anything else is fenced.
fn reuse() -> Vec<Scenario<TreeOp>> {
    let with = |mut setup: Vec<TreeOp>, more: Vec<TreeOp>| {
        setup.extend(more);
        setup
    };
    let two_tails_free = || with(full_chunk(), removes(even(36..60)));
    let scenarios = [
        (
            scenario(
                "reuse-of-a-tail",
                with(full_chunk(), removes(even(36..46))),
                vec![Remove(TREE, 46), Insert(TREE, 384, 1), Remove(TREE, 48)],
            ),
            vec![Insert(TREE, 384, 2)],
        ),
        (
            // Recovery takes two tails off a chain, and the split uses both.
            scenario(
                "reuse-of-two-tails",
                with(
                    full_chunk(),
                    removes(even(48..60).chain(even(36..46)).chain(even(72..96)).chain(even(108..132))),
                ),
                vec![Remove(TREE, 46)],
            ),
            vec![Insert(TREE, 161, 2)],
        ),
        (
            scenario(
                "reuse-after-recovery",
                with(full_chunk(), removes(even(36..46).chain(even(72..96)).chain(even(108..132)))),
                vec![Remove(TREE, 46)],
            ),
            vec![Insert(TREE, 384, 2)],
        ),
        (
            scenario(
                "reuse-of-a-head",
                with(with(two_tails_free(), inserts(even(384..408))), removes(even(60..70))),
                vec![Remove(TREE, 70), Insert(TREE, 408, 1), Remove(TREE, 408)],
            ),
            vec![Insert(TREE, 410, 2), Remove(TREE, 396), Insert(TREE, 412, 3)],
        ),
        (
            scenario(
                "reuse-in-a-split",
                two_tails_free(),
                vec![Insert(TREE, 101, 1), Insert(TREE, 103, 1), Remove(TREE, 101)],
            ),
            vec![Remove(TREE, 104)],
        ),
    ];
    scenarios.into_iter().map(|(scenario, then)| Scenario { then, ..scenario }).collect()
}
