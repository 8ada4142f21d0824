//! Metrics of a pool: the counts must match the operations.

use crate::common::{Plant, Scratch, small};
use bristlecone::{Error, Metrics, Pool, Tree};

fn metrics(pool: &Pool) -> Metrics {
    pool.metrics().unwrap()
}

#[test]
fn commits_conflicts_and_snapshots_are_counted() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let mut batch = pool.batch();
    (0..100).for_each(|key| _ = batch.insert(&tree, key, key));
    batch.commit().unwrap();
    let mut refused = pool.batch();
    refused.expect(&tree, 1, None);
    refused.insert(&tree, 1, 7);
    assert!(matches!(refused.commit(), Err(Error::Conflict)));
    pool.transaction(|tx| tx.insert(&tree, 1, 2)).unwrap();
    let before = metrics(&pool);
    assert_eq!((before.commits, before.conflicts), (2, 1));
    let view = pool.snapshot().unwrap();
    (0..10_000).for_each(|key| tree.upsert(key, 0).unwrap());
    let during = metrics(&pool).snapshot_bytes;
    assert!(during > before.snapshot_bytes + 160_000, "{during}");
    drop(view);
    // The small rest is freed with the next snapshot.
    assert!(metrics(&pool).snapshot_bytes <= 64 << 10);
}

#[test]
fn what_is_done_is_counted() {
    const THREADS: u64 = 3;
    const KEYS: u64 = 2000;
    for shape in small() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree: Tree<u64, u64> = shape.create(&pool, "t").unwrap();
        let before = metrics(&pool);
        assert_eq!((before.operations.unwrap().gets, before.splits), (0, 0), "{shape}");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let tree = &tree;
                scope.spawn(move || {
                    for key in (0..KEYS).map(|key| key * THREADS + thread) {
                        tree.insert(key, key).unwrap();
                        tree.upsert(key, key).unwrap();
                        tree.get(key).unwrap();
                        tree.contains_key(key).unwrap();
                    }
                });
            }
        });
        tree.compare_and_swap(0, Some(0), Some(1)).unwrap();
        tree.fetch_update(0, |_| Some(2)).unwrap();
        (0..10).for_each(|key| _ = tree.remove(key).unwrap());
        assert_eq!(
            tree.iter().map(Result::unwrap).count() as u64 + tree.count(..10).unwrap(),
            THREADS * KEYS - 10
        );
        let after = metrics(&pool);
        let counted = after.operations.unwrap();
        assert_eq!((counted.inserts, counted.upserts, counted.gets), (6000, 6000, 12_000), "{shape}");
        assert_eq!((counted.swaps, counted.removes, counted.scans), (2, 10, 2), "{shape}");
        assert!(after.flushes > before.flushes && after.fences > before.fences, "{shape}: {after:?}");
        assert!(after.splits > 50 && after.chunks_taken > 0, "{shape}: {after:?}");
        // Background threads of the tree may allocate and free chunks, so two consecutive calls may differ.
        let logs_agree = || {
            let (now, used) = (metrics(&pool).log_bytes, pool.usage("t").unwrap().log_bytes);
            now == used
        };
        assert!((0..1000).any(|_| logs_agree()), "{shape}: {after:?}");
        drop(tree);
        pool.close().unwrap();

        let pool = scratch.open();
        assert_eq!(metrics(&pool).recoveries, 0);
        let tree: Tree<u64, u64> = shape.open(&pool, "t").unwrap();
        let opened = metrics(&pool);
        assert_eq!((opened.recoveries, opened.operations.unwrap().inserts), (1, 0));
        assert!(opened.recovery_time.as_nanos() > 0 && tree.len().unwrap() == THREADS * KEYS - 10);
    }
}
