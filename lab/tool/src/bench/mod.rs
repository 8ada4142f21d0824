//! `bench`: measures the throughput of a store and of its competitors.
//!
//! - [`op`], [`ratios`], [`scan_length`], [`workload`]: operations, mixes, distributions, and the phases of the presets.
//! - [`stream`]: the operations of a phase, generated in advance, so that a phase measures only the
//!   store; [`zipf`]: ranks by Zipf's law.
//! - [`data`]: keys and values derived from 64-bit identities.
//! - [`input`]: keys and operations from files.
//! - [`run`]: phases on pinned threads; [`samples`]: their measurements.
//! - [`latency`]: sampled times of single operations.
//! - [`many`]: multi-key calls.
//! - [`perf`]: the processor's own counters.
//! - [`pages`]: page sizes of the stores' memory.
//! - [`subject`]: a store under measurement; trees in pools.
//! - [`volatile`], `masstree`, [`words`]: volatile concurrent maps, through their crates.
//! - [`competitor`]: these maps, and trees of other designs, by name.
//! - [`rivals`]: stores in files, and wrappers for PiBench.
//! - [`comparison`]: all of them through the same phases, alternately.
//! - [`together`]: presets with atomic changes of several keys.
//! - [`report`], [`table`], [`csv`]: medians, as JSON, tables, and rows.

pub mod command;
pub mod comparison;
pub mod competitor;
pub mod csv;
pub mod data;
pub mod input;
pub mod latency;
pub mod many;
#[cfg(feature = "rivals")]
pub mod masstree;
pub mod op;
pub mod pages;
pub mod perf;
pub mod ratios;
pub mod report;
pub mod rivals;
pub mod run;
pub mod samples;
pub mod scan_length;
pub mod stream;
pub mod subject;
pub mod table;
pub mod together;
pub mod volatile;
pub mod words;
pub mod workload;
pub mod zipf;
