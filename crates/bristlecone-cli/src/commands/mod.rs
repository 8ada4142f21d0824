//! The commands, one file each: arguments in, calls, results out.

pub mod check;
pub mod clear;
pub mod completions;
pub mod copy;
pub mod create;
pub mod del;
pub mod demo;
pub mod drop;
pub mod dump;
pub mod get;
pub mod info;
pub mod load;
pub mod man;
pub mod put;
pub mod rename;
pub mod resize;
pub mod scan;
pub mod scrub;
pub mod stat;
pub mod trees;
pub mod trim;

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;

use crate::args::Command;

/// Does what was asked.
pub fn run(command: &Command, output: &mut Output) -> Outcome {
    match command {
        Command::Demo(args) => args.run(output),
        Command::Create(args) => args.run(output),
        Command::Info(args) => args.run(output),
        Command::Trees(args) => args.run(output),
        Command::Stat(args) => args.run(output),
        Command::Check(args) => args.run(output),
        Command::Put(args) => args.run(output),
        Command::Get(args) => args.run(output),
        Command::Del(args) => args.run(output),
        Command::Scan(args) => args.run(output),
        Command::Load(args) => args.run(output),
        Command::Dump(args) => args.run(output),
        Command::Drop(args) => args.run(output),
        Command::Rename(args) => args.run(output),
        Command::Clear(args) => args.run(output),
        Command::Copy(args) => args.run(output),
        Command::Backup(args) => args.run(output),
        Command::Scrub(args) => args.run(output),
        Command::Resize(args) => args.run(output),
        Command::Trim(args) => args.run(output),
        Command::Shell(args) => args.run(output),
        Command::Man(args) => args.run(output),
        Command::Completions(args) => args.run(output),
        Command::DemoWriter(args) => args.run(),
    }
}
