//! `bristlecone load`: loads entries from text. Each line is loaded atomically, in the order of the input. An
//! interrupted load can be run again and continues.

mod stream;

use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::PathBuf;

use bristlecone::Pool;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, counted};
use clap::Args;

use self::stream::Stream;
use crate::dump::Header;
use crate::format::Format;
use crate::input::{self, Layout};
use crate::open::PoolArgs;
use crate::tree_args::TreeArgs;

/// Load entries from a file or standard input
///
/// A dump describes its trees: `load` creates them with the same properties, unless they exist. A dump in a file
/// is verified before anything is loaded; a dump from a pipe is verified tree by tree while it is loaded.
///
/// Lines are loaded in order, each atomically. A bad line stops the load with its line number, unless --skip-bad
/// is given; the lines before it stay loaded. An interrupted load can be run again: it skips entries that exist
/// without writing them.
#[derive(Args, Debug)]
#[command(allow_missing_positional = true)]
#[command(after_help = "Examples:
  bristlecone load trees.pool dump.tsv                   every tree of a dump
  bristlecone load trees.pool copy dump.tsv              a dumped tree under another name
  bristlecone load trees.pool ages in.csv --header --columns 1,3 --value u64
  find /usr | bristlecone load trees.pool paths - --format keys --key bytes --value u64")]
pub struct Load {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree; created if it does not exist. Required unless the file is a dump, which names its trees.
    tree: Option<String>,
    #[command(flatten)]
    what: LoadArgs,
}

/// Source and format of the input.
#[derive(Args, Debug)]
pub struct LoadArgs {
    /// File to read; `-` for standard input.
    file: PathBuf,
    /// Format of lines [default: that of the dump, csv for *.csv, json for *.json and *.jsonl, otherwise tsv]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Columns of key and value, counted from 1, for example 2,5.
    #[arg(long, value_name = "KEY,VALUE", value_parser = columns)]
    columns: Option<(usize, usize)>,
    /// Skip the first line.
    #[arg(long)]
    header: bool,
    /// Report bad lines on standard error and continue.
    #[arg(long)]
    skip_bad: bool,
    #[command(flatten)]
    shape: TreeArgs,
}

impl Load {
    pub fn run(&self, output: &mut Output) -> Outcome {
        // The input is opened first: a mistyped file name must not leave an empty tree behind.
        let input = self.what.open()?;
        let pool = self.pool.open()?;
        let loaded = self.what.run(input, &pool, self.tree.as_deref(), output);
        // The pool is closed cleanly even if the load failed.
        let closed = pool.close();
        loaded?;
        Ok(closed?)
    }
}

/// The input, and its length.
pub struct Input {
    from: Box<dyn BufRead>,
    bytes: Option<u64>,
    /// The trees of a verified dump.
    headers: Vec<Header>,
}

impl Input {
    /// Returns whether it is known to be a dump.
    pub fn is_dump(&self) -> bool {
        !self.headers.is_empty()
    }
}

impl LoadArgs {
    /// Returns whether the input is standard input.
    pub fn is_stdin(&self) -> bool {
        self.file.as_os_str() == "-"
    }

    /// Opens the input, and verifies it if it is a dump in a file.
    pub fn open(&self) -> Outcome<Input> {
        if self.is_stdin() {
            return Ok(Input { from: Box::new(interrupt::stdin()), bytes: None, headers: Vec::new() });
        }
        let shown = self.file.display();
        let said = |error| Failure::io(&shown, &error);
        let mut file = File::open(&self.file).map_err(said)?;
        let meta = file.metadata().map_err(said)?;
        if meta.is_dir() {
            return Err(Failure::usage(format!("{shown} is a folder: name a file, or `-`")));
        }
        let mut headers = Vec::new();
        if meta.is_file() {
            headers = input::verify(BufReader::with_capacity(1 << 16, &file), &shown.to_string())?;
            file.rewind().map_err(said)?;
        }
        let bytes = meta.is_file().then_some(meta.len());
        Ok(Input { from: Box::new(BufReader::with_capacity(1 << 16, file)), bytes, headers })
    }

    /// Loads the input, and prints a summary.
    pub fn run(&self, input: Input, pool: &Pool, tree: Option<&str>, output: &mut Output) -> Outcome {
        if let ([_, _, ..], Some(tree)) = (input.headers.as_slice(), tree) {
            return Err(self.several_trees(tree, input.headers.len() as u64));
        }
        let bar = output.progress("loading", input.bytes);
        let counter = input.bytes.is_none().then_some(&bar);
        let mut stream = Stream::new(self, pool, tree, counter);
        let loaded = stream.load(bar.wrap_read(input.from));
        bar.finish_and_clear();
        let tally = stream.tally;
        loaded?;
        let mut text = format!("{}: {} added", counted(tally.loaded(), "entry", "entries"), tally.added);
        for (number, what) in [(tally.replaced, "replaced"), (tally.unchanged, "unchanged")] {
            if number > 0 {
                text += &format!(", {number} {what}");
            }
        }
        if tally.bad > 0 {
            text += &format!(", {} skipped", counted(tally.bad, "bad line", "bad lines"));
        }
        if let Some(trees) = tally.trees {
            text = format!("{}, {text}", counted(trees, "tree", "trees"));
        }
        output.either(&tally, text)
    }

    /// Returns the format given on the command line.
    fn layout(&self) -> Layout {
        let extension = self.file.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        let by_name = match extension.as_deref() {
            Some("csv") => Some(Format::Csv),
            Some("json" | "jsonl" | "ndjson") => Some(Format::Json),
            _ => None,
        };
        Layout { format: self.format.or(by_name), columns: self.columns, header: self.header }
    }

    fn several_trees(&self, tree: &str, trees: u64) -> Failure {
        Failure::usage(format!(
            "{} has {trees} trees: omit {tree:?} to load each under its own name",
            self.file.display()
        ))
    }
}

/// Parses `2,5`: columns counted from 1.
fn columns(text: &str) -> Result<(usize, usize), String> {
    let said = || {
        format!("{text:?} are not two columns: write the key's and the value's, counted from 1, such as 1,2")
    };
    let (key, value) = text.split_once(',').ok_or_else(said)?;
    let column = |text: &str| text.trim().parse::<usize>().ok().and_then(|column| column.checked_sub(1));
    column(key).zip(column(value)).ok_or_else(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_counted_from_one() {
        assert_eq!(columns("1,2"), Ok((0, 1)));
        assert_eq!(columns("5, 3"), Ok((4, 2)));
        for wrong in ["1", "0,1", "a,b", "", "1,2,3"] {
            assert!(columns(wrong).is_err(), "{wrong}");
        }
    }
}
