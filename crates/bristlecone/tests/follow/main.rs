//! Pools that are read while another process writes to them.
//!
//! The processes are this test's own program, started again: see [`bristlecone_matrix::process`].

#[path = "../suite/common.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the suite, which has more tests")]
mod common;

mod failing_calls;
mod history;
mod no_space;
mod process_restart;
