//! Survivors that are known to have no effect, each with the reason. An entry quotes the source line instead of a
//! line number: other changes of a file leave it valid, changes of its line do not.

use std::path::Path;

use serde::Deserialize;

use crate::mutant::{Kind, Mutant};

/// A survivor with the reason why it is undetectable.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explained {
    pub file: String,
    /// The line where the change begins, without its indentation.
    pub line: String,
    pub kind: Kind,
    /// The code after the change; without it, the entry matches every change of this kind in the line.
    pub after: Option<String>,
    pub reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default, rename = "mutant")]
    mutants: Vec<Explained>,
}

/// Reads a list.
pub fn read(path: &Path) -> Result<Vec<Explained>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let list: List = toml::from_str(&text).map_err(|error| failed(&error))?;
    match list.mutants.iter().find(|entry| entry.reason.trim().is_empty()) {
        Some(entry) => Err(failed(&format!("`{}` has no reason", entry.line))),
        None => Ok(list.mutants),
    }
}

impl Explained {
    /// Returns whether this entry matches the mutant.
    pub fn is_of(&self, mutant: &Mutant) -> bool {
        (&self.file, &self.line, self.kind) == (&mutant.file, &mutant.text, mutant.kind)
            && self.after.as_ref().is_none_or(|after| *after == mutant.after)
    }
}
