//! `bristlecone scan`: prints entries in order.

use bristlecone::dynamic::Tree;
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::range::RangeArgs;
use crate::datum::{self, Datum, Entry, Form, Json};
use crate::expiry;
use crate::open::ReadArgs;
use crate::store;

/// Print entries in key order
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone scan trees.pool ages --from M --to N
  bristlecone scan trees.pool files --prefix /usr/lib/ --count
  bristlecone scan trees.pool ages --reverse --limit 10")]
pub struct Scan {
    #[command(flatten)]
    pool: ReadArgs,
    /// The tree.
    tree: String,
    #[command(flatten)]
    what: ScanArgs,
}

/// Selection and format of a scan.
#[derive(Args, Debug)]
pub struct ScanArgs {
    #[command(flatten)]
    range: RangeArgs,
    /// Maximum number of entries.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print in descending key order.
    #[arg(long)]
    reverse: bool,
    /// Print keys only.
    #[arg(long, conflicts_with = "count")]
    keys: bool,
    /// Print only the number of entries.
    #[arg(long)]
    count: bool,
}

/// A key in JSON output.
#[derive(Serialize)]
struct KeyOnly<'a> {
    key: Json<'a>,
}

impl Scan {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = self.pool.open_or_follow()?;
        let tree = store::tree(&pool, &self.tree)?;
        self.what.run(&tree, output)
    }
}

impl ScanArgs {
    /// Prints the entries.
    pub fn run(&self, tree: &Tree, output: &mut Output) -> Outcome {
        let bounds = self.range.bounds(tree.key_kind())?;
        let (mut entries, mut scanned) = (0, Ok(()));
        if self.limit != Some(0) {
            scanned = store::scan_readable(tree, bounds, self.reverse, &mut |key, value| {
                interrupt::check("nothing was changed")?;
                if expiry::has_expired(value) {
                    return Ok(true);
                }
                entries += 1;
                if !self.count {
                    self.show(output, key, value)?;
                }
                Ok(self.limit.is_none_or(|limit| entries < limit))
            });
        }
        if self.count && (scanned.is_ok() || tree.is_salvaged()) {
            output.either(&json!({ "entries": entries }), entries)?;
        }
        scanned
    }

    fn show(&self, output: &mut Output, key: &Datum, value: &Datum) -> Outcome {
        if output.json() {
            return if self.keys {
                output.value(&KeyOnly { key: Json(key) })
            } else {
                output.value(&Entry::new(key, value))
            };
        }
        let mut text = Vec::new();
        datum::write(key, Form::Line, &mut text);
        if !self.keys {
            text.push(b'\t');
            datum::write(value, Form::Line, &mut text);
        }
        text.push(b'\n');
        output.bytes(&text)
    }
}
