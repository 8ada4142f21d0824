//! `bristlecone-lab scale`: runs a design on simulated cores.

use bristlecone::Domain;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::output::Output;
use bristlecone_cli::size;
use bristlecone_device::cores::{Machine, THREADS_MAX};
use clap::{Args, Parser};
use serde_json::Value;

use super::conflicts::{self, By, Counted};
use super::run::{self, Plan};
use super::validate::Validation;
use super::{machine, report, table};
use crate::count::command::{domain, on_the_clock};
use crate::workload::{OPERATIONS_HELP, Workload};

/// Run a design on simulated cores, as many as a machine has
///
/// The code of the design runs on simulated threads, in virtual time: of all threads the one with the least time takes
/// the next step. Steps are accesses to shared DRAM and to the medium; each costs what caches, their coherence, store
/// buffers, locked instructions and the device take on the machine. Waiting takes virtual time, so contention appears.
/// Keys are loaded by all threads, then the phases of the preset or the mix run. Nothing is timed: the same seed gives
/// the same figures on every machine. Needs a build with --features turns. lab/docs/SCALE.md describes the model, its
/// parameters and their sources.
#[derive(Args, Clone, Debug)]
#[command(after_help = OPERATIONS_HELP)]
pub struct Scale {
    #[command(flatten)]
    workload: Workload,
    /// The machine: icelake2s-optane, sapphire2s-cxl, zen4-dram, or a file in TOML as described in lab/docs/SCALE.md.
    #[arg(long, value_name = "MACHINE", default_value = "icelake2s-optane", value_parser = machine::named)]
    profile: Machine,
    /// A parameter of the machine or its device, as listed in lab/docs/SCALE.md; repeatable.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Durability domain: adr (flushed lines survive), eadr (the processor's caches survive, too) or process (no flush).
    #[arg(long, value_name = "DOMAIN", default_value = "adr", value_parser = any_domain)]
    domain: Domain,
    /// Numbers of threads; each is a separate run.
    #[arg(
        long,
        short = 't',
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,2,4,8,16,24,48,96",
        value_parser = threads
    )]
    threads: Vec<usize>,
    /// Load the keys before the simulation begins: the load takes no virtual time, and caches are cold after it. So a
    /// tree of millions of keys takes seconds.
    #[arg(long, conflicts_with_all = ["validate", "traces"])]
    preload: bool,
    /// Shrink the second and last-level caches in the ratio of --records to KEYS, so that as much of the tree fits as of
    /// one of KEYS keys. None becomes smaller than the cache before it.
    #[arg(long, value_name = "KEYS", value_parser = size::parse_count, conflicts_with = "validate")]
    caches_for: Option<u64>,
    /// Keep a snapshot from the load on: writes take the locks of their keys, and save old values.
    #[arg(long)]
    snapshot: bool,
    /// Compare the model with this machine: run the preset micro of each design timed, as bench does, and simulated, and
    /// compare the designs' throughput relative to each other, and conflicting accesses of threads. For the machine zen4-dram, and for at most as many
    /// threads as there are processors.
    #[arg(long, conflicts_with_all = ["hot", "snapshot"])]
    validate: bool,
    /// Number of timed rounds of --validate; medians are compared.
    #[arg(long, value_name = "R", default_value_t = 3, requires = "validate", value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// List N of the lines that moved between cores most often.
    #[arg(long, value_name = "N", default_value_t = 0)]
    hot: usize,
    /// List the functions that access these lines.
    #[arg(long, requires = "hot")]
    callers: bool,
}

fn any_domain(text: &str) -> Result<Domain, String> {
    match text.parse() {
        Ok(Domain::Process) => Ok(Domain::Process),
        _ => domain(text).map_err(|error| format!("{error}, or process")),
    }
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=THREADS_MAX).contains(&threads) => Ok(threads),
        _ => Err(format!("the directory of the model holds 1 to {THREADS_MAX} threads")),
    }
}

/// Arguments of a simulated run.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Simulated {
    #[command(flatten)]
    scale: Scale,
}

fn simulated_by(line: &str) -> Outcome<Value> {
    let run = Simulated::try_parse_from(line.split_whitespace());
    run.map_err(|error| Failure::usage(error.to_string()))?.scale.measure(&Output::new(true))
}

fn conflicts_by(line: &str, threads: usize, by: By) -> Outcome<Counted> {
    let run = Simulated::try_parse_from(line.split_whitespace());
    let scale = run.map_err(|error| Failure::usage(error.to_string()))?.scale;
    conflicts::count(&scale.plan()?, threads, by)
}

impl Scale {
    /// Simulates, and returns the output of `--json`. Of lists, only the first values are used.
    pub fn measure(&self, output: &Output) -> Outcome<Value> {
        let plan = self.plan()?;
        let measured = run::run(&plan, output)?;
        Ok(report::json(&plan, &measured, &self.workload.json()))
    }

    fn plan(&self) -> Outcome<Plan> {
        let workload = &self.workload;
        if workload.together().is_some() {
            return Err(Failure::usage("the presets bank, batch and snapshot are for bench"));
        }
        let mut phases = workload.phases()?;
        let (max_bytes, order) = (workload.max_bytes(&phases), workload.order(&phases)?);
        let preload = self.preload.then(|| phases.remove(0));
        if phases.is_empty() {
            return Err(Failure::usage("--preload leaves nothing to simulate: the preset is a load"));
        }
        Ok(Plan {
            design: workload.design(),
            options: on_the_clock(workload)?,
            machine: self.machine()?,
            domain: self.domain,
            threads: self.threads.clone(),
            max_bytes,
            order,
            preload,
            phases,
            seed: workload.seed,
            key: workload.key(),
            value: workload.value(),
            snapshot: self.snapshot,
            hot: self.hot,
            callers: self.callers,
        })
    }

    fn machine(&self) -> Outcome<Machine> {
        let machine = machine::with(self.profile, &self.set).map_err(Failure::usage)?;
        let records = self.workload.records();
        match self.caches_for {
            Some(keys) if keys < records => Err(Failure::usage(format!(
                "--caches-for {keys}: at least as many keys as are loaded, which are {records}"
            ))),
            Some(keys) => Ok(machine.with_smaller_caches(records as f64 / keys as f64)),
            None => Ok(machine),
        }
    }

    pub fn run(&self, output: &mut Output) -> Outcome {
        if self.validate {
            let comparison = Validation {
                designs: self.workload.designs(),
                sizes: (self.workload.records(), self.workload.operations()),
                machine: self.profile.name,
                threads: &self.threads,
                rounds: self.rounds.into(),
                simulate: simulated_by,
                count: conflicts_by,
            };
            return comparison.run(output);
        }
        for (number, workload) in self.workload.singles().into_iter().enumerate() {
            let single = Self { workload, ..self.clone() };
            let plan = single.plan()?;
            let measured = run::run(&plan, output)?;
            if output.json() {
                output.value(&report::json(&plan, &measured, &single.workload.json()))?;
            } else {
                if number > 0 {
                    output.line("")?;
                }
                table::show(output, &plan, &measured, &single.workload.title())?;
            }
            // A list may take long, so finished results are printed immediately.
            output.finish()?;
        }
        Ok(())
    }
}
