//! `count`: what a design costs a device that this machine does not have. Counted, not timed: the
//! same seed gives the same figures everywhere.
//!
//! The phases, keys and operations are those of `bench`; the tree lives on the device model of
//! `bristlecone_device`. [`report`], [`table`] and [`csv`] show what came out.

pub mod command;
mod csv;
mod profile;
mod report;
mod run;
mod table;
