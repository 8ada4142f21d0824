//! Expectations of a worker, and their violations.

use bristlecone::Error;

/// A violation found by a worker, or `None` if there was no space for its life.
pub type Checked<T = ()> = Result<T, Option<String>>;

/// Fails with the action and the library's error.
pub fn failed(doing: &str) -> impl Fn(Error) -> Option<String> + '_ {
    move |error| Some(format!("{doing}: {error}"))
}

/// Fails with a text unless a condition holds.
pub fn expect(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Some(what())) }
}
