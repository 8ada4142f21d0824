//! `bristlecone completions`: shell completions on standard output.

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;

/// Print completions for a shell
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone completions bash > ~/.local/share/bash-completion/completions/bristlecone
  bristlecone completions fish > ~/.config/fish/completions/bristlecone.fish")]
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
