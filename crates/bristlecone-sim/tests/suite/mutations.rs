//! Every flush, fence and order of every design is needed: each is taken away, moved or swapped by itself, and
//! a scenario or a schedule notices. What is tried is in `src/proofs`, for the tool as well.

use bristlecone::Design;
use bristlecone_baselines::{Baseline, Contender};
use bristlecone_sim::Progress;
use bristlecone_sim::proofs::baselines::AS_PUBLISHED;
use bristlecone_sim::proofs::{proofs_of, prove, sites_passed};
use std::collections::BTreeSet;

/// Goes through the proofs of a design, and fails with what nobody noticed, and with steps that scenarios pass and
/// no proof has, unless they are there because the published design has them.
pub fn every_step_is_needed(design: impl Into<Contender>, steps_in_all: usize, as_published: &[&str]) {
    let design = design.into();
    let table = prove(&proofs_of(design), 2, &Progress::default());
    println!("{table}");
    table.assert_clean();
    let steps: BTreeSet<_> = table.sites.iter().map(|site| site.step).collect();
    assert_eq!(steps.len(), steps_in_all, "{steps:?}");
    let passed = sites_passed(design);
    let missing = passed.difference(&table.sites).filter(|site| !as_published.contains(&site.step));
    let missing: BTreeSet<_> = missing.collect();
    assert!(missing.is_empty(), "in no proof: {missing:?}");
}

#[test]
fn of_wotree() {
    every_step_is_needed(Design::WoTree, 39, &[]);
}

#[test]
fn of_native() {
    every_step_is_needed(Baseline::Native, 10, &[]);
}

#[test]
fn of_wbtree() {
    every_step_is_needed(Baseline::WbTree, 17, &[]);
}

#[test]
fn of_fastfair() {
    every_step_is_needed(Baseline::FastFair, 11, AS_PUBLISHED);
}
