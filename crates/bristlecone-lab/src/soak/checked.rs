//! What a worker expects, and the finding where that is not so.

use bristlecone::Error;

/// What a worker found that must not be, or `None` if there was no room for its life.
pub type Checked<T = ()> = Result<T, Option<String>>;

/// Fails with what was done and the library's error.
pub fn failed(doing: &str) -> impl Fn(Error) -> Option<String> + '_ {
    move |error| Some(format!("{doing}: {error}"))
}

/// Fails with a text unless something holds.
pub fn expect(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Some(what())) }
}
