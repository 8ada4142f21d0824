//! Entries that expire, for the commands: an expired one is absent.

use std::time::{Duration, SystemTime};

use bristlecone::dynamic::Tree;
use bristlecone::{CasError, Expiry};
use bristlecone_cli::failure::{Failure, Outcome};

use crate::datum::{Datum, Kind};
use crate::time;

/// Returns whether a value has expired.
pub fn has_expired(value: &bristlecone::dynamic::Datum<'_>) -> bool {
    matches!(value, bristlecone::dynamic::Datum::Expiring(_, expiry) if expiry.is_over(SystemTime::now()))
}

/// Returns the value of a key, unless it has expired.
pub fn live(value: Option<Datum>) -> Option<Datum> {
    value.filter(|value| !has_expired(value))
}

/// Returns the kind of values that a time to live applies to.
pub fn kind_for_ttl(tree: &Tree) -> Outcome<&Kind> {
    match tree.value_kind() {
        Kind::Expiring(kind) => Ok(kind),
        other => {
            let said = format!(
                "--ttl is for trees with values of kind Expiring<…>, and {} has {other}",
                tree.name()
            );
            Err(Failure::usage(said))
        }
    }
}

/// Returns a value that expires after a time.
pub fn after(value: Datum, ttl: Duration) -> Datum {
    let expiry = SystemTime::now().checked_add(ttl).map_or(Expiry::NEVER, Expiry::at);
    Datum::Expiring(Box::new(value), expiry)
}

/// Replaces the value of an existing key; returns whether it exists.
pub fn update(tree: &Tree, key: &Datum, value: &Datum) -> Outcome<bool> {
    if !matches!(value, Datum::Expiring(..)) {
        return Ok(tree.update(key, value)?.is_some());
    }
    while let Some(held) = live(tree.get(key)?) {
        match tree.compare_and_swap(key, Some(held), Some(value.borrowed())) {
            Ok(()) => return Ok(true),
            Err(CasError::Found(_)) => {}
            Err(error) => return Err(bristlecone::Error::from(error).into()),
        }
    }
    Ok(false)
}

/// Parses `90s`, `15m`, `12h`, `7d`, `500ms`; a plain number is in seconds.
pub fn ttl(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0), ("", 1.0)];
    let time = time::parse(text, &units).filter(|time| *time >= Duration::from_millis(1));
    time.ok_or_else(|| format!("{text:?} is not a time of a millisecond or more, such as 90s, 15m or 7d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_read_with_their_units() {
        let seconds = |text| ttl(text).map(|time| time.as_secs_f64());
        let times =
            [("90s", 90.0), ("15m", 900.0), ("12h", 43_200.0), ("7d", 604_800.0), ("500ms", 0.5), ("3", 3.0)];
        for (text, expected) in times {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for wrong in ["", "s", "0", "0.1ms", "-1s", "nan", "inf", "1e300d", "1w", "1 s"] {
            assert!(ttl(wrong).is_err(), "{wrong}");
        }
    }
}
