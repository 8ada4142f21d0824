//! Results as JSON.

use bristlecone_device::cores::{CoreTally, Hot, Outcome};
use serde_json::{Map, Value, json};

use super::machine;
use super::run::{Measured, PhaseTimes, Plan};
use crate::bench::latency::Latency;
use crate::bench::workload::Op;
use crate::count::kind;

/// Returns the operations of a phase, with their counts.
pub fn kinds(outcome: &Outcome) -> impl Iterator<Item = (Op, &CoreTally)> {
    Op::all().map(|op| (op, &outcome.tallies[kind(op)])).filter(|(_, tally)| tally.operations > 0)
}

/// Returns millions of operations a second.
pub fn mops(phase: &PhaseTimes) -> f64 {
    phase.operations as f64 / phase.outcome.seconds / 1e6
}

/// Returns the counts of an operation of one kind, on average.
pub fn each(tally: &CoreTally) -> impl Iterator<Item = (&'static str, f64)> {
    let per = tally.operations as f64;
    tally.each().filter(|(name, _)| *name != "operations").map(move |(name, count)| match name {
        "wait_ps" => ("wait_ns", count as f64 / per / 1000.0),
        name => (name, count as f64 / per),
    })
}

fn with_threads(threads: usize, phase: &PhaseTimes) -> Value {
    let outcome = &phase.outcome;
    let latencies: Map<String, Value> = Op::all()
        .filter_map(|op| Some((op.to_string(), json!(Latency::from(outcome.latencies.of(kind(op))?)))))
        .collect();
    let per_operation: Map<String, Value> = kinds(outcome)
        .map(|(op, tally)| {
            let counts: Map<String, Value> =
                each(tally).map(|(name, count)| (name.to_owned(), json!(count))).collect();
            (op.to_string(), Value::Object(counts))
        })
        .collect();
    let hot = |line: &Hot| json!({ "moved": line.moved, "place": line.place, "callers": line.callers });
    json!({
        "threads": threads,
        "seconds": outcome.seconds,
        "mops": mops(phase),
        "latency_ns": latencies,
        "per_operation": per_operation,
        "lines_moved": outcome.lines_moved,
        "hot_lines": outcome.hot.iter().map(hot).collect::<Vec<_>>(),
    })
}

/// Returns the report of a run.
pub fn json(plan: &Plan, measured: &[Measured], workload: &Value) -> Value {
    let phases = plan.phases.iter().enumerate().map(|(at, phase)| {
        let threads = measured.iter().map(|measured| with_threads(measured.threads, &measured.phases[at]));
        json!({ "name": phase.name, "operations": phase.operations, "scaling": threads.collect::<Vec<_>>() })
    });
    json!({
        "command": "scale",
        "design": plan.design.to_string(),
        "options": plan.options.iter().map(|(name, value)| (name.clone(), json!(value))).collect::<Map<_, _>>(),
        "domain": plan.domain.to_string(),
        "machine": machine::json(&plan.machine),
        "device": format!("{:?}", plan.machine.device),
        "key": plan.key.to_string(),
        "value": plan.value.to_string(),
        "seed": plan.seed,
        "snapshot": plan.snapshot,
        "preload": plan.preload.is_some(),
        "workload": workload,
        "phases": phases.collect::<Vec<_>>(),
    })
}
