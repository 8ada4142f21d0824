//! How a command line becomes results, an error in one line, and an exit code.

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;

/// Runs a command, which writes to the output, and reports its error; `tool` is the name that begins the line.
pub fn run(tool: &str, json: bool, command: impl FnOnce(&mut Output) -> Outcome) -> ExitCode {
    let mut output = Output::new(json);
    let outcome = command(&mut output);
    // What a command wrote before it failed is still for the reader.
    let finished = output.finish();
    let exit = outcome.and(finished).err().and_then(|failure| tell(tool, json, &failure));
    exit.map_or(ExitCode::SUCCESS, |exit| ExitCode::from(exit as u8))
}

/// Says what went wrong, if that was not done yet, and returns the exit code; `None` if nothing is to be told.
pub fn tell(tool: &str, json: bool, failure: &Failure) -> Option<Exit> {
    match failure {
        Failure::BrokenPipe => None,
        Failure::Shown(exit) => Some(*exit),
        Failure::Said { exit, line } => {
            say(tool, json, *exit, line);
            Some(*exit)
        }
    }
}

/// Says one line on standard error.
fn say(tool: &str, json: bool, exit: Exit, line: &str) {
    if json {
        eprintln!("{}", serde_json::json!({ "error": line, "exit": exit as u8 }));
    } else {
        eprintln!("{tool}: {line}");
    }
}

/// Answers to a command line that cannot be read. Help and version come here, too.
pub fn refuse(tool: &str, error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // There may be no reader any more.
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(Exit::Usage as u8) } else { ExitCode::SUCCESS };
    }
    let json = std::env::args_os().any(|argument| argument == "--json");
    say(tool, json, Exit::Usage, &one_line(&error.to_string()));
    ExitCode::from(Exit::Usage as u8)
}

/// Returns what is wrong and what would be right, without the usage that follows.
pub fn one_line(text: &str) -> String {
    let said =
        text.split("\nUsage:").next().unwrap_or(text).split("\nFor more information").next().unwrap_or(text);
    let words: Vec<&str> = said.trim_start_matches("error:").split_whitespace().collect();
    // The library of arguments puts its advice into a paragraph of its own.
    format!("{} (--help says more)", words.join(" ").replace(" tip: ", "; "))
}
