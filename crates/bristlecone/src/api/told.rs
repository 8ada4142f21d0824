//! What is told of a pool to the crate `tracing`, with the feature of that name.

/// Does something that may take long, and tells what it was and how long it took.
#[inline(always)]
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "nothing is told then"))]
pub(crate) fn told<T>(what: &'static str, name: impl std::fmt::Debug, act: impl FnOnce() -> T) -> T {
    #[cfg(feature = "tracing")]
    let begun = std::time::Instant::now();
    let done = act();
    #[cfg(feature = "tracing")]
    tracing::info!(?name, took = ?begun.elapsed(), "{what}");
    done
}
