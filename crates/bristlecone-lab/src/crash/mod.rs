//! `crash`: every crash that a design must survive, explored.

pub mod command;
mod forever;
mod outcome;
