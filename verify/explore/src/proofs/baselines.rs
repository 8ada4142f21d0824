//! The baselines in nodes of two lines.

use bristlecone_baselines::{AnyDesign, Baseline};
use bristlecone_sim::{Access, Mode, Operation, Plan, Planned, Schedules};

use super::wotree::Shape::OfWords;
use super::wotree::{Group, proofs_in, tree_pool};
use super::{Proof, Steps};
use crate::targets::Words;

const NATIVE: &[Group] = &[
    Group(OfWords(2), &["create.1", "create.2", "log create"], &["creation", "begun"]),
    Group(OfWords(2), &["log.1", "log.2", "log.3", "log.4"], &["insert", "update"]),
    Group(OfWords(2), &["native split.1"], &["split"]),
    Group(OfWords(2), &["log replay.1", "log replay.2"], &["insert", "again"]),
];

const WB_TREE: &[Group] = &[
    Group(OfWords(2), &["create.1", "create.2", "log create"], &["creation", "begun"]),
    Group(
        OfWords(2),
        &["wbtree leaf.1", "wbtree leaf.2", "wbtree leaf.2 order", "wbtree leaf.3"],
        &["insert"],
    ),
    Group(OfWords(2), &["wbtree update"], &["update"]),
    Group(OfWords(2), &["wbtree split.1", "log.1", "log.2", "log.3", "log.4"], &["split"]),
    Group(OfWords(2), &["wbtree repair.1", "wbtree repair.2"], &["insert"]),
    Group(OfWords(2), &["log replay.1", "log replay.2"], &["split", "again"]),
];

const FAST_FAIR: &[Group] = &[
    Group(OfWords(2), &["fastfair create.1"], &["creation", "begun"]),
    Group(OfWords(2), &["fastfair insert.1"], &["reused"]),
    Group(OfWords(2), &["fastfair insert.2", "fastfair insert.3"], &["insert", "split"]),
    Group(OfWords(2), &["fastfair update"], &["update"]),
    Group(OfWords(2), &["fastfair delete.1", "fastfair delete.2"], &["delete", "churn"]),
    Group(
        OfWords(2),
        &["fastfair split.1", "fastfair split.2", "fastfair grow.1", "fastfair grow.2"],
        &["creation", "begun", "split", "split-descending"],
    ),
];

const LB_TREE: &[Group] = &[
    Group(OfWords(2), &["create.1", "create.2"], &["creation", "begun"]),
    Group(OfWords(4), &["lbtree insert.1", "lbtree move.1", "lbtree move.2"], &["insert", "expand", "again"]),
    Group(OfWords(2), &["lbtree update"], &["update"]),
    Group(OfWords(2), &["lbtree delete", "lbtree unlink.1"], &["delete", "empty", "empty-elsewhere"]),
    Group(
        OfWords(2),
        &["lbtree split.1", "lbtree split.1 items", "lbtree split.1 left", "lbtree split.2"],
        &["creation", "begun", "split"],
    ),
    Group(OfWords(8), &["lbtree split.3"], &["blocks"]),
];

const FP_TREE: &[Group] = &[
    Group(OfWords(2), &["create.1", "create.2", "fptree create"], &["creation", "begun"]),
    Group(OfWords(4), &["fptree insert.2", "fptree insert.3"], &["insert", "expand"]),
    Group(OfWords(2), &["fptree update.2", "fptree update.3"], &["update", "again"]),
    Group(OfWords(2), &["fptree delete", "fptree unlink.1"], &["delete", "empty", "empty-elsewhere"]),
    Group(
        OfWords(2),
        &[
            "fptree split.1",
            "fptree split.2",
            "fptree split.3",
            "fptree split.4",
            "fptree split.5",
            "fptree replay.1",
            "fptree replay.2",
        ],
        &["split", "again"],
    ),
];

const U_TREE: &[Group] = &[
    Group(OfWords(2), &["utree create.1", "utree create.2"], &["creation", "begun"]),
    Group(OfWords(2), &["utree insert.1", "utree insert.2"], &["insert", "churn"]),
    Group(OfWords(2), &["utree update"], &["update"]),
    Group(OfWords(2), &["utree delete"], &["delete", "churn"]),
];

const FLAT_STORE: &[Group] = &[
    Group(OfWords(2), &["flatstore append.1", "flatstore append.2"], &["insert"]),
    Group(OfWords(2), &["flatstore clean.1"], &["clean"]),
];

const DP_TREE: &[Group] = &[
    Group(OfWords(2), &["dptree create.1", "dptree create.2"], &["creation", "begun"]),
    Group(
        OfWords(2),
        &["dptree merge.1", "dptree merge.1 leaf", "dptree merge.1 meta", "dptree merge.2"],
        &["split", "log"],
    ),
    Group(OfWords(2), &["dptree unlink.1"], &["delete", "empty", "log"]),
];

const BE_TREE: &[Group] = &[
    Group(OfWords(2), &["betree create.1", "betree create.2"], &["creation", "begun"]),
    Group(OfWords(2), &["betree leaf.1", "betree leaf.1 new", "betree leaf.2"], &["insert", "split", "move"]),
    Group(OfWords(2), &["betree trim.2"], &["update", "log"]),
    Group(OfWords(2), &["betree unlink.1"], &["emptied-long-ago"]),
];

const PAC_TREE: &[Group] = &[
    Group(OfWords(2), &["pactree create.1", "pactree create.2"], &["creation", "begun"]),
    Group(
        OfWords(4),
        &["pactree insert.1", "pactree insert.1 fingerprint", "pactree insert.2"],
        &["insert", "expand"],
    ),
    Group(OfWords(2), &["pactree update"], &["update"]),
    Group(OfWords(2), &["pactree delete"], &["delete"]),
    Group(
        OfWords(2),
        &["pactree split.1", "pactree split.2", "pactree split.2 bitmap"],
        &["creation", "begun", "split"],
    ),
    Group(OfWords(2), &["pactree repair.1"], &["split-first"]),
];

/// Steps of the log that DPTree and the Bε-tree share with CCL-BTree, which proves them.
pub const OF_LOG: &[&str] =
    &["log append.1", "log append.1 next", "log append.2", "log chunk", "log recycle.1"];

/// Steps that no crash needs, but the published designs have: the durability of a cut in FAST & FAIR, since
/// every recovery cuts entries from the sibling's first key on; and the durability of FPTree's fingerprints in
/// leaves whose bitmap is in the same line.
pub const AS_PUBLISHED: &[&str] =
    &["fastfair split.3", "fastfair repair.1", "fptree insert.1", "fptree update.1"];

/// Returns groups of steps, each with the test that detects a mutation there soonest.
pub(super) fn proofs(baseline: Baseline) -> Vec<Proof> {
    let design = baseline.into();
    match baseline {
        Baseline::Native => proofs_in(design, NATIVE),
        Baseline::WbTree => {
            // The thread that splits fences next for the item, but others may have changed the leaf by then.
            proofs_in(design, WB_TREE)
                .into_iter()
                .chain([meanwhile(design, "log.4", split_meanwhile)])
                .collect()
        }
        Baseline::FastFair => proofs_in(design, FAST_FAIR),
        Baseline::LbTree => proofs_in(design, LB_TREE),
        Baseline::FpTree => proofs_in(design, FP_TREE)
            .into_iter()
            .chain([meanwhile(design, "fptree split.5", split_again_meanwhile)])
            .collect(),
        Baseline::UTree => proofs_in(design, U_TREE),
        Baseline::FlatStore => proofs_in(design, FLAT_STORE),
        Baseline::DpTree => proofs_in(design, DP_TREE),
        Baseline::BeTree => proofs_in(design, BE_TREE),
        Baseline::PacTree => proofs_in(design, PAC_TREE),
    }
}

/// Generates a plan.
type Draw = fn(&mut dyn FnMut(usize) -> usize) -> Plan;

/// Returns the proof of a step at the end of a split, through other threads' changes of the leaf.
fn meanwhile(design: AnyDesign, step: &'static str, plan: Draw) -> Proof {
    let planned = Planned { registers: tree_pool::<Words>(design, 2), plan };
    let wanted = Schedules { seed: 0, first: 0, count: 2000, modes: vec![Mode::Subset], threads: 1 };
    Proof::by_schedules(Steps::Starting(step), wanted, planned)
}

/// Returns a plan: one thread splits a full leaf, and another one fills the remaining leaf, and splits it again.
fn split_again_meanwhile(draw: &mut dyn FnMut(usize) -> usize) -> Plan {
    let before = (0..6).map(|at| (at * 4, Access::Insert(at))).collect();
    let insert = |key: u64| Operation::On(key, Access::Insert(1000 + key));
    let from = draw(4) as u64;
    let lower = [1, 2, 3, 5, 6, 7, 9].map(|key| (key + from) % 11 + 1).into_iter().filter(|key| key % 4 != 0);
    Plan::new(before, vec![vec![insert(13 + draw(6) as u64)], lower.map(insert).collect()])
}

/// Returns a plan: one thread splits a full leaf, others change its former items.
fn split_meanwhile(draw: &mut dyn FnMut(usize) -> usize) -> Plan {
    let before = (0..6).map(|at| (at * 4, Access::Insert(at))).collect();
    let mut written = 1000;
    let mut operation = || {
        written += 1;
        Operation::On(draw(9) as u64, Access::Insert(written))
    };
    Plan::new(before, (0..2).map(|_| vec![operation(), operation(), operation()]).collect())
}
