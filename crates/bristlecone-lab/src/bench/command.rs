//! `bristlecone-lab bench`: how fast, in which space, and beside what.

use std::path::PathBuf;
use std::time::Duration;

use bristlecone_cli::arguments::DomainArg;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::output::{Output, grouped};
use bristlecone_cli::scratch::Scratch;
use bristlecone_cli::size;
use clap::{ArgAction, Args};

use crate::bench::comparison::{self, Plan};
use crate::bench::competitor::Competitor;
use crate::bench::subject::Setup;
use crate::bench::workload::Phase;
use crate::bench::{report, run};
use crate::workload::{OPERATIONS_HELP, Workload};

/// Measure how fast a design is, alone or beside other designs and volatile maps
///
/// Keys are loaded, then the phases of the preset or the mix run on pinned threads; the operations
/// of a phase are drawn before its clock starts. Some operations are timed by themselves. At the end
/// the pool is dropped as a crash would drop it and opened again, timed. The pool is a new file,
/// and removed afterwards.
#[derive(Args, Debug)]
#[command(after_help = OPERATIONS_HELP)]
pub struct Bench {
    #[command(flatten)]
    workload: Workload,
    /// Threads, each pinned to a processor [default: one per processor]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    #[command(flatten)]
    domain: DomainArg,
    /// Where the pool is created; there must be nothing yet [default: a file in /dev/shm]
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,
    /// Allocate this much of the pool before the load, so that the load takes no page faults.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    prefault: Option<u64>,
    /// Whether the pool and the index may use 2 MiB pages; what is in force is printed.
    #[arg(long, value_name = "ON|OFF", default_value = "on", value_parser = switch, action = ArgAction::Set)]
    huge_pages: bool,
    /// Threads that recover after the crash [default: as --threads]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    recovery_threads: Option<u16>,
    /// Run everything this many times, and report medians.
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Time one operation in N by itself; 1 shows the far tail, and slows all operations down.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    timed_one_in: u32,
    /// Keys of each call of get_many, insert_many, upsert_many and remove_many.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    group: u16,
    /// Make every flushed line take this much longer, as slower memory would.
    #[arg(long, value_name = "NANOSECONDS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    delay: Option<u64>,
    /// Run competitors through the same phases, in turns, and print ratios: the volatile maps ferntree,
    /// congee (u64 only), scc and skiplist, and designs. Baselines get the same --option.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    against: Vec<Competitor>,
    /// Also report throughput over time, in slices of this many milliseconds; needs --json.
    #[arg(long, value_name = "MS", requires = "json", value_parser = clap::value_parser!(u32).range(1..=600_000))]
    timeline: Option<u32>,
}

impl Bench {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let plan = self.plan(self.workload.phases()?);
        if !self.huge_pages {
            rustix::thread::disable_transparent_huge_pages(true)
                .map_err(|error| Failure::io("turning huge pages off", &error.into()))?;
        }
        let scratch = Scratch::new(self.pool.as_deref(), "bench", false);
        let results = comparison::run(&plan, &scratch, output)?;
        if output.json() {
            return output.value(&report::json(&plan, &results, &self.workload.json()));
        }
        let distribution =
            self.workload.distribution.map_or_else(String::new, |distribution| format!(", {distribution}"));
        let workload = format!("{} records{distribution}", grouped(self.workload.records));
        report::show(output, &plan, &results, &workload)
    }

    fn plan(&self, phases: Vec<Phase>) -> Plan {
        let threads = self.threads.map_or_else(|| run::processors().len().max(1), usize::from);
        let workload = &self.workload;
        let setup = Setup {
            design: workload.design,
            options: workload.options.clone(),
            domain: self.domain.domain,
            delay: self.delay.map(Duration::from_nanos),
            max_bytes: workload.max_bytes(&phases) + self.prefault.unwrap_or(0),
            prefault: self.prefault,
            recovery_threads: self.recovery_threads.map_or(threads, usize::from),
        };
        Plan {
            setup,
            phases,
            threads,
            rounds: usize::from(self.rounds),
            seed: workload.seed,
            order: workload.order(),
            key: workload.key,
            value: workload.value,
            against: self.against.clone(),
            batch: self.timed_one_in as usize,
            group: usize::from(self.group),
            timeline: self.timeline.map(|slice| Duration::from_millis(slice.into())),
        }
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{text:?} is neither on nor off")),
    }
}
