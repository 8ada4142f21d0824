//! `bristlecone-lab count`: counts the cost of a design on a model of a device.

use bristlecone::{Design, Domain};
use bristlecone_baselines::AnyDesign;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::output::Output;
use bristlecone_cli::size;
use bristlecone_device::{Processor, Profile};
use clap::Args;
use serde_json::Value;

use super::run::{self, Plan};
use super::{csv, profile, report, table};
use crate::workload::{OPERATIONS_HELP, Workload};

/// Count the cost of a design on a model of a persistent-memory device
///
/// Keys are loaded, then the phases of the preset or the mix run on a model of the device: a processor cache,
/// write-combining buffers and media that write more than a line. Flushes, fences, lines and bytes are counted for each
/// kind of operation and for leaves, logs and the rest. A virtual clock estimates the throughput of several threads and
/// the latency of each operation, as limited by the device. Nothing is timed: the same seed gives the same figures on
/// every machine. Background threads of a design are on no clock, and are refused: CCL-BTree's collection is counted
/// with the writes that trigger it (collector_threads=0). The pool is in memory only. lab/docs/DEVICE.md describes the
/// model and its parameters.
#[derive(Args, Clone, Debug)]
#[command(after_help = OPERATIONS_HELP)]
pub struct Count {
    #[command(flatten)]
    workload: Workload,
    /// The device: optane, cxl-ssd, nvdimm, or a file in TOML as described in lab/docs/DEVICE.md.
    #[arg(long, value_name = "PROFILE", default_value = "optane", value_parser = profile::named)]
    profile: Profile,
    /// A parameter of the device, as listed in lab/docs/DEVICE.md; repeatable.
    #[arg(long = "model", value_name = "NAME=VALUE")]
    model: Vec<String>,
    /// Durability domain: adr (flushed lines survive) or eadr (the processor's caches survive, too).
    #[arg(long, value_name = "DOMAIN", default_value = "adr", value_parser = domain)]
    domain: Domain,
    /// Numbers of threads for which the virtual clock gives times. Each is a separate run, with that many writers;
    /// counts are those of the first.
    #[arg(
        long,
        short = 't',
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1",
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    threads: Vec<u16>,
    /// Number of threads to which operations are assigned in turn, one at a time, for all of --threads in one run: a
    /// design may keep a log and free slots for each [default: same as --threads]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    writers: Option<u16>,
    /// Size of the processor's cache.
    #[arg(long, value_name = "SIZE", default_value = "36M", value_parser = size::parse)]
    cache: u64,
    /// Also report the counts after the load (or of the load, if there is nothing else) in N consecutive slices; needs
    /// --json. Dirty lines are written at the end of each.
    #[arg(long, value_name = "N", requires = "json", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    slices: Option<u16>,
    /// Print comma-separated values: a row for each phase and operation.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// Parses a domain of memory.
pub fn domain(text: &str) -> Result<Domain, String> {
    match text.parse() {
        Ok(domain @ (Domain::Adr | Domain::Eadr)) => Ok(domain),
        _ => Err(format!("{text:?} is not a domain of persistent memory: adr or eadr")),
    }
}

/// Returns the options of a workload, with background threads turned off.
///
/// # Errors
///
/// If they are requested: these threads are on no clock.
pub fn on_the_clock(workload: &Workload) -> Outcome<Vec<(String, u64)>> {
    const COLLECTORS: &str = "collector_threads";
    let mut options = workload.options.clone();
    if workload.design() == AnyDesign::Library(Design::CclBTree) {
        match options.iter().find(|(name, _)| name == COLLECTORS) {
            None => options.push((COLLECTORS.to_owned(), 0)),
            Some((_, 0)) => {}
            Some((name, value)) => {
                return Err(Failure::usage(format!(
                    "{name}={value}: a thread of its own is on no clock; only 0 can be counted"
                )));
            }
        }
    }
    Ok(options)
}

impl Count {
    /// Counts, and returns the output of `--json`. Of lists, only the first values are used.
    pub fn measure(&self, output: &Output) -> Outcome<Value> {
        let plan = self.plan()?;
        let counts = run::run(&plan, output)?;
        Ok(report::json(&plan, &counts, &self.workload.json()))
    }

    fn plan(&self) -> Outcome<Plan> {
        let workload = &self.workload;
        if workload.together().is_some() {
            return Err(Failure::usage("the presets bank, batch and snapshot are for bench"));
        }
        let phases = workload.phases()?;
        Ok(Plan {
            design: workload.design(),
            options: on_the_clock(workload)?,
            profile: profile::with(self.profile, &self.model).map_err(Failure::usage)?,
            processor: Processor { cache_bytes: self.cache as usize, ..Processor::default() },
            domain: self.domain,
            threads: self.threads.iter().copied().map(usize::from).collect(),
            writers: self.writers.map(usize::from),
            slices: self.slices.unwrap_or(1).into(),
            max_bytes: workload.max_bytes(&phases),
            order: workload.order(&phases)?,
            phases,
            seed: workload.seed,
            key: workload.key(),
            value: workload.value(),
        })
    }

    pub fn run(&self, output: &mut Output) -> Outcome {
        for (number, workload) in self.workload.singles().into_iter().enumerate() {
            let single = Self { workload, ..self.clone() };
            let plan = single.plan()?;
            let counts = run::run(&plan, output)?;
            if output.json() {
                output.value(&report::json(&plan, &counts, &single.workload.json()))?;
            } else if self.csv {
                csv::write(output, &plan, &counts, &single.workload, number == 0)?;
            } else {
                if number > 0 {
                    output.line("")?;
                }
                table::show(output, &plan, &counts, &single.workload.title())?;
            }
            // A list may take long, so finished results are printed immediately.
            output.finish()?;
        }
        Ok(())
    }
}
