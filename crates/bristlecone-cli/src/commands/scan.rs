//! `bristlecone scan`: prints entries in order.

use std::ffi::OsString;
use std::ops::Bound;

use bristlecone::dynamic::Tree;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::datum::{self, Datum, Entry, Form, Json, Kind, argument};
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
    /// First key, inclusive.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// End of the range, exclusive.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
    /// Only keys with this prefix (trees of kind str and bytes).
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"], allow_hyphen_values = true)]
    prefix: Option<OsString>,
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
        let (from, to) = self.bounds(tree.key_kind())?;
        let (mut entries, mut scanned) = (0, Ok(()));
        if self.limit != Some(0) {
            scanned = store::scan_readable(tree, (from, to), self.reverse, &mut |key, value| {
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

    fn bounds(&self, kind: &Kind) -> Outcome<(Bound<Datum>, Bound<Datum>)> {
        let read = |text: &Option<OsString>, name| {
            let datum = text.as_ref().map(|text| argument(kind, text));
            datum.transpose().map_err(|error: Failure| error.within(name))
        };
        let Some(prefix) = read(&self.prefix, "--prefix")? else {
            let (from, to) = (read(&self.from, "--from")?, read(&self.to, "--to")?);
            let from = from.map_or(Bound::Unbounded, Bound::Included);
            return Ok((from, to.map_or(Bound::Unbounded, Bound::Excluded)));
        };
        under_prefix(prefix)
            .ok_or_else(|| Failure::usage("--prefix is for keys of kind str and bytes: use --from and --to"))
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

/// Returns the range of keys with the prefix `prefix`, for kinds whose values are sequences.
///
/// The end of a range of strings need not be a string. Truncating it to whole characters before
/// incrementing the last one keeps it a string, and greater than every key with the prefix.
pub fn under_prefix(prefix: Datum) -> Option<(Bound<Datum>, Bound<Datum>)> {
    let (end, is_empty) = match &prefix {
        Datum::Bytes(bytes) => {
            let kept = bytes.iter().rposition(|byte| *byte != 0xff).map_or(0, |last| last + 1);
            let mut end = bytes[..kept].to_vec();
            (end.last_mut().map(|last| *last += 1).map(|()| Datum::Bytes(end.into())), bytes.is_empty())
        }
        Datum::Str(text) => {
            let kept = text.trim_end_matches(char::MAX);
            let end = kept.chars().next_back().map(|last| {
                // Between U+D7FF and U+E000 there are no characters.
                let raised = char::from_u32(u32::from(last) + 1).unwrap_or('\u{e000}');
                let mut end = kept[..kept.len() - last.len_utf8()].to_owned();
                end.push(raised);
                Datum::Str(end.into())
            });
            (end, text.is_empty())
        }
        _ => return None,
    };
    // Every key has the empty prefix.
    let start = if is_empty { Bound::Unbounded } else { Bound::Included(prefix) };
    Some((start, end.map_or(Bound::Unbounded, Bound::Excluded)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(prefix: Datum) -> Option<Datum> {
        match under_prefix(prefix).unwrap().1 {
            Bound::Excluded(end) => Some(end),
            _ => None,
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_above_all_its_keys_and_no_higher() {
        let end = |prefix: &[u8]| end(Datum::Bytes(prefix.to_vec().into()));
        let bytes = |bytes: &[u8]| Some(Datum::Bytes(bytes.to_vec().into()));
        assert_eq!(end(b"ab"), bytes(b"ac"));
        assert_eq!(end(b"a\xff\xff"), bytes(b"b"));
        assert_eq!(end(b"\xff"), None);
        assert_eq!(end(b""), None);
    }

    #[test]
    fn the_end_of_a_string_prefix_is_a_string() {
        let end = |prefix: &str| end(Datum::Str(prefix.to_owned().into()));
        let text = |text: &str| Some(Datum::Str(text.to_owned().into()));
        assert_eq!(end("ab"), text("ac"));
        assert_eq!(end("a\u{10ffff}"), text("b"));
        assert_eq!(end("\u{d7ff}"), text("\u{e000}"));
        assert_eq!(end("\u{7f}"), text("\u{80}"));
        assert_eq!(end(""), None);
        assert!("ä\u{10ffff}z" < "å");
    }

    #[test]
    fn numbers_have_no_prefix() {
        assert!(under_prefix(Datum::U64(1)).is_none());
    }
}
