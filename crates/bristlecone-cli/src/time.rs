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

/// Parses a number and one of the units, which have these lengths in seconds. The first unit that fits counts.
pub fn parse(text: &str, units: &[(&str, f64)]) -> Option<Duration> {
    units.iter().find_map(|(unit, seconds)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Duration::try_from_secs_f64(number * seconds).ok()
    })
}

/// Returns `2026-11-27T19:27:14.250Z`, in UTC.
pub fn utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Parses a time as [`utc`] returns it; the fraction of the second may be missing.
pub fn parse_utc(text: &str) -> Result<SystemTime, String> {
    let parse = || {
        let (day, clock) = text.strip_suffix('Z')?.split_once('T')?;
        let [year, month, day] = numbers(day, '-')?;
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
        let [hour, minute, second] = numbers(clock, ':')?;
        let is_fraction =
            (1..=9).contains(&fraction.len()) && fraction.bytes().all(|byte| byte.is_ascii_digit());
        let nanos = format!("{fraction:0<9}").parse().ok().filter(|_| is_fraction)?;
        // Up to the year 10,000.
        let days = days_of(2_932_900, (year, month, day))?;
        let is_clock = hour < 24 && minute < 60 && second < 60;
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
        is_clock.then(|| UNIX_EPOCH + Duration::new(seconds, nanos))
    };
    parse().ok_or_else(|| format!("{text:?} is not a time in UTC, such as 2026-11-27T19:27:14.250Z"))
}

fn numbers(text: &str, between: char) -> Option<[u64; 3]> {
    let parts: Vec<_> = text.split(between).collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = parts.iter().map(|part| part.parse().ok().filter(|_| is_number(part)));
    numbers.collect::<Option<Vec<u64>>>()?.try_into().ok()
}

/// Returns the number of days since 1970 of a date, which is below `end`.
fn days_of(end: u64, wanted: (u64, u64, u64)) -> Option<u64> {
    let (mut first, mut last) = (0, end);
    while first < last {
        let middle = first.midpoint(last);
        if date(middle) < wanted { first = middle + 1 } else { last = middle }
    }
    (date(first) == wanted).then_some(first)
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

    #[test]
    fn times_are_parsed_as_they_are_shown() {
        for millis in [0, 951_782_399_999, 951_868_800_000, 1_795_807_634_250, 4_107_542_400_000] {
            let time = UNIX_EPOCH + Duration::from_millis(millis);
            assert_eq!(parse_utc(&utc(time)), Ok(time));
        }
        assert_eq!(parse_utc("1970-01-02T00:00:01Z"), Ok(UNIX_EPOCH + Duration::from_secs(86_401)));
        let micros = Duration::new(0, 123_456_000);
        assert_eq!(parse_utc("1970-01-01T00:00:00.123456Z"), Ok(UNIX_EPOCH + micros));
        for wrong in [
            "",
            "now",
            "2026-11-27",
            "2026-11-27T19:27:14",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-27T24:00:00Z",
            "2026-11-27T19:60:14Z",
            "2026-11-27T19:27:14.Z",
            "1969-12-31T00:00:00Z",
            "2026-11-27T19:27:14.1234567890Z",
            "2026-+1-27T19:27:14Z",
            "2026-11-27 19:27:14Z",
        ] {
            assert!(parse_utc(wrong).is_err(), "{wrong}");
        }
    }
}
