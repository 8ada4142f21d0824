//! The command line.

use bristlecone_cli::failure::{self, Outcome};
use bristlecone_cli::output::Output;
use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    changes, check, clear, completions, copy, create, del, demo, drop, dump, expire, get, info, journal,
    load, man, put, rename, resize, restore, scan, standby, top,
};
use crate::shell;

/// Ordered key-value indexes that survive crashes.
///
/// A pool is a file that holds named trees; a tree maps keys to values, in order. Commands that only read do
/// not change the file, and several may run at the same time; a command that writes needs exclusive access.
/// While a process writes to a pool, `get`, `scan`, `dump`, `info`, `check` and `top` follow it.
#[derive(Debug, Parser)]
#[command(name = "bristlecone", version, after_help = help(), propagate_version = true)]
pub struct Cli {
    /// Print JSON: one value per line on standard output, errors as JSON on standard error.
    #[arg(long, global = true)]
    pub json: bool,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The syntax of keys and values.
const FORMS: &str = "\
Keys and values, by kind:
  u8 … u128, i8 … i128   decimal numbers
  f32, f64               1.5, -2e-7, inf, NaN; in total order
  bool, char, str, ()    true or false; text without quotes; ()
  bytes, [u8; N]         text, with \\xNN for other bytes and \\\\ for a backslash
  (str, u64) …           a JSON array: '[\"oak\", 7]'
  Option<u64> …          null or the value in JSON: 7, '\"text\"'
  json                   JSON (values only)
  Expiring<u64> …        {\"value\":7,\"expires_ms\":1900000000000} in JSON (values only)
  postcard               bytes as a program encoded them (values only)
With --json numbers of up to 64 bits are numbers, wider ones strings; bytes keep their escapes.
In lines of text, as `scan` and `dump` print them, a tab, a newline and a backslash in text are \\t, \\n and \\\\.";

/// Returns the text after the list of commands.
fn help() -> String {
    format!("{FORMS}\n\n{}", failure::HELP)
}

/// The commands; each is a file in `commands/`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(demo::Demo),
    Create(create::Create),
    Info(info::Info),
    Top(top::Top),
    Check(check::Check),
    Put(put::Put),
    Get(get::Get),
    Del(del::Del),
    Expire(expire::Expire),
    Scan(scan::Scan),
    Load(load::Load),
    Dump(dump::Dump),
    Drop(drop::Drop),
    Rename(rename::Rename),
    Clear(clear::Clear),
    Copy(copy::Copy),
    Resize(resize::Resize),
    Changes(changes::ChangesOf),
    Journal(journal::Journal),
    Restore(restore::Restore),
    Standby(standby::StandbyOf),
    Shell(shell::Shell),
    #[command(hide = true)]
    Completions(completions::Completions),
    #[command(hide = true)]
    Man(man::Man),
    #[command(hide = true)]
    DemoWriter(demo::DemoWriter),
}

impl Command {
    /// Runs the command.
    pub fn run(&self, output: &mut Output) -> Outcome {
        match self {
            Self::Demo(args) => args.run(output),
            Self::Create(args) => args.run(output),
            Self::Info(args) => args.run(output),
            Self::Top(args) => args.run(output),
            Self::Check(args) => args.run(output),
            Self::Put(args) => args.run(output),
            Self::Get(args) => args.run(output),
            Self::Del(args) => args.run(output),
            Self::Expire(args) => args.run(output),
            Self::Scan(args) => args.run(output),
            Self::Load(args) => args.run(output),
            Self::Dump(args) => args.run(output),
            Self::Drop(args) => args.run(output),
            Self::Rename(args) => args.run(output),
            Self::Clear(args) => args.run(output),
            Self::Copy(args) => args.run(output),
            Self::Resize(args) => args.run(output),
            Self::Changes(args) => args.run(output),
            Self::Journal(args) => args.run(output),
            Self::Restore(args) => args.run(output),
            Self::Standby(args) => args.run(output),
            Self::Shell(args) => args.run(output),
            Self::Man(args) => args.run(Cli::command(), output),
            Self::Completions(args) => args.run(&mut Cli::command(), output),
            Self::DemoWriter(args) => args.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_visible_command_has_an_example() {
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.contains("  bristlecone "), "{}", command.get_name());
        }
    }

    /// The terminal's width wraps paragraphs: a line break inside one would split them again.
    #[test]
    fn paragraphs_of_help_are_not_broken() {
        for command in std::iter::once(Cli::command()).chain(Cli::command().get_subcommands().cloned()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter(|line| !line.is_empty() && !line.starts_with(' ')) {
                assert!(line.ends_with(['.', ':']), "{}: {line:?}", command.get_name());
            }
        }
    }
}
