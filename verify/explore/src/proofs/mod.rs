//! Proofs that each flush, fence and order of a design is necessary: groups of steps, each with the smallest
//! tree pool and scenarios, or the plan of several threads, in which a mutation is detected soonest.
//!
//! The tests and `bristlecone-lab crash --mutations` run the same proofs.

pub mod baselines;
pub mod cclbtree;
pub mod explained;
pub mod lodgetree;
pub mod log;
pub mod nbtree;
mod sites;
pub mod wotree;

use bristlecone::Design;
use bristlecone_baselines::AnyDesign;
use bristlecone_pm::Step;
use bristlecone_sim::{
    Budget, Mode, Progress, Registers, Scenario, Schedules, Seen, Sim, Site, System, Table, mutate_among,
    mutate_schedules_among,
};

use self::explained::EXPLAINED;
use crate::targets::TreeOp::{self, Create, Insert};
use crate::targets::{Items, TreePool, tree_scenarios};

pub use sites::sites_passed;

type Prove = dyn Fn(&Table, &Progress, usize) -> Table + Send + Sync;

/// Mutates some steps of a design, one after the other, where that is detected.
pub struct Proof(Box<Prove>);

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proof").finish_non_exhaustive()
    }
}

/// Chooses steps by name.
#[derive(Debug, Clone, Copy)]
pub enum Steps {
    /// Steps whose names begin with this.
    Starting(&'static str),
    /// These steps.
    Among(&'static [&'static str]),
}

impl Steps {
    /// Returns whether a step is chosen.
    pub fn holds(&self, step: Step) -> bool {
        match self {
            Self::Starting(prefix) => step.starts_with(prefix),
            Self::Among(steps) => steps.contains(&step),
        }
    }
}

impl Proof {
    /// Mutates steps in the scenarios of a system, in the mode with most images. Scenarios are created on
    /// demand.
    pub fn by_crashes<S: System>(
        steps: Steps,
        budget: Budget,
        make: impl Fn() -> (S, Vec<Scenario<S::Op>>) + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(move |known, progress, threads| {
            let (system, scenarios) = make();
            let scenarios: Vec<_> = scenarios.into_iter().map(|scenario| (scenario, Mode::Subset)).collect();
            let budget = Budget { threads, ..budget };
            let wanted = |site: &Site| steps.holds(site.step) && known.lacks(site);
            mutate_among(&system, &scenarios, budget, &wanted, progress)
        }))
    }

    /// Mutates steps in schedules: for steps that need several threads.
    pub fn by_schedules<R: Registers>(steps: Steps, schedules: Schedules, registers: R) -> Self {
        Self(Box::new(move |known, progress, threads| {
            let schedules = Schedules { threads, ..schedules.clone() };
            let wanted = |site: &Site| steps.holds(site.step) && known.lacks(site);
            mutate_schedules_among(&registers, &schedules, &wanted, progress)
        }))
    }
}

/// Returns the proofs that the steps of a design are necessary; none for a design whose mutations are all
/// detected in the common scenarios of trees.
pub fn proofs_of(design: impl Into<AnyDesign>) -> Vec<Proof> {
    match design.into() {
        AnyDesign::Library(Design::NbTree) => nbtree::proofs(),
        AnyDesign::Library(Design::CclBTree) => {
            [cclbtree::proofs(), log::proofs()].into_iter().flatten().collect()
        }
        AnyDesign::Library(Design::LodgeTree) => {
            [lodgetree::proofs(), log::proofs()].into_iter().flatten().collect()
        }
        AnyDesign::Library(Design::WoTree) => wotree::proofs(),
        AnyDesign::Library(_) => Vec::new(),
        AnyDesign::Baseline(baseline) => baselines::proofs(baseline),
    }
}

/// Runs proofs until the end, or until `progress` is stopped. Mutations that one detects are left out in the
/// next ones.
pub fn prove(proofs: &[Proof], threads: usize, progress: &Progress) -> Table {
    let mut table = Table::default().explained_by(EXPLAINED);
    for Proof(prove) in proofs {
        if progress.is_stopped() {
            break;
        }
        let more = prove(&table, progress, threads);
        table.merge(more);
    }
    table.interrupted |= progress.is_stopped();
    table
}

/// Returns the operations for which a pool has space, one after the other.
///
/// # Panics
///
/// If it has no space for itself, or an operation fails otherwise.
pub fn accepted<I: Items>(tree_pool: &TreePool<I>, ops: impl Iterator<Item = TreeOp>) -> Vec<TreeOp> {
    let mut live = System::create(tree_pool, &Sim::new(&System::memory(tree_pool))).unwrap();
    let refused = format!("{:?}", Seen::Refused);
    let accepted = ops.filter(|op| System::apply(tree_pool, &mut live, op).unwrap() != refused).collect();
    System::abandon(tree_pool, live);
    accepted
}

/// Returns scenarios of every tree that have these names.
fn named(names: &[&str]) -> Vec<Scenario<TreeOp>> {
    let scenarios = tree_scenarios().into_iter();
    scenarios.filter(|scenario| names.contains(&scenario.name)).collect()
}

/// Inserts a key whose value is the key.
fn insert(key: u64) -> TreeOp {
    Insert("t", key, key)
}

/// Returns a scenario of one tree.
fn scenario(
    name: &'static str,
    setup: impl IntoIterator<Item = TreeOp>,
    ops: impl IntoIterator<Item = TreeOp>,
    then: Vec<TreeOp>,
) -> Scenario<TreeOp> {
    let setup = [Create("t")].into_iter().chain(setup).collect();
    Scenario { name, creation: false, setup, ops: ops.into_iter().collect(), then }
}
