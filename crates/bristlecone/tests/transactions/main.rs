//! Batches, transactions and snapshots, through the public face.

mod bank;
mod batches;
mod snapshots;
mod transactions;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bristlecone::{Design, Pool, PoolOptions};

/// A path that no other test has; the file goes with it.
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

/// Each design beside the next one.
fn pairs() -> impl Iterator<Item = (Design, Design)> {
    Design::ALL.iter().copied().zip(Design::ALL.iter().copied().cycle().skip(1))
}

/// A bijection of 64-bit numbers that looks like noise.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
