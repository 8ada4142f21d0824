//! Every image that crashes of one thread may leave: opened, verified, operated on, crashed again.

pub(crate) mod budget;
mod continuation;
mod crash_point;
pub(crate) mod explorer;
mod points;
pub(crate) mod replay;
pub(crate) mod rounds;
mod run;
mod scratch;
pub(crate) mod subject;
pub(crate) mod system;
mod verify;
mod visited;
