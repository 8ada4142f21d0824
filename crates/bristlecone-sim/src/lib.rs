//! Crash behaviour, explored instead of hoped for.
//!
//! [`Sim`] is a [`Medium`](bristlecone_pm::Medium) that carries out every access on ordinary
//! memory and writes down each store, flush, fence and successful locked instruction. From this
//! trace, [`Cache`] knows at every moment which stores the medium was promised and which could
//! still be lost, and [`explore`] opens **every image that a crash could leave**:
//!
//! ```text
//! Scenario: set up, then operations under watch          one run, one trace
//!   at each crash point of the trace                     before a fence, at a return
//!     for each choice of what every dirty line kept      exhaustive, or sampled with extremes
//!       open the image with the real recovery            check 1: its own invariants hold
//!       compare with the model                           check 2: each operation whole or not
//!       go on: more operations, another crash            check 3
//!       crash inside that recovery, and so on            check 4
//! ```
//!
//! What is explored is a [`System`]: something that lives on a [`Memory`], with a model of what
//! it must contain. [`mutate`] removes one flush or fence after the other and expects the
//! explorer to notice.

mod access;
mod cache;
mod campaign;
mod case;
mod describe;
mod explore;
mod image;
mod judge;
mod life;
mod lines;
mod memory;
mod met;
mod mutate;
mod points;
mod progress;
mod replay;
mod report;
mod run;
mod schedule;
mod sim;
mod stage;
mod stopped;
mod subject;
mod system;
mod trace;
mod watch;

pub use access::{Access, Seen};
pub use cache::{Cache, Mode};
pub use campaign::{Round, explore_rounds, rounds};
pub use case::{Case, CrashAt};
pub use explore::{Budget, explore, explore_with};
pub use memory::{LINE_WORDS, Line, Memory};
pub use mutate::{
    Explanation, Table, mutate, mutate_among, mutate_rounds, mutate_schedules, mutate_schedules_among,
    mutations_of,
};
pub use progress::Progress;
pub use replay::replay;
pub use report::{Choice, Crash, Depth, Failure, Report};
pub use schedule::{
    Answer, Deed, PER_PLAN, Plan, Planned, Registers, SCHEDULES, Schedules, explore_schedules,
    explore_schedules_with,
};
pub use sim::{Mutation, Sim};
pub use stopped::Stopped;
pub use subject::{Prepared, Subject, unknown_scenario};
pub use system::{Scenario, System, guarded};
pub use trace::{Event, Mark, Place, Site, SiteKind, Sites};
