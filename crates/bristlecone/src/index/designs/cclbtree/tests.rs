//! The log must stay bounded whatever happens to the thread that collects it, and uncounted items must be
//! counted on request.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bristlecone_pm::{Domain, Native};

use super::*;
use crate::index::parts::buffered::testing::{self, key};
use crate::index::parts::codec::Inline;
use crate::index::testing::WordTree;
use crate::index::{Inspect, WriteMode};

type Tree = CclBTree<Inline, Native>;

const THREADS: u64 = 4;

fn tree(max_bytes: u64, options: CclBTreeOptions) -> Tree {
    testing::tree(&testing::pool(max_bytes, Native::new(Domain::Process)), "t", options)
}

/// Returns a tree that believes its collector is running, although it is not.
fn with_idle_collector(tree: Tree) -> Tree {
    assert!(tree.collector.handle.set(Some(std::thread::spawn(|| {}))).is_ok());
    tree
}

/// Writes every key `rounds` times on all threads; returns the maximum number of log chunks beyond the
/// bound.
fn excess(tree: &Tree, keys: u64, rounds: u64) -> usize {
    let most = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let most = &most;
            scope.spawn(move || {
                for n in (0..rounds).flat_map(|_| (thread..keys).step_by(THREADS as usize)) {
                    tree.write_word(key(n), n, WriteMode::Upsert).unwrap();
                    // Read the current number first: the bound grows with the leaves that others split.
                    let owned = tree.log.chunks_owned();
                    let wanted = tree.log_chunks_wanted();
                    // One and a half before collection, one of copies, and for each thread two, and one that
                    // it takes while others do.
                    let bound = 2 * wanted + wanted / 2 + 3 * THREADS as usize + 2;
                    most.fetch_max(owned.saturating_sub(bound), Relaxed);
                }
            });
        }
    });
    for n in 0..keys {
        assert_eq!(tree.read::<Inline, _>(key(n), |value| value).unwrap(), Some(n));
    }
    assert_eq!(tree.verify(), []);
    most.into_inner()
}

#[test]
fn the_log_is_bounded_if_the_collector_never_runs() {
    let options = CclBTreeOptions { log_entries: 200, ..CclBTreeOptions::default() };
    let tree = with_idle_collector(tree(256 << 20, options));
    assert_eq!(excess(&tree, 60_000, 3), 0);
}

#[test]
fn the_log_is_bounded_if_the_collector_sleeps_amid_its_work() {
    let options = CclBTreeOptions { log_entries: 200, ..CclBTreeOptions::default() };
    let tree = with_idle_collector(tree(256 << 20, options));
    let asleep = tree.collection.hold();
    assert_eq!(excess(&tree, 60_000, 3), 0);
    drop(asleep);
}

/// An unneeded collector sleeps; a write without space collects everything once.
#[test]
fn what_the_log_can_give_back_is_given_back_once() {
    let options = CclBTreeOptions { log_entries: 40, ..CclBTreeOptions::default() };
    let tree = with_idle_collector(tree(64 << 20, options));
    assert!(!tree.core.collect_some(u32::MAX));
    (0..1000).for_each(|n| _ = tree.write_word(key(n % 3), n, WriteMode::Upsert).unwrap());
    let mut given = 0;
    while tree.core.reclaim_log(tree.log.reclaims()) {
        given += 1;
        assert!(given < 10, "the log gives without end");
    }
    // A thousand entries need at most three chunks.
    let kept = tree.log.chunks_in_use();
    assert!(given > 0 && kept <= 2, "the log has garbage, and keeps it: {given} times, {kept} chunks");
    assert!(!tree.core.collect_some(u32::MAX));
    assert_eq!(tree.verify(), []);
}

/// A few entries of each chunk of the log are needed: a write without space copies them.
#[test]
fn what_is_needed_of_the_log_is_carried_over_for_room() {
    let options = CclBTreeOptions { log_entries: 40, ..CclBTreeOptions::default() };
    let tree = with_idle_collector(tree(64 << 20, options));
    let write = |n| _ = tree.write_word(key(n), n, WriteMode::Upsert).unwrap();
    (0..2000).for_each(write);
    for n in 0..400 {
        write(n * 5);
        (0..40).for_each(|_| write(1999));
    }
    let before = tree.log.chunks_in_use();
    assert!(before > 6, "{before} chunks");
    (0..3).for_each(|_| _ = tree.core.reclaim_log(tree.log.reclaims()));
    let after = tree.log.chunks_in_use();
    assert!(after <= before / 2, "{after} chunks of {before}");
    assert!((0..2000).all(|n| tree.read::<Inline, _>(key(n), |value| value).unwrap() == Some(n)));
    assert_eq!(tree.verify(), []);
}

/// Log chunks of a few entries are mostly waste: the pool is always full, and the log must free its part in
/// time.
#[test]
fn a_pool_is_not_full_while_the_log_holds_garbage() {
    let options = CclBTreeOptions { log_entries: 40, leaf_slots: 4, ..CclBTreeOptions::default() };
    let tree = with_idle_collector(tree(16 << 20, options));
    // Leaves fill 5 of 8 chunks.
    assert_eq!(excess(&tree, 90_000, 3), 0);
}

/// Upserts that do not search the leaf leave their items uncounted, in leaves that are new, full, or have
/// the key.
#[test]
fn items_are_counted_when_a_thread_asks() {
    let options = CclBTreeOptions { collector_threads: 0, ..CclBTreeOptions::default() };
    let tree = tree(256 << 20, options);
    for round in 1..=3_u64 {
        let keys = round * 10_000;
        // Every third key is present already, but for those of the first round.
        (0..keys).step_by(3).for_each(|n| tree.upsert_word(key(n), round).unwrap());
        let uncounted = tree.promised.uncounted.sum();
        assert!(uncounted > tree.buffers.live() as u64 / 4, "{uncounted} leaves were not looked at");
        (0..keys).for_each(|n| tree.upsert_word(key(n), round).unwrap());
        (0..keys).step_by(2).for_each(|n| _ = tree.remove_word(key(n)).unwrap().unwrap());
        (1..keys).step_by(4).for_each(|n| tree.upsert_word(key(n), round).unwrap());
        (0..keys).step_by(2).for_each(|n| tree.upsert_word(key(n), round).unwrap());
        assert_eq!((tree.len().unwrap(), tree.promised.uncounted.sum()), (keys, 0));
        assert_eq!(tree.check(), []);
    }
}

/// Another tree takes all the space, including that for leaves and the log. Items in the tree must still be
/// changeable and removable, wherever they are.
#[test]
fn changes_and_removals_need_no_room() {
    let options = CclBTreeOptions { collector_threads: 0, ..CclBTreeOptions::default() };
    let tree = tree(40 << 20, options);
    let other =
        testing::tree::<_, _, Tree>(&tree.pool, "u", CclBTreeOptions { batch: 0, leaf_slots: 4, ..options });
    // Leaves nearly fill a chunk, and entries less than one: the leaves that will split must take another
    // one.
    let a_chunk = tree.leaves_per_chunk() as usize - 50;
    let keys = (0..)
        .find(|&n| {
            tree.upsert_word(key(n), n).unwrap();
            tree.buffers.live() >= a_chunk
        })
        .unwrap()
        + 1;
    let full = (0..).find_map(|n| other.upsert_word(key(n), n).err());
    assert!(matches!(full, Some(bristlecone_pm::Error::PoolFull { .. })), "{full:?}");
    let mut among_copies = 0;
    for round in 0..4 {
        for n in 0..keys {
            assert_eq!(
                tree.write_word(key(n), n ^ round, WriteMode::Update).unwrap().map(|old| old & !3),
                Some(n & !3)
            );
            among_copies += u64::from(tree.log.is_mixed());
        }
    }
    assert!(among_copies > 0, "there was room in the log");
    assert_eq!(tree.check(), []);
    for n in 0..keys {
        assert_eq!(tree.remove_word(key(n)).unwrap(), Some(n ^ 3), "{n}");
    }
    assert_eq!((tree.len().unwrap(), tree.check()), (0, vec![]));
}
