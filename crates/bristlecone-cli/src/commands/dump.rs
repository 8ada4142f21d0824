//! `bristlecone dump`: a whole tree as text that `load` reads back.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, counted};
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::args::ReadArgs;
use crate::datum::{Datum, Form};
use crate::store;

/// Print a whole tree as text that `load` reads back
#[derive(Args, Debug)]
pub struct Dump {
    #[command(flatten)]
    pool: ReadArgs,
    /// The tree.
    tree: String,
    /// How entries are written; with --json they are JSON objects, one per line.
    #[arg(long, value_enum, default_value = "tsv")]
    format: DumpFormat,
    /// Write to this file instead of standard output; it must not exist.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// How entries are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DumpFormat {
    /// Key, tab, value; tabs, newlines and backslashes as \t, \n, \\.
    Tsv,
    /// Comma-separated, quoted where needed (RFC 4180).
    Csv,
}

impl Dump {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let (pool, tree) = store::tree_to_read(&self.pool, &self.tree)?;
        let mut file = self.output.as_deref().map(create).transpose()?;
        let bar = output.progress("dumping", self.output.as_ref().map(|_| tree.len()));
        let (mut entries, mut text) = (0, Vec::new());
        tree.scan((Bound::Unbounded, Bound::Unbounded), false, &mut |key, value| {
            interrupt::check("the dump is not whole")?;
            text.clear();
            self.write(output.json(), key, value, &mut text)?;
            entries += 1;
            bar.inc(1);
            match &mut file {
                Some((file, path)) => {
                    file.write_all(&text).map_err(|error| Failure::io(path.display(), &error))
                }
                None => output.bytes(&text),
            }
            .map(|()| true)
        })?;
        bar.finish_and_clear();
        if let Some((mut file, path)) = file {
            let synced = file.flush().and_then(|()| file.get_ref().sync_all());
            synced.map_err(|error| Failure::io(path.display(), &error))?;
            let said = format!("dumped {} to {}", counted(entries, "entry", "entries"), path.display());
            output.either(&json!({ "entries": entries, "file": path }), said)?;
        }
        drop(tree);
        Ok(pool.close()?)
    }

    fn write(&self, json: bool, key: Datum<'_>, value: Datum<'_>, to: &mut Vec<u8>) -> Outcome {
        if json {
            serde_json::to_writer(&mut *to, &json!({ "key": key, "value": value }))
                .map_err(std::io::Error::from)?;
        } else {
            match self.format {
                DumpFormat::Tsv => {
                    key.write(Form::Line, to);
                    to.push(b'\t');
                    value.write(Form::Line, to);
                }
                DumpFormat::Csv => {
                    write_csv(key, to);
                    to.push(b',');
                    write_csv(value, to);
                }
            }
        }
        to.push(b'\n');
        Ok(())
    }
}

fn create(path: &Path) -> Outcome<(BufWriter<File>, &Path)> {
    let file = File::create_new(path).map_err(|error| Failure::io(path.display(), &error))?;
    Ok((BufWriter::with_capacity(1 << 16, file), path))
}

/// One field; in quotes if it has a comma, a quote or a line end in it.
fn write_csv(datum: Datum<'_>, to: &mut Vec<u8>) {
    let start = to.len();
    datum.write(Form::Plain, to);
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
