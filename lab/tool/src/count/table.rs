//! Counts as tables for people.

use bristlecone::TreeStats;
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::{Output, grouped};
use bristlecone_cli::size;
use bristlecone_pm::Part;

use super::report::Total;
use super::run::{PhaseCount, Plan};
use crate::bench::latency::Latency;

/// Prints the whole run as tables.
pub fn show(output: &mut Output, plan: &Plan, phases: &[PhaseCount], workload: &str) -> Outcome {
    let (profile, cache) = (&plan.profile, size::show(plan.processor.cache_bytes as u64));
    output.line(format_args!(
        "{} on a model of {profile}, domain {}: media lines of {} B, processor cache of {cache}",
        plan.design.title(),
        plan.domain,
        profile.media_line_bytes
    ))?;
    output.line(format_args!("{workload}, keys {}, values {}, seed {}", plan.key, plan.value, plan.seed))?;
    output.line("")?;
    show_operations(output, plan, phases)?;
    show_amplifications(output, plan, phases)?;
    show_times(output, plan, phases)?;
    for (phase, count) in plan.phases.iter().zip(phases).filter(|(_, count)| count.space.items > 0) {
        let TreeStats { items, pm_bytes, dram_bytes, .. } = count.space;
        let per_key = |bytes: u64| bytes as f64 / items as f64;
        output.line(format_args!(
            "after {:<8} {:>11} keys, {:.2} B/key persistent, {:.2} B/key in DRAM",
            phase.name,
            grouped(items),
            per_key(pm_bytes),
            per_key(dram_bytes)
        ))?;
    }
    Ok(())
}

/// Returns the results of one phase.
fn each(phase: &PhaseCount) -> Total {
    Total::of(std::slice::from_ref(phase))
}

/// Prints the average cost of an operation of each kind.
fn show_operations(output: &mut Output, plan: &Plan, phases: &[PhaseCount]) -> Outcome {
    output.line("each operation, on average     flushes  fences   lines   lines  media B  media B")?;
    output.line("phase     operation                            written    read  written     read")?;
    for (phase, count) in plan.phases.iter().zip(phases) {
        for (op, tally) in each(count).kinds() {
            let total = tally.total();
            let per = |number: u64| number as f64 / tally.operations as f64;
            output.line(format_args!(
                "{:<9} {op:<18} {:>9.3}{:>8.3}{:>8.3}{:>8.3}{:>9.1}{:>9.1}",
                phase.name,
                per(total.flushes),
                per(tally.fences),
                per(total.lines_written),
                per(total.lines_read),
                per(total.media_bytes_written),
                per(total.media_bytes_read),
            ))?;
        }
    }
    output.line("")
}

/// Prints bytes written per byte of the user.
fn show_amplifications(output: &mut Output, plan: &Plan, phases: &[PhaseCount]) -> Outcome {
    output
        .line("bytes written / bytes the user wrote:  lines to the device (CLI)        by the media (XBI)")?;
    output.line("phase                       all    leaf     log   other     all    leaf     log   other")?;
    for (phase, count) in plan.phases.iter().zip(phases) {
        let total = each(count);
        let parts = [None, Some(Part::Leaf), Some(Part::Log), Some(Part::Other)];
        let found: Vec<_> = parts.iter().filter_map(|part| total.amplifications(*part)).collect();
        if !found.is_empty() {
            let cli: String = found.iter().map(|(cli, _)| format!("{cli:>8.2}")).collect();
            let xbi: String = found.iter().map(|(_, xbi)| format!("{xbi:>8.2}")).collect();
            output.line(format_args!("{:<22}{cli}{xbi}", phase.name))?;
        }
    }
    output.line("")
}

/// Prints throughput and latencies on the virtual clock.
fn show_times(output: &mut Output, plan: &Plan, phases: &[PhaseCount]) -> Outcome {
    let threads: String = plan.threads.iter().map(|threads| format!("{threads:>9}")).collect();
    let writers = plan
        .writers
        .map_or_else(|| "as many writers each".to_owned(), |writers| format!("{writers} writers in all"));
    output.line(format_args!("Mop/s on the virtual clock, by threads, {writers}\nphase       {threads}"))?;
    for (phase, count) in plan.phases.iter().zip(phases) {
        let mops: String = each(count).mops().map(|(_, mops)| format!("{mops:>9.3}")).collect();
        output.line(format_args!("{:<12}{mops}", phase.name))?;
    }
    output.line("")?;
    let head =
        format_args!("time of each on that clock\nphase     operation        threads{}", Latency::head());
    output.line(head)?;
    for (phase, count) in plan.phases.iter().zip(phases) {
        let (total, last) = (each(count), plan.threads.len() - 1);
        let ends: &[usize] = if last == 0 { &[0] } else { &[0, last] };
        for (at, threads) in ends.iter().map(|at| (*at, plan.threads[*at])) {
            for (op, latency) in total.latencies(at) {
                let columns = latency.columns();
                output.line(format_args!("{:<9} {op:<16}{threads:>8}{columns}", phase.name))?;
            }
        }
    }
    output.line("")
}
