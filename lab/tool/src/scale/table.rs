//! Results as tables for people.

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;

use super::report::{kinds, mops};
use super::run::{Measured, Plan};
use crate::bench::latency::Latency;
use crate::count::kind;

/// Prints the whole run.
pub fn show(output: &mut Output, plan: &Plan, measured: &[Measured], workload: &str) -> Outcome {
    output.line(format_args!(
        "{} on simulated cores of {}, domain {}",
        plan.design.title(),
        plan.machine,
        plan.domain
    ))?;
    output.line(format_args!("{workload}, keys {}, values {}, seed {}", plan.key, plan.value, plan.seed))?;
    output.line("")?;
    output.line(
        "                                              lines an operation                           latency [ns]",
    )?;
    output.line(
        "phase     operation          threads     M/s  transfers invalid.  writes   DRAM  device   waits    p50      p99",
    )?;
    for (at, phase) in plan.phases.iter().enumerate() {
        for measured in measured {
            show_phase(output, &phase.name, measured, at)?;
        }
    }
    show_hot(output, plan, measured)
}

fn show_phase(output: &mut Output, name: &str, measured: &Measured, at: usize) -> Outcome {
    let phase = &measured.phases[at];
    for (op, tally) in kinds(&phase.outcome) {
        let per = |number: u64| number as f64 / tally.operations as f64;
        let latency = phase.outcome.latencies.of(kind(op)).map(Latency::from).unwrap_or_default();
        output.line(format_args!(
            "{name:<9} {op:<18} {:>7} {:>7.2} {:>10.3}{:>9.3}{:>8.3}{:>7.2}{:>8.2}{:>8.2}{:>7}{:>9}",
            measured.threads,
            mops(phase),
            per(tally.transfers),
            per(tally.invalidations),
            per(tally.shared_writes),
            per(tally.dram_reads),
            per(tally.device_reads),
            per(tally.waits),
            latency.p50,
            latency.p99,
        ))?;
    }
    Ok(())
}

/// Prints the lines that moved most with the highest number of threads.
fn show_hot(output: &mut Output, plan: &Plan, measured: &[Measured]) -> Outcome {
    let Some(last) = measured.last().filter(|_| plan.hot > 0) else { return Ok(()) };
    for (phase, named) in last.phases.iter().zip(&plan.phases) {
        output.line("")?;
        let (threads, lines) = (last.threads, phase.outcome.lines_moved);
        output
            .line(format_args!("{} on {threads} threads: {lines} lines moved; most of all:", named.name))?;
        for line in &phase.outcome.hot {
            let share = line.moved as f64 / phase.operations as f64;
            output.line(format_args!("  {share:>8.4} an operation: {}", line.place))?;
            for caller in &line.callers {
                output.line(format_args!("           {caller}"))?;
            }
        }
    }
    Ok(())
}
