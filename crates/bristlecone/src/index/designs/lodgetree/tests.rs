//! The overhead of a LodgeTree beside its items: the log, DRAM, and the waiting time of its readers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, Ordering::Relaxed};

use bristlecone_pm::sync::{epoch, wait};
use bristlecone_pm::{Domain, Native, Step};

use super::*;
use crate::index::parts::buffered::testing::{self, key};
use crate::index::parts::codec::{Inline, Record};
use crate::index::testing::WordTree;
use crate::index::{Inspect, WriteMode};

type Tree = LodgeTree<Inline, Native>;

const THREADS: u64 = 4;
const KEYS: u64 = 60_000;

fn tree(options: LodgeTreeOptions) -> Tree {
    testing::tree(&testing::pool(1 << 30, Native::new(Domain::Process)), "t", options)
}

/// Options with such small logs that dozens are in use.
fn short_logs(log_entries: u64) -> LodgeTreeOptions {
    LodgeTreeOptions { log_entries, ..LodgeTreeOptions::default() }
}

/// The state of the log at one point in time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    logs: usize,
    /// Number of logs that the items in all buffers would just fill.
    full: usize,
    /// Maximum number of logs.
    most: usize,
}

fn sample(tree: &Tree) -> Sample {
    let mut items = 0;
    tree.inner.for_each_leaf(|_, id| items += tree.nodes.get(id).counts().buffered);
    let full = items.div_ceil(tree.versions.log.chunk_entries());
    Sample { logs: tree.versions.log.chunks_in_use(), full, most: most_logs(tree) }
}

fn most_logs(tree: &Tree) -> usize {
    // Threads that found space at the same time take a log each.
    tree.logs_max() + THREADS as usize
}

/// Writes keys computed by `draw` from the number of a write, in several rounds on all threads; returns the state
/// of the log after each.
fn over_time(tree: &Tree, rounds: u64, draw: impl Fn(u64) -> u64 + Sync) -> Vec<Sample> {
    let run = |round: u64| {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let draw = &draw;
                scope.spawn(move || {
                    for n in (round * KEYS + thread..(round + 1) * KEYS).step_by(THREADS as usize) {
                        tree.write_word(draw(n), n, WriteMode::Upsert).unwrap();
                        if n % 16 < THREADS {
                            assert!(tree.versions.log.chunks_in_use() <= most_logs(tree));
                        }
                    }
                });
            }
        });
        sample(tree)
    };
    let samples: Vec<_> = (0..rounds).map(run).collect();
    assert_eq!(tree.check(), []);
    samples
}

/// Verifies that the log size depends only on the buffered items, not on the duration.
fn follows(name: &str, samples: &[Sample]) {
    for sample in samples {
        println!("{name}: {sample:?}");
        assert!(sample.logs <= sample.most && sample.most <= 8 * sample.full, "{name}: {sample:?}");
    }
}

#[test]
fn the_log_follows_what_is_buffered() {
    let tree = tree(short_logs(100));
    // The first round fills the tree.
    follows("uniform", &over_time(&tree, 8, |n| key(n * 7919 % KEYS)));
    // 80 % of the writes go to 20 % of the keys.
    follows(
        "skewed",
        &over_time(&tree, 8, |n| key(if n % 5 < 4 { n * 7919 % (KEYS / 5) } else { n * 31 % KEYS })),
    );
    // A thousand keys for a while, then others.
    follows("bursty", &over_time(&tree, 8, |n| key((n / 20_000 * 1000 + n % 1000) % KEYS)));
}

/// A single thread never reaches the bound: a compaction pass ends before the next log is full.
#[test]
fn compaction_passes_end_before_logs_run_out() {
    for log_entries in [2000, 4000, 8000] {
        let tree = tree(short_logs(log_entries));
        for n in 0..8 * KEYS {
            tree.upsert_word(key(n), n).unwrap();
            assert!(tree.reserve_entry(false).is_some(), "no log after {n} writes, logs of {log_entries}");
        }
        assert!(tree.versions.log.chunks_in_use() > 1);
    }
}

/// Each log has one item in a node of its own, where no write flushes it.
#[test]
fn old_entries_do_not_pin_the_log() {
    let tree = tree(short_logs(300));
    over_time(&tree, 1, key);
    let (mut old_entries, most) = (Vec::new(), most_logs(&tree));
    tree.inner.for_each_leaf(|fence, _| old_entries.extend(fence.filter(|fence| *fence < 3 << 62)));
    assert!(old_entries.len() > 3 * most / 2, "{} old_entries for {most} logs", old_entries.len());
    for (n, old) in (0..).zip(&old_entries) {
        tree.write_word(*old, n, WriteMode::Upsert).unwrap();
        for n in 0..300 {
            tree.write_word(key(n) | 3 << 62, n, WriteMode::Upsert).unwrap();
        }
        assert!(tree.versions.log.chunks_in_use() <= most_logs(&tree));
    }
    assert_eq!(tree.check(), []);
    let (mut logs, mut left) = (std::collections::BTreeSet::new(), 0);
    for old in &old_entries {
        let id = tree.inner.find(*old, &(), |node| tree.version_of(node)).0;
        let item = tree.nodes.get(id).all_buffered().find(|item| item.key == *old);
        left += usize::from(item.is_some());
        logs.extend(item.map(|item| item.log));
    }
    println!("{left} of {} old_entries are buffered, in {} logs", old_entries.len(), logs.len());
    assert!(left * 2 > old_entries.len() && logs.len() * 2 < left, "{left} old_entries, {} logs", logs.len());
}

/// The paper: 25 to 58 % of the last-level inner nodes is empty, and serves as buffer. Every split of a node leaves
/// space; nodes behind an ascending load stay as the split made them.
#[test]
fn a_quarter_to_more_than_half_of_the_nodes_is_buffer() {
    for name in ["uniform", "ascending", "descending"] {
        let order = |n| match name {
            "uniform" => key(n),
            "ascending" => n,
            _ => u64::MAX - n,
        };
        let tree = tree(LodgeTreeOptions::default());
        for n in 0..5 * KEYS {
            tree.write_word(order(n), n, WriteMode::Upsert).unwrap();
        }
        let (mut slots, mut index, mut buffered) = (0, 0, 0);
        tree.inner.for_each_leaf(|_, id| {
            let counts = tree.nodes.get(id).counts();
            slots += tree.node_slots;
            index += counts.index;
            buffered += counts.buffered;
        });
        let share = |part: usize| part as f64 / slots as f64;
        let (buffer, full) = (1.0 - share(index), share(buffered));
        println!("{name}: {:.1} % are buffer, {:.1} % hold items", 100.0 * buffer, 100.0 * full);
        let most = if name == "uniform" { 0.58 } else { 0.65 };
        assert!((0.25..=most).contains(&buffer), "{name}: {buffer}");
    }
}

/// Three threads continuously write to one node, and flush it.
#[test]
fn readers_get_through_to_a_node_that_is_written_all_the_time() {
    let tree = tree(LodgeTreeOptions::default());
    let keys = 64;
    for n in 0..keys {
        tree.write_word(n, n, WriteMode::Upsert).unwrap();
    }
    let done = AtomicBool::new(false);
    let mut waits = std::thread::scope(|scope| {
        for thread in 1..THREADS {
            let (tree, done) = (&tree, &done);
            scope.spawn(move || {
                for n in (0..).take_while(|_| !done.load(Relaxed)) {
                    tree.write_word((n * thread) % keys, n, WriteMode::Upsert).unwrap();
                }
            });
        }
        let read = |n: u64| {
            let began = std::time::Instant::now();
            assert!(tree.read::<Inline, _>(n % keys, |value| value).unwrap().is_some());
            began.elapsed().as_nanos()
        };
        let waits: Vec<_> = (0..200_000).map(read).collect();
        done.store(true, Relaxed);
        waits
    });
    waits.sort_unstable();
    let part = |per_mille: usize| waits[(waits.len() - 1) * per_mille / 1000];
    println!("a get took {} ns, p99 {}, p99.9 {}, at most {}", part(500), part(990), part(999), part(1000));
}

/// A medium on which the first thread that empties a log, once armed, waits before its fence.
struct Gate {
    native: Native,
    armed: AtomicBool,
    is_waiting: AtomicBool,
    is_open: AtomicBool,
}

impl Medium for Gate {
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
        self.native.flush_lines(start, bytes, step);
    }

    fn drain(&self, step: Step) {
        if step == "log recycle.1" && self.armed.swap(false, Relaxed) {
            self.is_waiting.store(true, Relaxed);
            while !self.is_open.load(Relaxed) {
                std::thread::yield_now();
            }
        }
        self.native.drain(step);
    }

    fn order_line(&self) {
        self.native.order_line();
    }
}

/// One thread empties a log that lost its last needed entry, while another one runs a whole compaction pass that
/// does not include that log. The record of a key that its entries refer to must not be freed before the log is
/// empty.
#[test]
fn a_key_outlives_the_log_that_is_emptied_beside_a_compaction_pass() {
    let [armed, is_waiting, is_open] = [const { AtomicBool::new(false) }; 3];
    let gate = Gate { native: Native::new(Domain::Process), armed, is_waiting, is_open };
    let tree: LodgeTree<Record, Gate> = testing::tree(&testing::pool(64 << 20, gate), "t", short_logs(1));
    tree.upsert_word(b"goes", 1).unwrap();
    tree.remove_word(b"goes").unwrap();
    tree.upsert_word(b"stays", 2).unwrap();
    // The log of the removal is full, and is not needed once the removal is merged into the leaf.
    tree.inner.for_each_leaf(|_, id| tree.flush_what_fits(&tree.lock_if_any(id, |_| true).unwrap()));
    assert_eq!((tree.versions.log.keys_aside(), tree.keys.records.held()), (1, 0));
    let gate = tree.medium();
    gate.armed.store(true, Relaxed);
    let end_epochs = || (0..1000).for_each(|_| epoch::pin().flush());
    std::thread::scope(|scope| {
        scope.spawn(|| tree.versions.reuse());
        while !gate.is_waiting.load(Relaxed) {
            std::thread::yield_now();
        }
        tree.compact_all(&mut wait::lock(&tree.versions.pass));
        assert_eq!(tree.versions.log.keys_aside(), 0, "the pass has let go of the key");
        end_epochs();
        assert_eq!(tree.keys.records.held(), 1, "its record is free, and the log names it");
        gate.is_open.store(true, Relaxed);
    });
    while tree.keys.records.held() > 0 {
        end_epochs();
    }
    assert_eq!(tree.check(), []);
}
