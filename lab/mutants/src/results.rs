//! Results of mutants: a line of JSON each, written immediately.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

/// Result of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A test failed.
    Killed,
    /// A test did not end in time: it failed, too.
    TimedOut,
    /// All tests that reach it passed.
    Survived,
    /// No test that owns the file reaches it.
    Unreached,
}

impl Outcome {
    /// Returns whether the tests detected it.
    pub fn is_noticed(self) -> bool {
        matches!(self, Self::Killed | Self::TimedOut)
    }
}

/// A line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The mutant's key.
    pub mutant: String,
    pub outcome: Outcome,
    /// The test that detected it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Tests that ran.
    pub tests: usize,
    pub millis: u64,
}

/// The file of results.
#[derive(Debug)]
pub struct Results {
    file: Mutex<File>,
    /// Earlier results, by mutant; later lines replace earlier ones.
    pub before: BTreeMap<String, Line>,
}

impl Results {
    /// Opens the file. A truncated line is skipped.
    pub fn open(path: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let before = lines.map(|line| (line.mutant.clone(), line)).collect();
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(failed)?;
        }
        Ok(Self { file: Mutex::new(file), before })
    }

    /// Adds a line.
    pub fn add(&self, line: &Line) -> Result<(), String> {
        let text = serde_json::to_string(line).map_err(|error| error.to_string())? + "\n";
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.write_all(text.as_bytes()).map_err(|error| format!("results: {error}"))
    }
}
