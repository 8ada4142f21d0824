//! What threads share, and which schedules of them are run.

use std::collections::BTreeMap;

use crate::medium::sim::Sim;
use crate::model::memory::Memory;
use crate::model::mode::Mode;
use crate::schedule::history::{Answer, Operation};
use crate::schedule::plan::Plan;

/// The name that reports have in the place of a scenario's.
pub const SCHEDULES: &str = "schedules";

/// Schedules of one plan.
pub const PER_PLAN: u64 = 32;

/// Keys with values on persistent memory, which several threads may use at once.
pub trait Registers: Clone + Send + Sync + 'static {
    /// The structure, open.
    type Live: Send + Sync + 'static;

    /// Returns fresh, zeroed memory for it.
    fn memory(&self) -> Memory;

    /// Creates it on zeroed memory.
    ///
    /// # Errors
    ///
    /// What went wrong.
    fn create(&self, sim: &Sim) -> Result<Self::Live, String>;

    /// Opens what the memory of `sim` holds, recovering it.
    ///
    /// # Errors
    ///
    /// Why it does not open.
    fn open(&self, sim: &Sim) -> Result<Self::Live, String>;

    /// Applies an operation; any thread may.
    ///
    /// # Errors
    ///
    /// What went wrong.
    fn act(&self, live: &Self::Live, operation: &Operation) -> Result<Answer, String>;

    /// Draws what is there at first, and what the threads do; `draw` draws a number below its argument.
    fn plan(&self, draw: &mut dyn FnMut(usize) -> usize) -> Plan {
        Plan::draw(draw)
    }

    /// Checks every invariant and reads everything. No thread does anything else meanwhile.
    ///
    /// # Errors
    ///
    /// The first invariant that does not hold.
    fn contents(&self, live: &Self::Live) -> Result<BTreeMap<u64, u64>, String>;
}

/// Which schedules are run.
#[derive(Debug, Clone)]
pub struct Schedules {
    /// What everything is drawn from.
    pub seed: u64,
    /// The number of the first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// The crash models, by turns.
    pub modes: Vec<Mode>,
    /// Workers.
    pub threads: usize,
}
