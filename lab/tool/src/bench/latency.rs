//! Latencies of single operations, measured with the time-stamp counter.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

/// Returns ticks of the cheapest clock.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the counter, and user space may read it.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: reads the virtual counter, which user space may; touches nothing else.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    compile_error!("a cheap clock is needed for this machine");
}

/// An interval in ticks and in time, to calibrate ticks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    ticks: u64,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        Self { started: Instant::now(), ticks: ticks() }
    }

    /// Returns the start time.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Returns the start in ticks.
    pub fn started_ticks(&self) -> u64 {
        self.ticks
    }

    /// Returns nanoseconds per tick, measured since the start; a longer interval is more accurate.
    pub fn nanoseconds_per_tick(&self) -> f64 {
        let ticks = ticks().wrapping_sub(self.ticks).max(1);
        self.started.elapsed().max(Duration::from_nanos(1)).as_nanos() as f64 / ticks as f64
    }
}

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latency {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub p9999: u64,
    pub p99999: u64,
    pub max: u64,
    /// Mean of the 100 slowest, or of all if there are fewer.
    pub slowest_100: u64,
    /// Percentiles, and the latency at each.
    pub cdf: [(f64, u64); CDF],
}

/// Number of points of a distribution.
const CDF: usize = 24;

/// Returns the percentile of a distribution's point: in steps of five, then denser in the tail.
fn percent(point: usize) -> f64 {
    const TAIL: [f64; 4] = [99.0, 99.9, 99.99, 99.999];
    if point < CDF - TAIL.len() { 5.0 * point as f64 } else { TAIL[point + TAIL.len() - CDF] }
}

/// Returns the mean of the `count` largest, or of all if there are fewer.
fn mean_of_largest(histogram: &Histogram<u64>, count: u64) -> u64 {
    let mut values: Vec<(u64, u64)> = histogram
        .iter_recorded()
        .map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
        .collect();
    let (mut left, mut sum) = (count, 0_u128);
    while let Some((value, times)) = values.pop().filter(|_| left > 0) {
        let taken = times.min(left);
        sum += u128::from(value) * u128::from(taken);
        left -= taken;
    }
    (sum / u128::from((count - left).max(1))) as u64
}

impl Latency {
    /// Returns percentiles of samples.
    pub fn of(samples: impl Iterator<Item = u64>) -> Self {
        // Three digits, for samples of any size.
        let Ok(mut histogram) = Histogram::<u64>::new(3) else { return Self::default() };
        for sample in samples {
            // It grows on demand; a sample out of range would last centuries.
            let _ = histogram.record(sample);
        }
        Self::from(&histogram)
    }

    /// Returns the median of each percentile over several runs.
    pub fn median(runs: &[Self]) -> Self {
        let of = |field: fn(&Self) -> u64| {
            let mut values: Vec<u64> = runs.iter().map(field).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or(0)
        };
        Self {
            p50: of(|run| run.p50),
            p90: of(|run| run.p90),
            p99: of(|run| run.p99),
            p999: of(|run| run.p999),
            p9999: of(|run| run.p9999),
            p99999: of(|run| run.p99999),
            max: of(|run| run.max),
            slowest_100: of(|run| run.slowest_100),
            cdf: std::array::from_fn(|point| {
                let mut values: Vec<u64> = runs.iter().map(|run| run.cdf[point].1).collect();
                values.sort_unstable();
                (percent(point), values.get(values.len() / 2).copied().unwrap_or(0))
            }),
        }
    }

    /// Returns the headings of [`columns`](Self::columns).
    pub fn head() -> String {
        ["p50", "p99", "p99.9", "p99.99", "p99.999", "max", "100 slow"]
            .map(|name| format!("{name:>9}"))
            .concat()
    }

    /// Returns the percentiles as columns of a table.
    pub fn columns(&self) -> String {
        let columns = [self.p50, self.p99, self.p999, self.p9999, self.p99999, self.max, self.slowest_100];
        columns.map(|ns| format!("{:>9}", time(ns))).concat()
    }
}

fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        _ => format!("{:.0} ms", ns as f64 / 1e6),
    }
}

impl From<&Histogram<u64>> for Latency {
    fn from(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            p99999: at(0.99999),
            max: histogram.max(),
            slowest_100: mean_of_largest(histogram, 100),
            cdf: std::array::from_fn(|point| (percent(point), at(percent(point) / 100.0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_percentiles_are_those_of_the_samples() {
        let latency = Latency::of(1..=100_000);
        let near = |value: u64, wanted: f64| (value as f64 / wanted - 1.0).abs() < 0.002;
        assert!(near(latency.p50, 50e3) && near(latency.p99, 99e3) && near(latency.p9999, 99_990.0));
        assert!(near(latency.max, 1e5) && near(latency.slowest_100, 99_950.0));
        assert!(latency.cdf.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{:?}", latency.cdf);
        assert!(near(latency.cdf[10].1, 50e3) && latency.cdf[10].0 == 50.0);
        assert_eq!(Latency::of([3, 5].into_iter()).slowest_100, 4);
        assert_eq!(Latency::median(&[Latency::of(1..3), Latency::of(5..7), Latency::of(9..11)]).max, 6);
    }

    #[test]
    fn latency_clock_converts_ticks_to_time() {
        let clock = Clock::start();
        let before = ticks();
        std::thread::sleep(Duration::from_millis(20));
        let nanoseconds = (ticks() - before) as f64 * clock.nanoseconds_per_tick();
        assert!((10e6..1e9).contains(&nanoseconds), "{nanoseconds}");
    }
}
