//! `bench`: how many operations a store does in a second, beside its competitors.
//!
//! - [`op`], [`ratios`], [`scan_length`], [`workload`]: operations, mixes, distributions, and the phases of the presets.
//! - [`stream`]: the operations of a phase drawn ahead of time, so that a phase measures the store
//!   and not the generator; [`zipf`]: ranks by Zipf's law.
//! - [`data`]: keys and values made from 64-bit identities.
//! - [`input`]: keys and operations from files.
//! - [`run`]: phases on pinned threads; [`samples`] what these note.
//! - [`latency`]: sampled times of single operations.
//! - [`many`]: calls for several keys at a time.
//! - [`perf`]: the processor's own counters.
//! - [`pages`]: by which pages the stores are mapped.
//! - [`subject`]: a store under measurement; trees in pools.
//! - [`volatile`], [`words`]: volatile concurrent maps, through their crates.
//! - [`competitor`]: these maps, and trees of other designs, by name.
//! - [`rivals`]: stores in files, and wrappers for PiBench.
//! - [`comparison`]: all of them through the same phases, in turns.
//! - [`together`]: presets that change several keys in one step.
//! - [`report`], [`table`], [`csv`]: medians, as JSON, for people, and as rows.

pub mod command;
pub mod comparison;
pub mod competitor;
pub mod csv;
pub mod data;
pub mod input;
pub mod latency;
pub mod many;
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
