//! `bristlecone`: crash-safe ordered indexes from the command line.

mod args;
mod commands;
mod datum;
mod dump;
mod expiry;
mod format;
mod input;
mod issues;
mod journal;
mod open;
mod shell;
mod store;
mod table;
mod time;
mod tree_args;

use std::process::ExitCode;

use bristlecone_cli::{answer, interrupt};
use clap::Parser;

use crate::args::Cli;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return answer::refuse("bristlecone", &error),
    };
    interrupt::listen();
    answer::run("bristlecone", cli.json, |output| cli.command.run(output))
}

#[cfg(test)]
mod tests {
    use bristlecone_cli::answer::one_line;

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
            "the following required arguments were not provided: <POOL> <TREE> <KEY>... (--help says more)"
        );
        assert!(line("bristlecone create p --size 8X").contains("such as 8G"));
        assert!(line("bristlecone completions cobol").contains("[possible values: bash,"));
    }
}
