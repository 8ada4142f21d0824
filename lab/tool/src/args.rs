//! The command line.

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;
use clap::{Parser, Subcommand};

use crate::bench::command::Bench;
use crate::bench::rivals::kill::RivalLoad;
use crate::bench::together::bank::BankVictim;
use crate::count::command::Count;
use crate::crash::command::Crash;
use crate::probe::Probe;
use crate::redis::Redis;
use crate::reproduce::command::Reproduce;
use crate::reproduce::results_command::ShowResults;
use crate::scale::command::Scale;
use crate::soak::command::Soak;
use crate::soak::driver::SoakDriver;

/// The exit codes, as listed by `--help`.
const EXITS: &str = "\
Exit codes:
  0    success
  1    failed: a check, a case or a mutation, missing data, a system call
  2    wrong usage: invalid argument or value
  4    no such file, folder, figure or case
  6    the pool or the file system is full
  7    a line of the input is malformed
  130  interrupted";

/// Measures Bristlecone's trees, counts their cost on a device, and tries to break them.
#[derive(Debug, Parser)]
#[command(name = "bristlecone-lab", version, after_help = EXITS, propagate_version = true)]
pub struct Cli {
    /// Print JSON: one value per line on standard output, errors as JSON on standard error.
    #[arg(long, global = true)]
    pub json: bool,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands; each has a folder of its own.
#[derive(Debug, Subcommand)]
pub enum Command {
    Bench(Bench),
    Count(Count),
    Crash(Crash),
    Probe(Probe),
    Redis(Redis),
    Reproduce(Reproduce),
    #[command(name = "results")]
    Results(ShowResults),
    Scale(Box<Scale>),
    Soak(Soak),
    #[command(hide = true)]
    BankVictim(BankVictim),
    #[command(hide = true)]
    RivalLoad(RivalLoad),
    #[command(hide = true)]
    SoakDriver(SoakDriver),
}

impl Command {
    /// Runs the command.
    pub fn run(&self, output: &mut Output) -> Outcome {
        match self {
            Self::Bench(args) => args.run(output),
            Self::Count(args) => args.run(output),
            Self::Crash(args) => args.run(output),
            Self::Probe(args) => args.run(output),
            Self::Redis(args) => args.run(output),
            Self::Reproduce(args) => args.run(output),
            Self::Results(args) => args.run(output),
            Self::Scale(args) => args.run(output),
            Self::Soak(args) => args.run(output),
            Self::BankVictim(args) => args.run(),
            Self::RivalLoad(args) => args.run(),
            Self::SoakDriver(args) => args.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    /// The terminal's width wraps paragraphs: a line break inside one would split them again.
    #[test]
    fn paragraphs_of_help_are_not_broken() {
        for command in std::iter::once(Cli::command()).chain(Cli::command().get_subcommands().cloned()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter(|line| !line.is_empty() && !line.starts_with(' ')) {
                assert!(line.ends_with(['.', ':']), "{}: {line:?}", command.get_name());
            }
        }
    }
}
