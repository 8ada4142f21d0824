//! Which fields a command means: bounds as `ZRANGE … BYLEX` has them, prefixes, patterns, and how many.

use std::ops::Bound;

use super::glob::Pattern;
use super::{Refusal, integer, is, refuse};
use crate::store::{Bounds, all_of, item_key};

/// An end of a range.
#[derive(Clone, Copy)]
pub enum Edge<'a> {
    /// Before all fields.
    First,
    /// Behind all fields.
    Last,
    /// A field, which belongs to the range.
    At(&'a [u8]),
    /// A field, which does not.
    Beside(&'a [u8]),
}

/// Fields that follow each other.
pub enum Span<'a> {
    /// Those between two ends.
    Between(Edge<'a>, Edge<'a>),
    /// Those that begin alike.
    Prefix(&'a [u8]),
}

fn edge(argument: &[u8]) -> Result<Edge<'_>, Refusal> {
    match argument {
        b"-" => Ok(Edge::First),
        b"+" => Ok(Edge::Last),
        [b'[', field @ ..] => Ok(Edge::At(field)),
        [b'(', field @ ..] => Ok(Edge::Beside(field)),
        _ => refuse("min or max not valid string range item"),
    }
}

impl<'a> Span<'a> {
    /// Returns the span that two arguments are: `min max`, or `PREFIX prefix`.
    pub fn of(one: &'a [u8], other: &'a [u8]) -> Result<Self, Refusal> {
        if is(one, "PREFIX") {
            return Ok(Self::Prefix(other));
        }
        Ok(Self::Between(edge(one)?, edge(other)?))
    }

    /// Returns the same span if the larger end stands first.
    pub fn reversed(self) -> Self {
        match self {
            Self::Between(max, min) => Self::Between(min, max),
            prefix => prefix,
        }
    }

    /// Returns where the span begins and ends in a map; `None`: nothing can be in it.
    pub fn bounds(&self, id: u64) -> Option<Bounds> {
        let all = all_of(id);
        let (from, to) = match self {
            Self::Prefix(prefix) => beginning_with(id, prefix),
            Self::Between(min, max) => {
                let from = match min {
                    Edge::First => all.0,
                    Edge::Last => return None,
                    Edge::At(field) => Bound::Included(item_key(id, field)),
                    Edge::Beside(field) => Bound::Excluded(item_key(id, field)),
                };
                let to = match max {
                    Edge::First => return None,
                    Edge::Last => all.1,
                    Edge::At(field) => Bound::Included(item_key(id, field)),
                    Edge::Beside(field) => Bound::Excluded(item_key(id, field)),
                };
                (from, to)
            }
        };
        in_order((from, to))
    }
}

/// Returns bounds of the fields of a map that begin alike.
fn beginning_with(id: u64, prefix: &[u8]) -> Bounds {
    let from = item_key(id, prefix);
    let mut end = from.clone();
    while end.pop_if(|byte| *byte == u8::MAX).is_some() {}
    match end.last_mut() {
        Some(last) => *last += 1,
        None => return (Bound::Included(from), Bound::Unbounded),
    }
    (Bound::Included(from), Bound::Excluded(end))
}

fn in_order((from, to): Bounds) -> Option<Bounds> {
    let is_in_order = match (&from, &to) {
        (Bound::Included(from), Bound::Included(to)) => from <= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from < to
        }
        _ => true,
    };
    is_in_order.then_some((from, to))
}

/// Returns the part of bounds in which fields can match a pattern.
pub fn narrowed(bounds: Bounds, id: u64, pattern: &Pattern) -> Option<Bounds> {
    let ((from, to), (least, most)) = (bounds, beginning_with(id, &pattern.prefix()));
    let from = match (&from, &least) {
        (Bound::Included(one) | Bound::Excluded(one), Bound::Included(other)) if one >= other => from,
        _ => least,
    };
    let to = match (&to, &most) {
        (Bound::Included(one), Bound::Excluded(other)) if one < other => to,
        (Bound::Excluded(one), Bound::Excluded(other)) if one <= other => to,
        (_, Bound::Unbounded) => to,
        _ => most,
    };
    in_order((from, to))
}

/// What stands behind a span.
#[derive(Default)]
pub struct Options {
    /// The last fields first.
    pub backward: bool,
    /// Fields that are left out first.
    pub skip: usize,
    /// Fields at most.
    pub limit: Option<usize>,
    /// Values as well.
    pub values: bool,
    /// What fields match.
    pub pattern: Option<Pattern>,
}

/// Returns the options that arguments are, if they are among the words that a command knows.
pub fn options(arguments: &[&[u8]], known: &[&str]) -> Result<Options, Refusal> {
    let mut options = Options::default();
    let mut rest = arguments;
    while let [word, after @ ..] = rest {
        rest = after;
        if !known.iter().any(|known| is(word, known)) {
            return refuse(format!("syntax error at {:?}", String::from_utf8_lossy(word)));
        } else if is(word, "REV") {
            options.backward = true;
        } else if is(word, "WITHVALUES") {
            options.values = true;
        } else if is(word, "MATCH") {
            let [pattern, after @ ..] = rest else { return refuse("syntax error: MATCH needs a pattern") };
            (options.pattern, rest) = (Some(Pattern::new(pattern)), after);
        } else if is(word, "LIMIT") {
            rest = options.read_limit(rest)?;
        }
    }
    Ok(options)
}

impl Options {
    /// Reads `count`, or `offset count`. A negative count is none; nothing is at a negative offset.
    fn read_limit<'r, 'a>(&mut self, words: &'r [&'a [u8]]) -> Result<&'r [&'a [u8]], Refusal> {
        let [one, rest @ ..] = words else { return refuse("syntax error: LIMIT needs a number") };
        let one = integer(one)?;
        if let [other, after @ ..] = rest
            && let Ok(count) = integer(other)
        {
            self.skip = usize::try_from(one).unwrap_or(0);
            self.limit = Some(if one < 0 { 0 } else { usize::try_from(count).unwrap_or(usize::MAX) });
            return Ok(after);
        }
        self.limit = Some(usize::try_from(one).unwrap_or(usize::MAX));
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(bounds: &Bounds, field: &[u8]) -> bool {
        let key = item_key(7, field);
        (match &bounds.0 {
            Bound::Included(from) => key >= *from,
            Bound::Excluded(from) => key > *from,
            Bound::Unbounded => true,
        }) && match &bounds.1 {
            Bound::Included(to) => key <= *to,
            Bound::Excluded(to) => key < *to,
            Bound::Unbounded => true,
        }
    }

    #[test]
    fn a_prefix_has_the_fields_that_begin_so() {
        let fields: [&[u8]; 8] =
            [b"", b"a", b"ab", b"ab\xff", b"ab\xff\xff", b"ac", b"\xff", b"\xff\xff\x00"];
        for prefix in fields {
            let bounds = Span::Prefix(prefix).bounds(7).unwrap();
            for field in fields {
                assert_eq!(has(&bounds, field), field.starts_with(prefix), "{prefix:?} {field:?}");
            }
        }
        assert!(matches!(beginning_with(u64::MAX, b"\xff"), (Bound::Included(_), Bound::Unbounded)));
    }

    #[test]
    fn a_pattern_narrows_bounds_and_loses_no_match() {
        let fields = ["a", "ab", "abc", "abd", "b", "ba"];
        let edges = [Edge::First, Edge::At(b"ab"), Edge::Beside(b"ab"), Edge::At(b"abd"), Edge::Last];
        for pattern in ["*", "ab*", "a", "b?", "[ab]*", "abc"] {
            let pattern = Pattern::new(pattern.as_bytes());
            for (min, max) in edges.iter().flat_map(|min| edges.iter().map(move |max| (*min, *max))) {
                let Some(bounds) = Span::Between(min, max).bounds(7) else { continue };
                let narrow = narrowed(bounds.clone(), 7, &pattern);
                for field in fields.iter().map(|field| field.as_bytes()) {
                    let expected = has(&bounds, field) && pattern.matches(field);
                    let found =
                        narrow.as_ref().is_some_and(|narrow| has(narrow, field)) && pattern.matches(field);
                    assert_eq!(found, expected, "{pattern:?} {field:?}");
                    assert!(narrow.as_ref().is_none_or(|narrow| !has(narrow, field) || has(&bounds, field)));
                }
            }
        }
    }
}
