//! Checks the sources and documents of the whole workspace.

mod levels;
mod links;
mod modules;
mod prose;
mod steps;

use std::path::{Path, PathBuf};

/// Returns the folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// Returns the files in and below a folder whose names have this ending, in order.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder that can be read") {
            let path = entry.expect("an entry that can be read").path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the folder of every crate of the workspace.
fn crates() -> Vec<PathBuf> {
    let folders = ["crates", "verify", "lab"].map(|folder| std::fs::read_dir(root().join(folder)).unwrap());
    let entries = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut crates: Vec<_> = entries.filter(|path| path.join("src").is_dir()).collect();
    crates.sort();
    crates
}
