//! `reproduce`: measures the figures of the five papers, and compares ours with theirs.
//!
//! - [`figure`]: figures: rows to measure, and the paper's value of each.
//! - [`papers`]: the papers, each a file in `lab/tool/figures`, where a number has its location in the paper beside
//!   it. [`data`]: the format of a file; [`expand`]: makes its rows; [`names`]: fills in text.
//! - [`run`]: the command lines of `count`, `scale`, `bench` and `probe` that measure rows; [`take`]: derives a row's value
//!   from their reports.
//! - [`measure`]: runs them alternately, and derives results.
//! - [`results`]: the file of results, with which a second call continues.
//! - [`memory`]: checks whether there is enough memory for a scale.
//! - [`report`]: the page; [`table`]: the notebook `lab/docs/RESULTS.md`; [`summary`]: which figures are met.

pub mod command;
mod data;
mod expand;
mod figure;
mod measure;
mod memory;
mod names;
mod papers;
mod report;
mod results;
pub mod results_command;
mod run;
mod summary;
mod table;
mod take;
