//! The command line.

use bristlecone_cli::failure;
use clap::{Parser, Subcommand};

use crate::commands::{bench, count, crash, soak};

/// Measures Bristlecone's trees, counts what they cost a device, and tries to break them.
#[derive(Debug, Parser)]
#[command(name = "bristlecone-lab", version, after_help = failure::HELP, propagate_version = true)]
#[command(disable_help_subcommand = true)]
pub struct Cli {
    /// Print JSON: one value per line on standard output, errors as JSON on standard error.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands; each has a file or a folder of its own in `commands/`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Bench(bench::Bench),
    Count(count::Count),
    Crash(crash::Crash),
    Soak(soak::Soak),
    #[command(hide = true)]
    SoakDriver(soak::SoakDriver),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
