//! Events for the crate `tracing`, if the feature of that name is enabled. Without it no event is
//! emitted and nothing is timed.

#[cfg(feature = "tracing")]
use std::time::{Duration, Instant};

/// Minimum duration of a reported delay of a write.
#[cfg(feature = "tracing")]
const LONG: Duration = Duration::from_millis(1);

/// Runs a slow operation, and reports it with its duration.
#[inline(always)]
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "nothing is told then"))]
pub fn trace_span<T>(what: &'static str, name: impl std::fmt::Debug, act: impl FnOnce() -> T) -> T {
    #[cfg(feature = "tracing")]
    let begun = Instant::now();
    let done = act();
    #[cfg(feature = "tracing")]
    tracing::info!(?name, took = ?begun.elapsed(), "{what}");
    done
}

/// Runs an operation for which a write waits, and reports it if it took a millisecond or more.
#[inline(always)]
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "nothing is told then"))]
pub fn trace_slow<T>(what: &'static str, act: impl FnOnce() -> T) -> T {
    #[cfg(feature = "tracing")]
    let begun = Instant::now();
    let done = act();
    #[cfg(feature = "tracing")]
    if begun.elapsed() >= LONG {
        tracing::debug!(took = ?begun.elapsed(), "{what}");
    }
    done
}
