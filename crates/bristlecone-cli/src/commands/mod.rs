//! The commands, one file each: arguments in, calls, results out.

pub mod bench;
pub mod check;
pub mod completions;
pub mod count;
pub mod crash;
pub mod create;
pub mod del;
pub mod demo;
pub mod drop;
pub mod dump;
pub mod get;
pub mod info;
pub mod load;
pub mod put;
pub mod scan;
pub mod soak;
pub mod trees;
pub mod workload;

use crate::args::Command;
use crate::failure::Outcome;
use crate::output::Output;

/// Does what was asked.
pub fn run(command: &Command, output: &mut Output) -> Outcome {
    match command {
        Command::Demo(args) => args.run(output),
        Command::Create(args) => args.run(output),
        Command::Info(args) => args.run(output),
        Command::Trees(args) => args.run(output),
        Command::Check(args) => args.run(output),
        Command::Put(args) => args.run(output),
        Command::Get(args) => args.run(output),
        Command::Del(args) => args.run(output),
        Command::Scan(args) => args.run(output),
        Command::Load(args) => args.run(output),
        Command::Dump(args) => args.run(output),
        Command::Drop(args) => args.run(output),
        Command::Bench(args) => args.run(output),
        Command::Count(args) => args.run(output),
        Command::Crash(args) => args.run(output),
        Command::Soak(args) => args.run(output),
        Command::Completions(args) => args.run(output),
        Command::DemoWriter(args) => args.run(),
        Command::SoakDriver(args) => args.run(),
    }
}
