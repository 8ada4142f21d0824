//! What is told to the crate `tracing`, with the feature of that name: without it nothing is, and nothing is timed.

#[cfg(feature = "tracing")]
use std::time::{Duration, Instant};

/// From when on something that a write waits for is told of.
#[cfg(feature = "tracing")]
const LONG: Duration = Duration::from_millis(1);

/// Does something that may take long, and tells what it was and how long it took.
#[inline(always)]
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "nothing is told then"))]
pub fn told<T>(what: &'static str, name: impl std::fmt::Debug, act: impl FnOnce() -> T) -> T {
    #[cfg(feature = "tracing")]
    let begun = Instant::now();
    let done = act();
    #[cfg(feature = "tracing")]
    tracing::info!(?name, took = ?begun.elapsed(), "{what}");
    done
}

/// Does something that a write waits for, and tells of it if it took a millisecond or more.
#[inline(always)]
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "nothing is told then"))]
pub fn told_if_long<T>(what: &'static str, act: impl FnOnce() -> T) -> T {
    #[cfg(feature = "tracing")]
    let begun = Instant::now();
    let done = act();
    #[cfg(feature = "tracing")]
    if begun.elapsed() >= LONG {
        tracing::debug!(took = ?begun.elapsed(), "{what}");
    }
    done
}
