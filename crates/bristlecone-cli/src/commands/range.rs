//! Ranges of keys, as arguments.

use std::ffi::OsString;
use std::ops::Bound;

use bristlecone_cli::failure::{Failure, Outcome};
use clap::Args;

use crate::datum::{Datum, Kind, argument};

/// A range of keys.
#[derive(Args, Debug)]
pub struct RangeArgs {
    /// First key, inclusive.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// End of the range, exclusive.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
    /// Only keys with this prefix (trees of kind str and bytes).
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"], allow_hyphen_values = true)]
    prefix: Option<OsString>,
}

impl RangeArgs {
    /// Returns whether any bound is given.
    pub fn is_given(&self) -> bool {
        [&self.from, &self.to, &self.prefix].into_iter().any(Option::is_some)
    }

    /// Returns the bounds.
    pub fn bounds(&self, kind: &Kind) -> Outcome<(Bound<Datum>, Bound<Datum>)> {
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
