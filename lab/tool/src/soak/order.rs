//! Orders to a driver and their results: a line of JSON each.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::round::Limits;

/// A deliberate error of the worker: such a run must fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Flaw {
    /// Acknowledges each write before it is done.
    EarlyAcknowledgement,
    /// Acknowledges some writes that are not done at all.
    SkippedWrite,
    /// Loses a key when a pool is opened.
    LostKey,
}

impl Flaw {
    /// Returns its name among arguments.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// A round to be run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    pub seed: u64,
    pub limits: Limits,
    pub pool: PathBuf,
    pub flaw: Option<Flaw>,
    /// Whether the pool of a failed round is kept.
    pub keep: bool,
}

/// Results of a round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ran {
    pub seed: u64,
    pub cell: String,
    pub kills: u64,
    /// Kills while a pool was being created or opened.
    pub kills_in_opening: u64,
    pub acknowledged: u64,
    pub refused: u64,
    pub reopens: u64,
    pub keys_compared: u64,
    pub failure: Option<Failed>,
}

/// A round that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failed {
    pub what: String,
    pub life: usize,
    pub round: String,
    /// The pool after the failure, if it was kept; the model is beside it.
    pub pool: Option<PathBuf>,
}
