//! Pools for one run: created in shared memory, removed afterwards, whatever happens.

use std::path::{Path, PathBuf};

use crate::interrupt;

/// A pool file that goes when this is dropped, unless it is to be kept.
pub struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// Returns the path that was given, or one of our own in shared memory. Nothing is created yet.
    pub fn new(asked: Option<&Path>, purpose: &str, keep: bool) -> Self {
        let own = || {
            let memory = Path::new("/dev/shm");
            let directory = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
            directory.join(format!("bristlecone-{purpose}-{}.pool", std::process::id()))
        };
        Self { path: asked.map_or_else(own, Path::to_owned), keep }
    }

    /// Returns where the pool is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that the file was created by this run, and is ours from here on.
    pub fn created(&self) {
        if !self.keep {
            interrupt::remove_at_exit(Some(&self.path));
        }
    }

    /// Removes the file, if it is ours.
    pub fn remove(&self) {
        if interrupt::remove_at_exit(None) {
            // It may be gone already, which is what was wanted.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}
