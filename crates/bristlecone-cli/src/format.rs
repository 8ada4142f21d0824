//! Formats of lines with keys and values.

use serde::{Deserialize, Serialize};

/// Format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Key, tab, value; tabs, newlines and backslashes as \t, \n, \\.
    Tsv,
    /// Comma-separated, quoted where necessary (RFC 4180).
    Csv,
    /// One object with key and value per line.
    Json,
    /// The whole line is the key; the value is the line's number, or empty.
    Keys,
}
