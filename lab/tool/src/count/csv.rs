//! Counts as comma-separated values: a row for each phase and operation.

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;

use super::report::Total;
use super::run::{PhaseCount, Plan};
use crate::bench::csv::field;
use crate::workload::Workload;

const HEAD: &str = "design,profile,domain,preset,records,key,value,seed,phase,operation,operations,flushes,fences,lines_written,\
                    lines_read,device_bytes_written,media_bytes_written,media_bytes_read,cli_amplification,xbi_amplification";

/// Writes the rows of a run; the first call also writes the header. Figures are per operation,
/// amplifications per phase.
pub fn write(
    output: &mut Output,
    plan: &Plan,
    phases: &[PhaseCount],
    workload: &Workload,
    is_first: bool,
) -> Outcome {
    if is_first {
        let mops: String = plan.threads.iter().map(|threads| format!(",mops_{threads}")).collect();
        output.line(format_args!("{HEAD}{mops}"))?;
    }
    let preset = workload.preset().unwrap_or_default();
    for (phase, count) in plan.phases.iter().zip(phases) {
        let total = Total::of(std::slice::from_ref(count));
        let (cli, xbi) = total
            .amplifications(None)
            .map_or_else(Default::default, |(cli, xbi)| (format!("{cli:.4}"), format!("{xbi:.4}")));
        let mops: String = total.mops().map(|(_, mops)| format!(",{mops:.6}")).collect();
        for (op, tally) in total.kinds() {
            let (traffic, operations) = (tally.total(), tally.operations);
            let figures = [
                traffic.flushes,
                tally.fences,
                traffic.lines_written,
                traffic.lines_read,
                traffic.device_bytes_written,
                traffic.media_bytes_written,
                traffic.media_bytes_read,
            ];
            let figures = figures.map(|figure| format!("{:.4}", figure as f64 / operations as f64)).join(",");
            output.line(format_args!(
                "{},{},{},{preset},{},{},{},{},{},{op},{operations},{figures},{cli},{xbi}{mops}",
                plan.design,
                field(plan.profile.name),
                plan.domain,
                workload.records(),
                plan.key,
                plan.value,
                plan.seed,
                field(&phase.name),
            ))?;
        }
    }
    Ok(())
}
