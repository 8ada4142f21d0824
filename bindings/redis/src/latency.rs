//! What the latency monitor is told: commands of the module that took long, each under its name.

use std::ffi::CStr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::server::{Ctx, call, config};

/// What takes less is not told: the monitor counts milliseconds.
const WORTH_TELLING: Duration = Duration::from_millis(1);
/// Ticks of the processor in [`WORTH_TELLING`] at the least: no such counter ticks slower than this many times a millisecond.
const TICKS: u64 = 500_000;

/// When something began, in ticks of the processor's counter. To ask the system for the time would take as long as a
/// twentieth of `OM.GET`.
#[derive(Clone, Copy, Debug)]
pub struct Began(u64);

/// A time, and the ticks then.
static FIRST: LazyLock<(Instant, u64)> = LazyLock::new(|| (Instant::now(), ticks()));

impl Began {
    /// Returns what begins now.
    #[inline]
    pub fn now() -> Self {
        Self(ticks())
    }

    /// Returns how long ago that was, or less than [`WORTH_TELLING`] if it is not worth telling.
    #[inline]
    pub fn elapsed(self) -> Duration {
        let passed = ticks().saturating_sub(self.0);
        if passed < TICKS { Duration::ZERO } else { duration_of(passed) }
    }
}

/// Notes what ticks are counted from. For the start of the module.
pub fn begin() {
    LazyLock::force(&FIRST);
}

#[cold]
fn duration_of(passed: u64) -> Duration {
    let (first, ticks_then) = *FIRST;
    let (since, all) = (first.elapsed(), ticks().saturating_sub(ticks_then).max(1));
    since.mul_f64((passed as f64 / all as f64).min(1.0))
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every processor of this kind has the counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn ticks() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Tells the monitor of what took so long, if that is long and the monitor is on.
#[inline]
pub fn watch(ctx: Ctx, event: &CStr, elapsed: Duration) {
    if elapsed >= WORTH_TELLING {
        note(threshold(ctx), event, elapsed);
    }
}

/// Tells the monitor of what took so long, if that is as long as its threshold says.
pub fn note(threshold: i64, event: &CStr, elapsed: Duration) {
    let millis = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
    if threshold > 0 && millis >= threshold {
        call!(RedisModule_LatencyAddSample(event.as_ptr(), millis));
    }
}

/// Returns the milliseconds from which on the monitor wants to be told, or 0 if it is off.
pub fn threshold(ctx: Ctx) -> i64 {
    let value = config(ctx, c"latency-monitor-threshold").unwrap_or_default();
    std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_is_the_time_since_then() {
        begin();
        // Nothing has passed since a later time, as the counter of another processor may say.
        assert_eq!(Began(u64::MAX).elapsed(), Duration::ZERO);
        let (instant, began) = (Instant::now(), Began::now());
        std::thread::sleep(Duration::from_millis(30));
        let (elapsed, expected) = (began.elapsed(), instant.elapsed());
        assert!(elapsed >= Duration::from_millis(28) && elapsed <= expected * 2, "{elapsed:?} {expected:?}");
    }
}
