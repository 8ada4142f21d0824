//! The file of a paper in `figures/`: its figures as data. lab/docs/REPRODUCE.md describes the format.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::figure::Kind;

/// A file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub title: String,
    /// The paper's number of keys, where a figure has none of its own.
    pub keys: u64,
    /// Values of loops, by name.
    #[serde(default)]
    pub lists: BTreeMap<String, Vec<Values>>,
    /// Names that stand for text.
    #[serde(default)]
    pub text: BTreeMap<String, Scalar>,
    #[serde(rename = "figure")]
    pub figures: Vec<Rows>,
}

/// Rows: one for each combination of the values of its loops. At the top of a file they are a figure.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// Of a figure: its number and title, as `NUMBER: TITLE`.
    pub title: Option<String>,
    /// Of a figure.
    pub kind: Option<Kind>,
    /// Of a figure: the meaning of its rows' positions.
    pub axis: Option<String>,
    /// Of a figure: whether values span orders of magnitude.
    pub logarithmic: Option<bool>,
    /// Of a figure.
    pub note: Option<String>,
    /// Of a figure: the paper's number of keys.
    pub keys: Option<u64>,
    /// Of a figure: whether bytes of space are measured, which takes more keys.
    pub space: Option<bool>,
    /// Of a figure: the paper's cache of the processor, in MiB.
    pub cache_mib: Option<u64>,
    /// Loops, the outermost first: names separated by spaces, and their values or a list's name.
    #[serde(default, rename = "for")]
    pub loops: Vec<BTreeMap<String, Source>>,
    /// Values of names; loops of rows within these may set others.
    #[serde(default)]
    pub with: BTreeMap<String, Scalar>,
    /// The value of a name `series`, if there is none; the same holds for the fields below. Otherwise the design's
    /// title.
    pub series: Option<String>,
    pub x: Option<String>,
    /// The metric, and its unit in brackets.
    pub metric: Option<String>,
    pub run: Option<String>,
    /// The second run: names of the first that have other values.
    pub against: Option<BTreeMap<String, Scalar>>,
    pub value: Option<String>,
    pub paper: Option<Choice>,
    /// Location of the paper's values.
    pub place: Option<String>,
    pub remark: Option<Choice>,
    /// Rows that inherit these fields, except `against`, `paper` and `remark`, in place of rows of its own.
    #[serde(default, rename = "row")]
    pub rows: Vec<Rows>,
}

/// The values of a loop.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Source {
    List(String),
    Here(Vec<Values>),
}

/// The values of a loop's names in one turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Values {
    One(Scalar),
    Many(Vec<Scalar>),
}

impl Values {
    /// Returns them in the order of their names.
    pub fn all(&self) -> &[Scalar] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}

/// A number or a text.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    Whole(i64),
    Number(f64),
    Text(String),
}

impl fmt::Display for Scalar {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(to),
            Self::Number(number) => number.fmt(to),
            Self::Text(text) => text.fmt(to),
        }
    }
}

/// A value of each row.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Choice {
    /// One value for every row.
    All(Scalar),
    /// By the position in the innermost loops, one level of arrays each; `-` for none.
    Grid(Vec<Choice>),
    /// By the values of the innermost loops, separated by ` / `; `*` for any. The case with the fewest `*` counts;
    /// rows without a match have none.
    Cases(BTreeMap<String, Scalar>),
}
