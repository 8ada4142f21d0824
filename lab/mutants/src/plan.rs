//! The table of mutated files and of the tests that own them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The built-in table.
pub const OWN: &str = include_str!("../owners.toml");

/// The table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub host: Host,
    #[serde(rename = "owner")]
    pub owners: Vec<Owner>,
}

/// The crate on which all mutated crates depend: it gets the module that checks which mutant is on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its folder.
    pub path: String,
    /// Its name in paths.
    pub name: String,
}

/// Files, and the tests that should detect their mutants.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// Files, or folders if they end in `/`.
    pub files: Vec<String>,
    /// `package/target`, and what the tests' names contain if only some are meant.
    pub tests: Vec<String>,
}

/// The tests of one program that a line of the table names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tests {
    pub package: String,
    pub target: String,
    pub filter: String,
}

impl Plan {
    /// Reads a table.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plan: Self = toml::from_str(text).map_err(|error| format!("the table of owners: {error}"))?;
        plan.owners.iter().try_for_each(|owner| owner.tests().map(drop))?;
        Ok(plan)
    }

    /// Returns the owner of a file: the first one that names it.
    pub fn owner(&self, file: &str) -> Option<&Owner> {
        let names = |name: &String| name == file || (name.ends_with('/') && file.starts_with(name.as_str()));
        self.owners.iter().find(|owner| owner.files.iter().any(names))
    }

    /// Returns the files to mutate in the workspace at `root`, in order. Test modules are excluded.
    pub fn files(&self, root: &Path) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        for name in self.owners.iter().flat_map(|owner| &owner.files) {
            let before = found.len();
            collect(root, &root.join(name), &mut found)?;
            if found.len() == before {
                return Err(format!("the table of owners names {name}, which has no source files"));
            }
        }
        found.sort();
        found.dedup();
        Ok(found)
    }
}

fn collect(root: &Path, path: &Path, found: &mut Vec<String>) -> Result<(), String> {
    if path.is_dir() {
        for inner in entries(path)? {
            collect(root, &inner, found)?;
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") && path.is_file() {
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        if !name.ends_with("tests.rs") && !name.contains("/tests/") {
            found.push(name);
        }
    }
    Ok(())
}

/// Returns the entries of a folder.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let read = || std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect();
    let read: std::io::Result<Vec<PathBuf>> = read();
    read.map_err(|error| format!("{}: {error}", folder.display()))
}

impl Owner {
    /// Returns the tests that own the files.
    pub fn tests(&self) -> Result<Vec<Tests>, String> {
        self.tests.iter().map(|line| Tests::parse(line)).collect()
    }
}

impl Tests {
    fn parse(line: &str) -> Result<Self, String> {
        let (program, filter) = line.split_once(' ').unwrap_or((line, ""));
        let (package, target) =
            program.split_once('/').ok_or_else(|| format!("`{line}` is not `package/target filter`"))?;
        Ok(Self { package: package.to_owned(), target: target.to_owned(), filter: filter.to_owned() })
    }
}

/// Returns whether a name matches a pattern in which `*` matches anything; a pattern without `*`
/// may match anywhere.
pub fn fits(pattern: &str, name: &str) -> bool {
    if !pattern.contains('*') {
        return name.contains(pattern);
    }
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names_and_words_fit_anywhere() {
        for (pattern, name, expected) in [
            ("wotree", "index/designs/wotree/log.rs", true),
            ("*/log.rs", "index/designs/wotree/log.rs", true),
            ("index/designs/*/log.rs", "index/designs/wotree/log.rs", true),
            ("index/designs/*/log", "index/designs/wotree/log.rs", false),
            ("*/wotree/*", "index/designs/wotree/log.rs", true),
            ("*/sstree/*", "index/designs/wotree/log.rs", false),
            ("*g.rs*g.rs", "index/designs/wotree/log.rs", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_table_names_files_that_exist_and_each_has_an_owner() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let plan = Plan::parse(OWN).unwrap();
        let files = plan.files(&root).unwrap();
        assert!(files.len() > 50);
        assert!(files.iter().all(|file| plan.owner(file).is_some_and(|owner| !owner.tests.is_empty())));
    }
}
