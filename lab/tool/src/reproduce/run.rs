//! A command line that measures something, and its report.

use bristlecone_baselines::AnyDesign;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::Output;
use clap::{Parser, Subcommand};
use serde_json::Value;

use crate::bench::command::Bench;
use crate::count::command::Count;
use crate::probe::Probe;
use crate::redis::{self, Redis};

/// The arguments of `bristlecone-lab` for a measurement; its report is that of `--json`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    arguments: Vec<String>,
    keys: u64,
    operations: u64,
    /// Bytes of an item out of line.
    bytes: u64,
}

/// Arguments that a run accepts.
#[derive(Parser)]
#[command(name = "bristlecone-lab", no_binary_name = true)]
struct Line {
    /// Reports are JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Measuring,
}

#[derive(Subcommand)]
enum Measuring {
    Count(Count),
    Bench(Bench),
    Probe(Probe),
    Redis(Redis),
}

impl Run {
    fn new(command: &str, design: &str) -> Self {
        let arguments = vec![command.to_owned(), "--design".to_owned(), design.to_owned()];
        Self { arguments, keys: 0, operations: 0, bytes: 0 }
    }

    /// Counts on the device model.
    pub fn count(design: &str, keys: u64) -> Self {
        Self::new("count", design).keys(keys)
    }

    /// Times on this machine, with flushes for a power failure.
    pub fn bench(design: &str, keys: u64) -> Self {
        Self::timed_in(design, keys, "adr")
    }

    /// Times on this machine in a domain.
    pub fn timed_in(design: &str, keys: u64, domain: &str) -> Self {
        Self::new("bench", design).keys(keys).and("--domain", domain)
    }

    /// Writes lines of the device without a design, as the arguments say.
    pub fn probe(lines: u64, media_lines: u64, threads: u64, writes: u64) -> Self {
        let run = Self { arguments: vec!["probe".to_owned()], keys: 0, operations: writes, bytes: 0 };
        run.and("--lines", lines)
            .and("--media-lines", media_lines)
            .and("--threads", threads)
            .and("--writes", writes)
    }

    /// Times a Redis server on this machine whose maps are of a design, or its hashes: one workload
    /// of YCSB.
    pub fn redis(design: &str, keys: u64, workload: &str) -> Self {
        Self::new("redis", design).keys(keys).and("--workload", workload)
    }

    fn keys(mut self, keys: u64) -> Self {
        self.keys = keys;
        self.operations = keys;
        self.and("--records", keys)
    }

    /// Adds an argument and its value.
    pub fn and(mut self, name: &str, value: impl ToString) -> Self {
        self.arguments.extend([name.to_owned(), value.to_string()]);
        self
    }

    /// Sets an option of the design.
    pub fn option(self, name: &str, value: u64) -> Self {
        self.and("--option", format!("{name}={value}"))
    }

    /// Executes this many operations after the load.
    pub fn operations(mut self, operations: u64) -> Self {
        self.operations = operations;
        self.and("--operations", operations)
    }

    /// Sets the number of bytes of items out of line.
    pub fn with_bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Executes one operation, or a mix, after the load.
    pub fn mix(self, mix: &str) -> Self {
        self.and("--mix", mix)
    }

    /// Makes this a run that only loads.
    pub fn load(mut self) -> Self {
        self.operations = 0;
        self.and("--preset", "load")
    }

    /// Returns the design, if the run has one.
    pub fn design(&self) -> &str {
        let at = self.arguments.iter().position(|argument| argument == "--design");
        at.map_or("device", |at| &self.arguments[at + 1])
    }

    /// Returns whether the design exists here.
    pub fn is_possible(&self) -> bool {
        match self.arguments[0].as_str() {
            "probe" => true,
            "redis" => redis::has(self.design()),
            _ => self.design().parse::<AnyDesign>().is_ok(),
        }
    }

    /// Returns the arguments as typed.
    pub fn line(&self) -> String {
        self.arguments.join(" ")
    }

    /// Returns its approximate duration relative to other runs.
    pub fn weight(&self) -> u64 {
        let phases = if self.arguments.iter().any(|argument| argument == "--preset" || argument == "--mix") {
            1
        } else {
            6
        };
        1000 + self.keys + self.operations * phases
    }

    /// Returns its approximate memory consumption in bytes: keys in the pool and in DRAM, and the
    /// generated operations.
    pub fn bytes(&self) -> u64 {
        const EACH: u64 = 160;
        (64 << 20) + (self.keys + self.operations) * (EACH + 2 * self.bytes)
    }

    fn read(&self) -> Result<Line, clap::Error> {
        Line::try_parse_from(self.arguments.iter().map(String::as_str).chain(["--json"]))
    }

    /// Returns the error if the arguments cannot be parsed.
    #[cfg(test)]
    pub fn refusal(&self) -> Option<String> {
        self.read().err().map(|error| error.to_string())
    }

    /// Measures.
    pub fn measure(&self) -> Outcome<Value> {
        let line = self.read().map_err(|error| {
            Failure::new(Exit::Usage, bristlecone_cli::answer::one_line(&error.to_string()))
        });
        let Line { json, command } = line?;
        // Its own bar would appear beside that of all figures.
        let quiet = Output::new(json);
        match command {
            Measuring::Count(count) => count.measure(&quiet),
            Measuring::Bench(bench) => bench.measure(&quiet),
            Measuring::Probe(probe) => probe.measure(),
            Measuring::Redis(redis) => redis.measure(),
        }
    }
}

/// Returns the number of this machine's processors.
pub fn threads_here() -> u64 {
    crate::bench::run::processors().len().max(1) as u64
}
