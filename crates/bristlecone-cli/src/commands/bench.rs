//! `bristlecone bench`: how fast, in which space, and beside what.

use std::path::PathBuf;

use bristlecone::Design;
use clap::Args;
use serde_json::json;

use crate::args::{DomainArg, option};
use crate::bench::contest::{self, Plan};
use crate::bench::data::Shape;
use crate::bench::peers::Peer;
use crate::bench::subject::Setup;
use crate::bench::workload::{self, Distribution, Mix, Op, Preset};
use crate::bench::{report, run};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, grouped};
use crate::scratch::Scratch;
use crate::size;

/// Measure a design, alone or against volatile maps
///
/// Keys are loaded, then the phases of the preset or the mix run on pinned threads; the operations
/// of a phase are drawn before its clock starts. One operation in 64 is timed by itself. At the end
/// the pool is dropped as a crash would drop it and opened again, timed. The pool is a new file,
/// and removed afterwards.
#[derive(Args, Debug)]
#[command(after_help = "\
Operations of --mix: insert and insert_new add keys, get, update, upsert, scan (of 100) and
read_modify_write use keys that are there, remove takes whatever key the distribution gives.
The scan phase of micro has a tenth of the operations.")]
pub struct Bench {
    /// Design: sstree, nbtree, cclbtree, lodgetree or wotree.
    #[arg(long, default_value = "sstree")]
    design: Design,
    /// Parameter of the design; may be given several times.
    #[arg(long = "option", value_name = "NAME=NUMBER", value_parser = option)]
    options: Vec<(String, u64)>,
    /// Keys that are loaded, such as 10M.
    #[arg(long, value_name = "N", default_value = "1M", value_parser = size::parse_count)]
    records: u64,
    /// Operations of each phase after the load [default: as many as records]
    #[arg(long, value_name = "M", value_parser = size::parse_count)]
    operations: Option<u64>,
    /// Threads, each pinned to a processor [default: one per processor]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// One phase of these operations in these proportions, such as get=90,insert=10.
    #[arg(long, value_name = "OP=SHARE,...", conflicts_with = "preset")]
    mix: Option<Mix>,
    /// A known sequence of phases.
    #[arg(long, value_enum, default_value = "micro")]
    preset: Preset,
    /// Which keys are asked for: uniform, sequential, zipf:THETA, selfsimilar:SKEW,
    /// hotspot:KEYS:OPS or latest:THETA [default: uniform, or what the preset says]
    #[arg(long, value_name = "KIND")]
    distribution: Option<Distribution>,
    /// What keys are: u64 or bytes:MIN-MAX.
    #[arg(long, value_name = "SHAPE", default_value = "u64", value_parser = Shape::of_keys)]
    key: Shape,
    /// What values are: u64 or bytes:MIN-MAX.
    #[arg(long, value_name = "SHAPE", default_value = "u64", value_parser = Shape::of_values)]
    value: Shape,
    #[command(flatten)]
    domain: DomainArg,
    /// Where the pool is created; there must be nothing yet [default: a file in /dev/shm]
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,
    /// Make room for so much before the load, so that it takes no page faults.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    prefault: Option<u64>,
    /// Threads that recover after the crash [default: as --threads]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    recovery_threads: Option<u16>,
    /// What the keys and operations are drawn from: the same seed, the same operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Repeat everything so often and report medians.
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Run these volatile maps through the same phases, in turns, and print ratios.
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',')]
    against: Vec<Peer>,
}

impl Bench {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let operations = self.operations.unwrap_or(self.records);
        if self.records == 0 || operations == 0 {
            return Err(Failure::usage("--records and --operations must be 1 or more"));
        }
        let plan = self.plan(operations);
        let scratch = Scratch::new(self.pool.as_deref(), "bench", false);
        let results = contest::run(&plan, &scratch, output)?;
        if output.json() {
            let preset =
                clap::ValueEnum::to_possible_value(&self.preset).map(|value| value.get_name().to_owned());
            let workload = json!({
                "records": self.records,
                "operations": operations,
                "preset": preset.filter(|_| self.mix.is_none()),
                "mix": self.mix.as_ref().map(Mix::to_string),
                "distribution": self.distribution.map(|distribution| distribution.to_string()),
            });
            return output.value(&report::json(&plan, &results, &workload));
        }
        let distribution =
            self.distribution.map_or_else(String::new, |distribution| format!(", {distribution}"));
        report::show(output, &plan, &results, &format!("{} records{distribution}", grouped(self.records)))
    }

    fn plan(&self, operations: u64) -> Plan {
        let phases =
            workload::phases(self.preset, self.mix.as_ref(), self.distribution, self.records, operations);
        let threads = self.threads.map_or_else(|| run::processors().len().max(1), usize::from);
        let added: u64 = phases
            .iter()
            .filter(|phase| phase.mix.has(Op::Insert) || phase.mix.has(Op::InsertNew))
            .map(|phase| phase.operations)
            .sum();
        // The file grows as it is filled; the maximum only has to be large enough.
        let bytes_each = 64 + 4 * (self.key.mean_bytes() + self.value.mean_bytes());
        let setup = Setup {
            design: self.design,
            options: self.options.clone(),
            domain: self.domain.domain,
            max_bytes: (1 << 30) + added * bytes_each + self.prefault.unwrap_or(0),
            prefault: self.prefault,
            recovery_threads: self.recovery_threads.map_or(threads, usize::from),
        };
        Plan {
            setup,
            phases,
            threads,
            rounds: usize::from(self.rounds),
            seed: self.seed,
            sequential: self.distribution == Some(Distribution::Sequential),
            key: self.key,
            value: self.value,
            against: self.against.clone(),
        }
    }
}
