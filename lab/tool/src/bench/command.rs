//! `bristlecone-lab bench`: measures throughput, latency and space, and compares them with other stores.

use std::path::PathBuf;
use std::time::Duration;

use bristlecone_cli::arguments::DomainArg;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::Output;
use bristlecone_cli::scratch::Scratch;
use bristlecone_cli::size;
use clap::{ArgAction, Args};
use serde_json::Value;

use crate::bench::comparison::{self, Plan, Results};
use crate::bench::competitor::Competitor;
use crate::bench::subject::Setup;
use crate::bench::together::{self, Kind};
use crate::bench::{csv, report, run, table};
use crate::workload::{OPERATIONS_HELP, Workload};

/// Measure the speed of a design, alone or compared with other designs, volatile maps and stores
///
/// Keys are loaded, then the phases of the preset or the mix run on pinned threads; the operations of a phase are
/// generated before its clock starts. A sample of the operations is timed individually. The store that begins changes
/// from round to round. At the end the pool is dropped as by a crash and reopened, timed. The pool is a new file, and
/// removed afterwards.
#[derive(Args, Clone, Debug)]
#[command(after_help = OPERATIONS_HELP)]
pub struct Bench {
    #[command(flatten)]
    workload: Workload,
    /// Threads, each pinned to a processor; a list runs each [default: one per processor]
    #[arg(long, short = 't', value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    #[command(flatten)]
    domain: DomainArg,
    /// Path of the pool (must not exist) [default: a file in /dev/shm]
    #[arg(long, alias = "pool_path", value_name = "PATH")]
    pool: Option<PathBuf>,
    /// Maximum size of pools and of competitors' files [default: derived from the phases]
    #[arg(long, alias = "pool_size", value_name = "SIZE", value_parser = size::parse)]
    max_bytes: Option<u64>,
    /// Allocate this much of each pool before the load, so that the load causes no page faults. Refused if a competitor
    /// is not stored in a pool.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    prefault: Option<u64>,
    /// Whether the pool and the index may use 2 MiB pages; the pages in use are printed.
    #[arg(long, value_name = "ON|OFF", default_value = "on", value_parser = switch, action = ArgAction::Set)]
    huge_pages: bool,
    /// Threads that recover after the crash [default: same as --threads]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    recovery_threads: Option<u16>,
    /// Run everything this many times, and report medians.
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Time one operation in N individually; 1 shows the far tail, and slows all operations down.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    timed_one_in: u32,
    /// The same as a fraction of 0 to 1, as in PiBench.
    #[arg(long = "latency_sampling", value_name = "SHARE", value_parser = share, conflicts_with = "timed_one_in")]
    latency_sampling: Option<f64>,
    /// Number of times that the preset bank kills a process that makes transfers.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    kills: u32,
    /// Number of keys of each batch of the preset batch, and of each call of get_many, insert_many, upsert_many and
    /// remove_many.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    group: u16,
    /// Delay every flushed line by this many nanoseconds, to model slower memory.
    #[arg(long, value_name = "NANOSECONDS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    delay: Option<u64>,
    /// Make the key of each read depend on the value of the read before it, so that no two reads of a thread overlap.
    #[arg(long)]
    dependent: bool,
    /// Also read the processor's counters: cycles, instructions, misses of the last cache and of the TLB for data.
    #[arg(long)]
    perf: bool,
    /// Run competitors through the same phases, alternately, and print ratios: designs; follower, which reads the tree
    /// under measurement like another process; the volatile maps ferntree, congee (u64 only), scc, skiplist and
    /// btreemap; with the feature rivals the map masstree and the stores redb and fjall; with rivals-c lmdb and
    /// rocksdb; and the path of a wrapper for PiBench. Baselines get the same --option.
    #[arg(long, alias = "input", value_name = "LIST", value_delimiter = ',')]
    against: Vec<Competitor>,
    /// Also report throughput over time, in slices of this many milliseconds; needs --json.
    #[arg(long, alias = "sampling_ms", value_name = "MS", requires = "json", value_parser = clap::value_parser!(u32).range(1..=600_000))]
    timeline: Option<u32>,
    /// Print comma-separated values: a row for each store and phase.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

impl Bench {
    /// Measures, and returns the output of `--json`. Of lists, only the first values are used.
    ///
    /// # Errors
    ///
    /// Also if a store lost or changed data.
    pub fn measure(&self, output: &Output) -> Outcome<Value> {
        let (plan, results) = self.results(output)?;
        all_there(&results)?;
        Ok(report::json(&plan, &results, &self.workload.json()))
    }

    pub fn run(&self, output: &mut Output) -> Outcome {
        self.prepare()?;
        let singles = self.singles();
        for (number, single) in singles.iter().enumerate() {
            if let Some(kind) = single.workload.together() {
                single.run_together(kind, output)?;
                continue;
            }
            let (plan, results) = single.results(output)?;
            if output.json() {
                output.value(&report::json(&plan, &results, &single.workload.json()))?;
            } else if self.csv {
                csv::write(output, &plan, &results, &single.workload, number == 0)?;
            } else {
                if number > 0 {
                    output.line("")?;
                }
                table::show(output, &plan, &results, &single.workload.title())?;
            }
            // A list may take long, so finished results are printed immediately.
            output.finish()?;
            all_there(&results)?;
        }
        Ok(())
    }

    /// Runs a preset with atomic changes of several keys.
    fn run_together(&self, kind: Kind, output: &mut Output) -> Outcome {
        let has_no_use = [
            ("--csv", self.csv),
            ("--timeline", self.timeline.is_some()),
            ("--delay", self.delay.is_some()),
            ("--prefault", self.prefault.is_some()),
            ("--perf", self.perf),
            ("--dependent", self.dependent),
        ];
        if let Some((name, _)) = has_no_use.iter().find(|(_, given)| *given) {
            return Err(Failure::usage(format!("{name} is not for the preset {}", kind.name())));
        }
        if kind == Kind::Snapshot && self.threads.first().is_some_and(|threads| *threads != 1) {
            return Err(Failure::usage("the preset snapshot is about one thread: --threads 1"));
        }
        self.workload.check_together()?;
        let plan = self.plan()?;
        let scratch = Scratch::new(self.pool.as_deref(), "bench", false);
        let stores = together::measure(kind, &plan, self.kills, scratch.path(), output)?;
        if output.json() {
            output.value(&together::json(kind, &plan, &stores))?;
        } else {
            together::show(kind, &stores, output)?;
        }
        output.finish()?;
        together::all_there(&stores)
    }

    /// Returns every combination of the lists' values.
    fn singles(&self) -> Vec<Self> {
        let threads = if self.threads.is_empty() {
            vec![Vec::new()]
        } else {
            self.threads.iter().map(|one| vec![*one]).collect()
        };
        let with =
            |workload: &Workload, threads| Self { workload: workload.clone(), threads, ..self.clone() };
        let workloads = self.workload.singles();
        workloads
            .iter()
            .flat_map(|workload| threads.iter().map(move |one| with(workload, one.clone())))
            .collect()
    }

    /// Checks that the requested configuration is possible.
    fn prepare(&self) -> Outcome {
        if let Some(other) =
            self.against.iter().find(|other| !matches!(other, Competitor::Tree(_) | Competitor::Follower))
            && self.prefault.is_some()
        {
            let name = other.name();
            return Err(Failure::usage(format!(
                "--prefault is for all or for none, and the memory of {name} cannot be had before: leave out one of them"
            )));
        }
        if !self.huge_pages {
            rustix::thread::disable_transparent_huge_pages(true)
                .map_err(|error| Failure::io("turning huge pages off", &error.into()))?;
        }
        Ok(())
    }

    fn results(&self, output: &Output) -> Outcome<(Plan, Results)> {
        let plan = self.plan()?;
        let scratch = Scratch::new(self.pool.as_deref(), "bench", false);
        let results = comparison::run(&plan, &scratch, output)?;
        Ok((plan, results))
    }

    fn plan(&self) -> Outcome<Plan> {
        let threads = self
            .threads
            .first()
            .map_or_else(|| run::processors().len().max(1), |threads| usize::from(*threads));
        let workload = &self.workload;
        let phases = workload.phases()?;
        let setup = Setup {
            design: workload.design(),
            options: workload.options.clone(),
            domain: self.domain.domain,
            delay: self.delay.map(Duration::from_nanos),
            max_bytes: self.max_bytes.unwrap_or(workload.max_bytes(&phases)) + self.prefault.unwrap_or(0),
            prefault: self.prefault,
            recovery_threads: self.recovery_threads.map_or(threads, usize::from),
        };
        let sampled = self.latency_sampling.map(|share| (1.0 / share).round() as usize);
        Ok(Plan {
            setup,
            order: workload.order(&phases)?,
            phases,
            threads,
            rounds: usize::from(self.rounds),
            seed: workload.seed,
            key: workload.key(),
            value: workload.value(),
            against: self.against.clone(),
            batch: sampled.unwrap_or(self.timed_one_in as usize),
            timeline: self.timeline.map(|slice| Duration::from_millis(slice.into())),
            group: usize::from(self.group),
            dependent: self.dependent,
            perf: self.perf,
        })
    }
}

/// Fails if a store lost or changed data.
fn all_there(results: &Results) -> Outcome {
    match results.lost.as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::new(Exit::Failed, one.clone())),
        [first, more @ ..] => Err(Failure::new(Exit::Failed, format!("{first}; and {} more", more.len()))),
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{text:?} is neither on nor off")),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (1e-6..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("{text:?} is no share between 0.000001 and 1")),
    }
}
