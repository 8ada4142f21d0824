//! Temporary pools: created in shared memory and always removed afterwards.

use std::path::{Path, PathBuf};

use crate::interrupt;

/// A pool file that is removed when this is dropped, unless it is to be kept.
pub struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// Returns the given path, or a new one in shared memory. Creates nothing yet.
    pub fn new(asked: Option<&Path>, purpose: &str, keep: bool) -> Self {
        let own = || {
            let memory = Path::new("/dev/shm");
            let directory = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
            directory.join(format!("bristlecone-{purpose}-{}.pool", std::process::id()))
        };
        Self { path: asked.map_or_else(own, Path::to_owned), keep }
    }

    /// Returns the path of the pool.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records that this run created the file and may remove it.
    pub fn created(&self) {
        if !self.keep {
            interrupt::remove_at_exit(Some(&self.path));
        }
    }

    /// Removes the file, if this run created it.
    pub fn remove(&self) {
        if interrupt::remove_at_exit(None) {
            interrupt::remove_pool(&self.path);
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}
