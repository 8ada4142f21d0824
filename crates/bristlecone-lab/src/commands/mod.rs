//! The commands: arguments in, calls, results out.

pub mod bench;
pub mod count;
pub mod crash;
pub mod soak;
pub mod workload;

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;

use crate::args::Command;

/// Does what was asked.
pub fn run(command: &Command, output: &mut Output) -> Outcome {
    match command {
        Command::Bench(args) => args.run(output),
        Command::Count(args) => args.run(output),
        Command::Crash(args) => args.run(output),
        Command::Soak(args) => args.run(output),
        Command::SoakDriver(args) => args.run(),
    }
}
