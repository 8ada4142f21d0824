//! Entries that expire, for the commands: an expired one is absent.

use std::time::{Duration, SystemTime};

use bristlecone::dynamic::{ExpiringTree, Tree};
use bristlecone::{CasError, Expiry};
use bristlecone_cli::failure::{Failure, Outcome};
use clap::Args;

use crate::datum::Datum;
use crate::time;

/// Returns whether a value has expired.
pub fn has_expired(value: &bristlecone::dynamic::Datum<'_>) -> bool {
    matches!(value, bristlecone::dynamic::Datum::Expiring(_, expiry) if expiry.is_over(SystemTime::now()))
}

/// Returns the value of a key, unless it has expired.
pub fn live(value: Option<Datum>) -> Option<Datum> {
    value.filter(|value| !has_expired(value))
}

/// When an entry expires.
#[derive(Args, Clone, Debug, Default)]
pub struct ExpiryArgs {
    /// Let the entry expire after this time, for example 90s, 15m or 7d; never; or default, the time of the tree. VALUE is
    /// written without a time then.
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    ttl: Option<Ttl>,
    /// Let the entry expire at this time in UTC, such as 2030-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time::parse_utc, conflicts_with = "ttl")]
    expires_at: Option<SystemTime>,
}

/// A time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    After(Duration),
    Never,
    Default,
}

impl ExpiryArgs {
    /// Returns whether any argument was given.
    pub fn is_given(&self) -> bool {
        self.ttl.is_some() || self.expires_at.is_some()
    }

    /// Returns the expiry for a tree.
    pub fn expiry(&self, tree: &ExpiringTree) -> Expiry {
        match (self.expires_at, self.ttl) {
            (Some(time), _) => Expiry::at(time),
            (None, Some(Ttl::After(time))) => tree.after(time),
            (None, Some(Ttl::Never)) => Expiry::NEVER,
            (None, Some(Ttl::Default) | None) => tree.default_expiry(),
        }
    }
}

/// Returns the tree with the operations for which expired entries are absent.
pub fn expiring(tree: &Tree) -> Outcome<ExpiringTree> {
    tree.clone().try_expiring().map_err(|_| {
        let (name, kind) = (tree.name(), tree.value_kind());
        Failure::usage(format!("times are for trees with values of kind Expiring<…>, and {name} has {kind}"))
    })
}

/// Replaces the value of an existing key; returns whether it exists.
pub fn update(tree: &Tree, key: &Datum, value: &Datum) -> Outcome<bool> {
    if !matches!(value, Datum::Expiring(..)) {
        return Ok(tree.update(key, value)?.is_some());
    }
    while let Some(held) = live(tree.get(key)?) {
        match tree.compare_and_swap(key, Some(&held), Some(value)) {
            Ok(()) => return Ok(true),
            Err(CasError::Found(_)) => {}
            Err(error) => return Err(bristlecone::Error::from(error).into()),
        }
    }
    Ok(false)
}

/// Parses a time to live.
fn ttl(text: &str) -> Result<Ttl, String> {
    match text {
        "never" => Ok(Ttl::Never),
        "default" => Ok(Ttl::Default),
        time => duration(time).map(Ttl::After).map_err(|error| format!("{error}, or never, or default")),
    }
}

/// Parses `90s`, `15m`, `12h`, `7d`, `500ms`; a plain number is in seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0), ("", 1.0)];
    let time = time::parse(text, &units).filter(|time| *time >= Duration::from_millis(1));
    time.ok_or_else(|| format!("{text:?} is not a time of a millisecond or more, such as 90s, 15m or 7d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_read_with_their_units() {
        let seconds = |text| duration(text).map(|time| time.as_secs_f64());
        let times =
            [("90s", 90.0), ("15m", 900.0), ("12h", 43_200.0), ("7d", 604_800.0), ("500ms", 0.5), ("3", 3.0)];
        for (text, expected) in times {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for wrong in ["", "s", "0", "0.1ms", "-1s", "nan", "inf", "1e300d", "1w", "1 s"] {
            assert!(duration(wrong).is_err() && ttl(wrong).is_err(), "{wrong}");
        }
        let named = ["never", "default", "1m"].map(ttl);
        assert_eq!(named, [Ttl::Never, Ttl::Default, Ttl::After(Duration::from_secs(60))].map(Ok));
    }
}
