//! What a mutant is.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `<` and `<=`, `>` and `>=`, `==` and `!=`.
    Comparison,
    /// `x + 1` or `x - 1` becomes `x`, or goes by two.
    OffByOne,
    /// A bound of a range moves by one.
    Bound,
    /// `&&` and `||`.
    Junction,
    /// `!x` becomes `x`.
    Negation,
    /// `true` and `false`.
    Literal,
    /// A condition before a `return`, `continue`, `break` or error never holds.
    Check,
    /// Another condition without `else` never holds.
    Branch,
    /// A statement is left out.
    Deletion,
    /// Two neighbours change places.
    Swap,
    /// A guard that nothing reads is dropped at once.
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
    /// Its number: what the environment names.
    pub id: u32,
    /// Path from the workspace's root.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// What is changed.
    pub kind: Kind,
    /// The line, without its indentation.
    pub text: String,
    /// The code before.
    pub before: String,
    /// The code after; empty if there is none.
    pub after: String,
}

impl Mutant {
    /// Returns what names this mutant in results, also of another run over the same sources.
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

/// Returns code on one line.
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
