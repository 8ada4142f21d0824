//! `bench`: how many operations a store does in a second, beside its competitors.
//!
//! - [`workload`]: operations, mixes, distributions, and the phases of the presets.
//! - [`stream`]: the operations of a phase drawn ahead of time, so that a phase measures the store
//!   and not the generator.
//! - [`data`]: keys and values made from 64-bit identities.
//! - [`run`]: phases on pinned threads.
//! - [`latency`]: sampled times of single operations.
//! - [`many`]: calls for several keys at a time.
//! - [`subject`]: a store under measurement; trees in pools.
//! - [`volatile`]: volatile concurrent maps, through their crates.
//! - [`competitor`]: these maps, and trees of other designs, by name.
//! - [`comparison`]: all of them through the same phases, in turns.
//! - [`report`]: medians, tables, JSON.

pub mod command;
pub mod comparison;
pub mod competitor;
pub mod data;
pub mod latency;
pub mod many;
pub mod report;
pub mod run;
pub mod stream;
pub mod subject;
pub mod volatile;
pub mod workload;
