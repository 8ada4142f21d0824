//! NBTree, operation by operation: one line written, one flushed, one read; none flushed where
//! caches survive; and the space of a key.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bristlecone::lab::{AnyMedium, pool_on_any};
use bristlecone::{Design, Domain, Error, Medium, Native, Tree};
use bristlecone_pm::{CHUNK_BYTES, Geometry, LINE_BYTES, PoolFile, Region, Step};
use bristlecone_random::mix;

use crate::common::swapped;

const KEYS: u64 = 200_000;

/// The accesses of one operation to the medium.
#[derive(Default, Debug)]
struct Done {
    read: BTreeSet<usize>,
    written: BTreeSet<usize>,
    flushed: usize,
    fences: usize,
    /// Whether it replaced or freed a leaf, or a chunk of leaves.
    replaced: bool,
}

#[derive(Clone)]
struct Watching(Arc<Native>, Arc<Mutex<Done>>);

impl Watching {
    fn done(&self) -> std::sync::MutexGuard<'_, Done> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line(cell: &AtomicU64) -> usize {
    std::ptr::from_ref(cell).addr() / LINE_BYTES
}

impl Medium for Watching {
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        self.done().read.insert(line(cell));
        self.0.load(cell, order)
    }

    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        self.done().written.insert(line(cell));
        self.0.store(cell, value, order);
    }

    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        let mut done = self.done();
        done.read.insert(line(cell));
        done.written.insert(line(cell));
        self.0.compare_exchange(cell, current, new)
    }

    fn flush_lines(&self, start: *const u8, bytes: usize, step: Step) {
        let mut done = self.done();
        done.flushed += (start.addr() % LINE_BYTES + bytes).div_ceil(LINE_BYTES);
        // The pool allocated or freed a chunk.
        done.replaced |= !step.starts_with("nbtree");
        self.0.flush_lines(start, bytes, step);
    }

    fn drain(&self, step: Step) {
        self.done().fences += 1;
        self.0.drain(step);
    }

    fn order_line(&self) {
        self.0.order_line();
    }

    fn reached(&self, step: Step) {
        self.done().replaced |= matches!(step, "nbtree copy.1" | "nbtree free.1");
    }
}

struct Bench {
    medium: Watching,
    tree: Tree<u64, u64>,
}

impl Bench {
    fn new(domain: Domain) -> Self {
        let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max: 16, trees_max: 1 };
        let medium = Watching(Arc::new(Native::new(domain)), Arc::default());
        let region = Region::memory(geometry.max_bytes()).unwrap();
        let watched: AnyMedium = Box::new(medium.clone());
        let pool = pool_on_any(PoolFile::create_in(region, geometry, domain, watched).unwrap()).unwrap();
        let tree = pool.tree_options("t").design(Design::NbTree).create().unwrap();
        Self { medium, tree }
    }

    /// Runs the operation for every key. Except for those that replaced a leaf, every operation
    /// must flush and fence exactly `flushes` times and write exactly `written` lines, and 95 %
    /// must read at most one line.
    fn each(
        &self,
        name: &str,
        (flushes, written): (usize, usize),
        run: impl Fn(&Tree<u64, u64>, u64, u64) -> Result<bool, Error>,
    ) {
        let (mut alone, mut replaced) = (0_u64, 0_u64);
        for i in (1..=KEYS).map(|i| 1 + i * 7919 % KEYS) {
            *self.medium.done() = Done::default();
            assert!(run(&self.tree, mix(i), i).unwrap());
            let done = std::mem::take(&mut *self.medium.done());
            if done.replaced {
                replaced += 1;
                continue;
            }
            alone += u64::from(done.read.len() <= 1);
            let exactly = (done.flushed, done.fences, done.written.len());
            assert_eq!(exactly, (flushes, flushes, written), "{name}: {done:?}");
        }
        let share = alone as f64 / (KEYS - replaced) as f64;
        println!("{name}: {share:.4} read one line at most, {replaced} replaced or freed a leaf");
        assert!(share >= 0.95, "{name}: {share} read one line at most");
        assert!(replaced * 20 < KEYS, "{name}: {replaced} replaced a leaf");
    }

    fn all(&self, flushes: usize) {
        self.each("insert", (flushes, 1), |tree, key, value| Ok(tree.insert(key, value)?.is_none()));
        self.each("get", (0, 0), |tree, key, value| Ok(tree.get(key).unwrap() == Some(value)));
        self.each("get nothing", (0, 0), |tree, key, _| Ok(tree.get(key ^ 1).unwrap().is_none()));
        self.each("update", (flushes, 1), |tree, key, value| Ok(tree.update(key, value + 1)?.is_some()));
        self.each("upsert", (flushes, 1), |tree, key, value| Ok(tree.insert(key, value + 2)?.is_some()));
        self.each("swap", (flushes, 1), |tree, key, value| {
            tree.compare_and_swap(key, Some(value + 2), Some(value))?;
            Ok(true)
        });
    }
}

#[test]
fn one_line_and_one_flush() {
    let bench = Bench::new(Domain::Adr);
    bench.all(1);
    let stats = bench.tree.stats().unwrap();
    // Both in whole chunks.
    let ratio = stats.pm_bytes as f64 / stats.dram_bytes as f64;
    println!("PM : DRAM = {ratio:.2} : 1, {:.1} B of DRAM a key", stats.dram_bytes as f64 / KEYS as f64);
    assert!(ratio >= 6.0, "PM : DRAM = {ratio}");
    bench.each("remove nothing", (0, 0), |tree, key, _| Ok(tree.remove(key ^ 1)?.is_none()));
    bench.each("remove another", (0, 0), |tree, key, value| {
        Ok(swapped(tree.compare_and_swap(key, Some(value + 1), None)) == Err(Some(value)))
    });
    bench.each("remove", (1, 1), |tree, key, value| Ok(tree.remove(key)? == Some(value)));
    // The index keeps its height, and the leaf.
    bench.each("insert and remove", (2, 1), |tree, key, value| {
        Ok(tree.insert(key, value)?.is_none() && tree.remove(key)? == Some(value))
    });
    bench.each("insert and remove if", (2, 1), |tree, key, value| {
        let inserted = tree.insert(key, value)?.is_none();
        Ok(inserted && tree.compare_and_swap(key, Some(value), None).is_ok())
    });
}

#[test]
fn no_flush_where_caches_survive() {
    Bench::new(Domain::Eadr).all(0);
}
