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
use crate::scale::command::Scale;

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
    Scale(Box<Scale>),
}

impl Run {
    /// Reads a command line.
    pub fn of(line: &str) -> Result<Self, String> {
        let run = Self {
            arguments: line.split_whitespace().map(str::to_owned).collect(),
            keys: 0,
            operations: 0,
            bytes: 0,
        };
        let number = |name: &str| run.value(name).map(str::parse).transpose();
        let read = || -> Result<_, std::num::ParseIntError> {
            let keys = number("--records")?.unwrap_or(0);
            let operations = match (run.value("--preset"), number("--writes")?) {
                (Some("load"), _) => 0,
                (_, Some(writes)) => writes,
                _ => number("--operations")?.unwrap_or(keys),
            };
            let bytes = match run.command() {
                // About a record's share of the server.
                "redis" => 64,
                _ => ["--key", "--value"].iter().filter_map(|name| bytes_of(run.value(name)?)).sum(),
            };
            Ok((keys, operations, bytes))
        };
        let (keys, operations, bytes) = read().map_err(|error| format!("{line:?}: {error}"))?;
        Ok(Self { keys, operations, bytes, ..run })
    }

    fn command(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }

    /// Returns the value of an argument.
    fn value(&self, name: &str) -> Option<&str> {
        let at = self.arguments.iter().position(|argument| argument == name)?;
        self.arguments.get(at + 1).map(String::as_str)
    }

    /// Returns the design, if the run has one.
    pub fn design(&self) -> &str {
        self.value("--design").unwrap_or("device")
    }

    /// Returns whether the design exists here.
    pub fn is_possible(&self) -> bool {
        match self.command() {
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
        let is_one = self.value("--preset").or(self.value("--mix")).is_some();
        let phases = if is_one { 1 } else { 6 };
        let once = 1000 + self.keys + self.operations * phases;
        match self.command() {
            // About as many times slower than a count.
            "scale" => 10 * once * self.value("--threads").map_or(8, |list| list.split(',').count() as u64),
            _ => once,
        }
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
            Measuring::Scale(scale) => scale.measure(&quiet),
        }
    }
}

/// Returns the mean number of bytes of an item out of line: `bytes:8-128` or `bytes:64`.
fn bytes_of(kind: &str) -> Option<u64> {
    let sizes = kind.strip_prefix("bytes:")?;
    let (least, most) = sizes.split_once('-').unwrap_or((sizes, sizes));
    Some(least.parse::<u64>().ok()?.midpoint(most.parse().ok()?))
}
