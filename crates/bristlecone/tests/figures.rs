//! Figures of SSTree that do not depend on the machine: space, and lines flushed per operation.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, Ordering::Relaxed};

use bristlecone::{Domain, Medium, Native, Pool};
use bristlecone_pm::{CHUNK_BYTES, Geometry, LINE_BYTES, PoolFile, Region, Step};
use common::Scratch;

const KEYS: u64 = 1_000_000;

/// A bijection of 64-bit numbers that looks like noise.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[test]
fn space_after_a_uniform_load_and_after_deleting_everything() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    for i in 1..=KEYS {
        tree.insert(mix(i), i).unwrap();
    }
    let stats = tree.stats();
    let (pm, dram) = (stats.pm_bytes as f64 / KEYS as f64, stats.dram_bytes as f64 / KEYS as f64);
    println!("{pm:.2} B of the pool and {dram:.2} B of DRAM a key");
    // The paper: 21 and 3.6. Ours is measured in whole chunks.
    assert!(pm <= 24.0, "{pm} bytes of the pool a key");
    assert!(dram <= 5.0, "{dram} bytes of DRAM a key");
    for i in 1..=KEYS {
        assert_eq!(tree.remove(mix(i)).unwrap(), Some(i));
    }
    let info = pool.info();
    assert!(info.chunks_free * 20 >= info.chunks * 18, "{} of {} free", info.chunks_free, info.chunks);
    assert_eq!((tree.stats().leaves, tree.check()), (1, vec![]));
}

/// Counts the lines flushed and the fences.
struct Counting {
    native: Native,
    lines: Arc<AtomicU64>,
    fences: Arc<AtomicU64>,
}

impl Medium for Counting {
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        self.native.load(cell, order)
    }

    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        self.native.store(cell, value, order);
    }

    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        self.native.compare_exchange(cell, current, new)
    }

    fn flush_lines(&self, start: *const u8, bytes: usize, step: Step) {
        self.lines.fetch_add(((start.addr() % LINE_BYTES + bytes).div_ceil(LINE_BYTES)) as u64, Relaxed);
        self.native.flush_lines(start, bytes, step);
    }

    fn drain(&self, step: Step) {
        self.fences.fetch_add(1, Relaxed);
        self.native.drain(step);
    }

    fn order_line(&self) {
        self.native.order_line();
    }
}

#[test]
fn lines_flushed_per_operation() {
    let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max: 64, trees_max: 2 };
    let (lines, fences) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let native = Native::new(Domain::Process);
    let medium = Counting { native, lines: lines.clone(), fences: fences.clone() };
    let region = Region::memory(geometry.max_bytes()).unwrap();
    let pool = Pool::on(PoolFile::create_in(region, geometry, Domain::Process, medium).unwrap(), 1);
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let count = |operation: &dyn Fn(u64)| {
        let before = (lines.load(Relaxed), fences.load(Relaxed));
        (1..=KEYS).for_each(operation);
        let per = |after: u64, before: u64| (after - before) as f64 / KEYS as f64;
        (per(lines.load(Relaxed), before.0), per(fences.load(Relaxed), before.1))
    };
    let insert = count(&|i| drop(tree.insert(mix(i), i)));
    let update = count(&|i| drop(tree.update(mix(i), i + 1)));
    let delete = count(&|i| drop(tree.remove(mix(i))));
    let absent = count(&|i| drop(tree.remove(mix(i + KEYS))));
    println!("(lines, fences): insert {insert:?}, update {update:?}, delete {delete:?}, absent {absent:?}");
    // The paper counts about 2 / 1 / 1. Ours draws the old leaf together after a split, which
    // costs lines and saves space; updates move items out of overflow subnodes.
    assert!(insert.0 <= 2.65, "{} lines an insert", insert.0);
    assert!(update.0 <= 1.9, "{} lines an update", update.0);
    assert!(delete.0 <= 1.2, "{} lines a delete", delete.0);
    assert_eq!(absent, (0.0, 0.0), "removing what is absent writes nothing");
}
