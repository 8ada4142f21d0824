//! The results of a run as comma-separated values: a row for each store and phase.

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;

use super::comparison::{PhaseResult, Plan, Results};
use super::report::median;
use crate::workload::Workload;

const HEAD: &str = "store,preset,records,threads,domain,key,value,seed,phase,operations,found,rounds,mops,mops_min,mops_max,\
                    times_as_fast,p50_ns,p90_ns,p99_ns,p999_ns,p9999_ns,p99999_ns,max_ns,slowest_100_ns,\
                    pm_bytes_per_key,dram_bytes_per_key,recovery_seconds";

/// Writes the rows of a run; the first call also writes the header. `times_as_fast` is the ratio of
/// the tree to the store of the row.
pub fn write(
    output: &mut Output,
    plan: &Plan,
    results: &Results,
    workload: &Workload,
    is_first: bool,
) -> Outcome {
    if is_first {
        output.line(HEAD)?;
    }
    let (pm, dram) = (results.pm_bytes_per_key, results.dram_bytes_per_key);
    let ours = format!("{pm:.3},{dram:.3},{:.6}", median(results.recovery.clone()));
    rows(output, plan, results, workload, (plan.setup.design.name(), &results.phases, &ours))?;
    for other in &results.competitors {
        let reopened = if other.reopened.is_empty() {
            String::new()
        } else {
            format!("{:.6}", median(other.reopened.clone()))
        };
        rows(
            output,
            plan,
            results,
            workload,
            (&other.competitor.name(), &other.phases, &format!(",,{reopened}")),
        )?;
    }
    Ok(())
}

fn rows(
    output: &mut Output,
    plan: &Plan,
    results: &Results,
    workload: &Workload,
    (store, phases, rest): (&str, &[PhaseResult], &str),
) -> Outcome {
    let of_run = format!(
        "{},{},{},{},{},{},{},{}",
        field(store),
        workload.preset().unwrap_or_default(),
        workload.records(),
        plan.threads,
        results.info.domain,
        plan.key,
        plan.value,
        plan.seed
    );
    for ((phase, result), ours) in plan.phases.iter().zip(phases).zip(&results.phases) {
        let Some(round) = result.rounds.first() else { continue };
        let ((least, most), latency) = (result.range(), result.latency());
        let latencies = [
            latency.p50,
            latency.p90,
            latency.p99,
            latency.p999,
            latency.p9999,
            latency.p99999,
            latency.max,
            latency.slowest_100,
        ];
        output.line(format_args!(
            "{of_run},{},{},{},{},{:.6},{least:.6},{most:.6},{:.4},{},{rest}",
            field(&phase.name),
            round.operations,
            round.found,
            result.rounds.len(),
            result.mops(),
            ours.ratio(result),
            latencies.map(|ns| ns.to_string()).join(","),
        ))?;
    }
    Ok(())
}

/// Returns a text as a field, quoted if necessary.
pub fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_fields_are_quoted_where_they_must_be() {
        assert_eq!([field("load"), field("a,b"), field("a\"b")], ["load", "\"a,b\"", "\"a\"\"b\""]);
    }
}
