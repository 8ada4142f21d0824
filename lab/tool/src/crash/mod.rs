//! `crash`: explores every crash that a design must survive.

pub mod command;
mod forever;
mod outcome;
