//! NBTree: every flush, fence and order is necessary, for one thread or for several.

use bristlecone::Design;
use bristlecone_explore::proofs::nbtree::{SLOTS, brought_without_value, reuses, small};
use bristlecone_explore::targets::{Texts, Words};
use bristlecone_sim::{
    Access, Budget, Mode, Operation, Plan, Progress, Site, SiteKind, Way, explore, mutate_among,
};

use crate::effort::schedules;
use crate::mutations::every_step_is_needed;
use crate::planned::raced;

#[test]
fn blocks_reused_after_recovery_survive_every_crash() {
    for (tree_pool, scenarios, budget) in reuses() {
        for scenario in scenarios {
            for mode in Mode::ALL {
                let report = explore(&tree_pool, &scenario, mode, budget);
                println!("{report}");
                report.assert_clean();
            }
        }
    }
}

#[test]
fn every_flush_fence_and_order_is_needed() {
    every_step_is_needed(Design::NbTree, 21, &[]);
}

/// Leaves lose their last items while other threads look these up, insert keys of the same range,
/// and scan. The previous leaf takes the range over; for the first leaf, the next one does.
fn emptied_under_eyes(draw: &mut dyn FnMut(usize) -> usize) -> Plan {
    /// Distance between existing keys.
    const APART: u64 = 10;
    // Ascending keys leave full leaves behind, of which one keeps few items or two keep one each.
    let leaves = 2 + draw(2) as u64;
    let drained = draw(leaves as usize) as u64;
    let left = 1 + draw(3) as u64;
    let keys = (0..leaves * SLOTS).map(|at| at * APART);
    let mut before: Vec<_> = keys.map(|key| (key, Access::Insert(key))).collect();
    let first = (drained * SLOTS + draw((SLOTS - left + 1) as usize) as u64) * APART;
    let last: Vec<_> = (0..left).map(|at| first + at * APART).collect();
    let of_leaf = (drained * SLOTS..(drained + 1) * SLOTS).map(|at| at * APART);
    let gone = of_leaf.filter(|key| !last.contains(key)).map(|key| (key, Access::Remove));
    before.extend(gone);
    // Free space beside the drained leaf, so that inserts there do not split.
    for other in (0..leaves).filter(|other| *other != drained) {
        let remove = |slot: u64| (((other * SLOTS) + slot) * APART, Access::Remove);
        before.extend([2, 4].map(remove));
    }
    let mut threads: Vec<_> = last.iter().map(|&key| vec![Operation::On(key, Access::Remove)]).collect();
    let near = |draw: &mut dyn FnMut(usize) -> usize| last[draw(last.len())] + draw(3) as u64 * (APART / 2);
    let mut written = 1000;
    let mut watch = |draw: &mut dyn FnMut(usize) -> usize| {
        written += 1;
        match draw(6) {
            0 | 1 => Operation::On(last[draw(last.len())], Access::Get),
            2 | 3 => Operation::On(near(draw) + 1, Access::Insert(written)),
            4 => Operation::On(near(draw), Access::InsertNew(written)),
            _ => Operation::Scan(Way::draw(draw)),
        }
    };
    for _ in 0..1 + draw(2) {
        threads.push((0..2 + draw(2)).map(|_| watch(draw)).collect());
    }
    Plan::new(before, threads)
}

/// Step that frees an emptied leaf, in at least one of this many schedules while other threads were
/// active.
const FREED: &[(&str, u64)] = &[("nbtree free.2", 4)];

#[test]
fn nbtree_free_is_durable_before_its_range_is_a_neighbours() {
    raced(small::<Words>(), emptied_under_eyes, (5, schedules(20_000)), FREED);
    raced(small::<Texts>(), emptied_under_eyes, (5, schedules(2000)), FREED);
}

/// A key without a value is stored again by the thread that stores its first value.
#[test]
fn first_value_is_kept_with_its_key_alone() {
    let budget = Budget { continuation_crashes: 1, depth: 1, threads: 2, ..Budget::of(64) };
    let scenarios = [(brought_without_value(), Mode::Subset)];
    let wanted = |site: &Site| site.kind == SiteKind::Store && site.at.file().ends_with("nbtree/write.rs");
    let table = mutate_among(&small::<Words>(), &scenarios, budget, &wanted, &Progress::default());
    println!("{table}");
    table.assert_clean();
    assert!(table.killed() >= 1);
}
