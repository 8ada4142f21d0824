//! Suspends an operation that is usually fast but sometimes very slow, for a while after a slow
//! call.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A longer call is followed by a pause.
const LONG: Duration = Duration::from_millis(20);
/// A pause is this many times as long as the call before it. At most one part in `FACTOR` of the
/// time is lost.
const FACTOR: u32 = 64;

/// The pause after a slow call.
#[derive(Debug)]
pub(crate) struct Pause {
    since: Instant,
    /// When the last pause ends, in milliseconds.
    until: AtomicU64,
}

impl Pause {
    /// Returns a value without a pause.
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), until: AtomicU64::new(0) }
    }

    /// Calls `work` and returns its result; returns `None` during a pause.
    pub(crate) fn outside<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let begun = Instant::now();
        self.is_over(begun).then(|| {
            let result = work();
            self.note(begun, begun.elapsed());
            result
        })
    }

    fn is_over(&self, now: Instant) -> bool {
        // Relaxed, here and below: a thread that sees it late loses time once more.
        (now - self.since).as_millis() as u64 >= self.until.load(Relaxed)
    }

    fn note(&self, begun: Instant, took: Duration) {
        if took > LONG {
            let until = begun - self.since + took * (FACTOR + 1);
            self.until.fetch_max(until.as_millis() as u64, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_long_is_left_out_for_a_while() {
        let pause = Pause::new();
        let at = |millis| pause.since + Duration::from_millis(millis);
        assert_eq!(pause.outside(|| 7), Some(7));
        pause.note(at(0), Duration::from_millis(10));
        assert!(pause.is_over(at(10)), "it did not take long");
        pause.note(at(1000), Duration::from_secs(1));
        assert!(!pause.is_over(at(2000)) && !pause.is_over(at(65_999)));
        assert!(pause.is_over(at(66_000)));
        assert_eq!(pause.outside(|| ()), None);
        // A shorter pause does not end a longer one.
        pause.note(at(500), Duration::from_millis(30));
        assert!(!pause.is_over(at(65_999)));
    }
}
