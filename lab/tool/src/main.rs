//! `bristlecone-lab`: measures the trees, counts their cost on a device, and tries to break them.

mod addresses;
mod args;
mod bench;
mod count;
mod crash;
mod probe;
mod redis;
mod reproduce;
mod scale;
mod soak;
mod workload;

use std::process::ExitCode;

use bristlecone_cli::{answer, interrupt};
use bristlecone_pm::sync::HAS_TURNS;
use clap::Parser;

use crate::args::{Cli, Command};

/// Gives simulated runs the same addresses.
#[global_allocator]
static HEAP: bristlecone_device::cores::SimulatorHeap = bristlecone_device::cores::SimulatorHeap::new();

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return answer::refuse("bristlecone-lab", &error),
    };
    if matches!(cli.command, Command::Scale(_) | Command::Reproduce(_)) && HAS_TURNS {
        addresses::fix();
    }
    // A process that forks must have one thread.
    if !matches!(cli.command, Command::SoakDriver(_)) {
        interrupt::listen();
    }
    answer::run("bristlecone-lab", cli.json, |output| cli.command.run(output))
}
