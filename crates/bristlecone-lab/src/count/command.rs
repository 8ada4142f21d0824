//! `bristlecone-lab count`: what a design costs a device, counted by a model of it.

use bristlecone::{Design, Domain};
use bristlecone_baselines::AnyDesign;
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::{Output, grouped};
use bristlecone_cli::size;
use bristlecone_device::{Processor, Profile};
use clap::Args;
use serde_json::Value;

use super::report;
use super::run::{self, Plan};
use crate::workload::{OPERATIONS_HELP, Workload};

/// Count what a design costs a persistent-memory device, on a model of the device
///
/// Keys are loaded, then the phases of the preset or the mix run on a model of the device: a
/// processor cache, write-combining buffers and media that write more than a line. Flushes,
/// fences, lines and bytes are counted for each kind of operation and for leaves, logs and the
/// rest; a virtual clock says how fast so many threads would be, and how long each operation would
/// take, as far as the device goes. Nothing is timed: the same seed gives the same figures on every
/// machine. A thread of a design's own would be on no clock: CCL-BTree's collection is counted with
/// the writes that call for it (collector_threads=0), and figures of another value vary from run to
/// run. The pool is in memory only. docs/lab/DEVICE.md has the model and its parameters.
#[derive(Args, Debug)]
#[command(after_help = OPERATIONS_HELP)]
pub struct Count {
    #[command(flatten)]
    workload: Workload,
    /// The device: optane, cxl-ssd or nvdimm.
    #[arg(long, value_name = "PROFILE", default_value = "optane")]
    profile: Profile,
    /// What survives a power failure: adr (what was flushed) or eadr (the processor's caches, too).
    #[arg(long, value_name = "DOMAIN", default_value = "adr", value_parser = domain)]
    domain: Domain,
    /// Numbers of threads for which the virtual clock gives times.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,2,4,8,16,32,48",
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    threads: Vec<u16>,
    /// Number of threads to which operations are dealt in turn, one at a time: a design may keep a log and free
    /// slots for each.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    writers: u16,
    /// Also report in so many slices, one after the other, what is counted after the load, or of the load
    /// where there is nothing else; needs --json. What is dirty is written at the end of each.
    #[arg(long, value_name = "N", requires = "json", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    slices: Option<u16>,
    /// Size of the processor's cache.
    #[arg(long, value_name = "SIZE", default_value = "36M", value_parser = size::parse)]
    cache: u64,
}

/// Reads a domain of memory.
fn domain(text: &str) -> Result<Domain, String> {
    match text.parse() {
        Ok(domain @ (Domain::Adr | Domain::Eadr)) => Ok(domain),
        _ => Err(format!("{text:?} is not a domain of persistent memory: adr or eadr")),
    }
}

/// Returns the options of a workload, with background threads turned off unless they were given.
fn on_the_clock(workload: &Workload) -> Vec<(String, u64)> {
    const COLLECTORS: &str = "collector_threads";
    let mut options = workload.options.clone();
    let given = options.iter().any(|(name, _)| name == COLLECTORS);
    if workload.design == AnyDesign::Library(Design::CclBTree) && !given {
        options.push((COLLECTORS.to_owned(), 0));
    }
    options
}

impl Count {
    /// Counts, and returns what `--json` prints.
    pub fn measure(&self, output: &Output) -> Outcome<Value> {
        let plan = self.plan()?;
        let counts = run::run(&plan, output)?;
        Ok(report::json(&plan, &counts, &self.workload.json()))
    }

    fn plan(&self) -> Outcome<Plan> {
        let phases = self.workload.phases()?;
        let workload = &self.workload;
        Ok(Plan {
            design: workload.design,
            options: on_the_clock(workload),
            profile: self.profile,
            processor: Processor { cache_bytes: self.cache as usize, ..Processor::default() },
            domain: self.domain,
            threads: self.threads.iter().copied().map(usize::from).collect(),
            writers: self.writers.into(),
            slices: self.slices.unwrap_or(1).into(),
            max_bytes: workload.max_bytes(&phases),
            phases,
            seed: workload.seed,
            order: workload.order(),
            key: workload.key,
            value: workload.value,
        })
    }

    pub fn run(&self, output: &mut Output) -> Outcome {
        if output.json() {
            let value = self.measure(output)?;
            return output.value(&value);
        }
        let (plan, workload) = (self.plan()?, &self.workload);
        let counts = run::run(&plan, output)?;
        let distribution =
            workload.distribution.map_or_else(String::new, |distribution| format!(", {distribution}"));
        let workload = format!("{} records{distribution}", grouped(workload.records));
        report::show(output, &plan, &counts, &workload)
    }
}
