//! Fences of a batch, fences and lines of a removed range.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, Ordering::Relaxed};

use bristlecone::lab::{AnyMedium, pool_on_any};
use bristlecone::{Design, Domain, Pool};
use bristlecone_pm::{Geometry, Medium, Native, PoolFile, Region, Step};

/// Numbers of fences and of flushed lines.
#[derive(Default)]
struct Counts([AtomicU64; 2]);

impl Counts {
    /// Returns the numbers of a call.
    fn of(&self, call: impl FnOnce()) -> [u64; 2] {
        let now = || self.0.each_ref().map(|count| count.load(Relaxed));
        let before = now();
        call();
        let after = now();
        [after[0] - before[0], after[1] - before[1]]
    }
}

/// A medium that counts.
struct Counting(Native, Arc<Counts>);

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
        let (first, end) = (start as usize / 64, (start as usize + bytes).div_ceil(64));
        self.1.0[1].fetch_add((end - first) as u64, Relaxed);
        self.0.flush_lines(start, bytes, step);
    }
    fn drain(&self, step: Step) {
        self.1.0[0].fetch_add(1, Relaxed);
        self.0.drain(step);
    }
    fn order_line(&self) {
        self.0.order_line();
    }
}

/// Returns a pool whose fences and flushed lines are counted.
fn counted_pool() -> (Pool, Arc<Counts>) {
    let geometry = Geometry { chunk_bytes: 2 << 20, chunks_max: 32, trees_max: 4 };
    let region = Region::memory(geometry.max_bytes()).unwrap();
    let counts = Arc::new(Counts::default());
    let medium: AnyMedium = Box::new(Counting(Native::new(Domain::Adr), Arc::clone(&counts)));
    let file = PoolFile::create_in(region, geometry, Domain::Adr, medium).unwrap();
    (pool_on_any(file).unwrap(), counts)
}

#[test]
fn a_batch_of_updates_has_three_fences_however_many_keys() {
    let (pool, counts) = counted_pool();
    let tree = pool.tree_options("t").design(Design::SsTree).create::<u64, u64>().unwrap();
    (0..10_000).for_each(|key| _ = tree.insert(key, 0).unwrap());
    // The first one creates the log.
    let commit = |keys: u64, value: u64| {
        let mut batch = pool.batch();
        (0..keys).for_each(|key| _ = batch.insert(&tree, key * 600, value));
        counts.of(|| batch.commit().unwrap())[0]
    };
    commit(1, 1);
    let counted: Vec<u64> = [1, 2, 4, 8, 16].map(|keys| commit(keys, keys)).into();
    assert_eq!(counted, [3; 5]);
    (0..16).for_each(|key| assert_eq!(tree.get(key * 600).unwrap(), Some(16)));
    // A transfer: two lookups, two updates.
    let transfer = |tx: &bristlecone::Transaction| {
        let (a, b) = (tx.get(&tree, 1)?.unwrap_or(0), tx.get(&tree, 5000)?.unwrap_or(0));
        tx.insert(&tree, 1, a + 1)?;
        tx.insert(&tree, 5000, b + 1)
    };
    assert_eq!(counts.of(|| pool.transaction(transfer).unwrap())[0], 3);
}

/// The removal of 1,000 of 10,000 words, one by one and as a range: the range has no fence or line more per item.
#[test]
fn a_removed_range_costs_its_record_more_than_its_items_at_most() {
    for &design in Design::ALL {
        let removed = |by_range: bool| {
            let (pool, counts) = counted_pool();
            let tree = pool.tree_options("t").design(design).create::<u64, u64>().unwrap();
            (0..10_000).for_each(|key| _ = tree.insert(key * 7919 % 10_007, 0).unwrap());
            // The first commit creates the log.
            let mut first = pool.batch();
            first.insert(&tree, u64::MAX, 1);
            first.commit().unwrap();
            let keys: Vec<u64> = tree.range(4000..5000).map(|item| item.unwrap().0).collect();
            let counted = counts.of(|| match by_range {
                true => assert_eq!(tree.remove_range(4000..5000).unwrap(), keys.len() as u64),
                false => keys.iter().for_each(|key| _ = tree.remove(*key).unwrap()),
            });
            assert_eq!(tree.len().unwrap(), 10_001 - keys.len() as u64);
            (keys.len(), counted)
        };
        let (keys, [fences, lines]) = removed(false);
        let (_, [fences_of_range, lines_of_range]) = removed(true);
        println!(
            "{design}: {keys} keys one by one: {fences} fences, {lines} lines; \
             as a range: {fences_of_range} fences, {lines_of_range} lines"
        );
        assert!(fences_of_range <= fences + 2, "{design}");
        assert!(lines_of_range <= lines + 3, "{design}");
    }
}
