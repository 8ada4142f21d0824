//! `bristlecone load`: entries from text. A line goes in wholly or not at all, in the order of
//! the input; a load that was stopped, by whatever, can be run again and goes on.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, counted};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::args::{PoolArgs, TreeArgs};
use crate::datum::{Datum, Form, Kind};
use crate::input::{Format, Layout, Records};
use crate::store::{self, AnyTree};

/// Load entries from a file or standard input
///
/// Lines go in one after the other, each wholly or not at all. A bad line stops the load, with its
/// number, unless --skip-bad is given; what stands before it is in. A load that was stopped or
/// killed can be run again: what is in already is passed over without being written.
#[derive(Args, Debug)]
pub struct Load {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree; created if there is none.
    tree: String,
    /// The file to read, `-` for standard input.
    file: PathBuf,
    /// How lines are divided [default: csv for *.csv, otherwise tsv]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The columns of key and value, counted from 1, such as 2,5.
    #[arg(long, value_name = "KEY,VALUE", value_parser = columns)]
    columns: Option<(usize, usize)>,
    /// Pass over the first line.
    #[arg(long)]
    header: bool,
    /// Report bad lines on standard error and go on.
    #[arg(long)]
    skip_bad: bool,
    #[command(flatten)]
    shape: TreeArgs,
}

/// What a load did.
#[derive(Debug, Default, Serialize)]
struct Tally {
    lines: u64,
    added: u64,
    replaced: u64,
    unchanged: u64,
    bad: u64,
}

impl Tally {
    fn loaded(&self) -> u64 {
        self.added + self.replaced + self.unchanged
    }
}

impl Load {
    pub fn run(&self, output: &mut Output) -> Outcome {
        // The input is opened first: a mistyped file name leaves no empty tree behind.
        let (input, bytes) = self.input()?;
        let pool = store::open(&self.pool)?;
        let tree = self.shape.open_or_create(&pool, &self.tree)?;
        let bar = output.progress("loading", bytes);
        let mut tally = Tally::default();
        let loaded = self.load(bar.wrap_read(input), bytes.is_none().then_some(&bar), &*tree, &mut tally);
        bar.finish_and_clear();
        drop(tree);
        loaded?;
        pool.close()?;
        let mut text = format!("{}: {} added", counted(tally.loaded(), "entry", "entries"), tally.added);
        for (number, what) in [(tally.replaced, "replaced"), (tally.unchanged, "unchanged")] {
            if number > 0 {
                text += &format!(", {number} {what}");
            }
        }
        if tally.bad > 0 {
            text += &format!(", {} skipped", counted(tally.bad, "bad line", "bad lines"));
        }
        output.either(&tally, text)
    }

    fn input(&self) -> Outcome<(Box<dyn BufRead>, Option<u64>)> {
        if self.file.as_os_str() == "-" {
            return Ok((Box::new(interrupt::stdin()), None));
        }
        let said = |error| Failure::io(self.file.display(), &error);
        let file = File::open(&self.file).map_err(said)?;
        let meta = file.metadata().map_err(said)?;
        if meta.is_dir() {
            return Err(Failure::usage(format!(
                "{} is a directory: name a file, or `-`",
                self.file.display()
            )));
        }
        Ok((Box::new(BufReader::with_capacity(1 << 16, file)), meta.is_file().then_some(meta.len())))
    }

    fn load(
        &self,
        input: impl BufRead,
        counter: Option<&ProgressBar>,
        tree: &dyn AnyTree,
        tally: &mut Tally,
    ) -> Outcome {
        let csv = self.file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        let format = self.format.unwrap_or(if csv { Format::Csv } else { Format::Tsv });
        let layout = Layout { format, columns: self.columns, header: self.header };
        let unread = |error: std::io::Error, tally: &Tally| match interrupt::asked() {
            true => interrupted(tally),
            false => Failure::io(self.file.display(), &error).within(stands(tally)),
        };
        let mut records = Records::new(input, layout).map_err(|error| unread(error, tally))?;
        loop {
            if interrupt::asked() {
                return Err(interrupted(tally));
            }
            let Some(record) = records.next().map_err(|error| unread(error, tally))? else { return Ok(()) };
            tally.lines += 1;
            let line = record.line;
            let entered = record.content.map_err(|wrong| Failure::new(Exit::BadInput, wrong));
            match entered.and_then(|(key, value)| enter(tree, format, line, key, value, tally)) {
                Ok(()) => {}
                Err(Failure::Said { exit: Exit::BadInput, line: wrong }) if self.skip_bad => {
                    tally.bad += 1;
                    eprintln!("bristlecone: line {line}: {wrong}: skipped");
                }
                Err(Failure::Said { exit: Exit::BadInput, line: wrong }) => {
                    let todo = "correct it and run the load again, or pass over such lines with --skip-bad";
                    let said = format!("line {line}: {wrong}; {}; {todo}", stands(tally));
                    return Err(Failure::new(Exit::BadInput, said));
                }
                Err(failure) => return Err(failure.within(format!("line {line}, {}", stands(tally)))),
            }
            if let Some(bar) = counter {
                bar.inc(1);
            }
        }
    }
}

/// What is in the tree so far.
fn stands(tally: &Tally) -> String {
    let lines = counted(tally.loaded(), "line", "lines");
    format!("{lines} before it {} in", if tally.loaded() == 1 { "is" } else { "are" })
}

fn interrupted(tally: &Tally) -> Failure {
    let lines = counted(tally.loaded(), "line is", "lines are");
    Failure::interrupted(format!("{lines} in; run the same load again to go on"))
}

/// Enters one record. Both fields are read before anything is written. An entry that stands
/// there already costs a lookup and no write, so a load that is run again is quick to catch up.
fn enter(
    tree: &dyn AnyTree,
    format: Format,
    line: u64,
    key: &[u8],
    value: &[u8],
    tally: &mut Tally,
) -> Outcome {
    let form = if format == Format::Tsv { Form::Line } else { Form::Plain };
    let bad = |what| move |wrong| Failure::new(Exit::BadInput, format!("{what}: {wrong}"));
    let (mut key_scratch, mut value_scratch) = (Vec::new(), Vec::new());
    let key = Datum::parse(tree.key_kind(), key, form, &mut key_scratch).map_err(bad("key"))?;
    let value = match (format, tree.value_kind()) {
        (Format::Keys, Kind::U64) => Datum::U64(line),
        (_, kind) => Datum::parse(kind, value, form, &mut value_scratch).map_err(bad("value"))?,
    };
    // A key that no tree can hold makes its line bad, like one that cannot be read.
    let unfit = |failure| match failure {
        Failure::Said { exit: Exit::Usage, line } => Failure::new(Exit::BadInput, line),
        other => other,
    };
    if tree.insert_new(key, value).map_err(unfit)? {
        tally.added += 1;
    } else if tree.holds(key, value)? {
        tally.unchanged += 1;
    } else {
        tree.insert(key, value).map_err(unfit)?;
        tally.replaced += 1;
    }
    Ok(())
}

/// Reads `2,5`: columns counted from 1.
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
