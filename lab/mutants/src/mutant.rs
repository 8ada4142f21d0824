//! A mutant and its kinds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `<` and `<=`, `>` and `>=`, `==` and `!=`.
    Comparison,
    /// `x + 1` or `x - 1` becomes `x`, or changes by two.
    OffByOne,
    /// A bound of a range moves by one.
    Bound,
    /// `&&` and `||`.
    Junction,
    /// `!x` becomes `x`.
    Negation,
    /// `true` and `false`.
    Literal,
    /// A condition before a `return`, `continue`, `break` or error is never true.
    Check,
    /// Another condition without `else` is never true.
    Branch,
    /// A statement is omitted.
    Deletion,
    /// Two adjacent statements are swapped.
    Swap,
    /// A guard that is never read is dropped immediately.
    Guard,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Comparison => "comparison",
            Self::OffByOne => "off-by-one",
            Self::Bound => "bound",
            Self::Junction => "junction",
            Self::Negation => "negation",
            Self::Literal => "literal",
            Self::Check => "check",
            Self::Branch => "branch",
            Self::Deletion => "deletion",
            Self::Swap => "swap",
            Self::Guard => "guard",
        })
    }
}

/// One change of the sources.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mutant {
    /// Its number, as named in the environment.
    pub id: u32,
    /// Path from the workspace's root.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// Kind of the change.
    pub kind: Kind,
    /// The line, without its indentation.
    pub text: String,
    /// The code before.
    pub before: String,
    /// The code after; empty if there is none.
    pub after: String,
}

impl Mutant {
    /// Returns the identity of this mutant in results, stable across runs over the same sources.
    pub fn key(&self) -> String {
        format!("{}:{}:{}:{}:{}", self.file, self.line, self.column, self.kind, self.after)
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, file, line, column, kind, .. } = self;
        let (before, after) = (shortened(&self.before), shortened(&self.after));
        write!(f, "{id:>5} {file}:{line}:{column} {kind}: `{before}` -> `{after}`")
    }
}

/// Joins code into one line.
pub fn on_one_line(code: &str) -> String {
    code.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn shortened(line: &str) -> String {
    const CHARS_MAX: usize = 160;
    match line.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
