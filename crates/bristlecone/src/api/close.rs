//! Why a pool was not closed.

use std::error::Error as StdError;
use std::fmt;

use bristlecone_pm::Error;

use crate::Pool;

/// Why [`Pool::close`] did not close the pool: the error, and the pool, which is open as before.
///
/// Dropping this drops the handle. In a function that returns [`bristlecone::Result`](crate::Result), `?` does
/// that, and keeps the error.
pub struct CloseError {
    pool: Pool,
    error: Error,
}

impl CloseError {
    pub(crate) fn new(pool: Pool, error: Error) -> Self {
        Self { pool, error }
    }

    /// Returns why the pool was not closed.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the pool, to be used and closed later.
    pub fn into_pool(self) -> Pool {
        self.pool
    }

    /// Returns the pool and the error.
    pub fn into_parts(self) -> (Pool, Error) {
        (self.pool, self.error)
    }
}

impl From<CloseError> for Error {
    fn from(error: CloseError) -> Self {
        error.error
    }
}

impl fmt::Debug for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloseError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl StdError for CloseError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}
