//! `bristlecone man`: writes manual pages.

use std::path::PathBuf;

use bristlecone::Error;
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::{Output, counted};
use clap::{Args, Command};
use clap_mangen::Man as Page;
use serde_json::json;

use crate::open::explain;

/// Write the manual pages of the tool, for packages: one bristlecone-COMMAND.1 for each command
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone man /usr/local/share/man/man1")]
pub struct Man {
    /// The folder (must exist).
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    /// Writes the pages of `tool`, the whole command line.
    pub fn run(&self, mut tool: Command, output: &mut Output) -> Outcome {
        tool.build();
        let mut pages = 0;
        let mut left = vec![&tool];
        while let Some(command) = left.pop() {
            let name = command.get_display_name().unwrap_or(command.get_name());
            let path = self.folder.join(format!("{name}.1"));
            let written = std::fs::write(&path, page(&tool, command)?);
            written.map_err(|error| explain(&path, Error::io("writing a page", error)))?;
            pages += 1;
            // The tool's own `help` has a page, without those of its arguments.
            let is_tool = std::ptr::eq(command, &tool);
            let wanted = |below: &&Command| !below.is_hide_set() && (is_tool || below.get_name() != "help");
            if command.get_name() != "help" {
                left.extend(command.get_subcommands().filter(wanted));
            }
        }
        let text = format!("{} in {}", counted(pages, "page", "pages"), self.folder.display());
        output.either(&json!({ "pages": pages, "folder": self.folder }), text)
    }
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
