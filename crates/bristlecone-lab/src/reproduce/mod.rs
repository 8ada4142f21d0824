//! `reproduce`: the figures of the five papers, ours beside theirs.
//!
//! - [`figure`]: what a figure is: rows that are measured, and what the paper says of each.
//! - [`wotree`], [`nbtree`], [`sstree`], [`cclbtree`], [`lodgetree`]: the figures of a paper each. Their numbers
//!   stand beside the place in the paper that they were read from.
//! - [`run`]: the command lines of `count`, `bench` and `probe` that rows are measured by; [`take`]: what of their
//!   reports is a row's value.
//! - [`measure`]: runs them in turns, and makes results of them.
//! - [`results`]: the file of results, which a second call goes on with.
//! - [`memory`]: whether there is room for a scale.
//! - [`report`]: the page; [`table`]: the notebook `docs/lab/RESULTS.md`.

mod cclbtree;
pub mod command;
mod figure;
mod lodgetree;
mod measure;
mod memory;
mod nbtree;
mod papers;
mod report;
mod results;
pub mod results_command;
mod run;
mod sstree;
mod table;
mod take;
mod wotree;
