//! Closing a pool: after `Ok` no handle is left that could write to it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bristlecone::{Error, Tree};

use crate::common::{Plant, SHAPES, Scratch};

#[test]
fn a_pool_with_other_handles_stays_open_for_them() {
    for shape in SHAPES {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree: Tree<u64, u64> = shape.create(&pool, "t").unwrap();
        let (clone, options) = (pool.clone(), pool.tree_options("t"));
        let in_use = |error| matches!(error, Err(Error::TreeInUse { name }) if name == "t");
        assert!(in_use(pool.clone().close()));
        drop(tree);
        let answer = pool.close();
        assert!(matches!(answer, Err(Error::PoolInUse { handles: 2 })), "{answer:?}");
        // What the error is for: this goes on.
        let tree: Tree<u64, u64> = options.open().unwrap();
        tree.insert(1, 2).unwrap();
        drop((options, tree));
        assert!(matches!(scratch.try_open(), Err(Error::InUse { .. })));
        clone.close().unwrap();
        let pool = scratch.open();
        assert!(pool.info().was_clean);
        let tree: Tree<u64, u64> = shape.open(&pool, "t").unwrap();
        assert_eq!(tree.get(1), Some(2));
    }
}

#[test]
fn of_threads_that_close_at_the_same_time_one_at_most_is_told_ok() {
    const THREADS: u64 = 4;
    let mut told = 0;
    for round in 0..20 {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let closed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (pool, scratch, closed) = (pool.clone(), &scratch, &closed);
                scope.spawn(move || {
                    let tree = pool.tree::<u64, u64>("t").unwrap();
                    for key in 0..round {
                        tree.insert(thread << 32 | key, key).unwrap();
                    }
                    drop(tree);
                    match pool.close() {
                        Ok(()) => {
                            closed.fetch_add(1, Relaxed);
                            let pool = scratch.open();
                            assert!(pool.info().was_clean);
                            assert_eq!(pool.tree::<u64, u64>("t").unwrap().len(), THREADS * round);
                        }
                        Err(Error::PoolInUse { .. } | Error::TreeInUse { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                });
            }
            drop(pool);
        });
        assert!(closed.load(Relaxed) <= 1);
        told += closed.load(Relaxed);
        let pool = scratch.open();
        assert!(pool.info().was_clean);
        assert_eq!(pool.tree::<u64, u64>("t").unwrap().len(), THREADS * round);
    }
    assert!(told > 0, "no thread was ever the last one");
}
