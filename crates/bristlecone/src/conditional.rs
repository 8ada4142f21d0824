//! What conditional writes answer when they do not write: flat errors that `?` turns into [`Error`].

use std::error::Error as StdError;
use std::fmt;

use bristlecone_pm::{Error, Result};

use crate::Value;

/// Why [`Tree::try_insert`](crate::Tree::try_insert) inserted nothing.
///
/// In a function that returns [`bristlecone::Result`](crate::Result), `?` makes [`Error::KeyExists`] of
/// [`Present`](Self::Present).
#[non_exhaustive]
pub enum TryInsertError<V: Value> {
    /// The key is there, with this value. Nothing has changed.
    Present(V::Owned),
    /// The operation failed. What holds then is said at [`Tree`](crate::Tree).
    Failed(Error),
}

/// Why [`Tree::compare_and_swap`](crate::Tree::compare_and_swap) changed nothing.
///
/// In a function that returns [`bristlecone::Result`](crate::Result), `?` makes [`Error::ValueDiffers`] of
/// [`Found`](Self::Found).
#[non_exhaustive]
pub enum CasError<V: Value> {
    /// The key has this value, or is absent, and that is not what was expected. Nothing has changed.
    Found(Option<V::Owned>),
    /// The operation failed. What holds then is said at [`Tree`](crate::Tree).
    Failed(Error),
}

impl<V: Value> TryInsertError<V> {
    /// Returns the value that is there.
    ///
    /// # Errors
    ///
    /// The error of an operation that failed.
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-present-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let seats = pool.tree::<u64, &str>("seats")?;
    /// let seated = |guest| match seats.try_insert(12, guest) {
    ///     Ok(()) => Ok(guest.to_owned()),
    ///     Err(taken) => taken.into_present(),
    /// };
    /// assert_eq!(seated("Ada")?, "Ada");
    /// assert_eq!(seated("Grace")?, "Ada");
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_present(self) -> Result<V::Owned> {
        match self {
            Self::Present(value) => Ok(value),
            Self::Failed(error) => Err(error),
        }
    }
}

impl<V: Value> CasError<V> {
    /// Returns what is there: the value of the key, or `None` if it is absent.
    ///
    /// # Errors
    ///
    /// The error of an operation that failed.
    pub fn into_found(self) -> Result<Option<V::Owned>> {
        match self {
            Self::Found(value) => Ok(value),
            Self::Failed(error) => Err(error),
        }
    }
}

impl<V: Value> From<Error> for TryInsertError<V> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<V: Value> From<Error> for CasError<V> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<V: Value> From<TryInsertError<V>> for Error {
    fn from(error: TryInsertError<V>) -> Self {
        match error {
            TryInsertError::Present(_) => Self::KeyExists,
            TryInsertError::Failed(error) => error,
        }
    }
}

impl<V: Value> From<CasError<V>> for Error {
    fn from(error: CasError<V>) -> Self {
        match error {
            CasError::Found(_) => Self::ValueDiffers,
            CasError::Failed(error) => error,
        }
    }
}

impl<V: Value> fmt::Debug for TryInsertError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present(value) => f.debug_tuple("Present").field(value).finish(),
            Self::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}

impl<V: Value> fmt::Debug for CasError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(value) => f.debug_tuple("Found").field(value).finish(),
            Self::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}

impl<V: Value> fmt::Display for TryInsertError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present(_) => Error::KeyExists.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<V: Value> fmt::Display for CasError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(_) => Error::ValueDiffers.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<V: Value> StdError for TryInsertError<V> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Present(_) => None,
            Self::Failed(error) => error.source(),
        }
    }
}

impl<V: Value> StdError for CasError<V> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Found(_) => None,
            Self::Failed(error) => error.source(),
        }
    }
}
