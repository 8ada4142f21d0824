//! What can be explored.

use std::fmt::Debug;

use crate::medium::sim::Sim;
use crate::model::memory::Memory;
use crate::report::Report;
use crate::report::progress::Progress;
use crate::schedule::registers::Schedules;

/// A structure that lives on persistent memory, together with the model of what it must hold.
///
/// An error of a method is a finding: the text is what the report says of the failure.
pub trait System: Sync {
    /// An operation. Each is atomic, so that after a crash it happened wholly or not at all, but for what
    /// [`is_between`](Self::is_between) says.
    type Op: Debug + Clone + Send + Sync;
    /// What the structure holds, as its user sees it.
    type State: Debug + Clone + Eq + Send + Sync;
    /// The structure, open.
    type Live;

    /// Returns fresh, zeroed memory for it.
    fn memory(&self) -> Memory;

    /// Creates the structure on zeroed memory.
    ///
    /// # Errors
    ///
    /// What went wrong.
    fn create(&self, sim: &Sim) -> Result<Self::Live, String>;

    /// Opens what the memory of `sim` holds, recovering it; `None` if it says that nothing
    /// was ever created there.
    ///
    /// # Errors
    ///
    /// Why it does not open.
    fn open(&self, sim: &Sim) -> Result<Option<Self::Live>, String>;

    /// Abandons the structure as a crash would: without another store to the medium.
    fn abandon(&self, live: Self::Live);

    /// Returns what it holds when it was just created.
    fn fresh(&self) -> Self::State;

    /// Applies the operation to the model and returns the result that is due.
    fn predict(&self, state: &mut Self::State, op: &Self::Op) -> String;

    /// Applies the operation and returns its result.
    ///
    /// # Errors
    ///
    /// What went wrong, but for a refusal that may be: see [`refusal`](Self::refusal).
    fn apply(&self, live: &mut Self::Live, op: &Self::Op) -> Result<String, String>;

    /// Returns the result of an operation that changed nothing because there was no room, if the operation may
    /// be given it.
    fn refusal(&self, op: &Self::Op) -> Option<String> {
        let _ = op;
        None
    }

    /// Returns whether a crash amid an operation that leads from one state to another may leave a third one: one that
    /// consists of several operations.
    fn is_between(&self, before: &Self::State, after: &Self::State, found: &Self::State) -> bool {
        let _ = (before, after, found);
        false
    }

    /// Checks every invariant and reads everything, in every way there is.
    ///
    /// # Errors
    ///
    /// The first invariant that does not hold, or two ways that disagree.
    fn observe(&self, live: &Self::Live) -> Result<Self::State, String>;

    /// Runs schedules of several threads, where the structure is one that threads share.
    fn schedules(&self, wanted: &Schedules, progress: &Progress) -> Option<Report> {
        let _ = (wanted, progress);
        None
    }
}

/// What is done to a [`System`] while crashes are explored.
#[derive(Debug, Clone)]
pub struct Scenario<Op> {
    /// Its name in reports.
    pub name: &'static str,
    /// Whether creation and `setup` are explored too.
    pub creation: bool,
    /// What is done before the exploration begins.
    pub setup: Vec<Op>,
    /// The operations in which crashes happen.
    pub ops: Vec<Op>,
    /// What is done to every recovered structure, to see that it can be used.
    pub then: Vec<Op>,
}
