//! `reproduce`: measures the figures of the five papers, and compares ours with theirs.
//!
//! - [`figure`]: figures: rows to measure, and the paper's value of each.
//! - [`wotree`], [`nbtree`], [`sstree`], [`cclbtree`], [`lodgetree`]: the figures of one paper each. Each number
//!   has its location in the paper beside it.
//! - [`run`]: the command lines of `count`, `bench` and `probe` that measure rows; [`take`]: derives a row's value
//!   from their reports.
//! - [`measure`]: runs them alternately, and derives results.
//! - [`results`]: the file of results, with which a second call continues.
//! - [`memory`]: checks whether there is enough memory for a scale.
//! - [`report`]: the page; [`table`]: the notebook `lab/docs/RESULTS.md`.

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
