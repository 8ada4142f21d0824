//! The clock of trees whose entries expire.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use crate::api::kinds::expiring::millis;
/// Returns the time of the system, which does not go back within the process.
pub fn system_time() -> SystemTime {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    advance(&LATEST, SystemTime::now())
}

/// Returns the latest time that was passed, in whole milliseconds.
fn advance(latest: &AtomicU64, now: SystemTime) -> SystemTime {
    let (now, seen) = (millis(now), latest.load(Relaxed));
    // Most calls only read the line.
    let latest = if now > seen { latest.fetch_max(now, Relaxed).max(now) } else { seen };
    SystemTime::UNIX_EPOCH + Duration::from_millis(latest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let (latest, at) =
            (AtomicU64::new(0), |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let seen = [100, 300, 200, 0, 301].map(|seconds| advance(&latest, at(seconds)));
        assert_eq!(seen, [100, 300, 300, 300, 301].map(at));
        assert_eq!(advance(&latest, SystemTime::UNIX_EPOCH - Duration::from_secs(5)), at(301));
        assert!(system_time() <= system_time());
    }
}
