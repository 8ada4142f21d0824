//! Times in milliseconds since 1970, as files have them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the current time. It may be before an earlier one: the clock can be set back.
pub fn now() -> u64 {
    millis(SystemTime::now())
}

/// Returns a time as a number; a time before 1970 is 0.
pub fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Returns a time.
pub fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}
