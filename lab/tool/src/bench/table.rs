//! The results of a run as tables for people.

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::medium;
use bristlecone_cli::output::{Output, grouped};

use super::comparison::{PhaseResult, Plan, Results};
use super::competitor::Competitor;
use super::latency::Latency;
use super::perf::{Counters, Perf};
use super::report::{machine, median, ns_per_key, supply};

/// Prints the whole run as tables.
pub fn show(output: &mut Output, plan: &Plan, results: &Results, workload: &str) -> Outcome {
    show_head(output, plan, results, workload)?;
    let width = width(plan);
    let spread = |result: &PhaseResult| format!("{:.0} %", result.spread());
    let head = Latency::head();
    output
        .line(format_args!("{:<width$}{:>13}{:>9}{:>8}{head}", "phase", "operations", "Mop/s", "spread"))?;
    for (phase, result) in plan.phases.iter().zip(&results.phases) {
        output.line(format_args!(
            "{:<width$}{:>13}{:>9.3}{:>8}{}",
            phase.name,
            grouped(phase.operations),
            result.mops(),
            if plan.rounds > 1 { spread(result) } else { "-".to_owned() },
            result.latency().columns()
        ))?;
    }
    show_competitors(output, plan, results)?;
    show_counters(output, plan, results)?;
    show_stores(output, plan, results)?;
    output.line("")?;
    let (pm, dram) = (results.pm_bytes_per_key, results.dram_bytes_per_key);
    output.line(format_args!("space after the load: {pm:.1} B/key persistent, {dram:.1} B/key in DRAM"))?;
    output.line(format_args!(
        "recovery after a crash: {:.3} s for {} keys, {:.1} ns/key, on {} of {} processors",
        median(results.recovery.clone()),
        grouped(results.recovered),
        ns_per_key(results),
        plan.setup.recovery_threads,
        machine()["processors"]
    ))?;
    for lost in &results.lost {
        output.line(format_args!("LOST: {lost}"))?;
    }
    Ok(())
}

/// Returns the width of phase names.
fn width(plan: &Plan) -> usize {
    plan.phases.iter().map(|phase| phase.name.chars().count() + 2).max().unwrap_or(0).max(8)
}

fn show_head(output: &mut Output, plan: &Plan, results: &Results, workload: &str) -> Outcome {
    let info = &results.info;
    let medium =
        info.path.as_deref().map_or_else(String::new, |path| medium::name(path.parent().unwrap_or(path)));
    let machine = machine();
    let (cpu, processors) = (machine["cpu"].as_str().unwrap_or_default(), &machine["processors"]);
    let threads = if plan.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", plan.threads) };
    output.line(format_args!("{} on {medium}, {}", plan.setup.design.title(), medium::promise(info)))?;
    let pages = medium::pages(info, results.huge_bytes);
    output.line(format_args!("pages {pages}; {threads}, {processors} processors, {cpu}"))?;
    output.line(format_args!("{workload}, keys {}, values {}, seed {}", plan.key, plan.value, plan.seed))?;
    if let Some(delay) = plan.setup.delay {
        output.line(format_args!("every flushed line takes {} ns longer", delay.as_nanos()))?;
    }
    if plan.dependent {
        output.line("the key of each read depends on the value before it")?;
    }
    if plan.rounds > 1 {
        let turns = if plan.against.is_empty() { "" } else { "; which store begins changes with them" };
        output.line(format_args!("medians of {} rounds{turns}", plan.rounds))?;
    }
    output.line("")
}

fn show_competitors(output: &mut Output, plan: &Plan, results: &Results) -> Outcome {
    if results.competitors.is_empty() {
        return Ok(());
    }
    let competitors: Vec<_> =
        results.competitors.iter().filter(|competitor| !competitor.phases.is_empty()).collect();
    let width = width(plan);
    output.line("")?;
    let names: String =
        competitors.iter().map(|competitor| format!("{:>20}", competitor.competitor.title())).collect();
    output.line(format_args!(
        "{:<width$}{:>9}{names}    Mop/s; in brackets: times as fast",
        "phase", plan.setup.design
    ))?;
    for (number, phase) in plan.phases.iter().enumerate() {
        let store = &results.phases[number];
        let columns: String = competitors
            .iter()
            .map(|competitor| match &competitor.phases[number] {
                other if other.rounds.is_empty() => format!("{:>20}", "-"),
                other => format!("{:>20}", format!("{:.3} ({:.2})", other.mops(), store.ratio(other))),
            })
            .collect();
        output.line(format_args!("{:<width$}{:>9.3}{columns}", phase.name, store.mops()))?;
    }
    for competitor in &results.competitors {
        for same in competitor.skipped.chunk_by(|one, next| one.1 == next.1) {
            let what: Vec<&str> = same.iter().map(|(what, _)| what.as_str()).collect();
            output.line(format_args!(
                "{} skips {}: {}",
                competitor.competitor.name(),
                what.join(", "),
                same[0].1
            ))?;
        }
    }
    Ok(())
}

/// Prints the processor's counters.
fn show_counters(output: &mut Output, plan: &Plan, results: &Results) -> Outcome {
    if !plan.perf {
        return Ok(());
    }
    if let Some(why) = Perf::refusal() {
        return output.line(format_args!("\n{why}"));
    }
    let stores = std::iter::once((plan.setup.design.to_string(), &results.phases))
        .chain(results.competitors.iter().map(|other| (other.competitor.name(), &other.phases)));
    let width = width(plan);
    output.line(format_args!(
        "\n{:<width$}{:<12}{}   each operation, first round",
        "phase",
        "store",
        Counters::head()
    ))?;
    for (name, phases) in stores {
        for (phase, result) in plan.phases.iter().zip(phases) {
            let Some(round) = result.rounds.first() else { continue };
            let columns = round.counters.map_or_else(
                || "  not to be had here".to_owned(),
                |counters| counters.columns(round.operations),
            );
            output.line(format_args!("{:<width$}{name:<12}{columns}", phase.name))?;
        }
    }
    Ok(())
}

/// Prints what all stores have in common, and what differs.
fn show_stores(output: &mut Output, plan: &Plan, results: &Results) -> Outcome {
    if results.competitors.is_empty() {
        return Ok(());
    }
    let ours = (Competitor::Tree(plan.setup.design), results.pages);
    let all = || {
        std::iter::once(ours.clone())
            .chain(results.competitors.iter().map(|other| (other.competitor.clone(), other.pages)))
    };
    let huge: Vec<String> =
        all().map(|(store, pages)| format!("{} {} %", store.name(), pages.huge_percent())).collect();
    output.line("")?;
    output.line(format_args!(
        "memory is supplied {}; of what the load took, in pages of 2 MiB: {}",
        supply(plan),
        huge.join(", ")
    ))?;
    for (store, _) in all() {
        output.line(format_args!("{} {}", store.name(), store.durability(results.info.domain)))?;
    }
    for other in results.competitors.iter().filter(|other| !other.reopened.is_empty()) {
        let (name, seconds) = (other.competitor.name(), median(other.reopened.clone()));
        output.line(format_args!("{name} opens {seconds:.3} s after its process was killed amid writes"))?;
    }
    Ok(())
}
