//! Something that mostly takes no time, and now and then far too long: then it is left out for a while.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What takes longer is followed by a pause.
const LONG: Duration = Duration::from_millis(20);
/// A pause lasts so many times as long as what it follows: one part in so many of the time is lost, at most.
const FACTOR: u32 = 64;

/// The pause after what took long.
#[derive(Debug)]
pub(crate) struct Pause {
    since: Instant,
    /// When the last pause ends, in milliseconds.
    until: AtomicU64,
}

impl Pause {
    /// Begins without a pause.
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), until: AtomicU64::new(0) }
    }

    /// Calls `work` and returns what it does; `None` amid a pause.
    pub(crate) fn outside<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let begun = Instant::now();
        self.is_over(begun).then(|| {
            let result = work();
            self.note(begun, begun.elapsed());
            result
        })
    }

    fn is_over(&self, now: Instant) -> bool {
        // Relaxed, here and below: a thread that sees it late loses time, once more.
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
        // A shorter one does not end a longer one.
        pause.note(at(500), Duration::from_millis(30));
        assert!(!pause.is_over(at(65_999)));
    }
}
