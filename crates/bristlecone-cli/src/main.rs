//! `bristlecone`: crash-surviving ordered indexes from the command line.

mod args;
mod bench;
mod commands;
mod datum;
mod failure;
mod input;
mod interrupt;
mod output;
mod scratch;
mod size;
mod store;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Cli;
use crate::failure::{Exit, Failure};
use crate::output::Output;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output and are no failure.
            let _ = error.print();
            return if error.use_stderr() { exit(Exit::Usage) } else { ExitCode::SUCCESS };
        }
    };
    interrupt::listen();
    let mut output = Output::new(cli.json);
    let outcome = commands::run(&cli.command, &mut output);
    // What a command wrote before it failed is still for the reader.
    let finished = output.finish();
    match outcome.and(finished) {
        Ok(()) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(Failure::Shown(code)) => exit(code),
        Err(Failure::Said { exit: code, line }) => {
            if cli.json {
                eprintln!("{}", serde_json::json!({ "error": line, "exit": code as u8 }));
            } else {
                eprintln!("bristlecone: {line}");
            }
            exit(code)
        }
    }
}

fn exit(code: Exit) -> ExitCode {
    ExitCode::from(code as u8)
}
