//! `bristlecone completions`: shell completions on standard output.

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;
use clap::{Args, Command};
use clap_complete::Shell;

/// Print completions for a shell, for packages
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone completions bash > ~/.local/share/bash-completion/completions/bristlecone
  bristlecone completions fish > ~/.config/fish/completions/bristlecone.fish")]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    /// Prints completions for `tool`, the whole command line.
    pub fn run(&self, tool: &mut Command, output: &mut Output) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, tool, "bristlecone", &mut script);
        output.bytes(&script)
    }
}
