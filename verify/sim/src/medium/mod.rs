//! The recording medium, and running code on it.

mod accesses;
pub(crate) mod guard;
pub(crate) mod mutation;
pub(crate) mod sim;
pub(crate) mod stopped;
pub(crate) mod thread;
pub(crate) mod watch;
