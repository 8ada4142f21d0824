//! `bristlecone`: crash-surviving ordered indexes from the command line.

mod args;
mod bench;
mod commands;
mod count;
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
use clap::error::ErrorKind;

use crate::args::Cli;
use crate::failure::{Exit, Failure};
use crate::output::Output;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    // A process that forks has one thread.
    if !matches!(cli.command, args::Command::SoakDriver(_)) {
        interrupt::listen();
    }
    let mut output = Output::new(cli.json);
    let outcome = commands::run(&cli.command, &mut output);
    // What a command wrote before it failed is still for the reader.
    let finished = output.finish();
    match outcome.and(finished) {
        Ok(()) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(Failure::Shown(code)) => ExitCode::from(code as u8),
        Err(Failure::Said { exit, line }) => say(cli.json, exit, &line),
    }
}

/// One line on standard error, and the exit code.
fn say(json: bool, exit: Exit, line: &str) -> ExitCode {
    if json {
        eprintln!("{}", serde_json::json!({ "error": line, "exit": exit as u8 }));
    } else {
        eprintln!("bristlecone: {line}");
    }
    ExitCode::from(exit as u8)
}

/// Answers to a command line that cannot be read. Help and version come here, too.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // Nobody may be there to read it.
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(Exit::Usage as u8) } else { ExitCode::SUCCESS };
    }
    let json = std::env::args_os().any(|argument| argument == "--json");
    say(json, Exit::Usage, &one_line(&error.to_string()))
}

/// What is wrong and what would be right, without the usage that follows.
fn one_line(text: &str) -> String {
    let said =
        text.split("\nUsage:").next().unwrap_or(text).split("\nFor more information").next().unwrap_or(text);
    let words: Vec<&str> = said.trim_start_matches("error:").split_whitespace().collect();
    format!("{} (--help says more)", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_argument_is_told_in_one_line() {
        let line = |arguments: &str| match Cli::try_parse_from(arguments.split_whitespace()) {
            Ok(cli) => panic!("{cli:?}"),
            Err(error) => one_line(&error.to_string()),
        };
        assert_eq!(line("bristlecone fly"), "unrecognized subcommand 'fly' (--help says more)");
        assert_eq!(
            line("bristlecone get"),
            "the following required arguments were not provided: <POOL> <TREE> <KEYS>... (--help says more)"
        );
        assert!(line("bristlecone create p --size 8X").contains("such as 8G"));
        assert!(line("bristlecone completions cobol").contains("[possible values: bash,"));
    }
}
