//! The results of a run: medians over rounds, as tables and as JSON.

use std::time::Duration;

use bristlecone_cli::medium;
use bristlecone_cli::size::show as bytes_in_words;
use serde_json::{Value, json};

use super::comparison::{CompetitorResult, PhaseResult, Plan, Results};
use super::competitor::Competitor;
use super::latency::Latency;
use super::perf::Perf;
use super::run::Measured;

/// Returns the median.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

impl Measured {
    /// Returns millions of operations a second.
    pub fn mops(&self) -> f64 {
        self.operations as f64 / self.seconds / 1e6
    }

    /// Returns throughput per slice, in Mop/s, up to the last complete one.
    fn timeline(&self, slice: Duration) -> Vec<f64> {
        let seconds = slice.as_secs_f64();
        let mut series = vec![0.0; (self.seconds / seconds) as usize];
        let each = self.batch as f64 / seconds / 1e6;
        for batch in &self.batches {
            if let Some(mops) = series.get_mut((*batch as f64 / 1e9 / seconds) as usize) {
                *mops += each;
            }
        }
        series
    }
}

impl PhaseResult {
    /// Returns millions of operations a second, the median of rounds.
    pub fn mops(&self) -> f64 {
        median(self.rounds.iter().map(Measured::mops).collect())
    }

    /// Returns the values of the slowest and the fastest round.
    pub fn range(&self) -> (f64, f64) {
        let rounds = || self.rounds.iter().map(Measured::mops);
        (rounds().fold(f64::INFINITY, f64::min), rounds().fold(0.0, f64::max))
    }

    /// Returns the spread of rounds: the range in percent of the median.
    pub fn spread(&self) -> f64 {
        let (least, most) = self.range();
        100.0 * (most - least) / self.mops()
    }

    /// Returns the latencies, each the median of rounds.
    pub fn latency(&self) -> Latency {
        Latency::median(&self.rounds.iter().map(|round| round.latency).collect::<Vec<_>>())
    }

    fn json(&self, name: &str, timeline: Option<Duration>) -> Value {
        let one = self.rounds.first();
        let mut value = json!({
            "name": name,
            "operations": one.map_or(0, |round| round.operations),
            "found": one.map_or(0, |round| round.found),
            "seconds": median(self.rounds.iter().map(|round| round.seconds).collect()),
            "wrong": self.rounds.iter().map(|round| round.wrong).sum::<u64>(),
            "mops": self.mops(),
            "mops_rounds": self.rounds.iter().map(Measured::mops).collect::<Vec<_>>(),
            "spread_percent": self.spread(),
            "latency_ns": self.latency(),
        });
        if let Some(counters) = one.and_then(|round| round.counters) {
            value["counters"] = counters.json(one.map_or(0, |round| round.operations));
        }
        if let Some(slice) = timeline {
            let rounds: Vec<_> = self.rounds.iter().map(|round| round.timeline(slice)).collect();
            value["timeline"] = json!({ "slice_seconds": slice.as_secs_f64(), "mops": rounds });
        }
        value
    }

    /// Returns the speed relative to `competitor`: the median of the rounds' ratios.
    pub fn ratio(&self, competitor: &Self) -> f64 {
        median(
            self.rounds
                .iter()
                .zip(&competitor.rounds)
                .map(|(store, other)| store.mops() / other.mops())
                .collect(),
        )
    }
}

/// Returns the whole run as one JSON value.
pub fn json(plan: &Plan, results: &Results, workload: &Value) -> Value {
    let names = plan.phases.iter().map(|phase| phase.name.as_str());
    let phases: Vec<Value> =
        names.zip(&results.phases).map(|(name, phase)| phase.json(name, plan.timeline)).collect();
    let seconds = median(results.recovery.clone());
    let mut value = json!({
        "design": plan.setup.design.to_string(),
        "baseline": plan.setup.design.is_baseline(),
        "delay_ns": plan.setup.delay.map(|delay| delay.as_nanos() as u64),
        "options": plan.setup.options.iter().map(|(name, value)| (name.clone(), json!(value))).collect::<serde_json::Map<_, _>>(),
        "domain": results.info.domain.to_string(),
        "detected_domain": results.info.detected.to_string(),
        "medium": results.info.path.as_deref().map(|path| medium::name(path.parent().unwrap_or(path))),
        "pool_bytes": results.info.file_bytes,
        "huge_page_bytes": results.huge_bytes,
        "threads": plan.threads,
        "key": plan.key.to_string(),
        "value": plan.value.to_string(),
        "seed": plan.seed,
        "rounds": plan.rounds,
        "timed_one_in": plan.batch,
        "dependent": plan.dependent,
        "counters_refused": plan.perf.then(Perf::refusal).flatten(),
        "page_supply": supply(plan),
        "pages": results.pages,
        "order": (0..plan.rounds).map(|round| in_turn(plan, round)).collect::<Vec<_>>(),
        "durability": Competitor::Tree(plan.setup.design).durability(results.info.domain),
        "lost": results.lost,
        "machine": machine(),
        "phases": phases,
        "space": {
            "pm_bytes_per_key": results.pm_bytes_per_key,
            "dram_bytes_per_key": results.dram_bytes_per_key,
        },
        "recovery": {
            "seconds": seconds,
            "ns_per_key": ns_per_key(results),
            "keys": results.recovered,
            "threads": plan.setup.recovery_threads,
        },
    });
    if let (Some(value), Some(workload)) = (value.as_object_mut(), workload.as_object()) {
        value.extend(workload.clone());
        if !plan.against.is_empty() {
            let competitors =
                results.competitors.iter().map(|competitor| against(plan, results, competitor)).collect();
            value.insert("against".to_owned(), Value::Array(competitors));
        }
    }
    value
}

fn against(plan: &Plan, results: &Results, competitor: &CompetitorResult) -> Value {
    let phases: Vec<Value> = (plan.phases.iter().zip(&results.phases).zip(&competitor.phases))
        .filter(|(_, other)| !other.rounds.is_empty())
        .map(|((phase, store), other)| {
            let mut value = other.json(&phase.name, plan.timeline);
            value["ratio"] = json!(store.ratio(other));
            value
        })
        .collect();
    let reopened = (!competitor.reopened.is_empty()).then(|| median(competitor.reopened.clone()));
    let skipped: Vec<Value> =
        competitor.skipped.iter().map(|(what, why)| json!({ "phase": what, "why": why })).collect();
    json!({
        "name": competitor.competitor.name(),
        "baseline": competitor.competitor.is_baseline(),
        "durability": competitor.competitor.durability(results.info.domain),
        "pages": competitor.pages,
        "open_after_kill_seconds": reopened,
        "phases": phases,
        "skipped": skipped,
    })
}

/// Describes whether stores' memory is allocated before the load: the same for all of them.
pub fn supply(plan: &Plan) -> String {
    match plan.setup.prefault {
        None => "as it is touched, for all".to_owned(),
        Some(bytes) => format!("{} of each before the load", bytes_in_words(bytes)),
    }
}

/// Returns the names of all stores, in the order of a round.
fn in_turn(plan: &Plan, round: usize) -> Vec<String> {
    let name = |at: usize| {
        at.checked_sub(1).map_or_else(|| plan.setup.design.to_string(), |at| plan.against[at].name())
    };
    plan.order_of(round).map(name).collect()
}

/// Returns the nanoseconds of recovery for each key.
pub fn ns_per_key(results: &Results) -> f64 {
    median(results.recovery.clone()) * 1e9 / results.recovered.max(1) as f64
}

/// Returns the machine that this runs on.
pub fn machine() -> Value {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let kernel = rustix::system::uname();
    json!({
        "cpu": model.map_or("unknown", |(_, model)| model.trim()),
        "processors": super::run::processors().len(),
        "kernel": kernel.release().to_string_lossy(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(seconds: &[f64]) -> PhaseResult {
        let round = |seconds: &f64| Measured {
            operations: 1_000_000,
            found: 1_000_000,
            wrong: 0,
            read: 0,
            seconds: *seconds,
            latency: Latency::default(),
            counters: None,
            batch: 64,
            batches: Vec::new(),
        };
        PhaseResult { rounds: seconds.iter().map(round).collect() }
    }

    #[test]
    fn report_ratio_is_the_median_of_paired_rounds() {
        let (store, other) = (result(&[1.0, 2.0, 4.0]), result(&[2.0, 2.0, 12.0]));
        assert!((store.ratio(&other) - 2.0).abs() < 1e-9);
        assert!((store.mops() - 0.5).abs() < 1e-9);
        assert_eq!((store.range(), store.spread()), ((0.25, 1.0), 150.0));
    }

    #[test]
    fn report_timeline_counts_what_began_in_each_slice() {
        let mut round = result(&[3.5]).rounds.remove(0);
        round.batches = vec![0, 900_000_000, 1_000_000_000, 2_500_000_000, 3_400_000_000];
        let each = round.batch as f64 / 1e6;
        assert_eq!(round.timeline(Duration::from_secs(1)), [2.0 * each, each, each]);
    }
}
