//! `count`: the cost of a design on a device that this machine does not have. Counted, not timed:
//! the same seed gives the same figures everywhere.
//!
//! The phases, keys and operations are those of `bench`; the tree uses the device model of
//! `bristlecone_device`. [`report`], [`table`] and [`csv`] print the results.

pub mod command;
mod csv;
pub mod profile;
mod report;
mod run;
mod table;

pub use self::run::kind;
