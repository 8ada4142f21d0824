//! The model beside this machine: throughput of the designs relative to each other, timed and simulated.

use bristlecone_baselines::AnyDesign;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use bristlecone_device::cores::Conflicts;
use clap::Parser;
use serde_json::{Value, json};

use super::conflicts::{By, Counted};
use crate::bench::command::Bench;
use crate::bench::run::threads_here;

/// Deviation of a ratio between designs from which on the model counts as wrong, in percent.
const TOLERATED: f64 = 20.0;

/// What is compared.
pub struct Validation<'a> {
    pub designs: &'a [AnyDesign],
    /// Numbers of records and of operations.
    pub sizes: (u64, u64),
    pub machine: &'a str,
    pub threads: &'a [usize],
    pub rounds: usize,
    /// Simulates what a command line without its first word says.
    pub simulate: fn(&str) -> Outcome<Value>,
    /// Returns the conflicts an operation of each phase.
    pub count: fn(&str, usize, By) -> Outcome<Counted>,
}

/// Arguments of a timed run.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Timed {
    #[command(flatten)]
    bench: Bench,
    /// What some arguments require.
    #[arg(id = "json", long)]
    _json: bool,
}

/// Throughput of a design in a phase, in millions of operations a second.
struct Cell {
    phase: String,
    threads: usize,
    design: AnyDesign,
    timed: f64,
    simulated: f64,
}

impl Validation<'_> {
    pub fn run(&self, output: &mut Output) -> Outcome {
        if let Some(threads) = self.threads.iter().find(|threads| **threads as u64 > threads_here()) {
            let here = threads_here();
            return Err(Failure::usage(format!("--threads {threads}: --validate times up to {here} here")));
        }
        if let Some(threads) = self.threads.iter().find(|threads| **threads > Conflicts::THREADS_MAX) {
            let most = Conflicts::THREADS_MAX;
            return Err(Failure::usage(format!(
                "--threads {threads}: --validate counts conflicts of up to {most}"
            )));
        }
        if self.designs.len() < 2 {
            return Err(Failure::usage("--validate compares designs: name two or more with --design"));
        }
        let cells = self.measure(output)?;
        if !output.json() {
            output.line(
                "phase       threads design       timed M/s  simulated  ratio timed  simulated  deviation",
            )?;
        }
        let mut wrong = 0;
        for cell in &cells {
            let (timed, simulated) = relative(&cells, cell);
            let deviation = (simulated / timed - 1.0) * 100.0;
            wrong += usize::from(deviation.abs() > TOLERATED);
            show(output, cell, (timed, simulated), deviation)?;
        }
        let all = cells.len();
        let summary = json!({ "ratios": all, "beyond_percent": TOLERATED, "beyond": wrong });
        output
            .either(&summary, format_args!("{wrong} of {all} ratios deviate by more than {TOLERATED} %"))?;
        self.compare_conflicts(output)
    }

    /// Compares how often threads get in each other's way, where there are several.
    fn compare_conflicts(&self, output: &mut Output) -> Outcome {
        let several: Vec<_> = self.threads.iter().copied().filter(|threads| *threads > 1).collect();
        if !output.json() && !several.is_empty() {
            output.line("\nphase       threads design       conflicts an operation: threads, simulated")?;
        }
        for threads in several {
            for design in self.designs {
                let line = format!("{} --profile {}", self.line(*design), self.machine);
                let mut rounds = Vec::new();
                for _ in 0..self.rounds {
                    interrupt::check("the comparison is not finished")?;
                    rounds.push((self.count)(&line, threads, By::Threads)?);
                }
                let simulated = (self.count)(&line, threads, By::SimulatedThreads)?;
                for (number, (phase, simulated)) in simulated.into_iter().enumerate() {
                    if phase.ends_with("_many") {
                        continue;
                    }
                    let found = median(rounds.iter().map(|round| round[number].1).collect());
                    let value = json!({
                        "phase": phase, "threads": threads, "design": design.to_string(),
                        "conflicts": found, "simulated_conflicts": simulated,
                    });
                    let design = design.to_string();
                    let line = format!("{phase:<12}{threads:>7} {design:<12}{found:>31.3}{simulated:>11.3}");
                    output.either(&value, format_args!("{line}"))?;
                }
            }
        }
        Ok(())
    }

    /// Times all designs alternately first: a simulation makes later accesses of the process slightly slower.
    fn measure(&self, output: &Output) -> Outcome<Vec<Cell>> {
        let runs: Vec<_> = self
            .threads
            .iter()
            .flat_map(|threads| self.designs.iter().map(move |design| (*threads, *design)))
            .collect();
        let bar = output.progress("validating", Some((runs.len() * (self.rounds + 1)) as u64));
        let mut timed = vec![Vec::new(); runs.len()];
        for _ in 0..self.rounds {
            for (at, (threads, design)) in runs.iter().enumerate() {
                interrupt::check("the comparison is not finished")?;
                let line = format!("{} --threads {threads}", self.line(*design));
                timed[at].push(timed_by(&line)?);
                bar.inc(1);
            }
        }
        let mut cells = Vec::new();
        for ((threads, design), timed) in runs.into_iter().zip(timed) {
            let line = format!("{} --threads {threads} --profile {}", self.line(design), self.machine);
            let simulated = (self.simulate)(&line)?;
            bar.inc(1);
            let phases = simulated["phases"].as_array().into_iter().flatten();
            for (number, phase) in phases.enumerate() {
                let rounds = timed.iter().filter_map(|round| round["phases"][number]["mops"].as_f64());
                let (Some(name), Some(simulated)) =
                    (phase["name"].as_str(), phase["scaling"][0]["mops"].as_f64())
                else {
                    return Err(Failure::new(Exit::Failed, "a report without throughput"));
                };
                // A simulated operation on many keys has one.
                if name.ends_with("_many") {
                    continue;
                }
                cells.push(Cell {
                    phase: name.to_owned(),
                    threads,
                    design,
                    timed: median(rounds.collect()),
                    simulated,
                });
            }
        }
        bar.finish_and_clear();
        Ok(cells)
    }

    fn line(&self, design: AnyDesign) -> String {
        let (records, operations) = self.sizes;
        format!("--design {design} --records {records} --operations {operations} --preset micro --domain adr")
    }
}

fn timed_by(line: &str) -> Outcome<Value> {
    let run = Timed::try_parse_from(line.split_whitespace());
    run.map_err(|error| Failure::usage(error.to_string()))?.bench.measure(&Output::new(true))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns a cell's throughput relative to the geometric mean of all designs, timed and simulated.
fn relative(cells: &[Cell], of: &Cell) -> (f64, f64) {
    let peers = || cells.iter().filter(|cell| cell.phase == of.phase && cell.threads == of.threads);
    let mean = |value: fn(&Cell) -> f64| {
        (peers().map(|cell| value(cell).ln()).sum::<f64>() / peers().count() as f64).exp()
    };
    (of.timed / mean(|cell| cell.timed), of.simulated / mean(|cell| cell.simulated))
}

fn show(output: &mut Output, cell: &Cell, (timed, simulated): (f64, f64), deviation: f64) -> Outcome {
    let Cell { phase, threads, design, .. } = cell;
    let value = json!({
        "phase": phase, "threads": threads, "design": design.to_string(),
        "timed_mops": cell.timed, "simulated_mops": cell.simulated,
        "timed_ratio": timed, "simulated_ratio": simulated, "deviation_percent": deviation,
    });
    output.either(
        &value,
        format_args!(
            "{phase:<12}{threads:>7} {:<12}{:>10.2}{:>11.2}{timed:>13.2}{simulated:>11.2}{deviation:>+10.0} %",
            design.to_string(),
            cell.timed,
            cell.simulated
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validation_compares_designs_within_a_phase_and_number_of_threads() {
        let cell = |phase: &str, threads, design: &str, timed, simulated| Cell {
            phase: phase.to_owned(),
            threads,
            design: design.parse().unwrap(),
            timed,
            simulated,
        };
        let cells = [
            cell("get", 1, "sstree", 1.0, 20.0),
            cell("get", 1, "nbtree", 4.0, 80.0),
            cell("get", 2, "sstree", 100.0, 100.0),
        ];
        for (of, expected) in [(0, 0.5), (1, 2.0), (2, 1.0)] {
            let (timed, simulated) = relative(&cells, &cells[of]);
            let is_near = |ratio: f64| (ratio - expected).abs() < 1e-9;
            assert!(is_near(timed) && is_near(simulated), "{timed} {simulated}");
        }
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
