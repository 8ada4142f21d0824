//! The baselines in nodes of two lines.

use bristlecone_baselines::Baseline;
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
    Group(OfWords(2), &["wbtree mend.1", "wbtree mend.2"], &["insert"]),
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

/// A crash cannot show whether a cut of FAST & FAIR was durable: entries from the sibling's first key on are cut by
/// every recovery. The flush belongs to the published split, and recovery does as it does.
pub const AS_PUBLISHED: &[&str] = &["fastfair split.3", "fastfair mend.1"];

/// Groups of steps, each with what notices a change there soonest.
pub(super) fn proofs(baseline: Baseline) -> Vec<Proof> {
    let design = baseline.into();
    match baseline {
        Baseline::Native => proofs_in(design, NATIVE),
        Baseline::WbTree => {
            // The thread that splits fences next for the item, but others may have changed the leaf by then.
            let planned = Planned { registers: tree_pool::<Words>(design, 2), plan: split_meanwhile };
            let wanted = Schedules { seed: 0, first: 0, count: 2000, modes: vec![Mode::Subset], threads: 1 };
            let meanwhile = Proof::by_schedules(Steps::Starting("log.4"), wanted, planned);
            proofs_in(design, WB_TREE).into_iter().chain([meanwhile]).collect()
        }
        Baseline::FastFair => proofs_in(design, FAST_FAIR),
    }
}

/// Returns a plan: one thread splits a full leaf, others change what it had.
fn split_meanwhile(draw: &mut dyn FnMut(usize) -> usize) -> Plan {
    let before = (0..6).map(|at| (at * 4, Access::Insert(at))).collect();
    let mut written = 1000;
    let mut operation = || {
        written += 1;
        Operation::On(draw(9) as u64, Access::Insert(written))
    };
    Plan::new(before, (0..2).map(|_| vec![operation(), operation(), operation()]).collect())
}
