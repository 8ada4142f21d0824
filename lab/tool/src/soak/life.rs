//! One life of a pool: its drawn parameters, and the board that outlives it.

use std::path::{Path, PathBuf};

use bristlecone::Error;

use super::board::Board;
use super::order::Flaw;
use super::round::{End, Round};

/// One life of a pool.
pub struct Life<'a> {
    pub round: &'a Round,
    pub board: &'static Board,
    pub path: &'a Path,
    pub number: usize,
    pub end: End,
    pub flaw: Option<Flaw>,
}

impl Life<'_> {
    /// Returns whether the error is a permitted lack of space. Options may require more than a
    /// chunk has.
    pub fn is_no_room(&self, error: &Error) -> bool {
        let too_large = matches!(error, Error::Invalid { .. } | Error::TooLong { .. });
        self.round.may_be_full() && (error.is_no_room() || too_large)
    }
}

/// Returns the path at which a pool with small chunks is created.
pub fn draft(path: &Path) -> PathBuf {
    path.with_extension("draft")
}
