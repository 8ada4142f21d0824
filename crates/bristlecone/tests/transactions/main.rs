//! Batches, transactions and snapshots, through the public interface.

mod bank;
mod batches;
mod domains;
mod ranges;
mod snapshots;
mod transactions;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bristlecone::{Design, Domain, Pool, PoolOptions};
use bristlecone_matrix::{lose_pages, remove_pool};
use bristlecone_random::mix;

/// A unique path; the file is removed with it.
struct Scratch(PathBuf);

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Scratch {
    fn new() -> Self {
        let number = NEXT.fetch_add(1, Relaxed);
        let path = format!("/dev/shm/bristlecone-transactions-{}-{number}.pool", std::process::id());
        remove_pool(path.as_ref());
        Self(path.into())
    }

    fn options(&self) -> PoolOptions {
        domains::options().max_bytes(256 << 20).create(true)
    }

    fn open(&self) -> Pool {
        self.options().open(&self.0).unwrap()
    }

    /// Ends a pool, whose trees are closed, as a crash does. Of a pool with a journal, every other crash is a power
    /// failure, which takes the pool's pages with it.
    fn crash(&self, pool: Pool) {
        static CRASHES: AtomicU64 = AtomicU64::new(0);
        let has_journal = pool.info().domain == Domain::Journal;
        pool.simulate_crash();
        if has_journal && CRASHES.fetch_add(1, Relaxed).is_multiple_of(2) {
            lose_pages(&self.0);
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove_pool(&self.0);
    }
}

/// Each design with the next one.
fn pairs() -> impl Iterator<Item = (Design, Design)> {
    Design::ALL.iter().copied().zip(Design::ALL.iter().copied().cycle().skip(1))
}
