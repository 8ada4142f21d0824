//! Batches, transactions and snapshots, through the public interface.

mod bank;
mod batches;
mod snapshots;
mod transactions;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bristlecone::{Design, Pool, PoolOptions};
use bristlecone_random::mix;

/// A unique path; the file is removed with it.
struct Scratch(PathBuf);

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Scratch {
    fn new() -> Self {
        let number = NEXT.fetch_add(1, Relaxed);
        let path = format!("/dev/shm/bristlecone-transactions-{}-{number}.pool", std::process::id());
        let _ = std::fs::remove_file(&path);
        Self(path.into())
    }

    fn options(&self) -> PoolOptions {
        Pool::options().max_bytes(256 << 20).create(true)
    }

    fn open(&self) -> Pool {
        self.options().open(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Each design with the next one.
fn pairs() -> impl Iterator<Item = (Design, Design)> {
    Design::ALL.iter().copied().zip(Design::ALL.iter().copied().cycle().skip(1))
}
