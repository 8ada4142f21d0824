//! Loading entries from text into trees.

use std::io::{BufRead, Error};

use bristlecone::Pool;
use bristlecone::dynamic::Tree;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::counted;
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::Value;

use super::LoadArgs;
use crate::datum::{self, Datum, Form, Kind, json};
use crate::dump::{self, Frame, Header, Trailer};
use crate::format::Format;
use crate::input::{self, Item, Records};
use crate::store;
use crate::tree_args::TreeArgs;

/// Results of a load.
#[derive(Debug, Default, Serialize)]
pub struct Tally {
    lines: u64,
    pub added: u64,
    pub replaced: u64,
    pub unchanged: u64,
    pub bad: u64,
    /// Trees of a dump.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trees: Option<u64>,
}

impl Tally {
    pub fn loaded(&self) -> u64 {
        self.added + self.replaced + self.unchanged
    }
}

/// A load in progress.
pub struct Stream<'a> {
    args: &'a LoadArgs,
    pool: &'a Pool,
    /// The name given for the tree.
    name: Option<&'a str>,
    counter: Option<&'a ProgressBar>,
    /// The tree that receives entries.
    tree: Option<Tree>,
    /// The trees of a dump so far.
    headers: Vec<Header>,
    /// Whether the last of them is still open.
    within: bool,
    pub tally: Tally,
}

impl<'a> Stream<'a> {
    pub fn new(
        args: &'a LoadArgs,
        pool: &'a Pool,
        name: Option<&'a str>,
        counter: Option<&'a ProgressBar>,
    ) -> Self {
        let tally = Tally::default();
        Self { args, pool, name, counter, tree: None, headers: Vec::new(), within: false, tally }
    }

    /// Loads the whole input.
    pub fn load(&mut self, input: impl BufRead) -> Outcome {
        let mut records = Records::new(input, self.args.layout()).map_err(|error| self.unread(&error))?;
        if records.is_dump() {
            if self.args.columns.is_some() || self.args.header {
                return Err(Failure::usage(
                    "the input is a dump, which has its own format: drop --columns and --header",
                ));
            }
            self.tally.trees = Some(0);
        } else {
            let said = "name the tree: the input is not a dump, and does not name it";
            let name = self.name.ok_or_else(|| Failure::usage(said))?;
            self.tree = Some(self.args.shape.open_or_create(self.pool, name, TreeArgs::default())?);
        }
        loop {
            if interrupt::asked() {
                return Err(self.interrupted());
            }
            let format = records.format();
            match records.next().map_err(|error| self.unread(&error))? {
                None => return self.end(),
                Some(Item::Record { line, content }) => self.record(format, line, content)?,
                Some(Item::Frame { line, content }) => {
                    let frame = content.and_then(|frame| match frame {
                        Frame::Header(header) if !self.within => Ok(Frame::Header(header)),
                        Frame::Trailer(trailer) if self.within => Ok(Frame::Trailer(trailer)),
                        _ => Err(format!("the dump was cut, {}", input::place(&self.headers))),
                    });
                    match frame.map_err(|wrong| self.bad(line, &wrong))? {
                        Frame::Header(header) => {
                            records.begin(header.format);
                            self.begin(line, header)?;
                        }
                        Frame::Trailer(trailer) => self.finish(line, records.sum(), &trailer)?,
                    }
                }
            }
        }
    }

    /// Begins the next tree of a dump.
    fn begin(&mut self, line: u64, header: Header) -> Outcome {
        input::follows(&self.headers, &header).map_err(|wrong| self.bad(line, &wrong))?;
        let name = match self.name {
            Some(name) if header.of > 1 => return Err(self.args.several_trees(name, header.of)),
            Some(name) => name,
            None => &header.tree,
        };
        let (said, was) = (&self.args.shape, header.shape()?);
        let kinds = TreeArgs { design: None, options: Vec::new(), ..was.clone() };
        let asked = TreeArgs { design: said.design, options: said.options.clone(), ..said.or(kinds) };
        self.tree = Some(asked.open_or_create(self.pool, name, was)?);
        self.headers.push(header);
        self.within = true;
        Ok(())
    }

    /// Ends a tree of a dump, whose lines must match the trailer.
    fn finish(&mut self, line: u64, sum: dump::Sum, trailer: &Trailer) -> Outcome {
        if let Some(wrong) = self.headers.last().and_then(|header| sum.differs(header, trailer)) {
            return Err(self.bad(line, &wrong));
        }
        self.within = false;
        self.tally.trees = Some(self.headers.len() as u64);
        Ok(())
    }

    /// Fails if the dump is incomplete.
    fn end(&self) -> Outcome {
        match self.headers.last() {
            Some(last) if self.within || last.number != last.of => {
                let place = input::place(&self.headers);
                let said = format!("the dump ends early, {place}; {}", stands(&self.tally));
                Err(Failure::new(Exit::BadInput, said))
            }
            _ => Ok(()),
        }
    }

    /// Loads a record, or skips a bad one.
    fn record(&mut self, format: Format, line: u64, content: Result<(&[u8], &[u8]), String>) -> Outcome {
        self.tally.lines += 1;
        let entered = match (&self.tree, content) {
            (Some(tree), Ok((key, value))) if !self.outside() => {
                enter(tree, format, line, key, value, &mut self.tally)
            }
            (_, Err(wrong)) => Err(Failure::new(Exit::BadInput, wrong)),
            _ => Err(Failure::new(Exit::BadInput, "it is outside the trees of the dump")),
        };
        match entered {
            Ok(()) => {}
            Err(Failure::Said { exit: Exit::BadInput, line: wrong }) if self.args.skip_bad => {
                self.tally.bad += 1;
                eprintln!("bristlecone: line {line}: {wrong}: skipped");
            }
            Err(Failure::Said { exit: Exit::BadInput, line: wrong }) => {
                let todo = "correct it and rerun the load, or skip such lines with --skip-bad";
                let said = format!("line {line}: {wrong}; {}; {todo}", stands(&self.tally));
                return Err(Failure::new(Exit::BadInput, said));
            }
            Err(failure) => return Err(failure.within(format!("line {line}, {}", stands(&self.tally)))),
        }
        if let Some(bar) = self.counter {
            bar.inc(1);
        }
        Ok(())
    }

    /// Returns whether the input is a dump of which no tree has begun.
    fn outside(&self) -> bool {
        self.tally.trees.is_some() && !self.within
    }

    fn bad(&self, line: u64, wrong: &str) -> Failure {
        Failure::new(Exit::BadInput, format!("line {line}: {wrong}; {}", stands(&self.tally)))
    }

    fn unread(&self, error: &Error) -> Failure {
        match interrupt::asked() {
            true => self.interrupted(),
            false => Failure::io(self.args.file.display(), error).within(stands(&self.tally)),
        }
    }

    fn interrupted(&self) -> Failure {
        let lines = counted(self.tally.loaded(), "line is", "lines are");
        Failure::interrupted(format!("{lines} in; rerun the same load to continue"))
    }
}

/// Describes the entries loaded so far.
fn stands(tally: &Tally) -> String {
    let lines = counted(tally.loaded(), "line", "lines");
    format!("{lines} before it {} in", if tally.loaded() == 1 { "is" } else { "are" })
}

/// Loads one record. Both fields are parsed before anything is written. An existing entry costs a
/// lookup and no write, so a repeated load catches up quickly.
fn enter(tree: &Tree, format: Format, line: u64, key: &[u8], value: &[u8], tally: &mut Tally) -> Outcome {
    let (key, value) = read((tree.key_kind(), tree.value_kind()), format, line, key, value)
        .map_err(|wrong| Failure::new(Exit::BadInput, wrong))?;
    // A key that is too long makes its line bad, like one that cannot be parsed.
    let unfit = |failure: Failure| match failure {
        Failure::Said { exit: Exit::Usage, line } => Failure::new(Exit::BadInput, line),
        other => other,
    };
    match store::insert_new(tree, &key, &value).map_err(unfit)? {
        None => tally.added += 1,
        Some(found) if found == value => tally.unchanged += 1,
        Some(_) => {
            tree.insert(&key, &value).map_err(|error| unfit(error.into()))?;
            tally.replaced += 1;
        }
    }
    Ok(())
}

/// Parses key and value from the fields of a record.
fn read(
    (key_kind, value_kind): (&Kind, &Kind),
    format: Format,
    line: u64,
    key: &[u8],
    value: &[u8],
) -> Result<(Datum, Datum), String> {
    if format == Format::Json {
        return read_json(key_kind, value_kind, key);
    }
    let form = if format == Format::Tsv { Form::Line } else { Form::Plain };
    let key = datum::parse(key_kind, key, form).map_err(|wrong| format!("key: {wrong}"))?;
    let value = match (format, value_kind) {
        (Format::Keys, Kind::U64) => Ok(Datum::U64(line)),
        (_, kind) => datum::parse(kind, value, form).map_err(|wrong| format!("value: {wrong}")),
    };
    Ok((key, value?))
}

fn read_json(key_kind: &Kind, value_kind: &Kind, text: &[u8]) -> Result<(Datum, Datum), String> {
    let said = "it is not a JSON object with key and value";
    let Ok(Value::Object(mut entry)) = serde_json::from_slice(text) else { return Err(said.to_owned()) };
    let mut field = |name| entry.remove(name).ok_or_else(|| said.to_owned());
    let (key, value) = (field("key")?, field("value")?);
    let key = json::from_value(key_kind, key).map_err(|wrong| format!("key: {wrong}"))?;
    Ok((key, json::from_value(value_kind, value).map_err(|wrong| format!("value: {wrong}"))?))
}
