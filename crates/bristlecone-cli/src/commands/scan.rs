//! `bristlecone scan`: entries in order.

use std::ffi::OsString;
use std::ops::Bound;

use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use clap::Args;
use serde_json::json;

use crate::args::ReadArgs;
use crate::datum::{Datum, Form, Kind};
use crate::store;

/// Print entries in key order
#[derive(Args, Debug)]
pub struct Scan {
    #[command(flatten)]
    pool: ReadArgs,
    /// The tree.
    tree: String,
    /// Begin at this key, inclusive.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// End before this key, exclusive.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
    /// Only keys that begin like this (trees of kind str and bytes).
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"], allow_hyphen_values = true)]
    prefix: Option<OsString>,
    /// At most so many entries.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// From the last key to the first.
    #[arg(long)]
    reverse: bool,
    /// Print keys only.
    #[arg(long, conflicts_with = "count")]
    keys: bool,
    /// Print only how many entries there are.
    #[arg(long)]
    count: bool,
}

impl Scan {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let (pool, tree) = store::tree_to_read(&self.pool, &self.tree)?;
        let kind = tree.key_kind();
        let (mut from, mut to) = (Vec::new(), Vec::new());
        let bounds = match &self.prefix {
            Some(prefix) => {
                if kind == Kind::U64 {
                    return Err(Failure::usage(
                        "--prefix is for keys of kind str and bytes: use --from and --to",
                    ));
                }
                let prefix =
                    Datum::argument(kind, prefix, &mut from).map_err(|error| error.within("--prefix"))?;
                under_prefix(prefix, &mut to)
            }
            None => {
                let read = |text, scratch, name| {
                    Datum::argument(kind, text, scratch).map_err(|error: Failure| error.within(name))
                };
                let from = self.from.as_ref().map(|text| read(text, &mut from, "--from")).transpose()?;
                let to = self.to.as_ref().map(|text| read(text, &mut to, "--to")).transpose()?;
                (from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded))
            }
        };
        let mut entries = 0;
        if self.limit != Some(0) && !is_empty(&bounds) {
            tree.scan(bounds, self.reverse, &mut |key, value| {
                interrupt::check("nothing was changed")?;
                entries += 1;
                if !self.count {
                    self.show(output, key, value)?;
                }
                Ok(self.limit.is_none_or(|limit| entries < limit))
            })?;
        }
        if self.count {
            output.either(&json!({ "entries": entries }), entries)?;
        }
        drop(tree);
        Ok(pool.close()?)
    }

    fn show(&self, output: &mut Output, key: Datum<'_>, value: Datum<'_>) -> Outcome {
        if output.json() {
            return if self.keys {
                output.value(&json!({ "key": key }))
            } else {
                output.value(&json!({ "key": key, "value": value }))
            };
        }
        let mut text = Vec::new();
        key.write(Form::Line, &mut text);
        if !self.keys {
            text.push(b'\t');
            value.write(Form::Line, &mut text);
        }
        text.push(b'\n');
        output.bytes(&text)
    }
}

/// The range of keys that begin with `prefix`. Its end is kept in `end`.
///
/// The end of a range of strings need not be a string: cutting it back to whole characters
/// before raising the last one keeps it one, and keeps every key under the prefix below it.
pub fn under_prefix<'a>(prefix: Datum<'a>, end: &'a mut Vec<u8>) -> (Bound<Datum<'a>>, Bound<Datum<'a>>) {
    let end = match prefix {
        Datum::Bytes(bytes) => {
            let kept = bytes.iter().rposition(|byte| *byte != 0xff).map_or(0, |last| last + 1);
            end.extend_from_slice(&bytes[..kept]);
            end.last_mut().map(|last| *last += 1).map(|()| Datum::Bytes(end))
        }
        Datum::Str(text) => {
            let kept = text.trim_end_matches(char::MAX);
            kept.chars().next_back().and_then(|last| {
                // Between U+D7FF and U+E000 there are no characters.
                let raised = char::from_u32(u32::from(last) + 1).unwrap_or('\u{e000}');
                end.extend_from_slice(&kept.as_bytes()[..kept.len() - last.len_utf8()]);
                end.extend_from_slice(raised.encode_utf8(&mut [0; 4]).as_bytes());
                std::str::from_utf8(end).ok().map(Datum::Str)
            })
        }
        Datum::U64(_) => None,
    };
    // Everything begins with nothing.
    let is_empty = matches!(prefix, Datum::Bytes([]) | Datum::Str(""));
    let start = if is_empty { Bound::Unbounded } else { Bound::Included(prefix) };
    (start, end.map_or(Bound::Unbounded, Bound::Excluded))
}

/// Whether the start of a range is at or behind its end.
fn is_empty(bounds: &(Bound<Datum<'_>>, Bound<Datum<'_>>)) -> bool {
    match bounds {
        (Bound::Included(Datum::U64(from)), Bound::Excluded(Datum::U64(to))) => from >= to,
        (Bound::Included(Datum::Str(from)), Bound::Excluded(Datum::Str(to))) => from >= to,
        (Bound::Included(Datum::Bytes(from)), Bound::Excluded(Datum::Bytes(to))) => from >= to,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_above_all_its_keys_and_no_higher() {
        let end = |prefix: &[u8]| {
            let mut end = Vec::new();
            match under_prefix(Datum::Bytes(prefix), &mut end).1 {
                Bound::Excluded(Datum::Bytes(end)) => Some(end.to_vec()),
                _ => None,
            }
        };
        assert_eq!(end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(end(b"\xff"), None);
        assert_eq!(end(b""), None);
    }

    #[test]
    fn the_end_of_a_string_prefix_is_a_string() {
        let end = |prefix: &str| {
            let mut end = Vec::new();
            match under_prefix(Datum::Str(prefix), &mut end).1 {
                Bound::Excluded(Datum::Str(end)) => Some(end.to_owned()),
                _ => None,
            }
        };
        assert_eq!(end("ab").as_deref(), Some("ac"));
        assert_eq!(end("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(end("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!(end("\u{7f}").as_deref(), Some("\u{80}"));
        assert_eq!(end(""), None);
        assert!("ä\u{10ffff}z" < "å");
    }
}
