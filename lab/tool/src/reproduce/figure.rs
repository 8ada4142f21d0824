//! Figures: rows to measure, and the paper's value of each.

use serde::{Deserialize, Serialize};

use super::run::Run;
use super::take::{Take, number};

/// Whether a number is the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Counted by the device model or in the tree: the same everywhere.
    Counted,
    /// In virtual time on simulated cores: the same everywhere. Needs a build with the feature `turns`.
    Simulated,
    /// Timed on this machine.
    Timed,
}

impl Kind {
    /// Returns its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Simulated => "simulated",
            Self::Timed => "timed",
        }
    }
}

/// Maximum number of keys of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Ten minutes for all papers on two processors.
    Quick,
    /// As many as in the paper.
    Full,
    /// At most this number.
    Keys(u64),
}

/// Maximum number of keys of a figure at the quick scale.
const QUICK_KEYS: u64 = 100_000;

impl Scale {
    /// Returns the number of keys in place of the paper's number.
    pub fn keys(self, paper: u64) -> u64 {
        match self {
            Self::Quick => paper.min(QUICK_KEYS),
            Self::Full => paper,
            Self::Keys(most) => paper.min(most),
        }
    }

    /// Returns the number of keys where bytes of space are measured: the pool grows by chunks of 2 MiB, which matter
    /// more with few keys.
    pub fn keys_in_space(self, paper: u64) -> u64 {
        match self {
            Self::Quick => paper.min(5 * QUICK_KEYS),
            other => other.keys(paper),
        }
    }

    /// Returns the size of the processor's cache for counting, so that it holds the same fraction of the tree as in
    /// the paper.
    pub fn cache(self, paper: u64, cache: u64) -> u64 {
        let share = self.keys(paper) as f64 / paper as f64;
        ((cache as f64 * share) as u64).max(64 << 10)
    }
}

/// A figure or a table of a paper.
#[derive(Debug)]
pub struct Figure {
    /// Its number in the paper.
    pub name: String,
    pub title: String,
    pub kind: Kind,
    /// Meaning of the rows' positions.
    pub x: String,
    /// Whether values span orders of magnitude, like tails.
    pub logarithmic: bool,
    pub rows: Vec<Row>,
    /// Differences of our method from the paper's, and the reasons for different results.
    pub note: String,
}

/// Position of a row in its figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum X {
    Number(f64),
    Label(String),
    /// It is the only one of its series.
    None,
}

impl X {
    /// Returns a position: a number, if it begins like one, and a label otherwise.
    pub fn of(text: &str) -> Self {
        let is_number = text.starts_with(|first: char| first.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number);
        number.map_or_else(|| Self::Label(text.to_owned()), Self::Number)
    }
}

/// The paper's value of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    pub value: f64,
    /// The other end, where the paper gives a range.
    pub upto: Option<f64>,
    /// Location in the paper.
    pub place: String,
    /// Whether it was read off a plot, or follows from rounded numbers.
    pub approximate: bool,
}

impl Said {
    /// Reads `[about] VALUE [to VALUE] [in PLACE]`; `place` is used if none is given.
    pub fn of(text: &str, place: Option<&str>) -> Result<Self, String> {
        let (value, place) = match text.split_once(" in ") {
            Some((value, own)) => (value, own),
            None => (text, place.ok_or("it has no place")?),
        };
        let (value, approximate) = match value.strip_prefix("about ") {
            Some(value) => (value, true),
            None => (value, false),
        };
        let (value, upto) = match value.split_once(" to ") {
            Some((value, upto)) => (value, Some(number(upto)?)),
            None => (value, None),
        };
        Ok(Self { value: number(value)?, upto, place: place.to_owned(), approximate })
    }
}

/// A value to measure.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name in legends.
    pub series: String,
    /// The design it is about.
    pub design: String,
    pub x: X,
    pub metric: String,
    pub unit: String,
    /// Its runs: one, or two that are compared.
    pub runs: Vec<Run>,
    pub take: Take,
    pub paper: Option<Said>,
    /// The reason why it differs from the paper's.
    pub remark: String,
}

impl Row {
    /// Returns the difference from the paper's value, if there is one: in percent of it, or in percentage points
    /// where both are percentages. A value within the paper's range does not differ.
    pub fn deviation(&self, value: f64) -> Option<f64> {
        let said = self.paper.as_ref()?;
        let other = said.upto.unwrap_or(said.value);
        let nearest = value.clamp(said.value.min(other), said.value.max(other));
        if self.unit == "%" {
            Some(value - nearest)
        } else {
            (nearest != 0.0).then(|| (value / nearest - 1.0) * 100.0)
        }
    }
}

/// Returns a general reason why a baseline's cost on the medium differs from the papers' measurements, if there is
/// one.
pub fn remark_of(design: &str) -> &'static str {
    if design == "pactree" {
        "the baseline: its search layer is in DRAM here, on the medium there"
    } else {
        ""
    }
}

/// Returns a design's name in the papers, if it has one.
pub fn title(design: &str) -> Option<&'static str> {
    Some(match design {
        "sstree" => "SSTree",
        "nbtree" => "NBTree",
        "cclbtree" => "CCL-BTree",
        "lodgetree" => "LodgeTree",
        "wotree" => "WO-tree",
        "native" => "native B+-tree",
        "wbtree" => "wB+-Tree",
        "fastfair" => "FAST & FAIR",
        "lbtree" => "LB+-Tree",
        "fptree" => "FPTree",
        "utree" => "\u{b5}Tree",
        "dptree" => "DPTree",
        "flatstore" => "FlatStore",
        "pactree" => "PACTree",
        "hash" => "Redis' hash",
        "betree" => "B\u{3b5}-tree",
        _ => return None,
    })
}
