//! Structures that threads share, and the selection of their schedules.

use std::collections::BTreeMap;

use crate::medium::sim::Sim;
use crate::model::memory::Memory;
use crate::model::mode::Mode;
use crate::schedule::history::{Answer, Operation};
use crate::schedule::plan::Plan;

/// The name in reports in place of a scenario's.
pub const SCHEDULES: &str = "schedules";

/// Number of schedules of one plan.
pub const PER_PLAN: u64 = 32;

/// Keys with values on persistent memory, which several threads may use concurrently.
pub trait Registers: Clone + Send + Sync + 'static {
    /// The structure, open.
    type Live: Send + Sync + 'static;

    /// Returns fresh, zeroed memory for it.
    fn memory(&self) -> Memory;

    /// Creates it on zeroed memory.
    ///
    /// # Errors
    ///
    /// Description of the failure.
    fn create(&self, sim: &Sim) -> Result<Self::Live, String>;

    /// Opens and recovers the structure in the memory of `sim`.
    ///
    /// # Errors
    ///
    /// The reason why it does not open.
    fn open(&self, sim: &Sim) -> Result<Self::Live, String>;

    /// Applies an operation; any thread may.
    ///
    /// # Errors
    ///
    /// Description of the failure.
    fn act(&self, live: &Self::Live, operation: &Operation) -> Result<Answer, String>;

    /// Draws the initial items, and the threads' operations; `draw` returns a number below its
    /// argument.
    fn plan(&self, draw: &mut dyn FnMut(usize) -> usize) -> Plan {
        Plan::draw(draw)
    }

    /// Checks every invariant and reads everything. No other thread may be active meanwhile.
    ///
    /// # Errors
    ///
    /// The first violated invariant.
    fn contents(&self, live: &Self::Live) -> Result<BTreeMap<u64, u64>, String>;
}

/// A selection of schedules.
#[derive(Debug, Clone)]
pub struct Schedules {
    /// Seed of everything drawn.
    pub seed: u64,
    /// The number of the first.
    pub first: u64,
    /// Their number.
    pub count: u64,
    /// The crash models, used alternately.
    pub modes: Vec<Mode>,
    /// Number of workers.
    pub threads: usize,
}
