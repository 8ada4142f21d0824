//! `bristlecone dump`: prints trees as text that `load` can read.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use bristlecone::Pool;
use bristlecone::dynamic::Tree;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, counted};
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::json;

use crate::datum::{self, Datum, Entry, Form};
use crate::dump::{Header, Sum, Trailer};
use crate::format::Format;
use crate::open::ReadArgs;
use crate::store::{self, TreeInfo};

/// Print a tree, or the whole pool, as text that `load` can read
///
/// A header line before the entries describes the tree: kinds, design, options, number of entries. A trailer line
/// holds their number and checksum. With both, `load` creates the same tree, and detects missing lines.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone dump trees.pool ages --output ages.tsv
  bristlecone dump trees.pool --all | zstd > trees.zst
  bristlecone dump trees.pool ages --no-header --format csv")]
pub struct Dump {
    #[command(flatten)]
    pool: ReadArgs,
    /// The tree.
    #[arg(required_unless_present = "all")]
    tree: Option<String>,
    #[command(flatten)]
    what: DumpArgs,
}

/// Selection and format of a dump.
#[derive(Args, Debug)]
pub struct DumpArgs {
    /// Dump all trees of the pool.
    #[arg(long, conflicts_with_all = ["tree", "no_header"])]
    pub all: bool,
    /// Print only the entries, without header and trailer lines.
    #[arg(long)]
    no_header: bool,
    /// Format of entries [default: tsv, with --json json]
    #[arg(long, value_enum)]
    format: Option<DumpFormat>,
    /// Write to this file instead of standard output; it must not exist.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Format of entries.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DumpFormat {
    /// Key, tab, value; tabs, newlines and backslashes as \t, \n, \\.
    Tsv,
    /// Comma-separated, quoted where necessary (RFC 4180).
    Csv,
    /// One object with key and value per line.
    Json,
}

impl Dump {
    pub fn run(&self, output: &mut Output) -> Outcome {
        self.what.run(&self.pool.open_or_follow()?, self.tree.as_deref(), output)
    }
}

impl DumpArgs {
    /// Writes the named tree, or all trees.
    pub fn run(&self, pool: &Pool, tree: Option<&str>, output: &mut Output) -> Outcome {
        let trees = match tree {
            Some(name) => vec![store::find(pool, name)?],
            None => store::specs(pool)?.into_iter().map(TreeInfo::new).collect::<Outcome<_>>()?,
        };
        let mut file = self.output.as_deref().map(create).transpose()?;
        let mut entries = 0;
        for (number, info) in (1..).zip(&trees) {
            entries += match &mut file {
                Some((file, path)) => {
                    let put = |text: &[u8]| {
                        file.write_all(text).map_err(|error| Failure::io(path.display(), &error))
                    };
                    self.tree(pool, info, (number, trees.len() as u64), output.json(), put)
                }
                None => {
                    let json = output.json();
                    self.tree(pool, info, (number, trees.len() as u64), json, |text| output.bytes(text))
                }
            }?;
        }
        let Some((mut file, path)) = file else { return Ok(()) };
        let synced = file.flush().and_then(|()| file.get_ref().sync_all());
        synced.map_err(|error| Failure::io(path.display(), &error))?;
        let of =
            if self.all { counted(trees.len() as u64, "tree", "trees") + " with " } else { String::new() };
        let said = format!("dumped {of}{} to {}", counted(entries, "entry", "entries"), path.display());
        output.either(&json!({ "trees": trees.len(), "entries": entries, "file": path }), said)
    }

    /// Writes a tree; returns the number of its entries.
    fn tree(
        &self,
        pool: &Pool,
        info: &TreeInfo,
        number: (u64, u64),
        json: bool,
        mut put: impl FnMut(&[u8]) -> Outcome,
    ) -> Outcome<u64> {
        let tree = store::tree(pool, &info.name)?;
        let format = self.format(json);
        if !self.no_header {
            let len = if tree.is_salvaged() { tree.stats()?.items } else { tree.len()? };
            put(&line(&Header::new(info, len, format, number))?)?;
        }
        let sum = entries(&tree, format, &mut put)?;
        if !self.no_header {
            put(&line(&Trailer::new(&info.name, sum))?)?;
        }
        Ok(sum.entries)
    }

    fn format(&self, json: bool) -> Format {
        match self.format {
            Some(DumpFormat::Tsv) => Format::Tsv,
            Some(DumpFormat::Csv) => Format::Csv,
            Some(DumpFormat::Json) => Format::Json,
            None if json => Format::Json,
            None => Format::Tsv,
        }
    }
}

fn line(frame: &impl Serialize) -> Outcome<Vec<u8>> {
    let mut text = serde_json::to_vec(frame).map_err(std::io::Error::from)?;
    text.push(b'\n');
    Ok(text)
}

fn entries(tree: &Tree, format: Format, put: &mut impl FnMut(&[u8]) -> Outcome) -> Outcome<Sum> {
    let (mut sum, mut text) = (Sum::default(), Vec::new());
    store::scan_readable(tree, (Bound::Unbounded, Bound::Unbounded), false, &mut |key, value| {
        interrupt::check("the dump is incomplete")?;
        text.clear();
        write(format, key, value, &mut text)?;
        sum.entries += 1;
        sum.add(&text);
        put(&text).map(|()| true)
    })?;
    Ok(sum)
}

fn write(format: Format, key: &Datum, value: &Datum, to: &mut Vec<u8>) -> Outcome {
    match format {
        Format::Json => {
            serde_json::to_writer(&mut *to, &Entry::new(key, value)).map_err(std::io::Error::from)?
        }
        Format::Csv => {
            write_csv(key, to);
            to.push(b',');
            write_csv(value, to);
        }
        Format::Tsv | Format::Keys => {
            datum::write(key, Form::Line, to);
            to.push(b'\t');
            datum::write(value, Form::Line, to);
        }
    }
    to.push(b'\n');
    Ok(())
}

fn create(path: &Path) -> Outcome<(BufWriter<File>, &Path)> {
    let file = File::create_new(path).map_err(|error| Failure::io(path.display(), &error))?;
    Ok((BufWriter::with_capacity(1 << 16, file), path))
}

/// Appends one field, quoted if it contains a comma, a quote or a line end.
fn write_csv(datum: &Datum, to: &mut Vec<u8>) {
    let start = to.len();
    datum::write(datum, Form::Plain, to);
    if !to[start..].iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        return;
    }
    let field = to.split_off(start);
    to.push(b'"');
    for byte in field {
        if byte == b'"' {
            to.push(byte);
        }
        to.push(byte);
    }
    to.push(b'"');
}
