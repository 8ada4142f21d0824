//! Converts a command's outcome into output, a one-line error, and an exit code.

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;

/// Runs a command, which writes to the output, and reports its error; `tool` is the prefix of the
/// line.
pub fn run(tool: &str, json: bool, command: impl FnOnce(&mut Output) -> Outcome) -> ExitCode {
    let mut output = Output::new(json);
    let outcome = command(&mut output);
    // Output written before a failure must still reach the reader.
    let finished = output.finish();
    let exit = outcome.and(finished).err().and_then(|failure| tell(tool, json, &failure));
    exit.map_or(ExitCode::SUCCESS, |exit| ExitCode::from(exit as u8))
}

/// Reports a failure if it was not yet reported, and returns the exit code; `None` if there is
/// nothing to report.
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

/// Prints one line to standard error.
fn say(tool: &str, json: bool, exit: Exit, line: &str) {
    if json {
        eprintln!("{}", serde_json::json!({ "error": line, "exit": exit as u8 }));
    } else {
        eprintln!("{tool}: {line}");
    }
}

/// Reports a command line that cannot be parsed. Also handles help and version.
pub fn refuse(tool: &str, error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // The reader may have closed the pipe.
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(Exit::Usage as u8) } else { ExitCode::SUCCESS };
    }
    let json = std::env::args_os().any(|argument| argument == "--json");
    say(tool, json, Exit::Usage, &one_line(&error.to_string()));
    ExitCode::from(Exit::Usage as u8)
}

/// Returns the error and the advice, without the usage that follows.
pub fn one_line(text: &str) -> String {
    let said =
        text.split("\nUsage:").next().unwrap_or(text).split("\nFor more information").next().unwrap_or(text);
    let words: Vec<&str> = said.trim_start_matches("error:").split_whitespace().collect();
    // Clap puts its advice into a separate paragraph.
    format!("{} (--help says more)", words.join(" ").replace(" tip: ", "; "))
}
