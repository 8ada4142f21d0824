//! A crash simulator that explores crash behaviour exhaustively.
//!
//! [`Sim`] is a [`Medium`](bristlecone_pm::Medium) that executes every access on ordinary memory and records each
//! store, flush, fence and successful locked instruction. From this trace, [`Cache`] determines at every point which
//! stores are durable and which could still be lost, and [`explore`] opens **every image that a crash could leave**:
//!
//! ```text
//! Scenario: set up, then recorded operations             one run, one trace
//!   at each crash point of the trace                     before a fence, at a return
//!     for each choice of what every dirty line kept      exhaustive, or sampled with extremes
//!       open the image with the real recovery            check 1: its own invariants hold
//!       compare with the model                           check 2: each operation applied or not
//!       continue: operations, another crash              check 3
//!       crash inside that recovery, and so on            check 4
//! ```
//!
//! The subject of exploration is a [`System`]: a structure on a [`Memory`], with a model of its contents. [`mutate`]
//! removes one flush or fence after the other and expects the explorer to detect it.
//!
//! # Features
//!
//! - `turns`: simulated threads also switch at each access to DRAM that they share, not only at accesses to the
//!   medium and where they wait.

mod explore;
mod medium;
mod model;
mod mutate;
mod parallel;
mod report;
mod schedule;

pub use explore::budget::Budget;
pub use explore::explorer::{explore, explore_with};
pub use explore::replay::replay;
pub use explore::rounds::{Round, explore_rounds, rounds};
pub use explore::subject::{Prepared, Subject, unknown_scenario};
pub use explore::system::{Scenario, System};
pub use medium::guard::guarded;
pub use medium::mutation::{Mutation, mutations_of};
pub use medium::sim::Sim;
pub use medium::stopped::Stopped;
pub use model::access::{Access, Seen};
pub use model::cache::Cache;
pub use model::memory::{LINE_WORDS, Line, Memory};
pub use model::mode::Mode;
pub use model::trace::{Event, Mark, Place, Site, SiteKind, Sites};
pub use mutate::{
    Explanation, Table, mutate, mutate_among, mutate_rounds, mutate_schedules, mutate_schedules_among,
};
pub use report::case::{Case, CrashAt};
pub use report::progress::Progress;
pub use report::{Choice, Crash, Depth, Failure, Report};
pub use schedule::history::{Answer, Operation, Way};
pub use schedule::linearizability::{Step, explains};
pub use schedule::plan::Plan;
pub use schedule::planned::Planned;
pub use schedule::registers::{PER_PLAN, Registers, SCHEDULES, Schedules};
pub use schedule::{explore_schedules, explore_schedules_with};
