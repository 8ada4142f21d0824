//! `bristlecone completions`: shell completions on standard output.

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;

/// Print completions for a shell
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "bristlecone", &mut script);
        output.bytes(&script)
    }
}
