//! Closing a pool: after `Ok` no handle is left that could write to it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bristlecone::{Domain, Error, Pool, Tree};
use bristlecone_pm::failpoint;

use crate::common::{CONFIGURATIONS, Plant, Scratch};

#[test]
fn a_pool_with_other_handles_stays_open_for_them() {
    for shape in CONFIGURATIONS {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree: Tree<u64, u64> = shape.create(&pool, "t").unwrap();
        let (clone, options) = (pool.clone(), pool.tree_options("t"));
        let refused = pool.close().unwrap_err();
        assert!(matches!(refused.error(), Error::TreeInUse { name } if name == "t"), "{refused}");
        let pool = refused.into_pool();
        drop(tree);
        let (pool, error) = pool.close().unwrap_err().into_parts();
        assert!(matches!(error, Error::PoolInUse { handles: 2 }), "{error}");
        // The error keeps the pool open, and the returned handle works like any other.
        drop(pool.tree_options("t"));
        drop(pool);
        let tree: Tree<u64, u64> = options.open().unwrap();
        tree.insert(1, 2).unwrap();
        drop((options, tree));
        assert!(matches!(scratch.try_open(), Err(Error::InUse { .. })));
        clone.close().unwrap();
        let pool = scratch.open();
        assert!(pool.info().was_clean);
        let tree: Tree<u64, u64> = shape.open(&pool, "t").unwrap();
        assert_eq!(tree.get(1).unwrap(), Some(2));
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
                            assert_eq!(pool.tree::<u64, u64>("t").unwrap().len().unwrap(), THREADS * round);
                        }
                        Err(refused) => {
                            let error = Error::from(refused);
                            let in_use = matches!(error, Error::PoolInUse { .. } | Error::TreeInUse { .. });
                            assert!(in_use, "{error}");
                        }
                    }
                });
            }
            drop(pool);
        });
        assert!(closed.load(Relaxed) <= 1);
        told += closed.load(Relaxed);
        let pool = scratch.open();
        assert!(pool.info().was_clean);
        assert_eq!(pool.tree::<u64, u64>("t").unwrap().len().unwrap(), THREADS * round);
    }
    assert!(told > 0, "no thread was ever the last one");
}

/// A thread whose close fails keeps its handle and retries, until it has the last one.
#[test]
fn a_thread_that_closes_until_it_may_has_every_write_of_the_others() {
    const THREADS: u64 = 3;
    for keys in [1, 200] {
        let scratch = Scratch::new();
        let mut pool = scratch.open();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let pool = pool.clone();
                scope.spawn(move || {
                    let tree = pool.tree::<u64, u64>("t").unwrap();
                    for key in 0..keys {
                        tree.insert(thread << 32 | key, key).unwrap();
                    }
                });
            }
            loop {
                match pool.close() {
                    Ok(()) => break,
                    Err(refused) => pool = refused.into_pool(),
                }
                std::thread::yield_now();
            }
            // No other handle is left, whatever the threads still do.
            let pool = scratch.open();
            assert!(pool.info().was_clean);
            assert_eq!(pool.tree::<u64, u64>("t").unwrap().len().unwrap(), THREADS * keys);
        });
    }
}

/// If the sync fails, the pool is not closed: it remains in use, and a crash counts as one.
#[test]
fn a_pool_whose_file_cannot_be_synced_is_as_open_as_before() {
    let scratch = Scratch::new();
    let options = || Pool::options().max_bytes(64 << 20).domain(Domain::Msync);
    let pool = options().create(true).open(&scratch.0).unwrap();
    pool.tree::<u64, u64>("t").unwrap().insert(1, 2).unwrap();
    let mut refused = 0;
    let mut pool = Some(pool);
    for nth in 0.. {
        failpoint::refuse(nth, rustix::io::Errno::IO);
        let closed = pool.take().unwrap().close();
        if failpoint::cease() {
            closed.unwrap();
            break;
        }
        let (open, error) = closed.unwrap_err().into_parts();
        if matches!(error, Error::DurabilityLost) {
            // A medium that failed once is never trusted again.
            open.simulate_crash();
            pool = Some(options().open(&scratch.0).unwrap());
            continue;
        }
        refused += 1;
        open.tree::<u64, u64>("t").unwrap().insert(1, 2).unwrap();
        open.simulate_crash();
        pool = Some(options().open(&scratch.0).unwrap());
        assert!(!pool.as_ref().unwrap().info().was_clean, "a pool that was written is said to be closed");
    }
    assert_eq!(refused, 1);
    assert_eq!(scratch.open().tree::<u64, u64>("t").unwrap().get(1).unwrap(), Some(2));
}
