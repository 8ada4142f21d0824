//! Runs the laboratory like a user: every command, and its results on wrong input. One program, so that it is
//! linked once.

mod bench;
#[path = "../../../../crates/bristlecone-cli/tests/suite/common.rs"]
mod common;
mod count;
mod crash;
mod reproduce;
mod scale;
mod soak;
mod together;

/// The tool under test, and its name.
const TOOL: (&str, &str) = (env!("CARGO_BIN_EXE_bristlecone-lab"), "bristlecone-lab");
