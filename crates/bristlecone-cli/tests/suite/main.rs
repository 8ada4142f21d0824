//! Runs the tool like a user: every command, and its results on wrong input. One program, so that
//! it is linked once.

mod common;
mod conformance;
mod copies;
mod damage;
mod demo;
mod dumps;
mod entries;
mod follow;
mod journals;
mod kill;
mod kinds;
mod loads;
mod many_trees;
mod no_space;
mod pools;
mod shell;
mod signals;
mod usage;

/// The tool under test, and its name.
const TOOL: (&str, &str) = (env!("CARGO_BIN_EXE_bristlecone"), "bristlecone");
