//! Times for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns `312 ns`, `4.1 µs`, `2.0 ms`.
pub fn shown(time: Duration) -> String {
    match time.as_nanos() {
        nanos @ ..1_000 => format!("{nanos} ns"),
        nanos @ ..1_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        nanos => format!("{:.1} ms", nanos as f64 / 1e6),
    }
}

/// Returns `2026-11-27T19:27:14.250Z`, in UTC.
pub fn utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Returns the year, month and day of the Gregorian calendar, of a number of days since 1970.
fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March: the day that is sometimes missing is the last one. 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_with_their_units() {
        let nanos = [0, 999, 4_100, 2_000_000];
        assert_eq!(nanos.map(|n| shown(Duration::from_nanos(n))), ["0 ns", "999 ns", "4.1 µs", "2.0 ms"]);
    }

    #[test]
    fn times_have_dates() {
        let at = |millis| utc(UNIX_EPOCH + Duration::from_millis(millis));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(at(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(951_868_800_000), "2000-03-01T00:00:00.000Z");
        assert_eq!(at(1_795_807_634_250), "2026-11-27T19:27:14.250Z");
        assert_eq!(at(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }
}
