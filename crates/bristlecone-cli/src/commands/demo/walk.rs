//! The paths under a directory.

use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use indicatif::ProgressBar;

/// A path and its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub path: Vec<u8>,
    pub bytes: u64,
    /// Time of the last change in seconds since 1970.
    pub modified: i64,
}

impl Entry {
    fn new(path: OsString, meta: &Metadata) -> Self {
        Self { path: path.into_vec(), bytes: meta.len(), modified: meta.mtime() }
    }

    /// Returns the tree's value for the path: size and time, readable for people.
    pub fn value(&self) -> String {
        format!("{} {}", self.bytes, self.modified)
    }

    /// Returns the size stored in a value.
    pub fn bytes_of(value: &str) -> u64 {
        value.split_once(' ').and_then(|(bytes, _)| bytes.parse().ok()).unwrap_or(0)
    }
}

/// Returns everything under a directory, including itself. Symbolic links are entries and are not
/// followed; unreadable directories are skipped.
pub fn walk(directory: &Path, bar: &ProgressBar) -> Outcome<Vec<Entry>> {
    let meta = directory.metadata().map_err(|error| Failure::io(directory.display(), &error))?;
    if !meta.is_dir() {
        return Err(Failure::usage(format!("{} is not a directory", directory.display())));
    }
    let mut entries = vec![Entry::new(directory.as_os_str().to_owned(), &meta)];
    let mut directories: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        interrupt::check("nothing was indexed")?;
        let Ok(listed) = directory.read_dir() else { continue };
        for entry in listed.flatten() {
            let path = entry.path();
            let Ok(meta) = entry.metadata() else { continue };
            if path.as_os_str().len() > bristlecone::KEY_BYTES_MAX {
                continue;
            }
            entries.push(Entry::new(path.as_os_str().to_owned(), &meta));
            bar.inc(1);
            if meta.is_dir() {
                directories.push(path);
            }
        }
    }
    bar.finish_and_clear();
    Ok(entries)
}
