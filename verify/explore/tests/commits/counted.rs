//! Fences of a batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, Ordering::Relaxed};

use bristlecone::lab::{AnyMedium, pool_on_any};
use bristlecone::{Design, Domain};
use bristlecone_pm::{Geometry, Medium, Native, PoolFile, Region, Step};

/// A medium that counts its fences.
struct Counting(Native, Arc<AtomicU64>);

impl Medium for Counting {
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        self.0.load(cell, order)
    }
    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        self.0.store(cell, value, order);
    }
    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange(cell, current, new)
    }
    fn flush_lines(&self, start: *const u8, bytes: usize, step: Step) {
        self.0.flush_lines(start, bytes, step);
    }
    fn drain(&self, step: Step) {
        self.1.fetch_add(1, Relaxed);
        self.0.drain(step);
    }
    fn order_line(&self) {
        self.0.order_line();
    }
}

#[test]
fn a_batch_of_updates_has_three_fences_however_many_keys() {
    let geometry = Geometry { chunk_bytes: 2 << 20, chunks_max: 32, trees_max: 4 };
    let region = Region::memory(geometry.max_bytes()).unwrap();
    let fences = Arc::new(AtomicU64::new(0));
    let medium: AnyMedium = Box::new(Counting(Native::new(Domain::Adr), Arc::clone(&fences)));
    let pool = pool_on_any(PoolFile::create_in(region, geometry, Domain::Adr, medium).unwrap()).unwrap();
    let tree = pool.tree_options("t").design(Design::SsTree).create::<u64, u64>().unwrap();
    (0..10_000).for_each(|key| _ = tree.insert(key, 0).unwrap());
    // The first one creates the log.
    let commit = |keys: u64, value: u64| {
        let mut batch = pool.batch();
        (0..keys).for_each(|key| _ = batch.insert(&tree, key * 600, value));
        let before = fences.load(Relaxed);
        batch.commit().unwrap();
        fences.load(Relaxed) - before
    };
    commit(1, 1);
    let counted: Vec<u64> = [1, 2, 4, 8, 16].map(|keys| commit(keys, keys)).into();
    assert_eq!(counted, [3; 5]);
    (0..16).for_each(|key| assert_eq!(tree.get(key * 600).unwrap(), Some(16)));
    // A transfer: two lookups, two updates.
    let before = fences.load(Relaxed);
    let transfer = pool.transaction(|tx| {
        let (a, b) = (tx.get(&tree, 1)?.unwrap_or(0), tx.get(&tree, 5000)?.unwrap_or(0));
        tx.insert(&tree, 1, a + 1)?;
        tx.insert(&tree, 5000, b + 1)
    });
    transfer.unwrap();
    assert_eq!(fences.load(Relaxed) - before, 3);
}
