//! Every flush, fence and order of every design is necessary: each is removed, moved or swapped separately, and a
//! scenario or a schedule must detect it. The mutations are in `src/proofs`, which the tool uses as well.

use bristlecone::Design;
use bristlecone_baselines::{AnyDesign, Baseline};
use bristlecone_explore::EXPLAINED;
use bristlecone_explore::proofs::baselines::{AS_PUBLISHED, OF_LOG};
use bristlecone_explore::proofs::nbtree::changed_among_threads;
use bristlecone_explore::proofs::{proofs_of, prove, sites_passed};
use bristlecone_explore::targets::subjects_of;
use bristlecone_matrix::{TestLevel, by_level, seed, share, takes};
use bristlecone_sim::{Budget, Mode, Progress, Site, explore_rounds, mutate_rounds, rounds};
use std::collections::BTreeSet;
use std::ops::Range;

use crate::effort::LONGEST;

/// Runs the proofs of a design. Fails with undetected mutations, and with steps that scenarios pass and no proof has,
/// unless the published design requires them.
///
/// Those of our own designs and of [`LONGEST`] take minutes: a quick run omits them, and says so. Of the other
/// baselines it takes one in four, different ones each day.
pub fn every_step_is_needed(design: impl Into<AnyDesign>, steps_in_all: usize, as_published: &[&str]) {
    let design = design.into();
    let others = || Baseline::ALL.iter().filter(|baseline| !LONGEST.contains(baseline));
    let of_today = |baseline| share(others(), 4).contains(&baseline);
    let is_taken = matches!(design, AnyDesign::Baseline(baseline) if of_today(&baseline));
    if !is_taken && !takes(TestLevel::Ci, &format!("every step of {design} is needed")) {
        return;
    }
    let table = prove(&proofs_of(design), 2, &Progress::default());
    println!("{table}");
    table.assert_clean();
    let steps: BTreeSet<_> =
        table.sites.iter().filter(|site| site.is_named()).map(|site| site.step).collect();
    assert_eq!(steps.len(), steps_in_all, "{steps:?}");
    let passed = sites_passed(design);
    let missing =
        passed.difference(&table.sites).filter(|site| site.is_named() && !as_published.contains(&site.step));
    let missing: BTreeSet<_> = missing.collect();
    assert!(missing.is_empty(), "in no proof: {missing:?}");
}

/// Runs of one crash point where every mutation is tried: the first run detects most of them.
const RUNS: u64 = 32;
/// Number of shapes of a design.
const CONFIGURATIONS: usize = 4;
/// Returns the sites of a design that this run tries: one in a fixed number, different ones each day, and at least
/// one.
fn drawn(sites: BTreeSet<Site>) -> BTreeSet<Site> {
    let one_of = by_level(128, 32, 1).min(sites.len() as u64).max(1);
    let is_drawn = |number: usize| (number as u64).wrapping_add(seed()).is_multiple_of(one_of);
    sites.into_iter().enumerate().filter(|(number, _)| is_drawn(*number)).map(|(_, site)| site).collect()
}

/// Loses stores and compare-and-swaps, and removes orders, of a design. Each must be detected, except for stores
/// declared as derived, of which none may be. `BRISTLECONE_CELLS=all` tries all, in several shapes.
fn every_store_is_needed(design: impl Into<AnyDesign>) {
    let design = design.into();
    // Interactions of threads need schedules.
    let is_long =
        design == Design::NbTree.into() || LONGEST.iter().any(|baseline| design == (*baseline).into());
    if is_long && !takes(TestLevel::Ci, &format!("every store of {design} is needed")) {
        return;
    }
    let subjects = subjects_of(design);
    let asked = std::env::var("BRISTLECONE_CELLS").is_ok_and(|cells| cells == "all");
    let all = asked || TestLevel::of_run() == TestLevel::Long;
    let most = CONFIGURATIONS.min(subjects.len());
    let first = if all { most } else { 1 };
    let few = Budget { continuation_crashes: u32::MAX, depth: 1, threads: 2, ..Budget::of(1) };
    let progress = Progress::default();
    let explored = |some: Range<usize>| {
        let rounds = rounds(subjects[some].iter().map(Box::as_ref), &[Mode::Subset]);
        let reports = explore_rounds(&rounds, few, &progress, &|_, _| {});
        rounds.into_iter().zip(reports.into_iter().flatten()).collect::<Vec<_>>()
    };
    let rounds = explored(0..first);
    let budget = Budget { threads: 2, continuation_crashes: 1, depth: 1, ..Budget::of(RUNS) };
    let passed = rounds.iter().flat_map(|(_, report)| report.sites.iter().copied());
    let sites = passed.filter(|site| !site.is_of_pool() && !site.is_named()).collect();
    let sites = if all { sites } else { drawn(sites) };
    let wanted = |site: &Site| sites.contains(site);
    let mut table = mutate_rounds(&rounds, budget, &wanted, &progress, &|_| {}).explained_by(EXPLAINED);
    if first < most && !table.survivors().is_empty() {
        // Leaves of another shape may notice.
        let others = explored(first..most);
        let left = mutate_rounds(&others, budget, &|site| table.has_left(site), &progress, &|_| {});
        table.merge(left);
    }
    if design == Design::NbTree.into() && !table.survivors().is_empty() {
        // Interactions of threads.
        let among_threads = changed_among_threads(&|site| table.has_left(site));
        table.merge(among_threads);
    }
    println!("{table}");
    table.assert_clean();
}

macro_rules! stores {
    ($($name:ident: $design:expr;)+) => {
        $(
            #[test]
            fn $name() {
                every_store_is_needed($design);
            }
        )+
    };
}

stores! {
    stores_of_sstree: Design::SsTree;
    stores_of_nbtree: Design::NbTree;
    stores_of_cclbtree: Design::CclBTree;
    stores_of_lodgetree: Design::LodgeTree;
    stores_of_wotree: Design::WoTree;
    stores_of_native: Baseline::Native;
    stores_of_wbtree: Baseline::WbTree;
    stores_of_fastfair: Baseline::FastFair;
    stores_of_lbtree: Baseline::LbTree;
    stores_of_fptree: Baseline::FpTree;
    stores_of_utree: Baseline::UTree;
    stores_of_flatstore: Baseline::FlatStore;
    stores_of_dptree: Baseline::DpTree;
    stores_of_betree: Baseline::BeTree;
    stores_of_pactree: Baseline::PacTree;
}

#[test]
fn wotree_every_mutation_is_noticed() {
    every_step_is_needed(Design::WoTree, 42, &[]);
}

#[test]
fn native_every_mutation_is_noticed() {
    every_step_is_needed(Baseline::Native, 10, &[]);
}

#[test]
fn wbtree_every_mutation_is_noticed() {
    every_step_is_needed(Baseline::WbTree, 17, &[]);
}

#[test]
fn fastfair_every_mutation_is_noticed() {
    every_step_is_needed(Baseline::FastFair, 11, AS_PUBLISHED);
}

#[test]
fn lbtree_every_mutation_is_noticed() {
    every_step_is_needed(Baseline::LbTree, 13, &[]);
}

#[test]
fn fptree_every_mutation_is_noticed() {
    every_step_is_needed(Baseline::FpTree, 16, AS_PUBLISHED);
}

#[test]
fn utree_every_mutation_is_noticed() {
    every_step_is_needed(Baseline::UTree, 6, &[]);
}

#[test]
fn flatstore_every_mutation_is_noticed() {
    every_step_is_needed(Baseline::FlatStore, 3, &[]);
}

#[test]
fn dptree_every_mutation_is_noticed() {
    every_step_is_needed(Baseline::DpTree, 7, OF_LOG);
}

#[test]
fn betree_every_mutation_is_noticed() {
    every_step_is_needed(Baseline::BeTree, 7, OF_LOG);
}

#[test]
fn pactree_every_mutation_is_noticed() {
    every_step_is_needed(Baseline::PacTree, 11, &[]);
}
