//! Every flush, fence and order of WO-tree and of what it is measured against is needed: each is
//! taken away, moved or swapped by itself, and a scenario notices.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_baselines::{Baseline, Contender};
use bristlecone_pm::Geometry;
use bristlecone_sim::systems::TreeOp::{self, Create, Drop, Elsewhere, Insert, Remove};
use bristlecone_sim::systems::{Access, Forest, Items, POOL, Texts, Words, tree_scenarios};
use bristlecone_sim::{
    Budget, Deed, Mode, Plan, Prepared, Progress, Report, Scenario, Schedules, Subject, Table,
    explore_rounds, mutate_rounds, mutate_schedules, rounds,
};

use crate::planned::Planned;

/// Words or texts in nodes of so many lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    OfWords(u64),
    OfTexts(u64),
}
use Shape::{OfTexts, OfWords};

/// Steps that trees of a shape pass, and the scenarios in which their absence is noticed.
struct Group(Shape, &'static [&'static str], &'static [&'static str]);

fn forest<I: Items>(design: Contender, lines: u64) -> Forest<I> {
    let geometry = Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 3 };
    Forest { geometry, design, options: vec![("node_lines", lines)], items: PhantomData }
}

fn subject(design: Contender, shape: Shape) -> Box<dyn Subject> {
    fn prepared<I: Items>(design: Contender, lines: u64) -> Box<dyn Subject> {
        let system = forest::<I>(design, lines);
        let scenarios = tree_scenarios().into_iter().chain(scenarios()).collect();
        Box::new(Prepared { name: format!("{design}-{lines}"), system, scenarios })
    }
    match shape {
        OfWords(lines) => prepared::<Words>(design, lines),
        OfTexts(lines) => prepared::<Texts>(design, lines),
    }
}

/// What small nodes have no need of.
fn scenarios() -> Vec<Scenario<TreeOp>> {
    let insert = |key: u64| Insert("t", key, key);
    let scenario = |name, setup: Vec<TreeOp>, ops: Vec<TreeOp>| {
        let setup = [Create("t")].into_iter().chain(setup).collect();
        // What was done must hold whoever goes on.
        let then = [1, 3, 5, 6, 7].map(|key| Elsewhere(Box::new(Insert("t", key, 90 + key))));
        Scenario { name, creation: false, setup, ops, then: then.to_vec() }
    };
    let even = |keys: u64| (0..keys).map(|key| key * 2).map(insert).collect();
    let fourth = |keys: u64| (0..keys).map(|key| key * 4).map(insert).collect();
    vec![
        // A leaf of 32 lines has a slot array that ends beyond the line of its bitmap; and there is another leaf.
        scenario(
            "many",
            even(130),
            vec![insert(61), insert(239), Remove("t", 20), Remove("t", 240), insert(119)],
        ),
        // Everything once: opening texts takes long.
        scenario(
            "few",
            fourth(12),
            vec![insert(2), Insert("t", 4, 51), Remove("t", 20), Remove("t", 16), Remove("t", 12)],
        ),
        // A node holds what was there in another life.
        scenario("reused", even(6), vec![Drop("t"), Create("t"), insert(40), insert(41), insert(42)]),
        // What is split is split again.
        scenario("again", fourth(6), vec![Insert("t", 4, 50), Insert("t", 4, 51), insert(24), insert(2)]),
    ]
}

/// Mutates group by group, and fails with what nobody noticed and with steps that are in no group and not
/// there because the published design has them. What one thread alone does not notice, several do.
fn every_step_is_needed(
    design: impl Into<Contender>,
    steps_in_all: usize,
    groups: &[Group],
    among_threads: &[&str],
    as_published: &[&str],
) {
    let design = design.into();
    let (progress, mut table) = (Progress::default(), Table::default());
    for Group(shape, steps, scenarios) in groups {
        let subject = subject(design, *shape);
        // Opening texts asks of every record whether it is live.
        let life_crashes = if matches!(shape, OfTexts(_)) { 8 } else { 1 };
        let budget = Budget { life_crashes, threads: 2, ..Budget::of(64) };
        let mut chosen = rounds([subject.as_ref()], &[Mode::Subset]);
        chosen.retain(|round| scenarios.contains(&round.scenario()));
        assert_eq!(chosen.len(), scenarios.len(), "{scenarios:?}");
        let reports = explore_rounds(&chosen, budget, &progress, &|_, _| {});
        reports.iter().flatten().for_each(Report::assert_clean);
        let chosen: Vec<_> = chosen.into_iter().zip(reports.into_iter().flatten()).collect();
        let mutated = mutate_rounds(&chosen, budget, &|site| steps.contains(&site.step), &progress, &|_| {});
        let passed: BTreeSet<_> = mutated.sites.iter().map(|site| site.step).collect();
        let missing: Vec<_> = steps.iter().filter(|step| !passed.contains(*step)).collect();
        assert!(missing.is_empty(), "{shape:?}, {scenarios:?} do not pass {missing:?}");
        table.merge(mutated);
    }
    for step in among_threads {
        let registers = Planned { registers: forest::<Words>(design, 2), plan: split_meanwhile };
        let wanted = Schedules { seed: 0, first: 0, count: 2000, modes: vec![Mode::Subset], threads: 2 };
        table.merge(mutate_schedules(&registers, &wanted, step));
    }
    println!("{table}");
    assert!(table.survivors().is_empty(), "{table}");
    let steps: BTreeSet<_> = table.sites.iter().map(|site| site.step).collect();
    assert_eq!(steps.len(), steps_in_all, "{steps:?}");

    // Whatever any scenario passes is in some group.
    let shapes = groups.iter().map(|Group(shape, ..)| *shape);
    let shapes = shapes.fold(Vec::new(), |mut all, shape| {
        if !all.contains(&shape) {
            all.push(shape);
        }
        all
    });
    let subjects: Vec<_> = shapes.into_iter().map(|shape| subject(design, shape)).collect();
    let all = rounds(subjects.iter().map(Box::as_ref), &[Mode::Subset]);
    let budget = Budget { depth: 1, threads: 2, ..Budget::of(1) };
    let reports = explore_rounds(&all, budget, &progress, &|_, _| {});
    let passed = reports.iter().flatten().flat_map(|report| &report.sites);
    let missing: BTreeSet<_> =
        passed.filter(|site| !site.step.starts_with(POOL) && !table.sites.contains(site)).collect();
    let missing: BTreeSet<_> = missing.iter().filter(|site| !as_published.contains(&site.step)).collect();
    assert!(missing.is_empty(), "in no group: {missing:?}");
}

#[test]
fn of_wotree() {
    every_step_is_needed(
        Design::WoTree,
        39,
        &[
            Group(OfWords(2), &["wotree create.1", "wotree create.2", "wotree create.3"], &["creation"]),
            Group(
                OfWords(2),
                &["wotree insert.2", "wotree commit.2", "wotree log.1", "wotree log.2"],
                &["insert", "split", "delete", "again"],
            ),
            Group(
                OfWords(2),
                &[
                    "wotree split.2",
                    "wotree split.3",
                    "wotree split.3 high",
                    "wotree enter.1",
                    "wotree enter.3",
                ],
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
                &["wotree commit.2 long", "wotree commit.2 slots", "wotree log.1 again"],
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
        ],
        &[],
        &[],
    );
}

#[test]
fn of_native() {
    every_step_is_needed(
        Baseline::Native,
        10,
        &[
            Group(OfWords(2), &["create.1", "create.2", "log create"], &["creation"]),
            Group(OfWords(2), &["log.1", "log.2", "log.3", "log.4"], &["insert", "update"]),
            Group(OfWords(2), &["native split.1"], &["split"]),
            Group(OfWords(2), &["log replay.1", "log replay.2"], &["insert", "again"]),
        ],
        &[],
        &[],
    );
}

#[test]
fn of_wbtree() {
    every_step_is_needed(
        Baseline::WbTree,
        17,
        &[
            Group(OfWords(2), &["create.1", "create.2", "log create"], &["creation"]),
            Group(
                OfWords(2),
                &["wbtree leaf.1", "wbtree leaf.2", "wbtree leaf.2 order", "wbtree leaf.3"],
                &["insert"],
            ),
            Group(OfWords(2), &["wbtree update"], &["update"]),
            Group(OfWords(2), &["wbtree split.1", "log.1", "log.2", "log.3", "log.4"], &["split"]),
            Group(OfWords(2), &["wbtree mend.1", "wbtree mend.2"], &["insert"]),
            Group(OfWords(2), &["log replay.1", "log replay.2"], &["split", "again"]),
        ],
        // Whoever splits fences next for the item, but others may have changed the leaf by then.
        &["log.4"],
        &[],
    );
}

#[test]
fn of_fastfair() {
    every_step_is_needed(
        Baseline::FastFair,
        11,
        &[
            Group(OfWords(2), &["fastfair create.1"], &["creation"]),
            Group(OfWords(2), &["fastfair insert.1"], &["reused"]),
            Group(OfWords(2), &["fastfair insert.2", "fastfair insert.3"], &["insert", "split"]),
            Group(OfWords(2), &["fastfair update"], &["update"]),
            Group(OfWords(2), &["fastfair delete.1", "fastfair delete.2"], &["delete", "churn"]),
            Group(
                OfWords(2),
                &["fastfair split.1", "fastfair split.2", "fastfair grow.1", "fastfair grow.2"],
                &["creation", "split", "split-descending"],
            ),
        ],
        &[],
        // A crash cannot tell whether a cut was durable: entries from the sibling's first key on are cut by
        // every recovery. The flush belongs to the published split, and recovery does as it does.
        &["fastfair split.3", "fastfair mend.1"],
    );
}

/// One thread splits a full leaf, others change what it had.
fn split_meanwhile(roll: &mut dyn FnMut(usize) -> usize) -> Plan {
    let before = (0..6).map(|at| (at * 4, Access::Insert(at))).collect();
    let mut written = 1000;
    let mut deed = || {
        written += 1;
        Deed::Of(roll(9) as u64, Access::Insert(written))
    };
    Plan { before, threads: (0..2).map(|_| vec![deed(), deed(), deed()]).collect() }
}
