//! What the latency monitor is told: commands of the module that took long, each under its name.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use crate::server::{Ctx, call, config};

/// What takes less is not told: the monitor counts milliseconds.
const WORTH_TELLING: Duration = Duration::from_millis(1);

/// Tells the monitor of what began then, if it took long and the monitor is on.
pub fn watch(ctx: Ctx, event: &CStr, began: Instant) {
    if began.elapsed() >= WORTH_TELLING {
        note(threshold(ctx), event, began);
    }
}

/// Tells the monitor of what began then, if it took as long as its threshold says.
pub fn note(threshold: i64, event: &CStr, began: Instant) {
    let millis = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
    if threshold > 0 && millis >= threshold {
        call!(RedisModule_LatencyAddSample(event.as_ptr(), millis));
    }
}

/// Returns the milliseconds from which on the monitor wants to be told, or 0 if it is off.
pub fn threshold(ctx: Ctx) -> i64 {
    let value = config(ctx, c"latency-monitor-threshold").unwrap_or_default();
    std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
