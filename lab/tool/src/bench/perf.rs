//! The processor's own counters, read through `perf_event_open`, where the system allows it.

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Event, Hardware};
use perf_event::{Builder, Counter};
use serde_json::{Map, Value, json};

/// The counters' names in reports.
const NAMES: [&str; 4] = ["cycles", "instructions", "cache_misses", "tlb_misses"];

/// The counters of one thread, running.
pub struct Perf([Option<Counter>; NAMES.len()]);

/// Their values; `None` if the machine has no such counter, or does not permit reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters([Option<u64>; NAMES.len()]);

impl Perf {
    /// Starts the counters of the calling thread; `None` if there are none.
    pub fn start() -> Option<Self> {
        let mut counters = Self::open();
        counters.iter_mut().flatten().for_each(|counter| _ = counter.enable());
        counters.iter().any(Option::is_some).then_some(Self(counters))
    }

    fn open() -> [Option<Counter>; NAMES.len()] {
        fn counter(event: impl Event) -> Option<Counter> {
            Builder::new(event).build().ok()
        }
        let tlb = Cache { which: CacheId::DTLB, operation: CacheOp::READ, result: CacheResult::MISS };
        [
            counter(Hardware::CPU_CYCLES),
            counter(Hardware::INSTRUCTIONS),
            counter(Hardware::CACHE_MISSES),
            counter(tlb),
        ]
    }

    /// Stops them, and returns their values.
    pub fn stop(mut self) -> Option<Counters> {
        self.0.iter_mut().flatten().for_each(|counter| _ = counter.disable());
        Some(Counters(self.0.each_mut().map(|counter| counter.as_mut()?.read().ok())))
    }

    /// Returns the reason why nothing is counted; `None` if something is.
    pub fn refusal() -> Option<String> {
        match Builder::new(Hardware::CPU_CYCLES).build() {
            Ok(_) => None,
            Err(_) if Self::start().is_some() => None,
            Err(error) => Some(format!(
                "the processor's counters cannot be read here: perf_event_open: {error}; a virtual machine may have none, \
                 and /proc/sys/kernel/perf_event_paranoid must be 2 or less"
            )),
        }
    }
}

impl Counters {
    /// Returns the sum over all threads; `None` if one of them counted nothing.
    pub fn sum(parts: impl Iterator<Item = Option<Self>>) -> Option<Self> {
        parts.reduce(|sum, part| Some(sum?.and(part?))).flatten()
    }

    fn and(self, other: Self) -> Self {
        let mut both = self.0.into_iter().zip(other.0).map(|(one, other)| Some(one? + other?));
        Self(self.0.map(|_| both.next().flatten()))
    }

    /// Returns the counts per operation, by name.
    pub fn json(self, operations: u64) -> Value {
        let each = |count: Option<u64>| json!(count.map(|count| count as f64 / operations.max(1) as f64));
        Value::Object(
            NAMES
                .iter()
                .zip(self.0)
                .map(|(name, count)| ((*name).to_owned(), each(count)))
                .collect::<Map<_, _>>(),
        )
    }

    /// Returns the headings of [`columns`](Self::columns).
    pub fn head() -> String {
        NAMES.map(|name| format!("{:>14}", name.replace('_', " "))).concat()
    }

    /// Returns the counts per operation, as columns of a table.
    pub fn columns(self, operations: u64) -> String {
        let each = |count: Option<u64>| {
            count.map_or_else(
                || "-".to_owned(),
                |count| format!("{:.1}", count as f64 / operations.max(1) as f64),
            )
        };
        self.0.map(|count| format!("{:>14}", each(count))).concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_counts_of_threads_add_up_and_a_missing_one_is_missed() {
        let counted = |cycles| Some(Counters([Some(cycles), Some(8), None, Some(0)]));
        let sum = Counters::sum([counted(10), counted(5)].into_iter()).unwrap();
        assert_eq!(sum, Counters([Some(15), Some(16), None, Some(0)]));
        assert_eq!(
            sum.json(5),
            json!({"cycles": 3.0, "instructions": 3.2, "cache_misses": null, "tlb_misses": 0.0})
        );
        assert_eq!(Counters::sum([counted(10), None].into_iter()), None);
    }

    #[test]
    fn perf_counts_or_says_why_not() {
        let Some(perf) = Perf::start() else {
            assert!(Perf::refusal().unwrap().contains("perf_event_open"));
            return;
        };
        assert_eq!(Perf::refusal(), None);
        let work: u64 = std::hint::black_box((0..100_000u64).fold(1, |sum, at| sum.wrapping_mul(31) ^ at));
        let counters = perf.stop().unwrap();
        let counted = counters.0.iter().flatten().filter(|count| **count > 10_000).count();
        assert!(work != 1 && counted > 0, "{counters:?}");
    }
}
