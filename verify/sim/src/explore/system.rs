//! Explorable systems.

use std::fmt::Debug;

use crate::medium::sim::Sim;
use crate::model::memory::Memory;
use crate::report::Report;
use crate::report::progress::Progress;
use crate::schedule::registers::Schedules;

/// A structure on persistent memory, together with the model of its contents.
///
/// An error of a method is an issue: its text is part of the report of the failure.
pub trait System: Sync {
    /// An operation. Each is atomic: after a crash it was applied completely or not at all, except as
    /// [`is_between`](Self::is_between) allows.
    type Op: Debug + Clone + Send + Sync;
    /// Contents of the structure, as its user sees them.
    type State: Debug + Clone + Eq + Send + Sync;
    /// The structure, open.
    type Live;

    /// Returns fresh, zeroed memory for it.
    fn memory(&self) -> Memory;

    /// Creates the structure on zeroed memory.
    ///
    /// # Errors
    ///
    /// Description of the failure.
    fn create(&self, sim: &Sim) -> Result<Self::Live, String>;

    /// Opens and recovers the structure in the memory of `sim`; `None` if it was never created there.
    ///
    /// # Errors
    ///
    /// The reason why it does not open.
    fn open(&self, sim: &Sim) -> Result<Option<Self::Live>, String>;

    /// Abandons the structure like a crash: without another store to the medium.
    fn abandon(&self, live: Self::Live);

    /// Returns the contents of a new structure.
    fn fresh(&self) -> Self::State;

    /// Applies the operation to the model and returns the expected result.
    fn predict(&self, state: &mut Self::State, op: &Self::Op) -> String;

    /// Applies the operation and returns its result.
    ///
    /// # Errors
    ///
    /// Description of the failure; a permitted refusal is not an error: see [`refusal`](Self::refusal).
    fn apply(&self, live: &mut Self::Live, op: &Self::Op) -> Result<String, String>;

    /// Returns the result of an operation that found no space and changed nothing, if the operation may return it.
    fn refusal(&self, op: &Self::Op) -> Option<String> {
        let _ = op;
        None
    }

    /// Returns whether a crash during an operation between two states may leave a third one, because the operation
    /// consists of several.
    fn is_between(&self, before: &Self::State, after: &Self::State, found: &Self::State) -> bool {
        let _ = (before, after, found);
        false
    }

    /// Checks every invariant and reads everything by every method.
    ///
    /// # Errors
    ///
    /// The first violated invariant, or two methods that disagree.
    fn observe(&self, live: &Self::Live) -> Result<Self::State, String>;

    /// Runs schedules of several threads, if threads share the structure.
    fn schedules(&self, wanted: &Schedules, progress: &Progress) -> Option<Report> {
        let _ = (wanted, progress);
        None
    }
}

/// Operations on a [`System`] while crashes are explored.
#[derive(Debug, Clone)]
pub struct Scenario<Op> {
    /// Its name in reports.
    pub name: &'static str,
    /// Whether creation and `setup` are explored too.
    pub creation: bool,
    /// Operations before the exploration begins.
    pub setup: Vec<Op>,
    /// The operations in which crashes happen.
    pub ops: Vec<Op>,
    /// Operations on every recovered structure, to verify that it works.
    pub then: Vec<Op>,
}
