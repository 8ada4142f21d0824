//! Crashes of WO-tree in nodes of more than two lines, which are in `trees.rs`, and of byte strings.

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_explore::targets::{Items, Texts, TreePool, Words, tree_scenarios};
use bristlecone_matrix::{TestLevel, by_level, takes};
use bristlecone_pm::Geometry;
use bristlecone_sim::{
    Access, Budget, Mode, Operation, Plan, Progress, Report, Schedules, Way, explore, explore_schedules,
};

use crate::effort::{schedules, share};
use crate::planned::Planned;

/// An affordable budget for every change; `bristlecone crash` explores more.
fn budget() -> Budget {
    Budget { exhaustive: 64, sampled: 16, nested: (8, 4), ..Budget::quick() }
}

fn tree_pool<I: Items>(node_lines: u64) -> TreePool<I> {
    TreePool {
        geometry: Geometry { chunk_bytes: 4096, chunks_max: 32, trees_max: 3 },
        design: Design::WoTree.into(),
        options: vec![("node_lines", node_lines)],
        items: PhantomData,
    }
}

/// Explores scenarios and fails with all issues.
fn survives<I: Items>(tree_pool: &TreePool<I>, modes: &[Mode], budget: Budget) {
    let mut total = Report { scenario: "all".to_owned(), ..Report::default() };
    let scenarios = tree_scenarios();
    let all = scenarios.iter().flat_map(|scenario| modes.iter().map(move |mode| (scenario, *mode)));
    for (scenario, mode) in share(all, 16) {
        let report = explore(tree_pool, scenario, mode, budget);
        println!("{report}");
        total.merge(report);
    }
    println!("{total}");
    total.assert_clean();
}

#[test]
fn words_in_nodes_of_four_lines_survive_every_crash() {
    survives(&tree_pool::<Words>(4), &[Mode::Subset], budget());
}

#[test]
fn words_in_nodes_of_thirty_two_lines_survive_every_crash() {
    survives(&tree_pool::<Words>(32), &[Mode::Subset], Budget { depth: 1, ..budget() });
}

/// Opening checks for every slot of every chunk whether it is live, so few images are affordable.
#[test]
fn texts_survive_every_crash() {
    let budget = Budget { exhaustive: 16, sampled: 8, depth: 1, continuation_crashes: 1 << 20, ..budget() };
    let mut total = Report::default();
    for scenario in tree_scenarios().iter().filter(|scenario| ["insert", "split"].contains(&scenario.name)) {
        total.merge(explore(&tree_pool::<Texts>(2), scenario, Mode::Subset, budget));
    }
    println!("{total}");
    total.assert_clean();
}

/// Every new key splits a leaf and its parent. Ascending keys leave full leaves behind, enough to fill
/// the last inner node, or the last one at every level; the threads operate there.
fn on_the_brink(draw: &mut dyn FnMut(usize) -> usize) -> Plan {
    /// Entries of a node of two lines, and items of a leaf.
    const NODE: u64 = 6;
    /// Distance between existing keys.
    const APART: u64 = 4;
    let leaves = [NODE, 9, 21][draw(3)];
    let before = (0..leaves * NODE).map(|at| (at * APART, Access::Insert(at))).collect();
    let mut written = 1000;
    let mut operation = |draw: &mut dyn FnMut(usize) -> usize, first: bool| {
        let there = (leaves * NODE - 1 - draw((NODE * NODE) as usize) as u64) * APART;
        written += 1;
        match draw(8) {
            kind if first || kind == 0 => Operation::On(there + 1 + draw(3) as u64, Access::Insert(written)),
            1 => Operation::On(there, Access::Remove),
            2 => Operation::On(there, Access::Update(written)),
            3 => Operation::Scan(Way::draw(draw)),
            _ => Operation::On(there, Access::Get),
        }
    };
    let threads = 2 + draw(2);
    let operations = |thread| (0..2 + draw(3)).map(|at| operation(draw, thread == 0 && at == 0)).collect();
    Plan::new(before, (0..threads).map(operations).collect())
}

/// Searches pass inner nodes while these split.
fn searched_while_split<I: Items>(count: u64) {
    // With fewer, too few meet a growing root.
    let count = schedules(count).max(count);
    let wanted = Schedules { seed: 7, first: 0, count, modes: Mode::ALL.to_vec(), threads: 2 };
    let report = explore_schedules(
        &Planned { registers: tree_pool::<I>(2), plan: on_the_brink },
        &wanted,
        &Progress::default(),
    );
    println!("{report}, raced: {:?}", report.raced);
    report.assert_clean();
    assert_eq!(report.schedules, count);
    for step in ["wotree split.3 inner", "wotree grow.3"] {
        let raced = report.raced.get(step).copied().unwrap_or_default();
        assert!(raced * 4 > count, "{step}: {raced} times while others were at work");
    }
}

#[test]
fn words_are_found_while_inner_nodes_split() {
    searched_while_split::<Words>(by_level(1000, 4000, 4000));
}

#[test]
fn texts_are_found_while_inner_nodes_split() {
    if !takes(TestLevel::Ci, "searches for texts while inner nodes split") {
        return;
    }
    searched_while_split::<Texts>(1000);
}

/// Leaves of six items in nodes of two lines, enough to fill the pool or nearly fill it, and with it
/// parents at every level; every thread splits leaves, and there is not enough space for all.
fn without_room(draw: &mut dyn FnMut(usize) -> usize) -> Plan {
    const NODE: u64 = 6;
    const APART: u64 = 8;
    let leaves = 17 + draw(6) as u64;
    let items = leaves * NODE;
    let before = (0..items).map(|at| (at * APART, Access::Insert(at))).collect();
    let mut written = 1000;
    // Half of the keys are where the others operate, under one parent or two.
    let first = draw(items as usize - 12) as u64;
    let mut operation = |draw: &mut dyn FnMut(usize) -> usize| {
        let at = if draw(4) == 0 { draw(items as usize) as u64 } else { first + draw(12) as u64 };
        written += 1;
        match draw(12) {
            0..2 => Operation::On(at * APART, Access::Remove),
            2 => Operation::On(at * APART, Access::Get),
            3 => Operation::Scan(Way::draw(draw)),
            _ => Operation::On(at * APART + 1 + draw(7) as u64, Access::Insert(written)),
        }
    };
    let threads = 2 + draw(2);
    Plan::new(before, (0..threads).map(|_| (0..3 + draw(4)).map(|_| operation(draw)).collect()).collect())
}

/// The pool has space only for the log and one chunk of nodes.
fn no_split_loses_its_parent_in_a_full_pool<I: Items>(chunks_max: u64, count: u64) {
    let geometry = Geometry { chunk_bytes: 4096, chunks_max, trees_max: 3 };
    let registers = TreePool::<I> { geometry, ..tree_pool(2) };
    let count = schedules(count);
    let wanted = Schedules { seed: 11, first: 0, count, modes: Mode::ALL.to_vec(), threads: 2 };
    let report = explore_schedules(&Planned { registers, plan: without_room }, &wanted, &Progress::default());
    println!("{report}, raced: {:?}", report.raced);
    report.assert_clean();
    assert_eq!(report.schedules, count);
}

#[test]
fn words_in_a_full_pool_survive_threads_that_split() {
    no_split_loses_its_parent_in_a_full_pool::<Words>(2, 4000);
}
