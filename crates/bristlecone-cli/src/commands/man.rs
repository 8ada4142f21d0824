//! `bristlecone man`: prints manual pages.

use std::path::{Path, PathBuf};

use bristlecone::Error;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::output::{Output, counted};
use clap::{Args, Command};
use clap_mangen::Man as Page;
use serde_json::json;

use crate::open::explain;

/// Print the manual page of the tool or of a command
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone man | man -l -
  bristlecone man scan | man -l -
  bristlecone man --out /usr/local/share/man/man1")]
pub struct Man {
    /// The command.
    command: Option<String>,
    /// Write all pages to this folder instead, one bristlecone-COMMAND.1 for each command.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    out: Option<PathBuf>,
}

impl Man {
    /// Renders pages of `tool`, the whole command line.
    pub fn run(&self, mut tool: Command, output: &mut Output) -> Outcome {
        tool.build();
        match (&self.out, &self.command) {
            (Some(folder), _) => write_all(&tool, folder, output),
            (None, None) => output.bytes(page(&tool, &tool)?.as_bytes()),
            (None, Some(name)) => {
                let known = visible(&tool).find(|command| command.get_name() == name);
                let names = || visible(&tool).map(Command::get_name).collect::<Vec<_>>().join(", ");
                let said = || Failure::usage(format!("no command {name:?}: there are {}", names()));
                output.bytes(page(&tool, known.ok_or_else(said)?)?.as_bytes())
            }
        }
    }
}

fn visible(tool: &Command) -> impl Iterator<Item = &Command> {
    tool.get_subcommands().filter(|command| !command.is_hide_set())
}

/// Renders the page of a command of the tool, or of the tool itself.
fn page(tool: &Command, command: &Command) -> Outcome<String> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let source = format!("{} {}", tool.get_name(), tool.get_version().unwrap_or_default());
    let mut text = Vec::new();
    Page::new(command.clone()).title(name).source(source).render(&mut text)?;
    // The text after the options has no heading of its own.
    let text = String::from_utf8_lossy(&text).replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n");
    Ok(text.replace(".SH EXTRA\n", ".SH NOTES\n"))
}

fn write_all(tool: &Command, folder: &Path, output: &mut Output) -> Outcome {
    let mut pages = 0;
    for command in std::iter::once(tool).chain(visible(tool)) {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let path = folder.join(format!("{name}.1"));
        let written = std::fs::write(&path, page(tool, command)?);
        written.map_err(|error| explain(&path, Error::io("writing a page", error)))?;
        pages += 1;
    }
    let text = format!("{} in {}", counted(pages, "page", "pages"), folder.display());
    output.either(&json!({ "pages": pages, "folder": folder }), text)
}
