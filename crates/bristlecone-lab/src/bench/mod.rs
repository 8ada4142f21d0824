//! `bench`: what a tree does in a second, beside what a user might hold the data in instead.
//!
//! - [`workload`]: operations, mixes, distributions, and the phases of the presets.
//! - [`stream`]: the operations of a phase drawn ahead of time, so that a phase measures the store
//!   and not the dice.
//! - [`data`]: keys and values made from 64-bit identities.
//! - [`run`]: phases on pinned threads.
//! - [`latency`]: sampled times of single operations.
//! - [`subject`]: a store under measurement; this library's trees.
//! - [`peers`]: volatile concurrent maps, through their crates.
//! - [`rivals`]: these maps, and trees of other designs, by name.
//! - [`contest`]: all of them through the same phases, in turns.
//! - [`report`]: medians, tables, JSON.

pub mod command;
pub mod contest;
pub mod data;
pub mod latency;
pub mod peers;
pub mod report;
pub mod rivals;
pub mod run;
pub mod stream;
pub mod subject;
pub mod workload;
