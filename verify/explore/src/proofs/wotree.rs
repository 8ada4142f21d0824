//! WO-tree in nodes of a few lines, and the description of groups of its steps and of the baselines'.

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_baselines::AnyDesign;
use bristlecone_pm::Geometry;
use bristlecone_sim::{Budget, Scenario};

use super::{Proof, Steps};
use crate::targets::TreeOp::{self, Create, Drop, Elsewhere, Insert, Remove, Rest};
use crate::targets::{Items, Texts, TreePool, Words, tree_scenarios};

/// Words or texts in nodes of this many lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    OfWords(u64),
    OfTexts(u64),
}
use Shape::{OfTexts, OfWords};

/// Steps that trees of a shape pass, and the scenarios in which their absence is detected.
pub(super) struct Group(
    pub(super) Shape,
    pub(super) &'static [&'static str],
    pub(super) &'static [&'static str],
);

/// Returns trees of a design in nodes of `lines` lines.
pub(super) fn tree_pool<I: Items>(design: AnyDesign, lines: u64) -> TreePool<I> {
    let geometry = Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 3 };
    TreePool { geometry, design, options: vec![("node_lines", lines)], items: PhantomData }
}

/// Returns a scenario: a leaf is split off, emptied and freed, and its memory is reused elsewhere, by threads that do
/// not fence for each other. A record of its first split must be erased by then.
fn another_life() -> Vec<TreeOp> {
    let elsewhere = |op| Elsewhere(Box::new(op));
    let removed = [12, 16, 20].map(|key| elsewhere(Remove("t", key)));
    let first = [Insert("t", 2, 2)];
    first.into_iter().chain(removed).chain([Rest, elsewhere(Insert("t", 26, 26))]).collect()
}

/// Returns the setup of a scenario: leaves become empty, and then other keys change until a log of changes is emptied.
fn emptied_long_ago() -> Vec<TreeOp> {
    let first = (0..12).map(|key| Insert("t", key * 4, key * 4));
    let removed = [12, 16, 20, 8].map(|key| Remove("t", key));
    first.chain(removed).chain((0..72).map(|at| Insert("t", 60 + at % 6, at))).collect()
}

/// Returns the scenarios for which nodes need not be small.
pub(super) fn scenarios() -> Vec<Scenario<TreeOp>> {
    let insert = |key: u64| Insert("t", key, key);
    let scenario = |name, setup: Vec<TreeOp>, ops: Vec<TreeOp>| {
        let setup = [Create("t")].into_iter().chain(setup).collect();
        // The changes must survive with any further thread.
        let then = [1, 3, 5, 6, 7].map(|key| Elsewhere(Box::new(Insert("t", key, 90 + key))));
        Scenario { name, creation: false, setup, ops, then: then.to_vec() }
    };
    let emptied =
        || [12, 16, 20, 8].map(|key| Remove("t", key)).into_iter().chain([insert(41), insert(42)]).collect();
    let even = |keys: u64| (0..keys).map(|key| key * 2).map(insert).collect();
    let fourth = |keys: u64| (0..keys).map(|key| key * 4).map(insert).collect();
    vec![
        // A leaf of 32 lines has a slot array that ends beyond the line of its bitmap; and there is another leaf.
        scenario(
            "many",
            even(130),
            vec![insert(61), insert(239), Remove("t", 20), Remove("t", 240), insert(119)],
        ),
        // Each step once: opening texts takes long.
        scenario(
            "few",
            fourth(12),
            vec![insert(2), Insert("t", 4, 51), Remove("t", 20), Remove("t", 16), Remove("t", 12)],
        ),
        // A node holds the items of its previous use.
        scenario("reused", even(6), vec![Drop("t"), Create("t"), insert(40), insert(41), insert(42)]),
        // A leaf is split twice.
        scenario("another-life", fourth(12), another_life()),
        // A leaf between others is emptied, and recovery's repair must survive when its slot is reused.
        scenario("empty", fourth(12), emptied()),
        // The same, far from its former place.
        Scenario {
            then: (45..48).map(|key| Elsewhere(Box::new(insert(key)))).collect(),
            ..scenario("empty-elsewhere", fourth(12), emptied())
        },
        // The log holds no more changes of leaves that became empty, nor of those before them.
        Scenario {
            then: (82..96).map(|key| Elsewhere(Box::new(insert(key)))).collect(),
            ..scenario("emptied-long-ago", emptied_long_ago(), vec![insert(80), insert(81)])
        },
        // Items that stay in a leaf that splits get slots of the moved ones.
        Scenario {
            then: vec![Insert("t", 4, 99)],
            ..scenario(
                "split-first",
                (0..10).map(|key| insert(key * 8)).collect(),
                [1, 2, 3, 5, 6, 7].map(insert).to_vec(),
            )
        },
        // A log is cleaned, and its segments are reused.
        scenario(
            "log",
            (0..40).map(|at| Insert("t", at * 7 % 5, at)).collect(),
            (0..20)
                .map(|at| if at % 4 == 3 { Remove("t", at % 5) } else { Insert("t", at * 3 % 5, 90 + at) })
                .collect(),
        ),
        // One segment of a log is cleaned of four live keys, and then another thread uses its space.
        scenario(
            "clean",
            (100..104).chain([1; 28]).map(insert).collect(),
            [70, 80, 81, 82, 83, 84]
                .into_iter()
                .map(|value| match value {
                    70 => Insert("t", 1, value),
                    _ => Elsewhere(Box::new(Insert("t", 1, value))),
                })
                .collect(),
        ),
        // A leaf of 8 lines splits, and threads that do not fence for it remove the moved items.
        scenario(
            "blocks",
            fourth(28),
            [insert(70)]
                .into_iter()
                .chain([56, 60, 64, 68].map(|key| Elsewhere(Box::new(Remove("t", key)))))
                .collect(),
        ),
        scenario("again", fourth(6), vec![Insert("t", 4, 50), Insert("t", 4, 51), insert(24), insert(2)]),
    ]
}

/// Returns the proofs of each step of the groups, by its name.
pub(super) fn proofs_in(design: AnyDesign, groups: &'static [Group]) -> Vec<Proof> {
    fn of<I: Items>(design: AnyDesign, lines: u64, group: &'static Group, budget: Budget) -> Proof {
        let Group(_, steps, names) = group;
        Proof::by_crashes(Steps::Among(steps), budget, move || {
            let all = tree_scenarios().into_iter().chain(scenarios());
            (tree_pool::<I>(design, lines), all.filter(|scenario| names.contains(&scenario.name)).collect())
        })
    }
    let budget = Budget { continuation_crashes: 1, ..Budget::of(64) };
    let proof = |group: &'static Group| match group.0 {
        OfWords(lines) => of::<Words>(design, lines, group, budget),
        // Opening texts checks for every record whether it is live.
        OfTexts(lines) => of::<Texts>(design, lines, group, Budget { continuation_crashes: 8, ..budget }),
    };
    groups.iter().map(proof).collect()
}

const GROUPS: &[Group] = &[
    Group(OfWords(2), &["wotree create.1", "wotree create.2", "wotree create.3"], &["creation", "begun"]),
    Group(
        OfWords(2),
        &["wotree insert.2", "wotree commit.2", "wotree log.1"],
        &["insert", "split", "delete", "again"],
    ),
    Group(OfWords(2), &["wotree log.2"], &["another-life", "again"]),
    Group(
        OfWords(2),
        &["wotree split.2", "wotree split.3", "wotree split.3 high", "wotree enter.1", "wotree enter.3"],
        &["split", "split-descending"],
    ),
    Group(
        OfWords(2),
        &[
            "wotree split.2 inner",
            "wotree split.3 inner",
            "wotree split.3 inner high",
            "wotree split.4 inner",
            "wotree grow.2",
            "wotree grow.3",
        ],
        &["split", "split-ascending", "split-descending"],
    ),
    Group(
        OfWords(2),
        &["wotree recover.2", "wotree recover.3"],
        &["insert", "split", "split-ascending", "split-descending"],
    ),
    Group(OfWords(2), &["wotree update.2"], &["update"]),
    Group(OfWords(2), &["wotree many.1", "wotree many.2"], &["many-new"]),
    Group(
        OfWords(2),
        &[
            "wotree free.2",
            "wotree free.3",
            "wotree free.4",
            "wotree compact.1",
            "wotree shrink.2",
            "wotree shrink.3",
            "wotree log.1 long",
        ],
        &["delete", "delete-ascending", "delete-descending"],
    ),
    Group(
        OfWords(32),
        &["wotree commit.2 long", "wotree commit.2 second", "wotree commit.2 slots", "wotree log.1 again"],
        &["many"],
    ),
    Group(
        OfTexts(2),
        &[
            "wotree insert.1 key",
            "wotree insert.1 value",
            "wotree update.1",
            "wotree update.1 fence",
            "wotree update.2",
            "wotree split.1 separator",
            "wotree split.2 separator",
            "wotree recover.1 separator",
            "wotree free.4 separator",
        ],
        &["few"],
    ),
];

/// Returns groups of steps, each with the test that detects a mutation there soonest.
pub(super) fn proofs() -> Vec<Proof> {
    proofs_in(Design::WoTree.into(), GROUPS)
}
