//! Errors of conditional writes: flat enums that `?` converts to [`Error`].

use std::error::Error as StdError;
use std::fmt;

use bristlecone_pm::{Error, Result};

/// Error of [`Tree::try_insert`](crate::Tree::try_insert); `T` is an owned value of the tree.
///
/// In a function that returns [`bristlecone::Result`](crate::Result), `?` converts [`Present`](Self::Present) to
/// [`Error::KeyExists`].
#[derive(Debug)]
#[non_exhaustive]
pub enum TryInsertError<T> {
    /// The key exists and has this value. Nothing has changed.
    Present(T),
    /// The operation failed. [`Tree`](crate::Tree) describes the state after an error.
    Failed(Error),
}

/// Error of [`Tree::compare_and_swap`](crate::Tree::compare_and_swap); `T` is an owned value of the tree.
///
/// In a function that returns [`bristlecone::Result`](crate::Result), `?` converts [`Found`](Self::Found) to
/// [`Error::ValueDiffers`].
#[derive(Debug)]
#[non_exhaustive]
pub enum CasError<T> {
    /// The key has this value or is absent, which differs from the expectation. Nothing has changed.
    Found(Option<T>),
    /// The operation failed. [`Tree`](crate::Tree) describes the state after an error.
    Failed(Error),
}

impl<T> TryInsertError<T> {
    /// Returns the existing value.
    ///
    /// # Errors
    ///
    /// Returns the error of a failed operation.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let seats = pool.tree::<u64, &str>("seats")?;
    /// let seated = |guest| match seats.try_insert(12, guest) {
    ///     Ok(()) => Ok(guest.to_owned()),
    ///     Err(taken) => taken.into_present(),
    /// };
    /// assert_eq!(seated("Ada")?, "Ada");
    /// assert_eq!(seated("Grace")?, "Ada");
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn into_present(self) -> Result<T> {
        match self {
            Self::Present(value) => Ok(value),
            Self::Failed(error) => Err(error),
        }
    }
}

impl<T> CasError<T> {
    /// Returns the current value of the key, or `None` if it is absent.
    ///
    /// # Errors
    ///
    /// Returns the error of a failed operation.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let seats = pool.tree::<u64, &str>("seats")?;
    /// seats.insert(12, "Ada")?;
    /// let taken = seats.compare_and_swap(12, None, Some("Grace")).unwrap_err();
    /// assert_eq!(taken.into_found()?, Some("Ada".to_owned()));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn into_found(self) -> Result<Option<T>> {
        match self {
            Self::Found(value) => Ok(value),
            Self::Failed(error) => Err(error),
        }
    }
}

impl<T> From<Error> for TryInsertError<T> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<T> From<Error> for CasError<T> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<T> From<TryInsertError<T>> for Error {
    fn from(error: TryInsertError<T>) -> Self {
        match error {
            TryInsertError::Present(_) => Self::KeyExists,
            TryInsertError::Failed(error) => error,
        }
    }
}

impl<T> From<CasError<T>> for Error {
    fn from(error: CasError<T>) -> Self {
        match error {
            CasError::Found(_) => Self::ValueDiffers,
            CasError::Failed(error) => error,
        }
    }
}

impl<T> fmt::Display for TryInsertError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present(_) => Error::KeyExists.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<T> fmt::Display for CasError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(_) => Error::ValueDiffers.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<T: fmt::Debug> StdError for TryInsertError<T> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Present(_) => None,
            Self::Failed(error) => error.source(),
        }
    }
}

impl<T: fmt::Debug> StdError for CasError<T> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Found(_) => None,
            Self::Failed(error) => error.source(),
        }
    }
}
